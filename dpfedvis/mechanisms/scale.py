"""Scale of the data: releases that give the kernel's bandwidth and the starting point.

A bandwidth may be given, or follow from public feature bounds. Learned from the data it is a release: `Moments` and
`ScaleHistogram` are protected; `MedianDistance`, the usual heuristic, is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting import checks, sensitivity
from accounting.errors import InvalidParameter
from accounting.events import Stage
from dpfedvis.mechanisms.base import BaseMechanism, Message, PreparedRecords, Protection, Update
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Grid, Integers, block_rows
from dpfedvis.numerics.exact_sums import COUNT_UNIT, UNIT, moment_sums
from dpfedvis.numerics.kernels import Array, Kernel, squared_distances
from dpfedvis.numerics.optimisers import Optimiser

Bounds = tuple[float, float]

CELLS = 128
_PAIRS = 0x50414952  # keeps the shuffle apart from every other stream
SURE = 3.0  # standard deviations, below which a scale is no better than what public bounds say
STANDS_OUT = 5.0  # standard deviations: one false cell in 128 less than once in ten thousand runs


@dataclass(frozen=True)
class ScaleRelease(BaseMechanism):
    """A single release, which moves no landmarks."""

    stage: ClassVar[Stage] = "scale"

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Return Y unchanged."""
        return Update(Y)


