"""Where a noisy density stands out of its noise: smooth areas with names, from the released cells alone.

Smoothing, clipping at zero and contours use nothing but the noisy shares: they are post-processing and cost nothing.
The picture and the interactive map draw the same areas.

A finer grid is a cubic B-spline with the cells as its coefficients. Its weights are not negative and add up to 1, so
that a place is never above the largest of the cells around it: where no cell stands out, nothing is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, zoom

from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.density import Density

SMOOTHED = 0.8  # standard deviation of the smoothing, in cells
STANDS_OUT = 4.0  # standard deviations of the noise that is left: about one false cell in 30,000
CONTOURS, CLASS_CONTOURS = 5, 3  # levels of the density of all records, and of each class
FINEST = 160  # cells a side of the grid that contours are drawn on
FRAME = 2  # cells without records around the grid: records beyond count in the cells at its edge


@dataclass(frozen=True, eq=False)
class Rings:
    """An area as closed lines; what lies inside an odd number of them belongs to it.

    Parameters
    ----------
    points : array of shape (n, 2)
        Corners of all lines, one line after the other.
    starts : array of int of shape (lines + 1,)
        Where each begins, and the end of the last.
    """

    points: Array
    starts: NDArray[np.int64]

    @property
    def lines(self) -> list[Array]:
        """The corners of each line."""
        return np.split(self.points, self.starts[1:-1]) if len(self.starts) > 1 else []


@dataclass(frozen=True, eq=False)
class Area:
    """What can be shown of a density: all records, all classes at once, or one class.

    Parameters
    ----------
    name : str
    members : tuple of int
        The layers of the density that it adds up.
    levels : array of shape (levels,)
        Shares of all records in a cell; empty where nothing stands out.
    fills : sequence of (int, Rings)
        Areas above each level, to be painted on each other, each with the layer whose colour it has; −1 for none.
    names : sequence of (str, float, float)
        Classes, and where each is most frequent.
    """

    name: str
    members: tuple[int, ...]
    levels: Array
    fills: Sequence[tuple[int, Rings]]
    names: Sequence[tuple[str, float, float]] = ()


def smoothed(density: Density) -> tuple[Array, float]:
    """Smooth the shares of every class.

    Returns
    -------
    shares : array of shape (layers, cells, cells)
        Some still negative: cut off at 0 before they are added up, they would add up to too much.
    noise : float
        Standard deviation of the noise that is left in each of them; at the edge, where fewer meet, there is less.
    """
    shares: Array = gaussian_filter(density.shares, (0.0, SMOOTHED, SMOOTHED), mode="constant")
    reach = int(4 * SMOOTHED + 0.5)  # scipy's kernel ends there
    impulse = np.zeros(2 * reach + 1)
    impulse[reach] = 1.0
    kernel = gaussian_filter(impulse, SMOOTHED, mode="constant")
    # Independent noise under weights k_i k_j has variance Σ k_i² k_j² = (Σ k_i²)².
    return shares, density.noise * float(kernel @ kernel)


def contour_levels(total: Array, noise: float, count: int = CONTOURS) -> Array:
    """Levels between what stands out of the noise and the peak; none where nothing does.

    Parameters
    ----------
    total : array of shape (cells, cells)
    noise : float
        Standard deviation of the noise in each value.
    count : int
    """
    lowest, peak = max(STANDS_OUT * noise, 1e-3 * float(total.max())), float(total.max())
    return np.geomspace(lowest, peak, count + 1)[:-1] if peak > lowest else np.empty(0)


def drawn_half(density: Density) -> float:
    """Return half the side of the box that areas are drawn in: the grid and its frame."""
    return density.grid.half * (1 + 2 * FRAME / density.grid.cells)


def finer(values: Array) -> Array:
    """Return values on a finer grid, within the frame, nowhere above the cells around a place."""
    framed = np.pad(values, FRAME)
    fine: Array = zoom(framed, max(FINEST // len(framed), 1), order=3, mode="nearest", grid_mode=True, prefilter=False)
    return fine


def above(fine: Array, half: float, level: float) -> Rings:
    """Return where values on a grid over [−half, half]² are above a level."""
    from contourpy import FillType, contour_generator

    middles = grid_middles(half, len(fine))
    generator = contour_generator(middles, middles, fine, fill_type=FillType.ChunkCombinedOffset)
    found: Any = generator.filled(level, math.inf)  # lists of one chunk
    (points,), (starts,) = found
    if points is None:
        return Rings(np.empty((0, 2)), np.zeros(1, dtype=np.int64))
    return Rings(points, starts.astype(np.int64))


def grid_middles(half: float, cells: int) -> Array:
    """Middles of the cells of a side, shape (cells,)."""
    return (np.arange(cells) + 0.5) / cells * 2 * half - half


def areas(density: Density) -> list[Area]:
    """Return what can be shown of a density; with classes, all of them at once come first."""
    shares, noise = smoothed(density)
    half, every = drawn_half(density), tuple(range(len(shares)))
    total = np.maximum(shares.sum(axis=0), 0.0)
    levels = contour_levels(total, noise * math.sqrt(len(shares)))
    summed = finer(total)
    all_records = Area("all records", every, levels, [(-1, above(summed, half, level)) for level in levels])
    if not density.classes:
        return [all_records]
    fine = np.stack([finer(each) for each in shares])
    shown = contour_levels(np.maximum(shares, 0).max(axis=0), noise, CLASS_CONTOURS)
    alone, together, names = [], [], []
    for number, name in enumerate(density.layers):
        own = contour_levels(np.maximum(shares[number], 0), noise)
        # Above all other classes: with a level, an area with smooth borders between them.
        lead = fine[number] - np.delete(fine, number, axis=0).max(axis=0)
        together += [(number, above(np.minimum(fine[number] - level, lead), half, 0.0)) for level in shown]
        place = [] if not len(shown) else _named(name, fine[number], (lead > 0) & (fine[number] > shown[0]), half)
        names += place
        alone.append(Area(name, (number,), own, [(number, above(fine[number], half, each)) for each in own], place))
    return [Area("classes", every, shown, together, names), all_records, *alone]


def _named(name: str, fine: Array, coloured: NDArray[np.bool_], half: float) -> list[tuple[str, float, float]]:
    """Return a class with the place where it is most frequent among those that have its colour; none if it has none."""
    if not coloured.any():
        return []
    row, column = np.unravel_index(np.where(coloured, fine, -np.inf).argmax(), fine.shape)
    middles = grid_middles(half, len(fine))
    return [(name, float(middles[column]), float(middles[row]))]
