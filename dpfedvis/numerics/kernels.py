"""Squared distances and Gaussian kernels between the rows of two arrays.

Functions ending in `_into` write to memory that the caller owns. Products use scipy's BLAS, because it can add to
an array in place. numpy has a second BLAS with its own threads, and idle threads of one slow down the other, so a
hot loop should use only one of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import dgemm, sgemm

from dpfedvis.errors import DpfedvisError

Array = npt.NDArray[np.floating[Any]]

# Distances come from ‖x‖² + ‖y‖² − 2x·y, so γr² has an error of a few ulp of γ(‖x‖² + ‖y‖²). That is also the
# relative error of the kernel. In float32 this limit keeps it at about 1e-4.
FLOAT32_LIMIT = 1000.0
FLOAT64_LIMIT = 1e11
# A block of this size fits the last-level cache, and is large enough for BLAS.
BLOCK_BYTES = 4 << 20
MIN_BLOCK_ROWS, MAX_BLOCK_ROWS = 64, 4096


class InvalidKernel(DpfedvisError):
    """An invalid bandwidth, held in `value`."""

    def __init__(self, message: str, value: object) -> None:
        super().__init__(message)
        self.value = value


class InvalidPoints(DpfedvisError):
    """An invalid array of points; `value` holds the wrong shape, dtype or row."""

    def __init__(self, message: str, value: object) -> None:
        super().__init__(message)
        self.value = value


@dataclass(frozen=True)
class Kernel:
    """The mean of Gaussian kernels, k(x, y) = (1/B) Σ_b exp(−γ_b ‖x − y‖²).

    Not the maximum over bandwidths: which one is largest depends on the data, and no sensitivity covers a change of
    it between neighbouring data sets.

    Parameters
    ----------
    gammas : tuple of float
        The bandwidths γ_b, each positive and finite.
    """

    gammas: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.gammas, Sequence) or isinstance(self.gammas, str):
            raise InvalidKernel(f"gammas must be a tuple of numbers, got {self.gammas!r}", self.gammas)
        if not self.gammas:
            raise InvalidKernel("a kernel needs at least one gamma, got none", self.gammas)
        for gamma in self.gammas:
            check_gamma(gamma)
        object.__setattr__(self, "gammas", tuple(float(gamma) for gamma in self.gammas))

    @classmethod
    def gaussian(cls, gamma: float) -> Kernel:
        """Return the kernel of one bandwidth."""
        return cls((gamma,))

    @property
    def mean_gamma(self) -> float:
        """γ̄, the mean of the bandwidths."""
        return math.fsum(self.gammas) / len(self.gammas)

    @property
    def value_coefficients(self) -> tuple[float, ...]:
        """The coefficients 1/B of the kernel itself."""
        return (1.0 / len(self.gammas),) * len(self.gammas)

    @property
    def gradient_coefficients(self) -> tuple[float, ...]:
        """The coefficients γ_b/(Bγ̄) of the gradient's weights, in units of γ̄; they sum to 1."""
        total = math.fsum(self.gammas)
        return tuple(gamma / total for gamma in self.gammas)


class Workspace:
    """Memory blocks reused from call to call. Not thread-safe."""

    def __init__(self) -> None:
        self._memory: dict[int, npt.NDArray[np.uint8]] = {}

    def block(self, slot: int, rows: int, columns: int, dtype: np.dtype[Any]) -> Array:
        """Return block number `slot`, shape (rows, columns), not cleared."""
        size = rows * columns * dtype.itemsize
        memory = self._memory.get(slot)
        if memory is None or memory.size < size:
            memory = self._memory[slot] = np.empty(size, np.uint8)
        block: Array = memory[:size].view(dtype).reshape(rows, columns)
        return block


