"""Low bits: which candidate can reach the value that was seen (Mironov 2012).

Noise σΦ⁻¹(u) with u on a grid takes few of all floating-point numbers. Added to a candidate v it reaches some numbers
and not others, and which ones depends on v.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]
_NEIGHBOURS = np.arange(-8, 9)  # steps of u around the only place where it can be


def reachable(seen: Floats, total: Floats, sigma: float, bits: int = 52) -> NDArray[np.bool_]:
    """Return whether total + sigma·Φ⁻¹(u) is what was seen for some u = (k + ½)2^{−bits}; shape of `seen`."""
    size = 2.0**bits
    middle = np.floor(ndtr((seen - total) / sigma) * size)
    tried = np.clip(middle[..., None] + _NEIGHBOURS, 0, size - 1)
    sums: Floats = total[..., None] + sigma * ndtri((tried + 0.5) / size)
    found: NDArray[np.bool_] = (sums == seen[..., None]).any(axis=-1)
    return found


def guess(seen: Floats, inside: Floats, outside: Floats, sigma: float, bits: int = 52) -> int:
    """Return 1 for "in", −1 for "out", 0 if the bits do not tell: a candidate that misses one value is ruled out."""
    sides = [bool(reachable(seen, total, sigma, bits).all()) for total in (inside, outside)]
    return int(sides[0]) - int(sides[1])
