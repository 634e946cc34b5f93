"""Sums over records in integers, each by a classical matrix product of float64 (see `dpfedvis.numerics.exact`).

Records come as cells of a public grid. Each function says what one record adds; the rest is exact. `factor` in (0, 1]
multiplies what each record adds before it is rounded: a client's weight relative to the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from dpfedvis.numerics.exact import (
    BLOCK_VALUES,
    KERNEL_BITS,
    LOWERED,
    CellRows,
    Cells,
    ExactTotal,
    Floats,
    Grid,
    Integers,
    block_rows,
    clip_cells,
    clip_in_place,
    elementwise,
    products,
    squared_norms,
)
from dpfedvis.numerics.kernels import Kernel, gemm_into
from dpfedvis.numerics.mmd import max_clip

UNIT = 2**15  # cells of a vector of norm 1, in sums of clipped vectors
FEATURE_UNIT = 2**20  # cells of the amplitude of a random feature
COUNT_UNIT = 2**16  # cells of one record, in counts
NEAREST = 10  # anchors that place a record
_CLIP_BITS = 32  # of a landmark's part of a squared norm


def kernel_pulls(
    X: CellRows, Y: Cells, kernel: Kernel, grid: Grid, *, factor: float = 1.0, clip: float | None = None
) -> Integers:
    """Σ_j (x_j − y_i) k̂_ij for every landmark i, shape (n_y, m), in cells of step·2^{−b}, b = `KERNEL_BITS`.

    k̂ is the gradient's weight Σ_b (γ_b/(Bγ̄)) exp(−γ_b‖x − y‖²), times `factor`, rounded down to b bits. So a record
    adds no more than over the reals: ‖(x − y)k̂‖ ≤ ‖x − y‖k.

    Parameters
    ----------
    X, Y : arrays of shape (n, m) and (n_y, m)
        Cells of `grid`.
    kernel : Kernel
    grid : Grid
    factor : float
    clip : float, optional
        C, the largest norm of a record's n_y × m part, in the units of the records.
    """
    y, y_norms = Y.astype(np.float64), squared_norms(Y)
    most = max(grid.most, 1)
    pulls = ExactTotal((len(Y), Y.shape[1]), most * 2.0**KERNEL_BITS)
    weights = ExactTotal((len(Y),), 2.0**KERNEL_BITS)
    for start in range(0, len(X), rows := block_rows(len(Y))):
        x = X[start : start + rows].astype(np.float64)
        values = _distances(x, y, y_norms)
        if clip is None:
            kernel_values(values, kernel, grid)
        else:
            values *= _clip_scales(values, kernel, grid, clip)[:, None]
        values *= factor * LOWERED * 2.0**KERNEL_BITS
        np.floor(values, out=values)
        total, sums = pulls.room(len(x)), weights.room(len(x))
        gemm_into(1.0, x.T, values.T, total.T)
        sums += values.sum(axis=0)
    return pulls.total - weights.total[:, None] * Y.astype(np.int64)


def kernel_values(squares: Floats, kernel: Kernel, grid: Grid) -> None:
    """Replace squared distances in cells, shape (n, n_y), by the gradient's weights Σ_b (γ_b/(Bγ̄)) k_b, at most 1."""
    _mixed(squares, kernel.gammas, kernel.gradient_coefficients, grid)


def kernel_rows(X: Cells, Y: Cells, kernel: Kernel, grid: Grid) -> Integers:
    """k(x, y) of every pair, rounded down to b bits, shape (n, n_y)."""
    values = _distances(X.astype(np.float64), Y.astype(np.float64), squared_norms(Y))
    _mixed(values, kernel.gammas, kernel.value_coefficients, grid)
    return np.floor(values * (LOWERED * 2.0**KERNEL_BITS)).astype(np.int64)


def distance_rows(X: Cells, Y: Cells) -> Integers:
    """‖x − y‖ of every pair in cells, rounded down, shape (n, n_y)."""
    return np.sqrt(_distances(X.astype(np.float64), Y.astype(np.float64), squared_norms(Y))).astype(np.int64)


def nearest(Z: Cells, Y: Cells) -> NDArray[np.intp]:
    """Return the nearest landmark of each record, shape (n,); of several, the first."""
    # One product gives 2z·y − ‖y‖², which is largest where the distance is smallest.
    landmarks = np.column_stack([2 * Y.astype(np.float64), -squared_norms(Y)])
    found = np.empty(len(Z), dtype=np.intp)
    for start in range(0, len(Z), rows := block_rows(len(Y))):
        block = Z[start : start + rows]
        scores = products(np.column_stack([block.astype(np.float64), np.ones(len(block))]), landmarks)
        found[start : start + rows] = scores.argmax(axis=1)
    return found


