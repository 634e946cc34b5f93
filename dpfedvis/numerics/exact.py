"""Exact arithmetic: sums over records whose bits depend on the records alone.

A proof over the reals is void if rounding depends on the data. So records and landmarks are put on a public grid of
integers, once, and every sum over records is a sum of integers. Products and sums of integer-valued float64 are exact
as long as every partial sum is below 2⁵³: in any order, for any block size, any number of threads and any BLAS. Then
the upload of n records minus that of n − 1 is exactly what the one record adds by itself.

Elementwise operations act on exact arguments. Sums, products, quotients and square roots are rounded by IEEE 754, the
same everywhere. exp, cos and sin are not, and a library may treat the end of an array differently, so `elementwise`
calls them on blocks of one fixed size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.numerics.kernels import Array, Kernel

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Cells = NDArray[np.integer[Any]] | Floats  # floats without fractions


class CellRows(Protocol):
    """Cells of records, shape (n, m), which a sum over records reads block by block: an array, or computed."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


EXACT = 2.0**53  # integers up to here are float64
MOST_BITS = 20  # of a coordinate
BOUNDED_BITS = 14  # of a coordinate with public bounds: fits int16
KERNEL_BITS = 16  # of a kernel value
BLOCK_VALUES = 2**19  # of a block of records × landmarks: 4 MiB
MOST_KEPT = 2**26  # bytes of cells that are kept from sum to sum
CHUNK = 2**13  # elements of one call of exp, cos or sin
# exp, cos and sin are good to a few ulp and γr² to 2⁻⁵² of 745 at most. Values are lowered by this before they are
# rounded down, so that no rounded value is above the true one.
LOWERED = 1 - 2.0**-40
AXES_UNIT = 2**18  # cells of an axis of length 1


