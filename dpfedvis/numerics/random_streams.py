"""Random streams without state: each is made from the seed and from what it is for.

No stream depends on which others were used before it, so that a run gives the same result on any number of workers,
and one that was interrupted goes on as if it had not been.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Streams:
    """Generators of one run.

    Parameters
    ----------
    seed : int
    """

    seed: int

    def generator(self, *purpose: str | int) -> np.random.Generator:
        """Return the one generator for this purpose, such as ``("noise", "gradient", client, round)``."""
        key = tuple(zlib.crc32(part.encode()) if isinstance(part, str) else part for part in purpose)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))
