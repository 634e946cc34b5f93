"""The published experiments as their code ran them. For reproduction only: no protection."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from dpfedvis.mechanisms.base import BaseMechanism, Message, PreparedRecords, Protection, Update
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Array, squared_distances
from dpfedvis.numerics.optimisers import Optimiser


class _LandmarkTerms:
    """The terms in Y alone: the same for all clients of a round, and more expensive than a batch."""

    def __init__(self, Y: Array) -> None:
        self.Y = Y
        self._distances = squared_distances(Y, Y)
        self.similarity = cache(self._similarity)
        self.push = cache(self._push)

    def _similarity(self, gamma: float) -> float:
        return float(np.exp(-gamma * self._distances).mean(dtype=np.float64))

    def _push(self, gamma: float) -> Array:
        kernel = np.exp(-gamma * self._distances)
        push: Array = (kernel @ self.Y - kernel.sum(axis=0)[:, None] * self.Y) / len(self.Y)
        return push


_kept = threading.local()


def _landmarks(Y: Array) -> _LandmarkTerms:
    """Return the terms in Y, cached while Y is the same object."""
    if getattr(_kept, "last", None) is None or _kept.last.Y is not Y:
        _kept.last = _LandmarkTerms(Y)
    last: _LandmarkTerms = _kept.last
    return last


@dataclass(frozen=True)
class PublishedFedDL(BaseMechanism):
    """Gradient of the *largest* biased MMD over the bandwidths, on one batch, with or without the "+" noise.

    Which bandwidth is largest depends on the data, and no sensitivity covers a change of it; so all other mechanisms
    use the mean kernel. With `beta` the noise scale depends on the data too (`HeuristicNoise`).

    Parameters
    ----------
    trust : {"local"}
        Trust model: always local, since there is no noise to share.
    batch : int
        Records drawn in each round, without replacement.
    beta : float
        β of the paper's "+" noise; 0 for none.
    """

    batch: int = 256
    beta: float = 0.0
    name: ClassVar[str] = "published"
    what: ClassVar[str] = "gradient"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "the published protocol: largest of several MMDs, noise scaled by the gradient if any"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("batch", self.batch)
        checks.nonnegative("beta", self.beta)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """Δ for the nominal ε: the tight one for the largest γ and one batch, without amplification."""
        return sensitivity.gradient(
            gamma=max(public.kernel.gammas),
            records=min(records, self.batch),
            landmarks=public.landmarks,
            adjacency=public.adjacency,
        )

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the gradient of the largest MMD."""
        X = local.records[generator.permutation(len(local.records))[: self.batch]]
        to_records, within, landmarks = squared_distances(X, Y), squared_distances(X, X), _landmarks(Y)

        def discrepancy(gamma: float) -> float:
            own, cross = (np.exp(-gamma * each).mean(dtype=np.float64) for each in (within, to_records))
            return float(own - 2 * cross + landmarks.similarity(gamma))

        gamma = max(public.kernel.gammas, key=discrepancy)
        pull = np.exp(-gamma * to_records)
        data = (pull.T @ X - pull.sum(axis=0)[:, None] * Y) / len(X)
        values = (4 * gamma / len(Y)) * (landmarks.push(gamma) - data)
        # The scale takes as long as a gradient: not where no noise is drawn.
        scale = self.beta * float(np.std(values, dtype=np.float64)) if self.beta else 0.0
        if scale == 0:
            return Message(values)
        noisy = values + scale * generator.standard_normal(values.shape)
        return Message(noisy.astype(values.dtype, copy=False), nominal_sigma=scale)

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """One step on the average gradient."""
        return Update((Y + optimiser.step(average)).astype(Y.dtype, copy=False))