@dataclass(frozen=True)
class Grid:
    """A public grid: a point has integer coordinates in units of `step`, at most `most` in size.

    Parameters
    ----------
    step : float
        Width of a cell, a power of two: then points are exact floats.
    most : int
        Largest coordinate, in cells. Larger ones are clamped.
    """

    step: float
    most: int

    def __post_init__(self) -> None:
        checks.positive("step", self.step)
        if math.frexp(self.step)[0] != 0.5:
            raise InvalidParameter("step", self.step, "a power of two")
        checks.whole("most", self.most, 1, 2**MOST_BITS)

    @classmethod
    def of_range(cls, largest: float, finest: float, features: int, at: str = "bounds") -> Grid:
        """Return the grid of coordinates up to `largest`, with steps of at most `finest` where the bits allow it.

        Bits. A squared distance of points with norms X and Y is exact if (X + Y)² ≤ 2⁵³, and X, Y ≤ √m·most. So most
        may have ⌊(51 − log₂ m)/2⌋ bits.

        Parameters
        ----------
        largest, finest : float
        features : int
            Number of coordinates m.
        at : str
            What `largest` comes from, for the error.
        """
        bits = min(MOST_BITS, int((51 - math.log2(checks.count("features", features))) / 2))
        step = 2.0 ** math.floor(math.log2(checks.positive("finest", finest)))
        while checks.positive(at, largest) / step > 2**bits:
            step *= 2
        return cls(step, max(1, math.ceil(largest / step)))

    def exact_for(self, features: int) -> bool:
        """Whether squared distances of points with so many features are exact: m (2·most)² ≤ 2⁵³."""
        return features * (2 * self.most) ** 2 <= 2**53

    @classmethod
    def of_bounds(cls, low: float, high: float, features: int) -> Grid:
        """Return the grid of points whose coordinates are publicly known to lie between `low` and `high`."""
        return cls.of_range(max(abs(low), abs(high)), (high - low) / 2**BOUNDED_BITS, features)

    @classmethod
    def of_norm(cls, norm: float, features: int) -> Grid:
        """Return the grid of points that are clipped to a public norm, as fine as the bits allow."""
        return cls.of_range(norm, norm / 2**MOST_BITS, features, "norm")

    @classmethod
    def around(cls, Y: Array, kernel: Kernel) -> Grid:
        """Return the grid of landmarks and of all records that can reach one of them.

        Beyond r₀ = √((b + 1) ln 2/γ) the kernel is below 2^{−b−1}, so that it is 0 after rounding to b bits. A record
        that is clamped to the box of the landmarks widened by r₀ stays at least r₀ away from all of them.
        """
        largest = float(np.abs(Y).max()) + reach(kernel)
        finest = 2.0**-12 / math.sqrt(max(kernel.gammas))
        return cls.of_range(largest, finest, Y.shape[1], "largest coordinate of a landmark")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Smallest integer type that holds a cell."""
        return np.dtype(np.int16 if self.most < 2**15 else np.int32)

    def cells(self, X: Array) -> Cells:
        """Return the cells of records, shape (n, m), rounded towards zero and clamped; each value by itself."""
        cells = np.empty(X.shape, self.dtype)
        rows = max(1, BLOCK_VALUES // max(X.shape[1], 1))
        for start in range(0, len(X), rows):
            scaled = X[start : start + rows].astype(np.float64) / self.step
            np.clip(scaled, -self.most, self.most, out=scaled)
            cells[start : start + rows] = scaled  # a cast to integers rounds towards zero
        return cells

    def clipped(self, X: Array, norm: float) -> Cells:
        """Return the cells of records, shape (n, m), clipped to a public norm; each record by itself.

        One beyond the grid is scaled into it first: clamping its coordinates one by one would turn it.
        """
        cells, edge = np.empty(X.shape, self.dtype), self.most * self.step
        rows = max(1, BLOCK_VALUES // max(X.shape[1], 1))
        for start in range(0, len(X), rows):
            block = X[start : start + rows].astype(np.float64)
            largest = np.abs(block).max(axis=1, initial=0.0)
            if len(far := np.flatnonzero(largest > edge)):
                block[far] *= (edge / largest[far])[:, None]
            whole = np.clip(np.trunc(block / self.step), -self.most, self.most)
            cells[start : start + rows] = clip_cells(whole, norm / self.step)
        return cells

    def rows(self, X: Array, norm: float | None = None) -> CellRows:
        """Return the cells of records, shape (n, m), clipped to a public norm if one is given.

        Where they would take more than `MOST_KEPT` bytes they are computed block by block, as often as they are read.
        """
        rows = _Computed(self, X, norm)
        return rows[:] if X.size * self.dtype.itemsize <= MOST_KEPT else rows

    def nearest(self, Y: Array) -> Cells:
        """Return the cells next to public points, shape (n_y, m)."""
        scaled = np.clip(np.rint(np.asarray(Y, dtype=np.float64) / self.step), -self.most, self.most)
        return scaled.astype(self.dtype)

    def points(self, cells: Cells | Floats) -> Floats:
        """Return the points of these cells."""
        return np.asarray(cells, dtype=np.float64) * self.step

    def snap(self, Y: Array) -> Array:
        """Return public points moved to the grid, in their dtype; exact, since a cell has at most 20 bits."""
        return self.points(self.nearest(Y)).astype(Y.dtype)


def reach(kernel: Kernel) -> float:
    """r₀ = √((b + 1) ln 2/γ) of the widest kernel: at larger distances every kernel value is rounded to 0."""
    return math.sqrt((KERNEL_BITS + 1) * math.log(2) / min(kernel.gammas))


def squared_norms(cells: Cells) -> Floats:
    """‖x‖² of every row in cells, shape (n,); exact."""
    norms = np.empty(len(cells))
    rows = max(1, BLOCK_VALUES // max(cells.shape[1], 1))
    for start in range(0, len(cells), rows):
        block = cells[start : start + rows].astype(np.float64)
        norms[start : start + rows] = np.einsum("ij,ij->i", block, block)
    return norms


def clip_cells(cells: Cells, bound: float) -> Floats:
    """Scale rows to norm at most `bound` cells, rounding towards zero; shape (n, d), integer-valued float64.

    The norms are exact, so that each row is a function of itself. A row q that is too long becomes trunc(s·q) with
    s ≤ bound·(1 − 2⁻⁵⁰)/‖q‖: no coordinate grows by rounding, and what is lost to the rounding of s and of s·q
    (2⁻⁵² at most) is less than what s leaves. The coordinates of a row too long for an exact norm are clamped first.
    """
    clipped = cells.astype(np.float64)
    clip_in_place(clipped, bound)
    return clipped


def clip_in_place(cells: Floats, bound: float) -> None:
    """`clip_cells` of integer-valued rows where they are."""
    norms = np.einsum("ij,ij->i", cells, cells)
    long = np.flatnonzero(norms > bound * bound)
    if not len(long):
        return
    rows, lengths = cells[long], norms[long]
    # A sum of squares that is not exact is above 2⁵³, and so it is seen as above 2⁵².
    if len(far := np.flatnonzero(lengths >= EXACT / 2)):
        most = 2.0 ** int((52 - math.log2(cells.shape[1])) / 2)
        rows[far] = np.clip(rows[far], -most, most)
        lengths[far] = np.einsum("ij,ij->i", rows[far], rows[far])
    cells[long] = np.trunc(rows * (bound * (1 - 2.0**-50) / np.sqrt(lengths))[:, None])


def integer_axes(axes: Array) -> Floats:
    """Return orthonormal axes, shape (m, d), in cells of 1/`AXES_UNIT`, with a spectral norm of at most `AXES_UNIT`.

    Rounding moves each of m·d entries by half a cell at most, and so the spectral norm by √(m d)/2 cells; the axes are
    shortened by as much.
    """
    shortened = 1 - math.sqrt(axes.size) / AXES_UNIT
    integers: Floats = np.rint(np.asarray(axes, dtype=np.float64) * (shortened * AXES_UNIT))
    return integers


def check_axes(axes: Floats) -> None:
    """Raise unless a projection with these integer axes, shape (m, d), makes no vector longer."""
    norm = float(np.linalg.norm(axes, 2)) / AXES_UNIT
    if not norm <= 1 + 1e-12:
        raise InvalidParameter("spectral norm of the axes", norm, "at most 1")


@dataclass(frozen=True, eq=False)
class _Computed:
    """Cells of records that are computed when they are read. Each record's are its own, so blocks do not matter."""

    grid: Grid
    records: Array
    norm: float | None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.records.shape

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, rows: slice) -> Cells:
        block = self.records[rows]
        return self.grid.cells(block) if self.norm is None else self.grid.clipped(block, self.norm)


