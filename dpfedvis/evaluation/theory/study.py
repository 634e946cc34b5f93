"""Bounds, truth and certificates on one data set, as shown by `dpfedvis bounds`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.data import Dataset, FederatedData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.evaluation.theory.bound import FLOOR, NORMS, Bound, Norm
from dpfedvis.evaluation.theory.certificate import (
    RowsCase,
    entry_error,
    gram_certificate,
    kernel_certificate,
    rounding,
    rows_case,
)
from dpfedvis.evaluation.theory.empirical import TILE, DistanceError, Distances, KernelError, Norms, centred, norms
from dpfedvis.evaluation.theory.nystrom import mmd_bound, tail, thm2_corrected, thm2_printed
from dpfedvis.evaluation.theory.perturbation import lemma1_corrected, lemma1_printed, perturbation
from dpfedvis.evaluation.theory.reconstruction import (
    EIGEN_LIMIT,
    condition,
    thm5_corrected,
    thm5_printed,
    with_noisy_records,
)
from dpfedvis.mechanisms.scale import kernel_of_distance
from dpfedvis.numerics.distances import (
    Float64,
    GramDistances,
    NystromDistances,
    gram_frame,
    kernel_factor,
    nystrom_factor,
)
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix, squared_distances
from dpfedvis.numerics.mmd import mmd2

Kind = Literal["sampled", "learned", "noisy landmarks", "noisy records"]
MEDIAN_RECORDS = 1000
CLIENTS = 10
NO_BOUND = "no bound of the paper: D is not PSD"


@dataclass(frozen=True)
class Settings:
    """Settings of a study.

    Parameters
    ----------
    landmarks : tuple of int
        Numbers n_y.
    sigmas : tuple of float
        Noise on landmarks (Thm 5) and on records (Thm 3); 0 is always included.
    gamma : float, optional
        Kernel width; by default one over the median squared distance of records.
    rounds : int
        Number of rounds that learn the landmarks.
    failure : float
        Failure probability of probabilistic bounds.
    seed : int
    """

    landmarks: tuple[int, ...]
    sigmas: tuple[float, ...]
    gamma: float | None = None
    rounds: int = 50
    failure: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        for count in self.landmarks:
            checks.at_least("landmarks", count, 2)
        for sigma in self.sigmas:
            checks.nonnegative("sigma", sigma)
        if self.gamma is not None:
            checks.positive("gamma", self.gamma)
        checks.count("rounds", self.rounds)
        checks.probability("failure", self.failure)
        checks.at_least("seed", self.seed, 0)


@dataclass(frozen=True)
class DistanceCase:
    """Error of an estimate of the distances.

    Parameters
    ----------
    estimator : {"nystrom", "gram"}
    truth : Norms
    relative : float
        ‖D̂ − D‖_F/‖D‖_F.
    bounds : tuple of Bound
    note : str
    """

    estimator: str
    truth: Norms
    relative: float
    bounds: tuple[Bound, ...] = ()
    note: str = NO_BOUND


@dataclass(frozen=True)
class Case:
    """One set of landmarks: the error of K̂ and its bounds.

    Parameters
    ----------
    kind : {"sampled", "learned", "noisy landmarks", "noisy records"}
        Landmarks sampled from the records, learned, learned with noise added, or learned from noisy records.
    landmarks : int
    sigma : float
    truth : Norms
    bounds : tuple of Bound
    distances : tuple of DistanceCase
    """

    kind: Kind
    landmarks: int
    sigma: float
    truth: Norms
    bounds: tuple[Bound, ...]
    distances: tuple[DistanceCase, ...]


class Study:
    """All cases on one data set; `run` computes them.

    Parameters
    ----------
    dataset : Dataset
    settings : Settings

    Attributes
    ----------
    X : array of shape (n, m)
        The records minus their mean, float64.
    kernel : Kernel
    """

    def __init__(self, dataset: Dataset, settings: Settings) -> None:
        n = checks.at_least("records", len(dataset.X), 2)
        for count in settings.landmarks:
            if count > n:
                raise InvalidParameter("landmarks", count, f"at most the number of records, {n}")
        self.dataset, self.settings = dataset, settings
        self._centre = np.asarray(dataset.X, np.float64).mean(axis=0)
        self.X = centred(dataset.X)
        self.kernel = _kernel(self.X, settings.gamma)
        self._learned: dict[int, Float64] = {}

    @cached_property
    def diameter(self) -> float:
        """Largest distance of two records."""
        parts = [self.X[start : start + TILE] for start in range(0, len(self.X), TILE)]
        return math.sqrt(max(float(squared_distances(a, b).max()) for i, a in enumerate(parts) for b in parts[i:]))

    @cached_property
    def size(self) -> float:
        """‖D‖_F."""
        return norms(Distances(self.X), self._rng("size")).frobenius

    @cached_property
    def eigenvalues(self) -> Float64:
        """Of K, shape (n,)."""
        K = kernel_matrix(self.X, self.X, self.kernel)
        values: Float64 = np.linalg.eigvalsh(np.asarray((K + K.T) / 2, np.float64))
        return values

    def plan(self) -> list[tuple[Kind, int, float]]:
        """The cases, in order."""
        noise = sorted({sigma for sigma in self.settings.sigmas if sigma > 0})
        plan: list[tuple[Kind, int, float]] = []
        for count in sorted(set(self.settings.landmarks)):
            plan += [("sampled", count, 0.0), ("learned", count, 0.0)]
            plan += [("noisy landmarks", count, sigma) for sigma in noise]
            plan += [("noisy records", count, sigma) for sigma in noise]
        return plan

    def run(self, progress: Callable[[Case], None] | None = None) -> list[Case]:
        """Compute every case of the plan."""
        cases: list[Case] = []
        for kind, count, sigma in self.plan():
            rng = self._rng(kind, count, sigma)
            X = self.X + sigma * rng.normal(size=self.X.shape) if kind == "noisy records" else self.X
            if kind == "sampled":
                Y = self.X[rng.permutation(len(self.X))[:count]]
            elif kind == "noisy landmarks":
                Y = self._from_exact(count)
                Y = Y + sigma * rng.normal(size=Y.shape)
            else:
                Y = self._from_exact(count) if kind == "learned" else self.learn(X, count)
            case = self._case(kind, X, Y, sigma, rng)
            cases.append(case)
            if progress is not None:
                progress(case)
        return cases

    def rows(self) -> list[RowsCase]:
        """Certificates of noisy rows at learned landmarks, for every noise above 0."""
        return [
            rows_case(
                self.X,
                self._from_exact(count),
                self.kernel,
                sigma=sigma,
                failure=self.settings.failure,
                rng=self._rng("rows", count, sigma),
            )
            for count in sorted(set(self.settings.landmarks))
            for sigma in sorted(set(self.settings.sigmas))
            if sigma > 0
        ]

    def _case(self, kind: Kind, X: Float64, Y: Float64, sigma: float, rng: np.random.Generator) -> Case:
        W = np.asarray(kernel_matrix(Y, Y, self.kernel), np.float64)
        factor = kernel_factor(kernel_matrix(X, Y, self.kernel), W)
        radius = float(max(np.linalg.norm(X, axis=1).max(), np.linalg.norm(Y, axis=1).max()))
        allowance = rounding(W, entry_error=entry_error(self.kernel, X.shape[1], radius))
        bounds: list[Bound] = []
        joint = None if kind == "sampled" else condition(np.vstack([Y, X]), self.kernel)
        discrepancy = mmd2(X, Y, self.kernel)
        for norm in NORMS:
            own = [
                kernel_certificate(factor, norm=norm, allowance=allowance),
                mmd_bound(X, Y, self.kernel, norm=norm),
            ]
            if joint is None:
                printed, corrected = self._thm2(len(Y), norm)
            else:
                sizes: dict[str, Any] = {"records": len(X), "landmarks": len(Y), "rank": len(Y), "condition": joint}
                printed = thm5_printed(**sizes, mmd2=discrepancy, norm=norm)
                corrected = thm5_corrected(**sizes, norm=norm)
            if kind == "noisy records":
                noise: dict[str, Any] = {
                    "records": len(X),
                    "features": X.shape[1],
                    "kernel": self.kernel,
                    "sigma": sigma,
                    "diameter": self.diameter,
                    "failure": self.settings.failure,
                    "norm": norm,
                }
                printed = with_noisy_records(printed, lemma1_printed(**noise))
                corrected = with_noisy_records(corrected, lemma1_corrected(**noise))
                own = [with_noisy_records(each, perturbation(**noise), each.statement) for each in own]
            bounds += [*own, corrected, printed]
        # The floor is for errors that are only rounding: Lanczos converges slowly on their flat spectrum.
        truth = norms(
            KernelError(self.X, self.kernel, np.asarray(factor.left, np.float64)), rng, floor=FLOOR * len(self.X)
        )
        return Case(kind, len(Y), sigma, truth, tuple(bounds), self._distances(kind, X, Y, rng))

    def _thm2(self, count: int, norm: Norm) -> tuple[Bound, Bound]:
        n = len(self.X)
        if n > EIGEN_LIMIT:
            why = f"‖K − K_k‖ is not computed above {EIGEN_LIMIT} records"
            return (
                Bound("Thm 2", "printed", None, norm, precondition=why),
                Bound("Thm 2", "corrected", None, norm, precondition=why),
            )
        sizes: dict[str, Any] = {"points": n, "sample": count, "rank": count, "largest": 1.0, "norm": norm}
        rest = tail(self.eigenvalues, count, norm)
        failure = self.settings.failure
        return thm2_printed(**sizes, tail=rest), thm2_corrected(**sizes, tail=rest, failure=failure)

    def _distances(self, kind: Kind, X: Float64, Y: Float64, rng: np.random.Generator) -> tuple[DistanceCase, ...]:
        B, W = np.sqrt(squared_distances(X, Y)), np.sqrt(squared_distances(Y, Y))
        np.fill_diagonal(W, 0.0)
        matrix, signs = nystrom_factor(W)
        estimates: dict[str, NystromDistances | GramDistances] = {
            "nystrom": NystromDistances((B @ matrix).astype(np.float32), signs.astype(np.float32)),
            "gram": GramDistances(gram_frame(W).coordinates(B)),
        }
        cases = []
        for name, estimate in estimates.items():
            truth = norms(DistanceError(self.X, estimate), rng, floor=FLOOR * self.size)
            bounds: tuple[Bound, ...] = ()
            if name == "gram" and kind != "noisy records":
                bounds = gram_certificate(B, W).bounds()
            cases.append(DistanceCase(name, truth, truth.frobenius / self.size, bounds))
        return tuple(cases)

    def learn(self, X: Float64, count: int) -> Float64:
        """Learn landmarks without noise, in the coordinates of X."""
        clients = max(1, min(CLIENTS, len(X) // 2))
        fed = FederatedData.split((X + self._centre).astype(np.float32), None, clients=clients, seed=self.settings.seed)
        run = FedDL(
            landmarks=count,
            rounds=self.settings.rounds,
            optimiser="momentum",
            gamma=self.kernel,
            bounds=self.dataset.feature_range,
            seed=self.settings.seed,
        ).run(fed)
        return np.asarray(np.asarray(run.landmarks, np.float64) - self._centre)

    def _from_exact(self, count: int) -> Float64:
        """Landmarks learned from the exact records, once for all cases."""
        if count not in self._learned:
            self._learned[count] = self.learn(self.X, count)
        return self._learned[count]

    def _rng(self, *key: object) -> np.random.Generator:
        """A separate stream for each case, so that omitting one changes no other."""
        words = [int.from_bytes(repr(part).encode()[:16].ljust(16, b"\0"), "big") for part in key]
        return np.random.default_rng([self.settings.seed, *words])


def _kernel(X: Array, gamma: float | None) -> Kernel:
    if gamma is not None:
        return Kernel.gaussian(gamma)
    some = X[:MEDIAN_RECORDS]
    return kernel_of_distance(float(np.median(squared_distances(some, some)[np.triu_indices(len(some), k=1)])))
