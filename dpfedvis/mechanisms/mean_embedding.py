"""Mean embedding: one noisy upload for each client, to which the server fits any number of landmarks for free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from dpfedvis.kernels import Array
from dpfedvis.mechanisms.base import BaseMechanism, Local, Message, Step
from dpfedvis.optimisers import Adam, Optimiser
from dpfedvis.random_features import RandomFeatures
from dpfedvis.setting import Setting


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

    def shape(self, setting: Setting) -> tuple[int, ...]:
        """(2K,)."""
        return (2 * self.frequencies,)

    def sensitivity(self, setting: Setting, records: float) -> float:
        """2/n_p, or 1/n_p under add-remove."""
        return sensitivity.mean_embedding(records=records, adjacency=setting.adjacency)

    def message(self, local: Local, Y: Array, setting: Setting, generator: np.random.Generator) -> Message:
        """Compute the mean embedding of the records."""
        total = self._features(setting).total(local.records)
        return Message((total / local.denominator).astype(Y.dtype, copy=False))

    def update(self, Y: Array, average: Array, setting: Setting, optimiser: Optimiser) -> Step:
        """Fit Y to the average embedding, from the Y at hand, with steps that shrink to nothing."""
        features = self._features(setting)
        # Natural length of the kernel, spread over the coordinates.
        length = 1 / np.sqrt(2 * setting.kernel.mean_gamma * setting.features)
        adam, dtype = Adam(step_size=1.0), Y.dtype
        for step in range(self.steps):
            _, gradient = features.gap(Y, average)
            Y = Y + 0.2 * length * (1 - step / self.steps) * adam.step(gradient)
        return Step(Y.astype(dtype, copy=False))

    def _features(self, setting: Setting) -> RandomFeatures:
        return RandomFeatures(setting.kernel, setting.features, self.frequencies, setting.public_seed)
