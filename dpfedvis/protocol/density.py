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
OTHER = "other"  # the class of all labels that the public list does not name


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
    shares : array of shape (layers, cells, cells)
        Noisy shares of all records: one layer, or with classes one for each and a last one for all other labels. Noise
        makes some negative.
    noise : float
        Standard deviation of the noise in each share.
    classes : tuple of str
        The public list of classes, in its order; empty without classes.
    """

    grid: DensityGrid
    shares: Array
    noise: float
    classes: tuple[str, ...] = ()

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers by class; empty without classes."""
        return (*self.classes, OTHER) if self.classes else ()

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
    cells: NDArray[np.int64], grid: DensityGrid, labels: NDArray[np.str_] | None, classes: tuple[str, ...]
) -> Array:
    """Return cell numbers of placed records by class, shape (n, 1), as `GridCounts` takes them.

    A class has its number in the public list; every label outside of it counts in the layer after the last. So a
    record's number depends on its own label alone: numbering by the labels that occur would let one record shift all.
    """
    if labels is None:
        return cells[:, None].astype(np.float64)
    if not classes:
        raise InvalidParameter("classes", classes, "the public list of labels")
    numbers = {name: number for number, name in enumerate(classes)}
    order = np.array([numbers.get(label, len(classes)) for label in labels.tolist()], dtype=np.int64)
    return (order * grid.cells**2 + cells)[:, None].astype(np.float64)
