"""Gradients of the MMD as the server sees them, and the model that predicts them from records.

The data's part of ∇f_p(Y) (first line of Eq. 9) is a sum over records, row i of which is

    g_i = −(4/(n_p n_y)) Σ_j w(x_j, y_i) (x_j − y_i),    w(x, y) = (1/B) Σ_b γ_b exp(−γ_b ‖x − y‖²).

Everything here is computed by products of matrices, in float64; nothing of size records × landmarks × features is
formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting import Event, GaussianRelease, Unprotected, checks
from attacks.shared.registry import NothingToAttack
from dpfedvis.errors import DpfedvisError
from dpfedvis.mechanisms import ClippedGradientPerturbation, PublishedFedDL
from dpfedvis.numerics.kernels import Array, Kernel, as_points, check_same_features, squared_distances, squared_norms
from dpfedvis.numerics.mmd import Estimator, landmark_gradient, max_clip
from dpfedvis.runs.upload_reader import Recording

Float64 = npt.NDArray[np.float64]

# A gradient that carries no noise carries the rounding of float32, and of the sums behind it.
ROUNDING = 2.0**-21


class NothingToSee(NothingToAttack):
    """No gradients were given, or all are 0: they say nothing about records."""


@dataclass(frozen=True, eq=False)
class SeenGradient:
    """One upload of one client, and the landmarks that it answers.

    Parameters
    ----------
    landmarks : array of shape (n_y, m)
        Y as the server sent it.
    values : array of shape (n_y, m)
        The data's part of the gradient, with its noise.
    sigma : float
        Standard deviation of that noise, from the ledger; 0 for none.
    """

    landmarks: Float64
    values: Float64
    sigma: float = 0.0

    def __post_init__(self) -> None:
        Y, G = as_points(_floats(self.landmarks), "landmarks"), as_points(_floats(self.values), "gradient")
        squared_norms(Y, "landmarks")
        squared_norms(G, "gradient")
        if Y.shape != G.shape:
            raise DpfedvisError(f"a gradient of shape {G.shape} does not fit landmarks of shape {Y.shape}")
        checks.nonnegative("sigma", self.sigma)
        object.__setattr__(self, "landmarks", Y)
        object.__setattr__(self, "values", G)

    @classmethod
    def of_full(
        cls,
        landmarks: npt.ArrayLike,
        gradient: npt.ArrayLike,
        kernel: Kernel,
        *,
        estimator: Estimator,
        sigma: float = 0.0,
    ) -> SeenGradient:
        """Read a whole ∇f_p(Y), Eq. 9: its terms in Y alone are known to the server, which takes them away."""
        Y, G = _floats(landmarks), _floats(gradient)
        return cls(Y, G - landmark_gradient(Y, kernel, estimator=estimator), sigma)

    @property
    def scale(self) -> float:
        """Standard deviation of the error in each value: of the noise, but never below that of rounding."""
        rounding = ROUNDING * float(np.sqrt(np.mean(np.square(self.values))))
        return max(self.sigma, rounding)


def check_seen(seen: Sequence[SeenGradient]) -> tuple[SeenGradient, ...]:
    """Return the rounds of one client; raise if all gradients are 0 or their shapes differ."""
    rounds = tuple(seen)
    if not rounds or not any(np.any(each.values) for each in rounds):
        raise NothingToSee(f"{len(rounds)} gradients, all of them 0: no record is near enough to a landmark to show")
    for each in rounds[1:]:
        check_same_features(rounds[0].landmarks, each.landmarks)
    # A round in which every value is exactly 0 and noise-free has no scale, and nothing to say.
    return tuple(each for each in rounds if each.scale > 0)


def weights(X: Float64, Y: Float64, kernel: Kernel) -> tuple[Float64, Float64]:
    """Return w(x_j, y_i) and v(x_j, y_i) = (1/B) Σ_b γ_b² k_b, each of shape (n, n_y); ∇_x w = −2v (x − y)."""
    distances: Float64 = squared_distances(X, Y).astype(np.float64, copy=False)
    w, v = np.zeros_like(distances), np.zeros_like(distances)
    for gamma in kernel.gammas:
        part = np.exp(-gamma * distances) * (gamma / len(kernel.gammas))
        w += part
        v += gamma * part
    return w, v


def predict(X: Float64, Y: Float64, kernel: Kernel, denominator: float) -> Float64:
    """Return the data's part of the gradient, shape (n_y, m)."""
    w, _ = weights(X, Y, kernel)
    gradient: Float64 = (-4 / (denominator * len(Y))) * (w.T @ X - w.sum(axis=0)[:, None] * Y)
    return gradient


def push_forward(X: Float64, Y: Float64, wv: tuple[Float64, Float64], shift: Float64) -> Float64:
    """Return the derivative of Σ_j w(x_j, y_i)(x_j − y_i) when the records move by `shift`, shape (n_y, m).

    Row i is Σ_j w u_j − 2v ⟨x_j − y_i, u_j⟩ (x_j − y_i).
    """
    w, v = wv
    along = v * (np.vecdot(X, shift)[:, None] - shift @ Y.T)
    moved: Float64 = w.T @ shift - 2 * (along.T @ X - along.sum(axis=0)[:, None] * Y)
    return moved


def pull_back(X: Float64, Y: Float64, wv: tuple[Float64, Float64], residual: Float64) -> Float64:
    """Return the transpose of `push_forward` applied to a residual of shape (n_y, m); shape (n, m)."""
    w, v = wv
    along = v * (X @ residual.T - np.vecdot(residual, Y))
    pulled: Float64 = w @ residual - 2 * (along.sum(axis=1)[:, None] * X - along @ Y)
    return pulled


