"""Numbers that must not look smaller than they are."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

# What a calibration may miss its target by, in floating point; no reason to show another digit.
_SLACK = 1e-9


def rounded_up(value: float, digits: int = 4) -> str:
    """Return an ε for people: ∞, a dash for none (NaN), or so many significant digits, the last of them rounded up.

    An ε that is shown smaller than it is would be a false promise, however small the difference.
    """
    if math.isinf(value):
        return "∞"
    if math.isnan(value):
        return "–"
    nearest = f"{value:.{digits}g}"
    if value <= 0 or float(nearest) >= value * (1 - _SLACK):
        return nearest
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """Return a certified lower bound for people: the last of so many significant digits is rounded down."""
    if math.isinf(value):
        return "∞"
    nearest = f"{value:.{digits}g}"
    return nearest if value <= 0 or float(nearest) <= value else _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, way: str) -> str:
    unit = Decimal(10) ** (math.floor(math.log10(value)) - digits + 1)
    return f"{float((Decimal(value) / unit).to_integral_value(way) * unit):.{digits}g}"
