"""A public affine subspace, in which sites compute the coordinates of their records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpfedvis.numerics.exact import AXES_UNIT, Grid, block_rows, products
from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True, eq=False)
class Subspace:
    """A public affine subspace.

    Parameters
    ----------
    centre : array of shape (m,)
    axes : array of shape (m, d)
        Orthonormal, up to their rounding to multiples of 1/`AXES_UNIT`.
    variances : array of shape (d,)
        Estimated variances of the data along each axis.
    raw : Grid
        Of the records.
    """

    centre: Array
    axes: Array
    variances: Array
    raw: Grid

    def __post_init__(self) -> None:
        for array in (self.centre, self.axes, self.variances):
            # Part of the frame that clients share: it must not change.
            array.setflags(write=False)

    @property
    def grid(self) -> Grid:
        """Grid of the coordinates: 2¹² cells for their spread, and 2⁸ spreads for the farthest record."""
        spread = math.sqrt(float(self.variances.sum()))
        return Grid.of_range(2.0**8 * spread, 2.0**-12 * spread, len(self.variances), "spread of the records")

    def coordinates(self, X: Array) -> Array:
        """Return the coordinates of records, shape (n, d), float32; on the grid, each record by itself.

        Products of integers, rounded towards zero: a coordinate has at most 20 bits, so that float32 holds it.
        """
        axes = np.ascontiguousarray(np.rint(self.axes * AXES_UNIT).T)
        centre, grid = self.raw.nearest(self.centre), self.grid
        places = np.empty((len(X), len(axes)), dtype=np.float32)
        for start in range(0, len(X), rows := block_rows(X.shape[1])):
            cells = self.raw.cells(X[start : start + rows]).astype(np.float64) - centre
            product = np.trunc(products(cells, axes) * (self.raw.step / AXES_UNIT / grid.step))
            places[start : start + rows] = np.clip(product, -grid.most, grid.most) * grid.step
        return places

    def arrays(self) -> dict[str, Array]:
        """Return all of it as arrays, for a file."""
        raw = np.array([self.raw.step, self.raw.most])
        return {"centre": self.centre, "axes": self.axes, "variances": self.variances, "raw": raw}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> Subspace:
        """Inverse of `arrays`."""
        step, most = arrays["raw"]
        return cls(arrays["centre"], arrays["axes"], arrays["variances"], Grid(float(step), int(most)))

    def points(self, Z: Array) -> Array:
        """Return the points of the subspace with these coordinates, shape (n, m)."""
        return self.centre + Z.astype(np.float64) @ self.axes.T
