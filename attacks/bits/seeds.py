"""Seeds: noise that follows from a seed is taken off by whoever finds the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from dpfedvis.numerics.exact import Integers


def take_off(
    seen: Integers, noise: Callable[[int], Integers], seeds: Iterable[int], bound: float
) -> tuple[int, NDArray[np.int64]] | None:
    """Return a seed whose noise explains the upload, and what is left of it; None if there is no such seed.

    Parameters
    ----------
    seen : array of int64
    noise : callable
        From a seed to the noise that the code would have drawn.
    seeds : iterable of int
        To try.
    bound : float
        Largest value of a total: what is left must be within, which noise of another seed is not.
    """
    for seed in seeds:
        left = seen - noise(seed)
        if int(np.abs(left).max()) <= bound:
            return seed, left
    return None