def products(X: Floats, Y: Floats) -> Floats:
    """X Yᵀ, shape (n, k); exact if Σ_j |x_j y_j| is below 2⁵³ for all pairs of rows."""
    # BLAS is column-major: the transposes are views of the same memory.
    product: Floats = dgemm(1.0, Y.T, X.T, trans_a=True).T
    return product


def elementwise(function: np.ufunc, values: Floats) -> None:
    """Replace the values of a C-contiguous array by `function` of them, in blocks of `CHUNK` elements.

    The last block is padded, so that an element's place cannot change its value.
    """
    flat = values.reshape(-1)
    whole = len(flat) // CHUNK * CHUNK
    for start in range(0, whole, CHUNK):
        block = flat[start : start + CHUNK]
        function(block, out=block)
    if rest := len(flat) - whole:
        padded = np.zeros(CHUNK)
        padded[:rest] = flat[whole:]
        function(padded, out=padded)
        flat[whole:] = padded[:rest]


def block_rows(width: int) -> int:
    """Records of a block, for rows of `width` values: a public number, so that no record changes it."""
    return min(max(BLOCK_VALUES // max(width, 1), 64), 4096)


class ExactTotal:
    """A sum of integer-valued blocks: float64 as long as it is exact, int64 beyond.

    Parameters
    ----------
    shape : tuple of int
    largest : float
        Public bound on what one record adds to one value.
    """

    def __init__(self, shape: tuple[int, ...], largest: float) -> None:
        self.block = np.zeros(shape)  # C-contiguous; callers add to it in place
        self._done = np.zeros(shape, dtype=np.int64)
        self._largest, self._rows = largest, 0

    def room(self, rows: int) -> Floats:
        """Return the block to add `rows` more records to."""
        if rows * self._largest >= EXACT:
            raise InvalidParameter("cells of one record", self._largest, "fewer: the sum of one block is not exact")
        if (self._rows + rows) * self._largest >= EXACT:
            self._done += self.block.astype(np.int64)
            self.block[...] = 0
            self._rows = 0
        self._rows += rows
        return self.block

    @property
    def total(self) -> Integers:
        """The sum."""
        return self._done + self.block.astype(np.int64)
