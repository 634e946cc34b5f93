"""Noise sources: discrete Gaussian integers, from a seed or from the operating system.

Both take the same path (`accounting.sampler`); only the random words differ. Each source has a name for the event, and
a sentence for the privacy statement. What is released is a vector of integers on a public grid plus noise, so that no
low bit of a floating-point number can show anything.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from accounting.errors import InvalidParameter
from accounting.sampler import Words, check_parameter, discrete_gaussian, largest

__all__ = [
    "ROUNDED",
    "DiscreteNoise",
    "NoiseSource",
    "SeededNoise",
    "add_rounded",
    "discrete_gaussian",
    "parameter",
]

Integers = NDArray[np.int64]
Parameter = float | NDArray[np.float64]

ROUNDED = (
    "Only the noise is exact: rounding to the grid must be charged to the sensitivity, and what was computed before in "
    "floating-point numbers may depend on a record by more than its sensitivity."
)

_UP = 1 + 2.0**-50  # against rounding, here and where a caller takes a fraction of the parameter


class NoiseSource(Protocol):
    """The plug-in point: something that adds discrete Gaussian noise to integers."""

    @property
    def name(self) -> str:
        """Name that goes into the event."""

    @property
    def statement(self) -> str:
        """What a privacy statement says about it."""

    def add_integers(self, values: Integers, parameter: Parameter) -> Integers:
        """Return `values` plus noise.

        Parameters
        ----------
        values : array of int64
            Of any shape.
        parameter : float or array of float64
            s of each value's noise, in cells of the grid; an array has the shape of `values` and few distinct numbers.
        """


@dataclass(frozen=True)
class SeededNoise:
    """Noise of a numpy generator: for simulation."""

    generator: np.random.Generator
    name: str = "seeded"
    statement: str = (
        "The noise comes from a seeded generator: this run is a simulation, and anyone who knows the seed can "
        "take the noise off again."
    )

    def add_integers(self, values: Integers, parameter: Parameter) -> Integers:
        """Return `values` plus noise; see `NoiseSource`."""
        return _added(values, parameter, self._words)

    def _words(self, size: int) -> NDArray[np.uint64]:
        return self.generator.integers(0, 2**64, dtype=np.uint64, size=size)


@dataclass(frozen=True)
class DiscreteNoise:
    """Noise from the operating system's entropy."""

    name: str = "discrete"
    statement: str = (
        "The noise is a discrete Gaussian on integers, from the operating system's entropy; what its sampler and the "
        "grid add to ε is charged."
    )

    def add_integers(self, values: Integers, parameter: Parameter) -> Integers:
        """Return `values` plus noise; see `NoiseSource`."""
        return _added(values, parameter, _system_words)


def parameter(sigma: float, grid: float, *, parties: int = 1, least: float = 1.0) -> float:
    """Parameter s of each party's noise, in cells, such that all of it together is worth Gaussian noise of `sigma`.

    Parameters
    ----------
    sigma : float
        Noise of the equivalent Gaussian, in the units of the sensitivity.
    grid : float
        Width of a cell, in the same units.
    parties : int
        How many parties share the noise.
    least : float
        Smallest relative noise r_i among the values: value i gets r_i·s. It is 1 where all have the same noise, and
        1/√2 for second moments, whose diagonal has s and whose other values have s/√2.

    Notes
    -----
    By the lemma of `accounting.exactness` value i is worth Gaussian noise of √(P·(r_i s)² − 4) cells. Relative to r_i
    that is √(P·s² − 4/r_i²), which is smallest for the smallest r_i. Solved for s:

        s = √(((sigma/grid)² + 4/least²)/P).
    """
    cells = checks.positive("sigma", sigma) / checks.positive("grid", grid)
    least = checks.rate("least", least)
    share = math.hypot(cells, 2 / least) / math.sqrt(_parties(parties)) * _UP
    if share < math.inf:
        check_parameter(least * share)
    return check_parameter(share)


def add_rounded(values: NDArray[Any], sigma: float, grid: float, source: NoiseSource) -> NDArray[Any]:
    """Round values to a grid, add integer noise worth Gaussian noise of `sigma`, and return floats.

    For code whose values are no integers. **Only the noise is exact.** Rounding moves each of d values by at most half
    a cell (and an error of division, 2⁻⁵³ of the value; none if the grid is a power of two), so two neighbours that
    differ by Δ differ by at most Δ + grid·√d afterwards: that is the sensitivity to account for. And if the values were
    computed by sums of floating-point numbers, one record may move them by more than Δ, by rounding in another order.
    `ROUNDED` says so, for a statement.

    Parameters
    ----------
    values : array of float32 or float64
        Finite, and below 2⁵² cells.
    sigma, grid : float
        As in `parameter`.
    source : NoiseSource
    """
    if not isinstance(values, np.ndarray) or values.dtype not in (np.float32, np.float64):
        kind = getattr(values, "dtype", type(values).__name__)
        raise InvalidParameter("values", kind, "an array of type float32 or float64")
    cells = parameter(sigma, grid)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = np.rint(values.astype(np.float64) / grid)
    if not (np.abs(rounded) < 2.0**52).all():
        raise InvalidParameter("values", "nan, inf or large", "finite and below 2⁵² cells of the grid")
    noisy = source.add_integers(rounded.astype(np.int64), cells)
    with np.errstate(over="ignore"):
        floats: NDArray[Any] = (noisy * grid).astype(values.dtype, copy=False)
    return floats


def _added(values: Integers, parameter: Parameter, words: Words) -> Integers:
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        kind = getattr(values, "dtype", type(values).__name__)
        raise InvalidParameter("values", kind, "an array of type int64")
    if not isinstance(parameter, np.ndarray):
        _check_room(values, parameter)
        noisy = discrete_gaussian(parameter, values.shape, words)
        noisy += values
        return noisy
    if parameter.shape != values.shape:
        raise InvalidParameter("the shape of the parameters", parameter.shape, f"that of the values, {values.shape}")
    result = np.empty_like(values, order="C")
    groups = np.unique(parameter)
    for each in groups.tolist():
        check_parameter(each)
    for each in groups.tolist():
        members = parameter == each
        chosen = values[members]
        _check_room(chosen, each)
        result[members] = chosen + discrete_gaussian(each, chosen.shape, words)
    return result


def _check_room(values: Integers, parameter: float) -> None:
    """Raise if values plus noise could leave int64, whatever the noise will be."""
    room = 2**63 - 1 - largest(parameter)
    if values.size and not (-room <= int(values.min()) and int(values.max()) <= room):
        expected = f"within ±{room}, so that values and noise together are int64"
        raise InvalidParameter("values", (int(values.min()), int(values.max())), expected)


def _parties(parties: int) -> int:
    return checks.whole("parties", parties, 1, 10**6)


def _system_words(size: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
