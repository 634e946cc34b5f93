"""Mean embedding: one noisy upload per client; fitting landmarks to it is post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from dpfedvis.mechanisms.base import BaseMechanism, PreparedRecords, Update
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Grid, Integers
from dpfedvis.numerics.exact_sums import FEATURE_UNIT, feature_sums
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.optimisers import Adam, Optimiser
from dpfedvis.numerics.random_features import RandomFeatures


@dataclass(frozen=True)
class MeanEmbedding(BaseMechanism):
    """One upload: the mean of random Fourier features. The server then minimises the biased MMD to it by Adam.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        Trust model: what the server sees of the clients.
    frequencies : int
        Number K of random frequencies. An upload has 2K values; more follow the kernel closer and carry more noise.
    steps : int
        Number of Adam steps of the server's fit.
    """

    frequencies: int = 1000
    steps: int = 300
    what: ClassVar[str] = "mean embedding"
    name: ClassVar[str] = "mean-embedding"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("frequencies", self.frequencies, 1, 1_000_000)
        checks.count("steps", self.steps)

    def uploads(self, rounds: int) -> int:
        """One, for any number of rounds."""
        return 1

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """(2K,)."""
        return (2 * self.frequencies,)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """2/n_p, or 1/n_p under add-remove."""
        return sensitivity.mean_embedding(records=records, adjacency=public.adjacency)

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """A part of one feature's amplitude 1/√K."""
        return 1 / (FEATURE_UNIT * math.sqrt(self.frequencies))

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Sum the features; frequencies are integers, so that every angle is exact."""
        features = self._features(public)
        return feature_sums(local.cells(grid), features.integers, features.unit * grid.step, factor=factor)

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Fit Y to the average embedding, from the current Y, with step sizes that fall to 0."""
        features = self._features(public)
        # Length scale of the kernel, per coordinate.
        length = 1 / np.sqrt(2 * public.kernel.mean_gamma * public.features)
        adam, dtype = Adam(step_size=1.0), Y.dtype
        for step in range(self.steps):
            _, gradient = features.gap(Y, average)
            Y = Y + 0.2 * length * (1 - step / self.steps) * adam.step(gradient)
        return Update(Y.astype(dtype, copy=False))

    def _features(self, public: PublicParameters) -> RandomFeatures:
        return RandomFeatures(public.kernel, public.features, self.frequencies, public.public_seed)
