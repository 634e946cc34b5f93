"""Distances and kernels between all records, estimated from each record's row to the landmarks, in factored form.

Every estimate represents a record by a short vector, its row of `left`. Blocks of the n × n matrix follow by one
product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.kernels import Array, squared_distances

Float64 = NDArray[np.float64]

# Eigenvalues below this fraction of the largest are rounding errors of squared distances in float64.
CUTOFF = 1e-9
_ROUNDING = float(np.finfo(np.float64).eps)


class DistanceEstimate(Protocol):
    """Estimated distances of n records, row by row."""

    @property
    def left(self) -> Array:
        """A vector for each record, shape (n, r), float32."""

    def block(self, queries: Array) -> Array:
        """Distances of records represented by `queries`, shape (q, r), to all n records, shape (q, n)."""


@dataclass(frozen=True)
class GramDistances:
    """D̂_ij = ‖ẑ_i − ẑ_j‖: distances of coordinates in the landmarks' affine span (`GramFrame`).

    Parameters
    ----------
    left : array of shape (n, r)
        Coordinates ẑ.
    """

    left: Array

    def block(self, queries: Array) -> Array:
        """Return Euclidean distances."""
        squares = squared_distances(np.ascontiguousarray(queries), self.left)
        return np.sqrt(squares, out=squares)


@dataclass(frozen=True)
class NystromDistances:
    """D̂ = B W_k⁺ Bᵀ, the paper's estimate, as L diag(signs) Lᵀ.

    With W = V diag(λ) Vᵀ, L = B V |λ|^{−½}. A distance matrix has one positive eigenvalue and n_y − 1 negative ones,
    so D̂ is not PSD and no bound for PSD matrices applies. Negative entries are set to 0.

    Parameters
    ----------
    left : array of shape (n, k)
    signs : array of shape (k,)
    """

    left: Array
    signs: Array

    def block(self, queries: Array) -> Array:
        """Return the entries, at least 0, shape (q, n)."""
        product = (queries * self.signs) @ self.left.T
        return np.maximum(product, 0, out=product)


@dataclass(frozen=True)
class GramFrame:
    """The landmarks' affine span, from their distances alone.

    With J the centring matrix, −½ J W² J = V diag(w) Vᵀ is the Gram matrix of the centred landmarks (W² entrywise),
    and for a record at distances b from them

        ẑ = −½ (b² − mean row of W²) V diag(w)^{−½}

    is its projection to their affine span, in orthonormal coordinates. Proof: b²_j − mean_i W²_ij = ‖x‖² − 2⟨x, y_j⟩
    + ‖y_j‖² − (mean‖y‖² − 2⟨ȳ, y_j⟩ + ‖y_j‖²) = −2⟨x − ȳ, y_j⟩ + const, and V is orthogonal to constants, so that ẑ =
    (x − ȳ)·Y_cᵀ V w^{−½}, where Y_cᵀ V w^{−½} has orthonormal columns.

    Parameters
    ----------
    offset : array of shape (n_y,)
        Mean row of W².
    matrix : array of shape (n_y, r)
        −½ V diag(w)^{−½}.
    """

    offset: Float64
    matrix: Float64

    def coordinates(self, B: Array) -> Array:
        """Coordinates of records at distances B, shape (n, n_y), from the landmarks; shape (n, r), float32."""
        squares = np.square(B, dtype=np.float64)
        squares -= self.offset
        return np.asarray(squares @ self.matrix, dtype=np.float32)


def gram_frame(W: Array, *, noise: float = 0.0) -> GramFrame:
    """Return the frame of landmarks with distances W, shape (n_y, n_y).

    Which directions are kept: noise of standard deviation s on distances of typical size d̄ becomes noise of standard
    deviation d̄s/√w on the coordinate of eigenvalue w, where the landmarks have standard deviation √(w/n_y). A direction
    is kept if its signal exceeds its noise, w ≥ √n_y d̄ s, and rounding, w ≥ 1e-9 w_max.

    Parameters
    ----------
    W : array of shape (n_y, n_y)
    noise : float
        s, the noise in the records' rows.
    """
    squares = np.square(W, dtype=np.float64)
    offset = squares.mean(axis=0)
    centred = -0.5 * (squares - offset - offset[:, None] + offset.mean())
    values, vectors = np.linalg.eigh((centred + centred.T) / 2)
    typical = float(np.sqrt(squares.mean()))
    least = max(CUTOFF * float(values[-1]), np.sqrt(len(W)) * typical * checks.nonnegative("noise", noise))
    keep = values > least
    if not keep.any():
        keep = values == values[-1]  # all noise: keep one direction, so that there is a map at all
    if not values[-1] > 0:
        raise DpfedvisError("the landmarks coincide: they span no directions to place records in")
    order = np.flatnonzero(keep)[::-1]
    return GramFrame(offset, -0.5 * vectors[:, order] / np.sqrt(values[order]))


def nystrom_factor(
    W: Array, *, rank: int | None = None, ridge: float = 0.0, cutoff: float | None = None
) -> tuple[Float64, Float64]:
    """Return (V |λ|^{−½}, signs) of the symmetric pseudo-inverse W_k⁺, or of (W + ridge·I)⁻¹.

    Parameters
    ----------
    W : array of shape (n_y, n_y)
        Distances or kernel values of the landmarks.
    rank : int, optional
        k: keep the eigenvalues largest in absolute value; by default all above rounding.
    ridge : float
        λ of the paper's W + λI.
    cutoff : float, optional
        Eigenvalues below this fraction of the largest are dropped; by default n_y ulps.
    """
    W = np.asarray(W, dtype=np.float64)
    values, vectors = np.linalg.eigh((W + W.T) / 2 + checks.nonnegative("ridge", ridge) * np.eye(len(W)))
    order = np.argsort(-np.abs(values))
    if rank is not None:
        order = order[: checks.count("rank", rank)]
    size = np.abs(values[order])
    order = order[size > size[0] * (len(W) * _ROUNDING if cutoff is None else cutoff)]
    return vectors[:, order] / np.sqrt(np.abs(values[order])), np.sign(values[order])


@dataclass(frozen=True)
class KernelFactor:
    """K̂ = F Fᵀ, the Nyström estimate C W_k⁺ Cᵀ of a kernel matrix, with its certificate.

    Parameters
    ----------
    left : array of shape (n, r)
        F.
    """

    left: Array

    @property
    def residuals(self) -> Float64:
        """E_ii = 1 − ‖F_i‖², at least 0, shape (n,).

        E = K − K̂ is the Schur complement of W in the kernel matrix of landmarks and records, so E ⪰ 0 for the full
        pseudo-inverse. A smaller rank or a ridge makes K̂ smaller in the PSD order and E larger, so E ⪰ 0 still holds.
        """
        squares = np.einsum("ij,ij->i", self.left, self.left, dtype=np.float64)
        residuals: Float64 = np.maximum(1 - squares, 0)
        return residuals

    @property
    def certificate(self) -> float:
        """tr E ≥ ‖E‖_F ≥ ‖E‖₂: a bound on the error that the server can compute from the uploads alone."""
        return float(self.residuals.sum())


def kernel_factor(C: Array, W: Array, *, rank: int | None = None, ridge: float = 0.0) -> KernelFactor:
    """Return the Nyström factor of a kernel matrix.

    Parameters
    ----------
    C : array of shape (n, n_y)
        Kernel values of records at landmarks.
    W : array of shape (n_y, n_y)
        Kernel values of the landmarks. W is PSD: negative eigenvalues are rounding errors and are dropped.
    rank, ridge
        As in `nystrom_factor`.
    """
    # Nearly equal landmarks give eigenvalues as small as their rounding errors, whose inverses could make K̂ larger
    # than K. Without them K̂ is smaller, and the certificate stays valid.
    matrix, signs = nystrom_factor(W, rank=rank, ridge=ridge, cutoff=CUTOFF)
    return KernelFactor(np.asarray(C, dtype=np.float64) @ matrix[:, signs > 0])
