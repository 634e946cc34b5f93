"""Bracketed roots and minima of one variable.

scipy.optimize takes longer to import than everything else here together, so it is imported when first used.
"""

from __future__ import annotations

from collections.abc import Callable

Function = Callable[[float], float]


def root(function: Function, low: float, high: float, *, absolute: float = 1e-300) -> float:
    """Root of a function that changes sign between `low` and `high`, to machine precision or `absolute`."""
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=absolute, rtol=4 * 2.0**-52, maxiter=500))


def minimum(function: Function, low: float, high: float) -> float:
    """Smallest value that bounded search finds between `low` and `high`."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(function, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
    return float(found.fun)