def cluster_sums(Z: CellRows, Y: Cells, grid: Grid, radius: float, *, factor: float = 1.0) -> Integers:
    """Offsets of records from their landmarks in units of `radius`, clipped to 1, and counts; shape (k, d + 1).

    In cells of 1/`UNIT`. A record adds an offset of norm at most `UNIT` and a count of `UNIT` to one row.
    """
    total = ExactTotal((len(Y), Y.shape[1] + 1), UNIT)
    for start in range(0, len(Z), rows := block_rows(max(len(Y), Y.shape[1]))):
        block = Z[start : start + rows]
        closest = nearest(block, Y)
        offsets = unit_cells(block.astype(np.float64) - Y[closest], grid.step / radius, factor)
        counts = np.full(len(block), math.floor(factor * UNIT), float)
        _add_by_group(total.room(len(block)), closest, np.column_stack([offsets, counts]))
    return total.total


def place_by_weights(Z: Cells, anchors: Cells, places: Floats, neighbors: int) -> Floats:
    """Return the weighted mean of the places of each record's nearest anchors, shape (n, 2).

    The weights are exp(−3(d² − d₁²)/(d̄² − d₁²)) with d₁ the smallest and d̄² the mean of the neighbours' squared
    distances. Each record by itself: distances are exact, and sums over neighbours are taken one by one.
    """
    squares = _distances(Z.astype(np.float64), anchors.astype(np.float64), squared_norms(anchors))
    k = min(neighbors, len(anchors))
    near = np.argpartition(squares, k - 1, axis=1)[:, :k]
    # Sorted by distance, then by number: ties are broken by number alone.
    order = np.lexsort((near, np.take_along_axis(squares, near, axis=1)), axis=1)
    near = np.take_along_axis(near, order, axis=1)
    above = np.take_along_axis(squares, near, axis=1) - squares.min(axis=1)[:, None]
    spread = above[:, 0].copy()
    for column in range(1, k):
        spread += above[:, column]
    weights = np.ascontiguousarray(above * (-3.0 * k / np.maximum(spread, 1.0))[:, None])
    elementwise(np.exp, weights)
    total, place = np.zeros(len(Z)), np.zeros((len(Z), 2))
    for column in range(k):
        total += weights[:, column]
        place += weights[:, column, None] * places[near[:, column]]
    placed: Floats = place / total[:, None]
    return placed


def unit_cells(vectors: Floats, scale: float, factor: float = 1.0) -> Floats:
    """Replace vectors by `scale` times them, clipped to norm 1, times `factor`, in cells of 1/`UNIT`; return them.

    Rounded towards zero, each by itself.
    """
    vectors *= scale * factor * UNIT
    np.trunc(vectors, out=vectors)
    clip_in_place(vectors, factor * UNIT)
    return vectors


def moment_sums(X: CellRows, scale: float, *, factor: float = 1.0) -> Integers:
    """Σ x and Σ ‖x‖² of records times `scale`, clipped to norm 1; shape (m + 1,), in cells of 1/`UNIT`."""
    total = ExactTotal((X.shape[1] + 1,), UNIT)
    for start in range(0, len(X), rows := block_rows(X.shape[1])):
        block = unit_cells(X[start : start + rows].astype(np.float64), scale, factor)
        squares = np.floor(np.einsum("ij,ij->i", block, block) / (UNIT * factor))
        sums = total.room(len(block))
        sums[:-1] += block.sum(axis=0)
        sums[-1] += squares.sum()
    return total.total


def second_moment_sums(X: CellRows, centre: Cells, scale: float, *, factor: float = 1.0) -> Integers:
    """Σ z zᵀ of z = (x − centre)·scale, clipped to norm 1: the upper triangle, row by row, in cells of 1/`UNIT`².

    `factor` multiplies each record's zzᵀ: z is scaled by its square root, and rounded towards zero.
    """
    features = X.shape[1]
    total = ExactTotal((features, features), float(UNIT) ** 2)
    for start in range(0, len(X), rows := block_rows(features)):
        z = unit_cells(np.subtract(X[start : start + rows], centre, dtype=np.float64), scale, math.sqrt(factor))
        room = total.room(len(z))
        # The transpose of a C-contiguous array is Fortran's: the lower triangle there is the upper one here.
        dsyrk(1.0, z.T, beta=1.0, c=room.T, lower=1, overwrite_c=1)
    return total.total[np.triu_indices(features)]