def block_rows(records: int, landmarks: int, itemsize: int) -> int:
    """Return the number of records per block: equal blocks of about `BLOCK_BYTES`."""
    most = min(max(BLOCK_BYTES // (landmarks * itemsize), MIN_BLOCK_ROWS), MAX_BLOCK_ROWS)
    return max(1, math.ceil(records / max(1, math.ceil(records / most))))


def check_gamma(gamma: float) -> None:
    """Raise `InvalidKernel` unless `gamma` is a positive, finite number."""
    try:
        valid = math.isfinite(gamma) and gamma > 0
    except TypeError:
        valid = False
    if not valid:
        raise InvalidKernel(f"gamma must be positive and finite, got {gamma!r}", gamma)


def as_points(values: npt.ArrayLike, name: str, *, minimum: int = 1) -> Array:
    """Return `values` as points in rows, without a copy when it is an array.

    `squared_norms` checks finiteness, since it reads every value anyway.

    Parameters
    ----------
    values : array of shape (n, m), float32 or float64
    name : str
        What the points are, for error messages.
    minimum : int
        The smallest valid n.
    """
    points = np.asarray(values)
    if points.dtype not in (np.float32, np.float64):
        raise InvalidPoints(f"{name} must be float32 or float64, got {points.dtype}", points.dtype)
    if points.ndim != 2 or points.shape[1] == 0:
        raise InvalidPoints(f"{name} must have shape (rows, features), got {points.shape}", points.shape)
    if points.shape[0] < minimum:
        raise InvalidPoints(f"{name} must have at least {minimum} rows, got {points.shape[0]}", points.shape)
    return points


def check_same_features(X: Array, Y: Array) -> None:
    """Raise `InvalidPoints` unless X and Y have the same number of columns."""
    if X.shape[1] != Y.shape[1]:
        raise InvalidPoints(
            f"both sets of points must have the same number of features, got {X.shape[1]} and {Y.shape[1]}",
            (X.shape, Y.shape),
        )


def squared_norms(X: Array, name: str = "points", *, known: Array | None = None, first_row: int = 0) -> Array:
    """Return ‖x‖² of every row, shape (n,); raise if a row is not finite.

    `known` are the squared norms, if already computed. `first_row` is the row number of X's first row in the whole
    array; the error names the row.
    """
    norms: Array = np.vecdot(X, X) if known is None else known
    if not np.isfinite(norms).all():
        row = first_row + int(np.flatnonzero(~np.isfinite(norms))[0])
        raise InvalidPoints(f"row {row} of the {name} is not finite, or too large to square", row)
    return norms


def distances_into(X: Array, x_norms: Array, Y: Array, y_norms: Array, out: Array) -> None:
    """Write the squared distances of rows into `out`, by one BLAS call.

    Parameters
    ----------
    X, Y : arrays of shape (n, m) and (n_y, m), of the dtype of `out`
    x_norms, y_norms : arrays of shape (n,) and (n_y,)
    out : C-contiguous array of shape (n, n_y)
    """
    np.add(x_norms[:, None], y_norms, out=out)
    # BLAS is column-major: the transposes are views of the same memory, and outᵀ −= 2YXᵀ.
    gemm_into(-2.0, Y.T, X.T, out.T, transpose_a=True)
    # A row of zeros: numpy's maximum with a scalar takes almost twice as long.
    np.maximum(out, np.zeros_like(y_norms), out=out)


def gaussian_into(X: Array, x_norms: Array, Y: Array, y_norms: Array, gamma: float, out: Array) -> None:
    """Write exp(−γ‖x − y‖²) into `out`; parameters as in `distances_into`.

    γ is part of the product, which saves one pass over the block.
    """
    np.add(-gamma * x_norms[:, None], -gamma * y_norms, out=out)
    gemm_into(2.0 * gamma, Y.T, X.T, out.T, transpose_a=True)
    np.minimum(out, np.zeros_like(y_norms), out=out)
    np.exp(out, out=out)


def gemm_into(alpha: float, a: Array, b: Array, c: Array, *, transpose_a: bool = False) -> None:
    """Add `alpha` · op(a) · op(b) to `c` in place, op(b) being bᵀ when `a` is not transposed.

    `c` must be Fortran-contiguous; `a` and `b` are copied only when they are not.
    """
    gemm: Any = sgemm if c.dtype == np.float32 else dgemm
    gemm(alpha, a, b, beta=1.0, c=c, trans_a=transpose_a, trans_b=not transpose_a, overwrite_c=True)


def mix_into(
    distances: Array,
    gammas: Sequence[float],
    coefficients: Sequence[float],
    out: Array,
    scratch: Array | None,
) -> None:
    """Write Σ_b coefficient_b · exp(−γ_b · distances) into `out`.

    Parameters
    ----------
    distances : array of shape (n, n_y)
        Squared distances.
    out : array of shape (n, n_y)
        May be `distances` itself if there is one bandwidth.
    scratch : array of shape (n, n_y), or None if there is one bandwidth
    """
    target = out
    for gamma, coefficient in zip(gammas, coefficients, strict=True):
        np.multiply(distances, -gamma, out=target)
        np.exp(target, out=target)
        if coefficient != 1.0:
            target *= coefficient
        if target is not out:
            out += target
        elif scratch is not None:
            target = scratch


@dataclass(frozen=True)
class Frame:
    """The dtype to compute in and, for points far from 0, a new origin.

    Parameters
    ----------
    dtype : numpy.dtype
    centre : array of shape (m,), optional
    """

    dtype: np.dtype[Any]
    centre: Array | None

    def place(self, points: Array) -> Array:
        """Return points, shape (n, m), in this frame; without a copy if nothing changes."""
        if self.centre is None:
            return points.astype(self.dtype, copy=False)
        return (points - self.centre).astype(self.dtype, copy=False)


def frame_of(X: Array, Y: Array, kernel: Kernel) -> Frame:
    """Return a frame in which distances to the landmarks Y keep their digits; raise if there is none.

    Only points about as far from the origin as a landmark have a kernel above 0, so the landmarks alone decide, and
    the choice reveals nothing about the records. A sensitivity relies on this: with lost digits, a distant record
    would be taken for a near one and pull with its whole distance.
    """
    dtype, gamma = np.result_type(X, Y), max(kernel.gammas)
    if gamma * float(squared_norms(Y, "landmarks").max()) <= FLOAT32_LIMIT:
        return Frame(dtype, None)
    centre = Y.mean(axis=0, dtype=np.float64)
    spread = gamma * float(squared_norms(Y - centre, "landmarks").max())
    if spread > FLOAT64_LIMIT:
        raise InvalidPoints(f"the landmarks are too far apart for gamma = {gamma:g}: γ‖y − ȳ‖² is {spread:.3g}", spread)
    return Frame(np.dtype(np.float64) if spread > FLOAT32_LIMIT else dtype, centre)


def squared_distances(X: npt.ArrayLike, Y: npt.ArrayLike, out: Array | None = None) -> Array:
    """Return the squared Euclidean distances between rows, never below 0.

    Parameters
    ----------
    X, Y : arrays of shape (n, m) and (n_y, m)
    out : array of shape (n, n_y), optional
        C-contiguous, of the common dtype of X and Y.

    Returns
    -------
    array of shape (n, n_y)
        Absolute error: a few ulp of ‖x‖² + ‖y‖², so centre points that are far from 0.
    """
    X, Y = as_points(X, "X"), as_points(Y, "Y")
    check_same_features(X, Y)
    dtype = np.result_type(X, Y)
    shape = (X.shape[0], Y.shape[0])
    if out is None:
        out = np.empty(shape, dtype)
    elif out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
        raise InvalidPoints(
            f"out must be C-contiguous {dtype} of shape {shape}, got {out.dtype} of shape {out.shape}",
            out.shape,
        )
    X, Y = X.astype(dtype, copy=False), Y.astype(dtype, copy=False)
    distances_into(X, squared_norms(X, "X"), Y, squared_norms(Y, "Y"), out)
    return out


def kernel_matrix(X: npt.ArrayLike, Y: npt.ArrayLike, kernel: Kernel) -> Array:
    """Return k(x, y) for every pair of rows, shape (n, n_y).

    Computed in the dtype of the data; `squared_distances` gives the error.
    """
    distances = squared_distances(X, Y)
    if len(kernel.gammas) == 1:
        mix_into(distances, kernel.gammas, (1.0,), distances, None)
        return distances
    out, scratch = np.empty_like(distances), np.empty_like(distances)
    mix_into(distances, kernel.gammas, kernel.value_coefficients, out, scratch)
    return out
