"""The density: noisy shares of placed records on a public grid, for everyone to see."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.numerics.kernels import Array

LEAST_CELLS, MOST_CELLS = 8, 64


@dataclass(frozen=True)
class DensityGrid:
    """A public square grid over the map; it follows from the landmarks' map alone.

    Parameters
    ----------
    half : float
        It covers [−half, half] in both directions; points outside count in the nearest cell.
    cells : int
        Cells per side.
    """

    half: float
    cells: int

    def __post_init__(self) -> None:
        checks.positive("half", self.half)
        checks.count("cells", self.cells)

    def cell(self, points: Array) -> NDArray[np.int64]:
        """Return the cell number of each point, shape (n,): row by the second coordinate, column by the first."""
        place = np.floor((points + self.half) / (2 * self.half) * self.cells)
        # NaN from a failed layout counts in a cell too: an error would reveal the record that caused it.
        place = np.clip(np.nan_to_num(place), 0, self.cells - 1).astype(np.int64)
        numbers: NDArray[np.int64] = place[:, 1] * self.cells + place[:, 0]
        return numbers


@dataclass(frozen=True, eq=False)
class Density:
    """Released shares of the records in each cell.

    Parameters
    ----------
    grid : DensityGrid
    shares : array of shape (classes, cells, cells)
        Noisy shares of all records, by class if classes were given. Noise makes some negative.
    noise : float
        Standard deviation of the noise in each share.
    classes : tuple of int
        Public labels, in order; empty without classes.
    """

    grid: DensityGrid
    shares: Array
    noise: float
    classes: tuple[int, ...] = ()

    @property
    def total(self) -> Array:
        """Shares over all classes, shape (cells, cells)."""
        summed: Array = self.shares.sum(axis=0)
        return summed


def cells_for(noise: float) -> int:
    """Return the cells per side at which an even share of the records is twice the noise.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise in a cell's share of all records; public.
    """
    fitting = math.isqrt(max(int(1 / (2 * noise)), 1)) if noise > 0 else MOST_CELLS
    return min(max(fitting, LEAST_CELLS), MOST_CELLS)


def cell_numbers(
    cells: NDArray[np.int64], grid: DensityGrid, labels: NDArray[np.int64] | None, classes: tuple[int, ...]
) -> Array:
    """Return cell numbers of placed records by class, shape (n, 1), as `GridCounts` takes them.

    A label outside the public classes counts as the last class: which labels occur is private.
    """
    if labels is None:
        return cells[:, None].astype(np.float64)
    if not classes:
        raise InvalidParameter("classes", classes, "the public list of labels")
    known, last = np.asarray(classes), len(classes) - 1
    order = np.minimum(np.searchsorted(known, labels), last)
    order = np.where(known[order] == labels, order, last)
    return (order * grid.cells**2 + cells)[:, None].astype(np.float64)