def feature_sums(X: CellRows, frequencies: Floats, unit: float, *, factor: float = 1.0) -> Integers:
    """Σ (cos Wᵀx, sin Wᵀx), shape (2K,), in cells of 1/`FEATURE_UNIT`, each value rounded towards zero.

    Parameters
    ----------
    X : array of shape (n, m)
        Cells.
    frequencies : array of shape (m, K)
        Integers, such that the products are exact.
    unit : float
        Angle of a product of 1.
    factor : float
    """
    size = frequencies.shape[1]
    total = ExactTotal((2 * size,), FEATURE_UNIT)
    columns = np.ascontiguousarray(frequencies.T)
    for start in range(0, len(X), rows := block_rows(size)):
        angles = np.ascontiguousarray(products(X[start : start + rows].astype(np.float64), columns)) * unit
        room = total.room(len(angles))
        for part, function in ((slice(0, size), np.cos), (slice(size, None), np.sin)):
            values = angles.copy()
            elementwise(function, values)
            values *= factor * LOWERED * FEATURE_UNIT
            room[part] += np.trunc(values, out=values).sum(axis=0)
    return total.total


def plain_sums(
    contribution: Callable[[Floats], Floats], points: Callable[[slice], Floats], records: int, size: int, bound: float,
    *, cells: float, factor: float = 1.0,
) -> Integers:  # fmt: skip
    """Σ of any function of single records, shape (size,), with values clipped to norm `bound`.

    The function sees one record at a time, as an array of one row. In a block its values could depend on the record's
    place: a BLAS takes other kernels for the last rows and columns of a product, whose last bits differ. Its values are
    put on a grid on which `bound` has `cells` cells, clipped and rounded towards zero, record by record.

    Parameters
    ----------
    contribution : callable
        From a record, shape (1, m), to values, shape (1, size).
    points : callable
        Returns the records of a slice, shape (rows, m), float64.
    """
    total = ExactTotal((size,), cells)
    rows = min(max(BLOCK_VALUES // size, 1), 256)
    for start in range(0, records, rows):
        block = points(slice(start, start + rows))
        values = np.empty((len(block), size))
        for number in range(len(block)):
            # A copy, so that every call has its record at the start of an array of its own.
            values[number] = np.asarray(contribution(block[number : number + 1].copy())).reshape(size)
        # A value that is not finite counts for nothing. It must not stop a client: that would show the record.
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        inside = np.trunc(np.clip(values, -2 * bound, 2 * bound) * (factor * cells / bound))
        room = total.room(len(block))
        room += clip_cells(inside, factor * cells).sum(axis=0)
    return total.total


def plain_cells(size: int) -> float:
    """Cells of the bound in a plain sum: as many as leave squared norms of `size` values exact."""
    return 2.0 ** min(20, int((50 - math.log2(size)) / 2))


def _distances(x: Floats, y: Floats, y_norms: Floats) -> Floats:
    """Squared distances of rows in cells, shape (n, n_y), C-contiguous; exact."""
    values: Floats = np.add(np.einsum("ij,ij->i", x, x)[:, None], y_norms)
    gemm_into(-2.0, y.T, x.T, values.T, transpose_a=True)
    return values


def _mixed(squares: Floats, gammas: tuple[float, ...], coefficients: tuple[float, ...], grid: Grid) -> None:
    rates = [-gamma * grid.step**2 for gamma in gammas]
    if len(rates) == 1:
        squares *= rates[0]
        elementwise(np.exp, squares)
        return
    mixed = np.zeros_like(squares)
    for rate, coefficient in zip(rates, coefficients, strict=True):
        values = squares * rate
        elementwise(np.exp, values)
        values *= coefficient
        mixed += values
    squares[...] = mixed


def _clip_scales(squares: Floats, kernel: Kernel, grid: Grid, clip: float) -> Floats:
    """Replace squared distances by weights; return the factor that clips each record's part to norm `clip`, (n,).

    The squared norm Σ_i ‖x − y_i‖²w_i² is a sum of floats, whose rounding could depend on the record's place. So each
    term is rounded up to a multiple of 2⁻³² of its largest possible value, and the sum is exact.
    """
    largest = max_clip(kernel, 1)
    parts = squares * (grid.step / largest) ** 2
    kernel_values(squares, kernel, grid)
    parts *= squares
    parts *= squares
    parts *= 2.0**_CLIP_BITS
    norms = largest * np.sqrt(np.ceil(parts, out=parts).sum(axis=1) * 2.0**-_CLIP_BITS)
    scales: Floats = clip / np.maximum(norms, clip)
    return scales


def _add_by_group(total: Floats, groups: NDArray[np.intp], values: Floats) -> None:
    """Add the rows of `values` to the rows `groups` of `total`."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else ordered
    if len(starts):
        total[ordered[starts]] += np.add.reduceat(values[order], starts, axis=0)
