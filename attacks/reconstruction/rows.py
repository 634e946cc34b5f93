"""Records from what is released of them: distances, kernel values or coordinates at known landmarks.

Write u = x − ȳ and v_j = y_j − ȳ, with ȳ a weighted mean of the landmarks. From ‖x − y_j‖² = ‖u‖² − 2 u·v_j + ‖v_j‖²,

    c_j = ‖x − y_j‖² − ‖v_j‖²,    −½ (c_j − c̄) = u·v_j,

since the weighted mean of the v_j is 0: n_y linear equations in u, without the square of anything unknown. With the
weighted V = U S Wᵀ they give z = Wᵀu, the coordinates of the record in the landmarks' affine span. Noise of variance
t_j on a squared distance becomes noise of variance ¼ on the equations weighted by 1/t_j, and ¼/S_k² on z_k.

From z the record follows as the posterior mean under a Gaussian prior with the landmarks' own mean and covariance.
Without noise that leaves z as it is and fills in the part of the record outside the span, which the rows do not
determine; with noise it also shrinks z.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from sklearn.covariance import ledoit_wolf_shrinkage

from accounting import checks
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.kernels import Kernel, as_points

Float64 = npt.NDArray[np.float64]
Bounds = tuple[float, float]
_Block = Callable[[Float64], Float64]

BLOCK_ROWS = 2048
CUTOFF = 1e-10  # of the largest singular value: below it a direction of the landmarks is rounding
# The least share of the diagonal in the prior's covariance. Landmarks fewer than features know nothing of the
# directions outside their span but how much each feature varies.
DIAGONAL = 0.1
_NEWTON_STEPS = 60


class BadRows(DpfedvisError):
    """The rows do not fit the landmarks, or are not finite."""


def reconstruct_from_distances(
    D: npt.ArrayLike,
    Y: npt.ArrayLike,
    *,
    sigma: float = 0.0,
    record_sigma: float = 0.0,
    bounds: Bounds | None = None,
) -> Float64:
    """Return the records at distances D from the landmarks Y.

    Parameters
    ----------
    D : array of shape (n, n_y)
        Distances, with noise of standard deviation `sigma` if any. Noise may have made some negative: only squares
        are used.
    Y : array of shape (n_y, m)
    sigma : float
        Noise on the distances.
    record_sigma : float
        Noise on the records before the distances were computed (input perturbation).
    bounds : (float, float), optional
        Public range of every feature.

    Returns
    -------
    array of shape (n, m)

    Notes
    -----
    (d + e)² = d² + 2de + e²: the mean of e² is the same for all landmarks and drops out with c̄; the variance is
    4d²σ² + 2σ⁴, with the mean over records for d².
    """
    rows, landmarks = _checked(D, Y, "D")
    checks.nonnegative("sigma", sigma)
    variance = None
    if sigma > 0:
        squares = np.maximum(np.square(rows).mean(axis=0) - sigma**2, 0)
        variance = 4 * squares * sigma**2 + 2 * sigma**4
    return _from_squares(np.square, rows, landmarks, variance, record_sigma, bounds)


def reconstruct_from_kernel(
    K: npt.ArrayLike,
    Y: npt.ArrayLike,
    gamma: float | Sequence[float],
    *,
    sigma: float = 0.0,
    record_sigma: float = 0.0,
    bounds: Bounds | None = None,
) -> Float64:
    """Return the records with kernel values K at the landmarks Y: the logarithm gives distances.

    Parameters
    ----------
    K : array of shape (n, n_y)
        (1/B) Σ_b exp(−γ_b d²). Values that noise took out of (0, 1] are moved to its ends.
    Y : array of shape (n_y, m)
    gamma : float or several
        γ_b.
    sigma, record_sigma, bounds
        As in `reconstruct_from_distances`.

    Notes
    -----
    With f(d²) = K, noise e on K moves d² by e/f'(d²), so that its variance is σ²/f'², with the mean over records of
    1/f'². A value of which noise could be all says only that the landmark is far: K is kept above σ.
    """
    rows, landmarks = _checked(K, Y, "K")
    checks.nonnegative("sigma", sigma)
    kernel = Kernel((gamma,) if isinstance(gamma, int | float) else tuple(gamma))
    least = max(sigma, float(np.finfo(np.float64).smallest_subnormal))
    variance = None
    if sigma > 0:
        blocks = [_slope(squared_distances_of(np.clip(b, least, 1.0), kernel), kernel) for b in _blocks(rows)]
        variance = sigma**2 * (1 / np.square(np.concatenate(blocks))).mean(axis=0)

    def squares(block: Float64) -> Float64:
        return squared_distances_of(np.clip(block, least, 1.0), kernel)

    return _from_squares(squares, rows, landmarks, variance, record_sigma, bounds)


def reconstruct_from_coordinates(
    Z: npt.ArrayLike, Y: npt.ArrayLike, *, sigma: float = 0.0, bounds: Bounds | None = None
) -> Float64:
    """Return the records with Gram coordinates Z, those of `dpfedvis.mechanisms.rows.GramRows`.

    Parameters
    ----------
    Z : array of shape (n, r)
        Coordinates along the r leading principal directions of the landmarks.
    Y : array of shape (n_y, m)
    sigma, bounds
        As in `reconstruct_from_distances`.
    """
    landmarks = as_points(Y, "landmarks", minimum=2).astype(np.float64)
    coordinates = np.asarray(Z, dtype=np.float64)
    _refuse_bad(coordinates, "Z")
    checks.nonnegative("sigma", sigma)
    centre = landmarks.mean(axis=0)
    axes = np.linalg.svd(landmarks - centre, full_matrices=False)[2]
    if not 1 <= coordinates.shape[1] <= len(axes):
        raise BadRows(f"Z has shape {coordinates.shape}, but the landmarks have {len(axes)} directions")
    span = _Span(centre, axes[: coordinates.shape[1]].T, np.full(coordinates.shape[1], sigma**2))
    return span.records(lambda block: block, coordinates, landmarks, bounds)


def squared_distances_of(K: Float64, kernel: Kernel) -> Float64:
    """Return the squared distances at which the kernel has the values K, shape as K, all in (0, 1].

    One bandwidth is a logarithm. For several, g(s) = log f(s) − log K is convex and decreasing in s, a log-sum-exp of
    linear functions, and s = −log K/γ_max lies left of its root since f(s) ≥ K there; Newton's steps from the left of
    the root of such a function never pass it.
    """
    target = np.log(K)
    gammas = np.array(kernel.gammas)
    # Without the least rounding below 0 where K is 1.
    squares: Float64 = np.maximum(-target / gammas.max(), 0.0)
    if len(gammas) == 1:
        return squares
    for _ in range(_NEWTON_STEPS):
        parts = -squares[..., None] * gammas
        top = parts.max(axis=-1, keepdims=True)
        weights = np.exp(parts - top)
        total = weights.sum(axis=-1)
        excess = top[..., 0] + np.log(total / len(gammas)) - target
        step = excess / ((weights @ gammas) / total)
        squares = np.maximum(squares + step, 0.0)
        if np.abs(step).max(initial=0.0) <= 1e-15 * np.abs(squares).max(initial=0.0):
            break
    return squares


@dataclass(frozen=True)
class _Span:
    """What the rows determine: coordinates along `axes`, shape (m, r), from `centre`, each with its noise variance."""

    centre: Float64
    axes: Float64
    variance: Float64

    def records(
        self,
        coordinates: _Block,
        rows: Float64,
        landmarks: Float64,
        bounds: Bounds | None,
    ) -> Float64:
        """Posterior means, block by block; shape (n, m)."""
        matrix, offset = self._posterior(landmarks)
        out = np.empty((len(rows), len(self.centre)))
        for start in range(0, len(rows), BLOCK_ROWS):
            block = slice(start, start + BLOCK_ROWS)
            np.matmul(coordinates(rows[block]) - offset, matrix.T, out=out[block])
            out[block] += self.centre + self.axes @ offset
        return out if bounds is None else np.clip(out, *bounds, out=out)

    def _posterior(self, landmarks: Float64) -> tuple[Float64, Float64]:
        """Matrix (m, r) that takes z − Wᵀ(prior mean − centre) to x − prior mean within the span, and that offset.

        For x ~ N(p, C) and z = Wᵀ(x − centre) + noise of variances v, the mean of x given z is p + C W (WᵀCW +
        diag v)⁻¹ (z − Wᵀ(p − centre)). Its part in the span is written out apart, since without noise it is W z
        itself, however badly conditioned C may be. C = (1 − a) S + a diag S with the landmarks' covariance S, whose
        small eigenvalues are too small by chance, and Ledoit and Wolf's share a. It is never formed: C W costs n_y·m·r.
        """
        W, mean = self.axes, landmarks.mean(axis=0)
        centred = landmarks - mean
        spread = np.square(centred).mean(axis=0)
        share = max(DIAGONAL, float(ledoit_wolf_shrinkage(centred, assume_centered=True)))
        CW = (1 - share) * centred.T @ (centred @ W) / len(landmarks) + share * spread[:, None] * W
        inner = W.T @ CW
        inner = (inner + inner.T) / 2
        noisy = self.variance.any()
        # A little more than nothing, so that constant features do not make it singular.
        floor = 1e-10 * max(float(np.trace(inner)) / len(inner), float(np.finfo(np.float64).tiny))
        factor = cho_factor(inner + np.diag(self.variance + floor))
        gain: Float64 = cho_solve(factor, CW.T).T
        outside = gain - W @ (W.T @ gain)
        inside = W @ (W.T @ gain) if noisy else W
        return inside + outside, W.T @ (mean - self.centre)


def _from_squares(
    squares: _Block,
    rows: Float64,
    landmarks: Float64,
    variance: Float64 | None,
    record_sigma: float,
    bounds: Bounds | None,
) -> Float64:
    """Trilaterate from functions of squared distances; `variance` of their noise for each landmark, None without."""
    checks.nonnegative("record_sigma", record_sigma)
    weights = np.full(len(landmarks), 1 / len(landmarks)) if variance is None else (1 / variance) / (1 / variance).sum()
    noise = 0.0 if variance is None else 0.25 / float((1 / variance).sum())
    centre = weights @ landmarks
    V = landmarks - centre
    norms, roots = np.vecdot(V, V), np.sqrt(weights)
    left, values, right = np.linalg.svd(roots[:, None] * V, full_matrices=False)
    kept = values > CUTOFF * values[0]
    if not kept.any():
        raise BadRows("all landmarks are one point: distances to it say only how far a record is")
    left, values, right = left[:, kept], values[kept], right[kept]
    solve = roots[:, None] * left / values

    def coordinates(block: Float64) -> Float64:
        c = squares(block) - norms
        c -= (c @ weights)[:, None]
        return np.asarray(-0.5 * (c @ solve))

    span = _Span(centre, right.T, noise / values**2 + record_sigma**2)
    return span.records(coordinates, rows, landmarks, bounds)


def _slope(squares: Float64, kernel: Kernel) -> Float64:
    """−f'(d²) of the mean kernel."""
    gammas = np.array(kernel.gammas)
    slope: Float64 = (gammas * np.exp(-squares[..., None] * gammas)).mean(axis=-1)
    return slope


def _checked(rows: npt.ArrayLike, Y: npt.ArrayLike, name: str) -> tuple[Float64, Float64]:
    landmarks = as_points(Y, "landmarks", minimum=2).astype(np.float64)
    values = np.asarray(rows, dtype=np.float64)
    _refuse_bad(values, name)
    _refuse_bad(landmarks, "landmarks")
    if values.shape[1] != len(landmarks):
        raise BadRows(f"{name} has shape {values.shape}, but there are {len(landmarks)} landmarks")
    return values, landmarks


def _refuse_bad(values: Float64, name: str) -> None:
    if values.ndim != 2 or not len(values):
        raise BadRows(f"{name} has shape {values.shape}, not (records, columns)")
    if not np.isfinite(values).all():
        raise BadRows(f"{name} has values that are not finite")


def _blocks(rows: Float64) -> list[Float64]:
    return [rows[start : start + BLOCK_ROWS] for start in range(0, len(rows), BLOCK_ROWS)]
