"""Validation of numbers, in one place, so that every message has the same form."""

from __future__ import annotations

import math
from collections.abc import Collection

from accounting.errors import InvalidParameter

LEAST_SHARE = 1e-6
LEAST_NORMAL = 1e-300


def positive(name: str, value: float) -> float:
    """Return `value` as a float, or raise if it is not a finite number above zero."""
    number = _number(name, value, "a finite number above 0")
    if not 0 < number < math.inf:
        raise InvalidParameter(name, value, "a finite number above 0")
    return number


def normal(name: str, value: float) -> float:
    """Return a computed number, or raise if it is so extreme that digits are lost: what it follows from is too."""
    if not LEAST_NORMAL <= value <= 1 / LEAST_NORMAL:
        raise InvalidParameter(
            name, value, f"from {LEAST_NORMAL:g} to {1 / LEAST_NORMAL:g}, which extreme parameters miss"
        )
    return value


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
    finite = type(number) is int or math.isfinite(number)  # an int may be too large for a float
    if not (finite and least <= number <= most and number == math.floor(number)):
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


def product(count: int, value: float) -> float:
    """Return count·value, ``inf`` where it is no float."""
    try:
        return count * value
    except OverflowError:
        return math.inf


def text(name: str, value: str) -> str:
    """Return `value`, or raise if it is not a non-empty string that UTF-8 can encode, as files and JSON need."""
    if not (isinstance(value, str) and value):
        raise InvalidParameter(name, value, "a non-empty string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidParameter(name, value, "a string that UTF-8 can encode") from None
    return value


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
