"""Local steps in exact arithmetic: several steps of a client, whose iterates depend on all its records.

Records and landmarks lie on one grid; the iterates need a finer one, whose cells are 2⁻⁸ of it. So an iterate has two
parts, y = y₁ + 2⁻⁸y₂ with integers y₁ and y₂, and every product of a record or an iterate with it is the sum of two or
four exact ones. Sums over records and landmarks are exact; all else is done value by value, in a fixed order.
"""

from __future__ import annotations

import math

import numpy as np

from dpfedvis.numerics.exact import (
    KERNEL_BITS,
    LOWERED,
    Cells,
    ExactTotal,
    Floats,
    Grid,
    Integers,
    block_rows,
    products,
    reach,
)
from dpfedvis.numerics.exact_sums import kernel_values
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import Estimator

FINE = 2.0**-8
Parts = tuple[Floats, Floats]


def local_steps(
    X: Cells,
    Y: Cells,
    kernel: Kernel,
    grid: Grid,
    *,
    steps: int,
    size: float,
    denominator: float,
    estimator: Estimator,
) -> Integers:
    """Return where `steps` steps of size η lead from Y, shape (n_y, m), in fine cells (Alg. 1 l. 6–11).

    Parameters
    ----------
    X, Y : arrays of shape (n, m) and (n_y, m)
        Cells of `grid`.
    kernel : Kernel
    grid : Grid
    steps : int
        Q.
    size : float
        η.
    denominator : float
        n.
    estimator : {"unbiased", "biased"}
    """
    start = np.rint(Y / FINE).astype(np.int64)
    # An iterate stays where the grid's bits hold: clamping moves two neighbours no further apart.
    most = int(grid.most / FINE)
    y, own = start, len(Y) - (estimator == "unbiased")
    records = (X, None)
    for _ in range(steps):
        parts = split(y)
        data = _pulls(records, parts, kernel, grid) / denominator
        apart = _pulls(parts, parts, kernel, grid) / own
        # A step of −η(4γ̄/n_y)(apart − data), from cells of step·2^{−b} to fine ones.
        moved = (data - apart) * (size * 4 * kernel.mean_gamma / len(Y) * 2.0**-KERNEL_BITS / FINE)
        y = np.clip(y + np.rint(moved), -most, most).astype(np.int64)
    return y - start


def split(y: Integers) -> Parts:
    """Return the two parts of fine cells: whole cells, and what is left in fine ones, from −128 to 127."""
    whole = np.floor(y * FINE + 0.5)
    return whole, y - whole / FINE


def kernel_error(kernel: Kernel, landmarks: int, estimator: Estimator) -> float:
    """ρ: how far rounded kernels can move a gradient.

    Proof. A kernel value is rounded down by at most 2^{−b} (1 + 2⁻²⁰), and it is 0 beyond r₀, where r·k is below
    r₀2^{−b−1}. So a record's or landmark's pull on y_i, (x − y_i)k, is off by at most r₀2^{−b} (1 + 2⁻²⁰). A mean of
    pulls is off by no more; over n_y landmarks that is √n_y times as much. The factor of the gradient is 4γ̄/n_y; the
    landmarks' own part has n_y − 1 instead of n_y in its mean if the estimator is unbiased.
    """
    own = landmarks / max(landmarks - (estimator == "unbiased"), 1)
    pull = reach(kernel) * 2.0**-KERNEL_BITS * (1 + 2.0**-20)
    return (1 + own) * 4 * kernel.mean_gamma / math.sqrt(landmarks) * pull


def _pulls(X: tuple[Cells, None] | Parts, Y: Parts, kernel: Kernel, grid: Grid) -> Floats:
    """Σ_j (x_j − y_i) k̂_ij, shape (n_y, m), in cells of step·2^{−b}; x in one part or two."""
    whole, fine = Y
    norms = _norms(whole, fine)
    landmarks, features = whole.shape
    most = grid.most + 1.0
    total = ExactTotal((landmarks, features), most * 2.0**KERNEL_BITS)
    rest = ExactTotal((landmarks, features), 128 * 2.0**KERNEL_BITS)
    weights = ExactTotal((landmarks,), 2.0**KERNEL_BITS)
    for start in range(0, len(X[0]), rows := block_rows(landmarks)):
        x = X[0][start : start + rows].astype(np.float64)
        x2 = None if X[1] is None else X[1][start : start + rows]
        cross = products(x, whole) + FINE * products(x, fine)
        if x2 is not None:
            cross += FINE * (products(x2, whole) + FINE * products(x2, fine))
        squares = np.ascontiguousarray(_norms(x, x2)[:, None] + norms - 2 * cross)
        np.maximum(squares, 0.0, out=squares)
        kernel_values(squares, kernel, grid)
        squares *= LOWERED * 2.0**KERNEL_BITS
        np.floor(squares, out=squares)
        block, sums = total.room(len(x)), weights.room(len(x))
        block += products(squares.T.copy(), x.T.copy())
        if x2 is not None:
            remainder = rest.room(len(x))
            remainder += products(squares.T.copy(), x2.T.copy())
        sums += squares.sum(axis=0)
    pulled = total.total + FINE * rest.total
    pulls: Floats = pulled - weights.total[:, None] * (whole + FINE * fine)
    return pulls


def _norms(whole: Floats, fine: Floats | None) -> Floats:
    norms: Floats = np.einsum("ij,ij->i", whole, whole)
    if fine is None:
        return norms
    both, small = np.einsum("ij,ij->i", whole, fine), np.einsum("ij,ij->i", fine, fine)
    summed: Floats = norms + 2 * FINE * both + FINE * FINE * small
    return summed
