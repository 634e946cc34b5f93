"""Gradient inversion: the records of a small client from the gradients that it uploads.

One record, without noise, follows in closed form: row i of its gradient points from y_i to the record, and two such
lines that are not parallel meet in it, in any dimension. Several records follow by optimisation, because n_y·m numbers
a round are many more than n_p·m. Noise stops it: `attacks.inversion.report.error_floor` bounds what anyone can reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.optimize import least_squares, minimize
from scipy.sparse.linalg import LinearOperator

from accounting import checks
from attacks.shared.gradients import Float64, SeenGradient, check_seen, predict, pull_back, push_forward, weights
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.kernels import Kernel, as_points

QUASI_NEWTON_STEPS, NEWTON_STEPS, KRYLOV_STEPS = 2000, 80, 300
REWEIGHTINGS = 3
GOOD_FIT = 1.5  # in units of rounding; a wrong answer is off by tens


@dataclass(frozen=True, eq=False)
class Prior:
    """What the adversary expects of a record before it sees anything: a Gaussian.

    Parameters
    ----------
    mean : array of shape (m,)
    covariance : array of shape (m, m)
        Positive definite.
    """

    mean: Float64
    covariance: Float64

    def __post_init__(self) -> None:
        mean, covariance = (np.asarray(each, dtype=np.float64) for each in (self.mean, self.covariance))
        if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
            raise DpfedvisError(f"a prior of mean {mean.shape} and covariance {covariance.shape}")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "covariance", covariance)

    @classmethod
    def of(cls, points: npt.ArrayLike) -> Prior:
        """Return mean and covariance of points that are like the records, such as landmarks or public data.

        The covariance is mixed with a multiple of the identity, m parts to n, so that few points, or features that
        never vary, do not make the adversary certain of what it does not know.
        """
        values = as_points(np.asarray(points, dtype=np.float64), "points")
        n, m = values.shape
        centred = values - values.mean(axis=0)
        covariance, share = centred.T @ centred / n, m / (n + m)
        typical = max(float(np.trace(covariance)) / m, float(np.finfo(np.float64).tiny))
        return cls(values.mean(axis=0), (1 - share) * covariance + share * typical * np.eye(m))

    @cached_property
    def root(self) -> Float64:
        """Lower Cholesky factor L of the covariance, shape (m, m)."""
        try:
            return np.asarray(np.linalg.cholesky(self.covariance), dtype=np.float64)
        except np.linalg.LinAlgError:
            raise DpfedvisError("the covariance of a prior must be positive definite") from None

    def draw(self, records: int, rng: np.random.Generator) -> Float64:
        """Return records as the adversary imagines them, shape (records, m)."""
        drawn: Float64 = self.mean + rng.normal(size=(records, len(self.mean))) @ self.root.T
        return drawn


@dataclass(frozen=True, eq=False)
class Inversion:
    """Records that explain what a client uploaded.

    Parameters
    ----------
    records : array of shape (n_p, m)
        In no particular order.
    misfit : float
        Root mean square of what remains unexplained, in units of the noise (of rounding, where there is none): at most
        about 1 if the records are right, which is no proof that they are.
    starts : int
        How many were tried.
    """

    records: Float64
    misfit: float
    starts: int


def invert_gradient(
    seen: Sequence[SeenGradient],
    kernel: Kernel,
    *,
    records: int,
    denominator: float | None = None,
    prior: Prior | None = None,
    starts: int = 4,
    rng: np.random.Generator | None = None,
) -> Inversion:
    """Recover the records of one client from its gradients.

    Minimises Σ_s ‖model − G_s‖²/σ_s² + Σ_j ‖L⁻¹(x_j − mean)‖², the posterior mode under Gaussian noise and prior.
    L-BFGS comes close, Gauss–Newton steps on products with the Jacobian finish. One record starts from the closed form
    of `meet`, several from draws of the prior; the best of all starts counts.

    Parameters
    ----------
    seen : sequence of SeenGradient
        One or more rounds.
    kernel : Kernel
    records : int
        n_p, which is public.
    denominator : float, optional
        What the client divides by, if not n_p.
    prior : Prior, optional
        By default that of the last landmarks.
    starts : int
        Without noise it stops earlier, when one explains everything up to rounding.
    rng : numpy.random.Generator, optional
        For the starts.
    """
    n, rounds = checks.count("records", records), check_seen(seen)
    checks.count("starts", starts)
    prior = Prior.of(rounds[-1].landmarks) if prior is None else prior
    if prior.mean.shape != (rounds[0].landmarks.shape[1],):
        raise DpfedvisError(f"a prior mean of shape {prior.mean.shape} for landmarks of {rounds[0].landmarks.shape}")
    rng = np.random.default_rng(0) if rng is None else rng
    problem = _Problem(rounds, kernel, float(n if denominator is None else denominator), prior)
    exact = all(each.sigma == 0 for each in rounds)
    best, least, tried = np.empty((0, 0)), math.inf, 0
    # With noise a wrong answer may fit as well as the right one, so that a good fit is no reason to stop early.
    while tried < (1 if n == 1 else starts) and not (exact and tried and problem.misfit(best) < GOOD_FIT):
        tried += 1
        found, cost = problem.solve(meet(rounds)[None] if n == 1 else prior.draw(n, rng))
        if cost < least:
            best, least = found, cost
    return Inversion(best, problem.misfit(best), tried)


def meet(seen: Sequence[SeenGradient]) -> Float64:
    """Return the one record behind gradients of a client that has one, in closed form; shape (m,).

    −g_i is a positive multiple a_i of x − y_i, so x lies on the line through y_i along g_i. Least squares over all
    lines of all rounds solves Σ_i ω_i (I − u_i u_iᵀ)(x − y_i) = 0, u_i = g_i/‖g_i‖. An error of size σ in g_i moves its
    line by about σ/a_i at x, so that ω_i = (a_i/σ)² is the right weight. As a_i is unknown until x is, the first
    weights take ‖g_i‖ for it, and then a few times ⟨−g_i, x − y_i⟩/‖x − y_i‖². Without noise any weights give x.
    """
    rounds = check_seen(seen)
    Y = np.concatenate([each.landmarks for each in rounds])
    G = np.concatenate([-each.values for each in rounds])
    precision = np.concatenate([np.full(len(each.values), each.scale**-2) for each in rounds])
    lengths = np.linalg.norm(G, axis=1)
    keep = lengths > 0
    Y, G, lengths, precision = Y[keep], G[keep], lengths[keep], precision[keep] / precision.max()
    centre, units = Y.mean(axis=0), G / lengths[:, None]
    Y = Y - centre
    strength = lengths
    for _ in range(1 + REWEIGHTINGS):
        omega = precision * (strength / strength.max()) ** 2
        matrix = omega.sum() * np.eye(Y.shape[1]) - (units * omega[:, None]).T @ units
        target = omega @ Y - (omega * np.vecdot(units, Y)) @ units
        x = np.asarray(np.linalg.lstsq(matrix, target, rcond=1e-13)[0], dtype=np.float64)
        away = x - Y
        # A noisy line may say that the record lies behind its landmark: it keeps a little weight, not a negative one.
        strength = np.maximum(np.vecdot(G, away) / np.maximum(np.vecdot(away, away), 1e-300), 1e-6 * strength.max())
    record: Float64 = x + centre
    return record


class _Problem:
    """The nonlinear least squares of `invert_gradient`, scaled so that the right-hand side has norm 1."""

    def __init__(self, rounds: Sequence[SeenGradient], kernel: Kernel, denominator: float, prior: Prior) -> None:
        self._rounds, self._kernel, self._denominator, self._prior = rounds, kernel, denominator, prior
        size = math.sqrt(math.fsum(float(np.sum(np.square(each.values))) / each.scale**2 for each in rounds))
        self._scales = [1 / (each.scale * size) for each in rounds]
        # Digits beyond those that the noise leaves are not worth their steps.
        self._tolerance = 1e-14 if all(each.sigma == 0 for each in rounds) else 1e-10
        identity = np.eye(len(prior.mean))
        self._pull = (
            solve_triangular(prior.root, identity, lower=True).T / size
        )  # (x − mean) @ it is small if x is likely

    def solve(self, start: Float64) -> tuple[Float64, float]:
        shape = start.shape

        def value_and_slope(flat: Float64) -> tuple[float, Float64]:
            X = flat.reshape(shape)
            residual = self._residual(X)
            return 0.5 * float(residual @ residual), self._transposed(X, self._weights(X), residual)

        tight: Any = {
            "maxiter": QUASI_NEWTON_STEPS,
            "maxfun": 2 * QUASI_NEWTON_STEPS,
            "ftol": self._tolerance * 1e-2,
            "gtol": 1e-12,
            "maxcor": 30,
        }
        near = minimize(value_and_slope, start.ravel(), jac=True, method="L-BFGS-B", options=tight)
        solver: Any = least_squares  # its stubs know no Jacobian that is an operator
        found = solver(
            lambda flat: self._residual(flat.reshape(shape)),
            near.x,
            jac=lambda flat: self._jacobian(flat.reshape(shape)),
            method="trf",
            tr_solver="lsmr",
            tr_options={"maxiter": KRYLOV_STEPS, "atol": 1e-10, "btol": 1e-10},
            xtol=math.sqrt(self._tolerance),
            ftol=self._tolerance,
            gtol=self._tolerance,
            max_nfev=NEWTON_STEPS,
        )
        return found.x.reshape(shape), float(found.cost)

    def misfit(self, X: Float64) -> float:
        squares, count = 0.0, 0
        for each in self._rounds:
            residual = predict(X, each.landmarks, self._kernel, self._denominator) - each.values
            squares += float(np.sum(np.square(residual / each.scale)))
            count += residual.size
        return math.sqrt(squares / count)

    def _weights(self, X: Float64) -> list[tuple[Float64, Float64]]:
        return [weights(X, each.landmarks, self._kernel) for each in self._rounds]

    def _factor(self, number: int) -> float:
        return -4 * self._scales[number] / (self._denominator * len(self._rounds[number].landmarks))

    def _residual(self, X: Float64) -> Float64:
        parts = [
            (predict(X, each.landmarks, self._kernel, self._denominator) - each.values).ravel() * scale
            for each, scale in zip(self._rounds, self._scales, strict=True)
        ]
        return np.concatenate([*parts, ((X - self._prior.mean) @ self._pull).ravel()])

    def _jacobian(self, X: Float64) -> Any:
        wv = self._weights(X)
        rows = sum(each.values.size for each in self._rounds) + X.size

        def product(flat: Float64) -> Float64:
            shift = flat.reshape(X.shape)
            parts = [
                self._factor(s) * push_forward(X, each.landmarks, wv[s], shift).ravel()
                for s, each in enumerate(self._rounds)
            ]
            return np.concatenate([*parts, (shift @ self._pull).ravel()])

        return LinearOperator(
            (rows, X.size), matvec=product, rmatvec=lambda r: self._transposed(X, wv, r), dtype=np.float64
        )

    def _transposed(self, X: Float64, wv: list[tuple[Float64, Float64]], residual: Float64) -> Float64:
        total, place = residual[-X.size :].reshape(X.shape) @ self._pull.T, 0
        for s, each in enumerate(self._rounds):
            part = residual[place : place + each.values.size].reshape(each.values.shape)
            total = total + self._factor(s) * pull_back(X, each.landmarks, wv[s], part)
            place += each.values.size
        return total.ravel()
