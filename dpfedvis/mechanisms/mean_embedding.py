"""Mean embedding: one noisy upload for each client, to which the server fits any number of landmarks for free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from dpfedvis.mechanisms.base import BaseMechanism, Message, PreparedRecords, Update
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.optimisers import Adam, Optimiser
from dpfedvis.numerics.random_features import RandomFeatures


@dataclass(frozen=True)
class MeanEmbedding(BaseMechanism):
    """The mean of random Fourier features, once; the biased MMD between it and the landmarks is then minimised by Adam.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
    frequencies : int
        K: an upload has 2K values. More follow the kernel closer and carry more noise in all.
    steps : int
        Steps of the server's fit.
    """

    frequencies: int = 1000
    steps: int = 300
    what: ClassVar[str] = "mean embedding"
    name: ClassVar[str] = "mean-embedding"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("frequencies", self.frequencies)
        checks.count("steps", self.steps)

    def uploads(self, rounds: int) -> int:
        """One, whatever the number of rounds."""
        return 1

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """(2K,)."""
        return (2 * self.frequencies,)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """2/n_p, or 1/n_p under add-remove."""
        return sensitivity.mean_embedding(records=records, adjacency=public.adjacency)

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the mean embedding of the records."""
        total = self._features(public).total(local.records)
        return Message((total / local.denominator).astype(Y.dtype, copy=False))

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Fit Y to the average embedding, from the Y at hand, with steps that shrink to nothing."""
        features = self._features(public)
        # Natural length of the kernel, spread over the coordinates.
        length = 1 / np.sqrt(2 * public.kernel.mean_gamma * public.features)
        adam, dtype = Adam(step_size=1.0), Y.dtype
        for step in range(self.steps):
            _, gradient = features.gap(Y, average)
            Y = Y + 0.2 * length * (1 - step / self.steps) * adam.step(gradient)
        return Update(Y.astype(dtype, copy=False))

    def _features(self, public: PublicParameters) -> RandomFeatures:
        return RandomFeatures(public.kernel, public.features, self.frequencies, public.public_seed)
