"""The truth: norms of the error matrices, tile by tile, without forming an n × n matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from accounting import checks
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.distances import Float64, GramDistances, NystromDistances
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix, squared_distances

TILE = 2000


class NotConverged(DpfedvisError):
    """Lanczos did not reach its tolerance; the message gives the interval it reached."""


class ErrorMatrix(Protocol):
    """A symmetric n × n matrix, tile by tile."""

    @property
    def size(self) -> int:
        """n."""

    def tile(self, rows: slice, columns: slice) -> Float64:
        """Entries of these rows and columns."""


@dataclass(frozen=True)
class KernelError:
    """K_XX − FFᵀ.

    Parameters
    ----------
    points : array of shape (n, m)
        Records whose kernel matrix is the truth; float64, preferably centred.
    kernel : Kernel
    left : array of shape (n, r)
        F.
    """

    points: Float64
    kernel: Kernel
    left: Float64

    @property
    def size(self) -> int:
        """n."""
        return len(self.points)

    def tile(self, rows: slice, columns: slice) -> Float64:
        """K − FFᵀ, with a diagonal of K of exactly 1."""
        exact = np.asarray(kernel_matrix(self.points[rows], self.points[columns], self.kernel), np.float64)
        if rows == columns:
            np.fill_diagonal(exact, 1.0)
        exact -= self.left[rows] @ self.left[columns].T
        return exact


@dataclass(frozen=True)
class DistanceError:
    """D_XX − D̂, both with a diagonal of 0.

    Parameters
    ----------
    points : array of shape (n, m)
        Records; float64, preferably centred.
    estimate : GramDistances or NystromDistances
    """

    points: Float64
    estimate: GramDistances | NystromDistances

    @property
    def size(self) -> int:
        """n."""
        return len(self.points)

    def tile(self, rows: slice, columns: slice) -> Float64:
        """D − D̂, where estimates below 0 count as 0, as for the maps."""
        exact = np.sqrt(np.asarray(squared_distances(self.points[rows], self.points[columns]), np.float64))
        exact -= replace(self.estimate, left=self.estimate.left[columns]).block(self.estimate.left[rows])
        if rows == columns:
            np.fill_diagonal(exact, 0.0)
        return exact


@dataclass(frozen=True)
class Distances:
    """D_XX itself, to compare with an error."""

    points: Float64

    @property
    def size(self) -> int:
        """n."""
        return len(self.points)

    def tile(self, rows: slice, columns: slice) -> Float64:
        """D."""
        exact = np.sqrt(np.asarray(squared_distances(self.points[rows], self.points[columns]), np.float64))
        if rows == columns:
            np.fill_diagonal(exact, 0.0)
        return exact


@dataclass(frozen=True)
class Norms:
    """Norms of a symmetric matrix.

    Parameters
    ----------
    spectral : float
        Never above the true one.
    frobenius : float
    residual : float
        An eigenvalue lies within this of ±`spectral`.
    passes : int
        Number of passes over all tiles.
    """

    spectral: float
    frobenius: float
    residual: float
    passes: int


def norms(
    matrix: ErrorMatrix,
    rng: np.random.Generator,
    *,
    block: int = 4,
    tolerance: float = 1e-3,
    floor: float = 0.0,
    most: int = 60,
    tile: int = TILE,
    progress: Callable[[], None] | None = None,
) -> Norms:
    """Return both norms: the Frobenius norm from one pass over the tiles, the spectral one by block Lanczos.

    A tile costs far more than its product with a few vectors, so block Lanczos, which needs fewer passes, is cheaper.
    The basis is fully reorthogonalised. Returned is the Ritz value largest in absolute value, once its residual is
    below `tolerance` times it: Ritz values lie within the spectrum, and an eigenvalue lies within the residual of each
    (Parlett 1998, Thm 4.5.1). The matrix may be indefinite.

    Parameters
    ----------
    rng : numpy.random.Generator
        For the first block.
    block : int
        Vectors in a block.
    tolerance : float
        Relative.
    floor : float
        Absolute: a residual below this is enough, as for errors that are only rounding.
    most : int
        Passes after which `NotConverged` is raised.
    tile : int
        Rows of a tile.
    progress : callable, optional
        Called after each pass.
    """
    n = matrix.size
    checks.positive("tolerance", tolerance)
    newest = np.linalg.qr(rng.normal(size=(n, min(checks.count("block", block), n))))[0]
    basis, images = newest, np.empty((n, 0))
    frobenius, value, residual = 0.0, 0.0, 0.0
    for number in range(1, checks.count("most", most) + 1):
        image, square = _apply(matrix, newest, tile)
        images = np.hstack([images, image])
        if number == 1:
            frobenius = float(np.sqrt(square))
        if progress is not None:
            progress()
        projected = basis.T @ images
        values, vectors = np.linalg.eigh((projected + projected.T) / 2)
        best = int(np.argmax(np.abs(values)))
        value = float(abs(values[best]))
        residual = float(np.linalg.norm(images @ vectors[:, best] - values[best] * (basis @ vectors[:, best])))
        fresh = _orthogonal_part(image, basis)
        if residual <= max(tolerance * value, floor) or fresh.shape[1] == 0:
            return Norms(value, frobenius, residual, number)
        basis, newest = np.hstack([basis, fresh]), fresh
    raise NotConverged(f"after {most} passes the spectral norm is {value:.6g}, to within {residual:.2g}")


def _apply(matrix: ErrorMatrix, vectors: Float64, tile: int) -> tuple[Float64, float]:
    """The product with vectors, shape (n, b), and the sum of squares of all entries."""
    n, square = matrix.size, 0.0
    out = np.zeros_like(vectors)
    parts = [slice(start, min(start + tile, n)) for start in range(0, n, tile)]
    for i, rows in enumerate(parts):
        for columns in parts[i:]:
            values = matrix.tile(rows, columns)
            out[rows] += values @ vectors[columns]
            once = float(np.vdot(values, values))
            if columns is not rows:
                out[columns] += values.T @ vectors[rows]
                once *= 2
            square += once
    return out, square


def _orthogonal_part(image: Float64, basis: Float64) -> Float64:
    """Return an orthonormal basis of what `image` adds to `basis`, with fewer columns if it adds less."""
    scale = float(np.linalg.norm(image))
    for _ in range(2):  # once is not enough because of rounding, twice is (Parlett 1998, §6.9)
        image = image - basis @ (basis.T @ image)
    room = len(basis) - basis.shape[1]
    left, sizes, _ = np.linalg.svd(image, full_matrices=False)
    kept = left[:, : min(room, int((sizes > 1e-12 * max(scale, np.finfo(np.float64).tiny)).sum()))]
    return np.asarray(kept - basis @ (basis.T @ kept))


def centred(points: Array) -> Float64:
    """Points in float64 minus their mean, so that products lose the fewest digits."""
    X = np.asarray(points, np.float64)
    return np.asarray(X - X.mean(axis=0))