@dataclass(frozen=True)
class Moments(ScaleRelease):
    """One release of mean and mean square: (x/τ, ‖x‖²/τ²), averaged over records clipped to norm τ.

    Parameters
    ----------
    tau_x : float
        Public clipping norm τ.
    """

    tau_x: float = 1.0
    name: ClassVar[str] = "moments"
    what: ClassVar[str] = "moments"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("tau_x", self.tau_x)

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """(m + 1,)."""
        return (public.features + 1,)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """2/n_p, or √2/n_p under add-remove."""
        return sensitivity.moments(records=records, adjacency=public.adjacency)

    def grid(self, public: PublicParameters, Y: Array) -> Grid:
        """Of records clipped to τ."""
        return Grid.of_norm(self.tau_x, public.features)

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """A part of τ, or of τ²."""
        return 1 / UNIT

    def rounded(self, public: PublicParameters) -> float:
        """The square: of two records of one norm, rounding can part the squares by a cell."""
        return 1.0

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Sum records and squares."""
        return moment_sums(local.cells(grid), grid.step / self.tau_x, factor=factor)

    def mean(self, average: Array, variance: float = 0.0, bounds: Bounds | None = None) -> Array:
        """Mean of the records, shape (m,), drawn towards a public middle by as much as it is noise.

        Model: its offsets from the middle have variance s, at most that of the public range, and what is seen has the
        noise besides; s/(s + noise) of it is kept. With s estimated from what is seen this is the positive-part
        estimator of James and Stein.

        Parameters
        ----------
        average : array of shape (m + 1,)
            What the server received.
        variance : float
            Variance of the noise in each value.
        bounds : (float, float), optional
            Public range of every feature; by default only the norm's bound is known.
        """
        features, noise = len(average) - 1, variance * self.tau_x**2
        low, high = bounds or (0.0, 0.0)
        offset = average[:-1] * self.tau_x - (low + high) / 2
        largest = (high - low) ** 2 / 12 if bounds else self.tau_x**2 / features
        signal = min(max(float(offset @ offset) / features - noise, 0.0), largest)
        part = signal / (signal + noise) if noise else 1.0
        mean: Array = (low + high) / 2 + part * offset
        return mean

    def mean_squared_distance(self, average: Array, variance: float, expected: float | None = None) -> float:
        """Mean squared distance of two records, 2(E‖x‖² − ‖E x‖²).

        Parameters
        ----------
        average : array of shape (m + 1,)
            What the server received.
        variance : float
            Variance of the noise in each value. It adds m·variance to ‖E x‖², which is subtracted here.
        expected : float, optional
            What public bounds let expect. Taken where what is seen is below `SURE` standard deviations of its noise
            and the rounding, unless what is seen and as much more are less: records seldom fill their bounds.

        Notes
        -----
        With noise e_j of variance v, the estimate is off by 2(e_{m+1} − 2⟨x̄, e⟩ − Σ(e_j² − v)), of variance
        4(v + 4v‖x̄‖² + 2mv²). Each record's values are rounded down by up to 1/`UNIT`, which moves it by at most
        2(1 + 2√m‖x̄‖)/`UNIT`.
        """
        mean, square = average[:-1], float(average[-1])
        length = max(float(mean @ mean) - variance * len(mean), 0.0)
        spread = 2 * (square - (float(mean @ mean) - variance * len(mean)))
        deviation = 2 * math.sqrt(variance + 4 * variance * length + 2 * len(mean) * variance**2)
        if expected is None:
            # With noise this may be 0 or negative; a hundredth of τ² keeps γ finite.
            return max(spread, 0.01) * self.tau_x**2
        rounding = 2 * (1 + 2 * math.sqrt(length * len(mean))) / UNIT
        hidden = SURE * deviation + rounding
        if spread >= hidden:
            return spread * self.tau_x**2
        return min(expected, (max(spread, 0.0) + hidden) * self.tau_x**2)


@dataclass(frozen=True)
class ScaleHistogram(ScaleRelease):
    """Histogram of squared distances and squared norms by powers of two: no bound on the data is needed.

    Each client pairs its records, by a shuffle that depends on their number alone, and counts the pairs' squared
    distances and the records' squared norms in cells [2^e, 2^{e+1}), e from −64 to 63. Replace-one only: one record
    more would pair all records anew.
    """

    name: ClassVar[str] = "scale-histogram"
    what: ClassVar[str] = "scale histogram"

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """(256,): cells of distances, then of norms."""
        return (2 * CELLS,)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """2/n_p."""
        return sensitivity.scale_histogram(adjacency=public.adjacency) / records

    def grid(self, public: PublicParameters, Y: Array) -> Grid:
        """None is needed: this release is what grids are made from."""
        return Grid(1.0, 1)

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """A part of one record."""
        return 1 / COUNT_UNIT

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Count."""
        records, rows = local.records, block_rows(public.features)
        shuffled = np.random.default_rng([_PAIRS, len(records)]).permutation(len(records))
        pairs = shuffled[: len(records) // 2 * 2].reshape(-1, 2)
        counts = np.zeros(2 * CELLS, dtype=np.int64)
        for start in range(0, len(records), rows):
            one, other = pairs[start : start + rows].T
            distances = _octaves(_squares(records[one], records[other]))
            norms = _octaves(_squares(records[start : start + rows]))
            counts += count_cells(np.concatenate([distances, CELLS + norms]), 2 * CELLS, factor)
        return counts

    def squared_distance(self, average: Array, noise: float, features: int) -> float:
        """Typical squared distance: the middle of the fullest cell, except the lowest (equal records).

        If no cell stands out of the noise: 2m, as for standardised features.
        """
        cell = 1 + int(np.argmax(average[1:CELLS]))
        if average[cell] <= STANDS_OUT * noise:
            return 2.0 * features
        return float(2.0 ** (cell - CELLS // 2 + 0.5))

    def norm_bound(self, average: Array, noise: float, features: int) -> float:
        """Norm that few records exceed: the upper end of the highest cell that stands out of the noise."""
        high = np.flatnonzero(average[CELLS:] > STANDS_OUT * noise)
        if len(high) == 0:
            return float(2 * np.sqrt(features))  # standardised features, as above
        return float(2.0 ** ((int(high[-1]) - CELLS // 2 + 1) / 2))


@dataclass(frozen=True)
class ExactMean(ScaleRelease):
    """The exact mean of the records, for runs without protection."""

    name: ClassVar[str] = "exact-mean"
    what: ClassVar[str] = "mean"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "the exact mean of the records"

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """(m,)."""
        return (public.features,)

    def sensitivity(self, public: PublicParameters, records: float) -> None:
        """Nothing is protected."""
        return None

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the mean."""
        return Message(local.records.mean(axis=0, dtype=np.float64))


@dataclass(frozen=True)
class MedianDistance(ScaleRelease):
    """The median heuristic, without protection: each client's median squared distance.

    Parameters
    ----------
    records : int
        Largest number of records to compare.
    """

    records: int = 1000
    name: ClassVar[str] = "median"
    what: ClassVar[str] = "median distance"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "a median of private distances, without noise"

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """(1,)."""
        return (1,)

    def sensitivity(self, public: PublicParameters, records: float) -> None:
        """Nothing is protected."""
        return None

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the median over pairs of different records; 0 for a single record."""
        chosen = generator.permutation(len(local.records))[: self.records]
        records = local.records[chosen]
        above = squared_distances(records, records)[np.triu_indices(len(records), k=1)]
        return Message(np.array([float(np.median(above)) if above.size else 0.0]))


def count_cells(numbers: NDArray[np.int64], cells: int, factor: float) -> Integers:
    """Counts of cell numbers, shape (cells,); a record counts for `factor`·`COUNT_UNIT`, rounded down."""
    # Whatever a number is, it counts: a failure would tell of the record that caused it.
    inside = np.clip(numbers, 0, cells - 1)
    counts: Integers = np.bincount(inside, minlength=cells) * math.floor(factor * COUNT_UNIT)
    return counts


def _squares(records: Array, others: Array | None = None) -> Array:
    """‖x‖², or ‖x − x′‖² for pairs of rows, shape (n,), float64.

    Feature by feature: each step is rounded by itself, so that a record's value does not depend on its place, as it
    could in a sum by rows.
    """
    squares = np.zeros(len(records))
    for column in range(records.shape[1]):
        values = records[:, column].astype(np.float64)
        if others is not None:
            values -= others[:, column]
        squares += values * values
    return squares


def _octaves(squares: Array) -> NDArray[np.int64]:
    """Number of the power of two below each value, from 0 to CELLS − 1; values outside go to the nearest."""
    # frexp gives a mantissa in [1/2, 1), so 2^e ≤ value < 2^{e+1} has exponent e + 1. Zero goes to the lowest cell.
    exponents = np.where(squares > 0, np.frexp(squares)[1] - 1, -CELLS)
    numbers: NDArray[np.int64] = np.clip(exponents + CELLS // 2, 0, CELLS - 1).astype(np.int64)
    return numbers


def public_kernel(features: int, bounds: Bounds | None) -> Kernel:
    """Kernel from public feature bounds: γ is one over the mean squared distance of two uniform points of the box.

    That distance is m(high − low)²/6.
    """
    if bounds is None:
        raise InvalidParameter("bounds", None, 'given, as (low, high), for gamma="public"')
    low, high = bounds
    return Kernel.gaussian(6 / (features * (high - low) ** 2))


def kernel_of_distance(squared_distance: float) -> Kernel:
    """Kernel with γ = 1/(typical squared distance)."""
    if not squared_distance > 0:
        raise InvalidParameter(
            "typical squared distance", squared_distance, "above 0: are all records equal, or is there one per client?"
        )
    return Kernel.gaussian(1 / squared_distance)
