"""Validation of numbers, in one place, so that every message has the same form."""

from __future__ import annotations

import math
from collections.abc import Collection

from accounting.errors import InvalidParameter

LEAST_SHARE = 1e-6


def positive(name: str, value: float) -> float:
    """Return `value` as a float, or raise if it is not a finite number above zero."""
    number = _number(name, value, "a finite number above 0")
    if not 0 < number < math.inf:
        raise InvalidParameter(name, value, "a finite number above 0")
    return number


def nonnegative(name: str, value: float) -> float:
    """Return `value` as a float, or raise if it is not a finite number of at least zero."""
    number = _number(name, value, "a finite number of at least 0")
    if not 0 <= number < math.inf:
        raise InvalidParameter(name, value, "a finite number of at least 0")
    return number


def probability(name: str, value: float) -> float:
    """Return `value` as a float, or raise if it is not strictly between zero and one."""
    number = _number(name, value, "strictly between 0 and 1")
    if not 0 < number < 1:
        raise InvalidParameter(name, value, "strictly between 0 and 1")
    return number


def rate(name: str, value: float) -> float:
    """Return `value` as a float, or raise if it is not in (0, 1]."""
    number = _number(name, value, "in (0, 1]")
    if not 0 < number <= 1:
        raise InvalidParameter(name, value, "in (0, 1]")
    return number


def count(name: str, value: int) -> int:
    """Return `value` as an int, or raise if it is not a whole number of at least one."""
    return at_least(name, value, 1)


def at_least(name: str, value: int, least: int) -> int:
    """Return `value` as an int, or raise if it is not a whole number of at least `least`."""
    return whole(name, value, least)


def whole(name: str, value: int, least: int, most: float = math.inf) -> int:
    """Return `value` as an int, or raise if it is not a whole number from `least` to `most`; no digit is lost."""
    expected = f"a whole number {f'of at least {least}' if most == math.inf else f'from {least} to {most}'}"
    number = value if type(value) is int else _number(name, value, expected)
    if not (math.isfinite(number) and least <= number <= most and number == math.floor(number)):
        raise InvalidParameter(name, value, expected)
    return int(number)


def between(name: str, value: float, least: float, most: float) -> float:
    """Return `value` as a float, or raise if it is not a number from `least` to `most`."""
    expected = f"a number from {least:g} to {most:g}"
    number = _number(name, value, expected)
    if not least <= number <= most:
        raise InvalidParameter(name, value, expected)
    return number


def share(name: str, value: float) -> float:
    """Return `value` as a float, or raise if it is no share of a budget: smaller ones would ask for endless noise."""
    return between(name, value, LEAST_SHARE, 1 - LEAST_SHARE)


def one_of(name: str, value: str, choices: Collection[str]) -> str:
    """Return `value`, or raise if it is not one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidParameter(name, value, "one of " + ", ".join(choices))
    return value


def _number(name: str, value: float, expected: str) -> float:
    if isinstance(value, bool | str | bytes):
        raise InvalidParameter(name, value, expected)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(name, value, expected) from None
