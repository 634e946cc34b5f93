"""Rows: one vector per record, released once the landmarks are known.

Exact rows determine the records (`attacks.reconstruct_from_distances`), so their release is unprotected unless the
records were perturbed. Noisy rows are a local-DP release of one vector per record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from accounting import sensitivity
from accounting.budget import Adjacency
from dpfedvis.numerics.distances import CUTOFF
from dpfedvis.numerics.exact import (
    AXES_UNIT,
    KERNEL_BITS,
    Cells,
    Grid,
    Integers,
    check_axes,
    integer_axes,
    products,
)
from dpfedvis.numerics.exact_sums import distance_rows, kernel_rows
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix, squared_distances

BLOCK_ROWS = 2048


class Rows(Protocol):
    """Protocol: a vector for each record, computed from that record and the landmarks alone."""

    @property
    def what(self) -> str:
        """Name in the ledger."""

    def width(self, Y: Array) -> int:
        """Length of a row."""

    def of(self, X: Array, Y: Array) -> Array:
        """Rows of the records X, shape (n, width)."""

    def sensitivity(self, tau_x: float, landmarks: int, adjacency: Adjacency) -> float:
        """L2 sensitivity of all rows together for records clipped to norm `tau_x`.

        Without the rounding of the values of a row, which adds a cell to each.
        """

    def cell(self, grid: Grid) -> float:
        """What one cell of `integers` is worth."""

    def integers(self, X: Cells, Y: Array, grid: Grid) -> Integers:
        """Rows of records on a grid, each value rounded by itself, shape (n, width)."""


def row_grid(tau_x: float, Y: Array) -> Grid:
    """Return the grid of noisy rows: it has room for records of norm τ_X, and for the landmarks."""
    return Grid.of_norm(max(tau_x, float(np.abs(Y).max())), Y.shape[1])


def noisy_rows(rows: Rows, X: Array, Y: Array, tau_x: float) -> Integers:
    """Return the rows of records as they get their noise, shape (n, width)."""
    grid = row_grid(tau_x, Y)
    made = [
        rows.integers(grid.clipped(X[start : start + BLOCK_ROWS], tau_x), Y, grid)
        for start in range(0, len(X), BLOCK_ROWS)
    ]
    return np.concatenate(made) if made else np.zeros((0, rows.width(Y)), dtype=np.int64)


@dataclass(frozen=True)
class DistanceRows:
    """Distances to the landmarks, float64: what the paper uploads."""

    what: ClassVar[str] = "distance rows"

    def width(self, Y: Array) -> int:
        """n_y."""
        return len(Y)

    def of(self, X: Array, Y: Array) -> Array:
        """Compute D(X, Y) in float64: squaring it later must not lose digits."""
        return np.concatenate([np.sqrt(squared_distances(x, Y.astype(np.float64))) for x in _blocks(X)])

    def sensitivity(self, tau_x: float, landmarks: int, adjacency: Adjacency) -> float:
        """2τ_X√n_y."""
        return sensitivity.distance_rows(tau_x=tau_x, landmarks=landmarks, adjacency=adjacency)

    def cell(self, grid: Grid) -> float:
        """That of the grid."""
        return grid.step

    def integers(self, X: Cells, Y: Array, grid: Grid) -> Integers:
        """Roots of exact squared distances."""
        return distance_rows(X, grid.nearest(Y))


@dataclass(frozen=True)
class GramRows:
    """Coordinates in the landmarks' affine span: fewer numbers than distances, and a smaller sensitivity.

    With Y − ȳ = U S Vᵀ the coordinates of x are (x − ȳ) V, the same as in `dpfedvis.numerics.distances.GramFrame` but
    computed by the client without squared distances.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise that will be added. Directions in which the landmarks spread less,
        s²/n_y < noise², would have more noise than signal and are dropped.
    """

    noise: float = 0.0
    what: ClassVar[str] = "gram rows"

    def width(self, Y: Array) -> int:
        """Number of directions kept."""
        return int(self._axes(Y).shape[1])

    def of(self, X: Array, Y: Array) -> Array:
        """Compute the coordinates in float64."""
        axes, centre = self._axes(Y), Y.mean(axis=0, dtype=np.float64)
        return np.concatenate([(x - centre) @ axes for x in _blocks(X)])

    def sensitivity(self, tau_x: float, landmarks: int, adjacency: Adjacency) -> float:
        """2τ_X."""
        return sensitivity.gram_rows(tau_x=tau_x, adjacency=adjacency)

    def cell(self, grid: Grid) -> float:
        """That of the grid."""
        return grid.step

    def integers(self, X: Cells, Y: Array, grid: Grid) -> Integers:
        """Products with integer axes, rounded towards zero. The axes' spectral norm, on which Δ rests, is checked."""
        axes, centre = integer_axes(self._axes(Y)), grid.nearest(Y.mean(axis=0, dtype=np.float64))
        check_axes(axes)
        product = products(X.astype(np.float64) - centre, np.ascontiguousarray(axes.T))
        return np.trunc(product / AXES_UNIT).astype(np.int64)

    def _axes(self, Y: Array) -> Array:
        centred = Y - Y.mean(axis=0, dtype=np.float64)
        _, values, right = np.linalg.svd(centred, full_matrices=False)
        kept = values**2 > max(CUTOFF * values[0] ** 2, len(Y) * self.noise**2)
        kept[0] = True
        axes: Array = right[kept].T
        return axes


@dataclass(frozen=True)
class KernelRows:
    """Kernel values at the landmarks, for clustering.

    Parameters
    ----------
    kernel : Kernel
    """

    kernel: Kernel
    what: ClassVar[str] = "kernel rows"

    def width(self, Y: Array) -> int:
        """n_y."""
        return len(Y)

    def of(self, X: Array, Y: Array) -> Array:
        """Compute K(X, Y) in float64."""
        return np.concatenate([kernel_matrix(x, Y.astype(np.float64), self.kernel) for x in _blocks(X)])

    def sensitivity(self, tau_x: float, landmarks: int, adjacency: Adjacency) -> float:
        """√n_y min(1, 2τ_X √(2γ/e))."""
        return sensitivity.kernel_rows(gamma=self.kernel.gammas, landmarks=landmarks, tau_x=tau_x, adjacency=adjacency)

    def cell(self, grid: Grid) -> float:
        """2^{−b}."""
        return 2.0**-KERNEL_BITS

    def integers(self, X: Cells, Y: Array, grid: Grid) -> Integers:
        """Kernel values of exact squared distances."""
        return kernel_rows(X, grid.nearest(Y), self.kernel, grid)


def _blocks(X: Array) -> list[Array]:
    return [X[start : start + BLOCK_ROWS].astype(np.float64) for start in range(0, len(X), BLOCK_ROWS)]


ROW_RELEASES = frozenset((DistanceRows.what, GramRows.what, KernelRows.what))