@dataclass(frozen=True)
class Contribution:
    """What one record adds to a gradient: c(x)/n_p, with rows c(x)_i = −(4/n_y) w(x, y_i)(x − y_i), clipped if asked.

    Parameters
    ----------
    kernel : Kernel
    clip : float, optional
        Largest norm of the matrix with rows w(x, y_i)(x − y_i)/γ̄, as in `dpfedvis.numerics.exact_sums.kernel_pulls`.
    """

    kernel: Kernel
    clip: float | None = None

    def mean(self, X: Float64, Y: Float64, denominator: float) -> Float64:
        """Return Σ_j c(x_j)/denominator, shape (n_y, m)."""
        w = self._weights(X, Y)
        gradient: Float64 = (-4 / (denominator * len(Y))) * (w.T @ X - w.sum(axis=0)[:, None] * Y)
        return gradient

    def products(self, X: Float64, Y: Float64, gradient: Float64) -> Float64:
        """Return ⟨gradient, c(x)⟩ for each record, shape (n,)."""
        inner: Float64 = np.vecdot(self._weights(X, Y), X @ gradient.T - np.vecdot(gradient, Y)) * (-4 / len(Y))
        return inner

    def squares(self, X: Float64, Y: Float64) -> Float64:
        """Return ‖c(x)‖² for each record, shape (n,)."""
        norms: Float64 = np.vecdot(np.square(self._weights(X, Y)), squared_distances(X, Y)) * (4 / len(Y)) ** 2
        return norms

    def gram(self, X: Float64, other: Float64, Y: Float64) -> Float64:
        """Return ⟨c(x), c(x′)⟩ for all pairs of rows, shape (n, n′).

        Σ_i w_i w′_i ⟨x − y_i, x′ − y_i⟩, with the inner product written out so that only matrix products remain. The
        origin is moved to the mean of the landmarks, because the terms would cancel far from it.
        """
        centre = Y.mean(axis=0)
        X, other, Y = X - centre, other - centre, Y - centre
        w, w2 = self._weights(X, Y), self._weights(other, Y)
        total = (w @ w2.T) * (X @ other.T)
        total -= (w * (X @ Y.T)) @ w2.T
        total += w @ (w2 * (np.vecdot(Y, Y) - other @ Y.T)).T
        result: Float64 = total * (4 / len(Y)) ** 2
        return result

    def _weights(self, X: Float64, Y: Float64) -> Float64:
        w, _ = weights(X, Y, self.kernel)
        if self.clip is not None:
            norms = np.sqrt(np.vecdot(np.square(w), squared_distances(X, Y))) / self.kernel.mean_gamma
            w *= (self.clip / np.maximum(norms, self.clip))[:, None]
        return w


def _floats(values: npt.ArrayLike | Array) -> Float64:
    return np.asarray(values, dtype=np.float64)


def gradients_of(recording: Recording, client: str, *, rounds: int | None = None) -> tuple[SeenGradient, ...]:
    """Return the gradients that one client uploaded, the first `rounds` of them if given.

    Uploads of the client's own landmarks after one local step are gradients as well: (Y − Y_p)/η. Where the server saw
    only a sum over clients, or landmarks after several local steps, there is no gradient of one client.
    """
    uploads = [each for each in recording.uploads if each.stage == "landmarks" and each.clients == (client,)]
    kept = [each for each in uploads if each.what in ("gradient", "landmarks")][:rounds]
    if not kept:
        raise NothingToAttack(f"the server saw no single gradient of {client} in this run")
    public, kernel = recording.public, contribution_of(recording).kernel
    seen = []
    for upload in kept:
        Y, values, sigma = recording.seen(upload), upload.values, noise_of(upload.events[0])
        if upload.what == "landmarks":
            if public.local_steps > 1:
                raise NothingToAttack(f"an upload after {public.local_steps} local steps is no gradient")
            step = public.step_size
            full = (Y.astype("f8") - values) / step
            seen.append(SeenGradient.of_full(Y, full, kernel, estimator=public.estimator, sigma=sigma / step))
        elif isinstance(recording.mechanism, PublishedFedDL):
            seen.append(SeenGradient.of_full(Y, values, kernel, estimator="biased", sigma=sigma))
        else:
            seen.append(SeenGradient(Y.astype("f8"), values.astype("f8"), sigma))
    return tuple(seen)


def contribution_of(recording: Recording) -> Contribution:
    """Return what one record adds to a gradient in this run."""
    kernel, mechanism = recording.public.kernel, recording.mechanism
    if any(client.denominator is None for client in recording.clients):
        raise NothingToAttack("gradients are means over records, whose number is private in this run")
    if isinstance(mechanism, ClippedGradientPerturbation):
        return Contribution(kernel, mechanism.clip * max_clip(kernel, recording.public.landmarks))
    if isinstance(mechanism, PublishedFedDL) and len(kernel.gammas) > 1:
        raise NothingToAttack(
            f"a published gradient does not tell which of {len(kernel.gammas)} bandwidths it belongs to: run with one"
        )
    return Contribution(kernel)


def as_learned(recording: Recording, points: Array) -> Array:
    """Return points, shape (k, m), in the space that the landmarks were learned in.

    That is where gradients live. A private map is learned in a published subspace, with coordinates (x − c)A; any
    other run in the space of the records.
    """
    if "axes" not in recording.published:
        return points
    coordinates: Array = (np.asarray(points, "f8") - recording.published["centre"]) @ recording.published["axes"]
    return coordinates


def noise_of(event: Event) -> float:
    """Standard deviation of the noise on an upload, from the ledger; 0 for none."""
    if isinstance(event, GaussianRelease):
        return event.sigma
    return (event.nominal_sigma or 0.0) if isinstance(event, Unprotected) else 0.0
