"""A picture for everyone: noisy counts of placed records on a public grid."""

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
    """A square grid over the map, the same for everybody: it follows from the landmarks' map alone.

    Parameters
    ----------
    half : float
        It covers [−half, half] in both directions; what lies outside is counted in the cell at the edge.
    cells : int
        Cells a side.
    """

    half: float
    cells: int

    def __post_init__(self) -> None:
        checks.positive("half", self.half)
        checks.count("cells", self.cells)

    def cell(self, points: Array) -> NDArray[np.int64]:
        """Number of each point's cell, shape (n,): row of the second coordinate, column of the first."""
        place = np.floor((points + self.half) / (2 * self.half) * self.cells)
        # A layout that failed is counted at the edge as well: an error would tell of the record that broke it.
        place = np.clip(np.nan_to_num(place), 0, self.cells - 1).astype(np.int64)
        numbers: NDArray[np.int64] = place[:, 1] * self.cells + place[:, 0]
        return numbers


@dataclass(frozen=True, eq=False)
class Density:
    """What the counts came to.

    Parameters
    ----------
    grid : DensityGrid
    shares : array of shape (classes, cells, cells)
        Noisy shares of all records; one class unless labels were asked for. Noise makes some of them negative.
    noise : float
        Standard deviation of the noise in each share.
    classes : tuple of int
        Public labels, in order; empty if labels were not asked for.
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
    """Cells a side such that an even spread of records would stand out of the noise twice over.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise in a cell's share of all records; public.
    """
    fitting = math.isqrt(max(int(1 / (2 * noise)), 1)) if noise > 0 else MOST_CELLS
    return min(max(fitting, LEAST_CELLS), MOST_CELLS)


def numbered(
    cells: NDArray[np.int64], grid: DensityGrid, labels: NDArray[np.int64] | None, classes: tuple[int, ...]
) -> Array:
    """Cell numbers of placed records with their class, shape (n, 1), as `GridCounts` takes them.

    A label that is not among the public classes is counted with the last of them: which labels occur is private.
    """
    if labels is None:
        return cells[:, None].astype(np.float64)
    if not classes:
        raise InvalidParameter("classes", classes, "the public list of labels")
    known, last = np.asarray(classes), len(classes) - 1
    order = np.minimum(np.searchsorted(known, labels), last)
    order = np.where(known[order] == labels, order, last)
    return (order * grid.cells**2 + cells)[:, None].astype(np.float64)
