"""Random streams without state: each follows from the seed and its purpose.

No stream depends on the use of another. So the number of workers does not change a result, and neither does an
interruption.
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
        """Return the generator for this purpose, such as ``("noise", "gradient", client, round)``."""
        key = tuple(zlib.crc32(part.encode()) if isinstance(part, str) else part for part in purpose)
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))
