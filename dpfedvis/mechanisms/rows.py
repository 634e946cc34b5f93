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
        """L2 sensitivity of all rows together for records clipped to norm `tau_x`."""


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


def _blocks(X: Array) -> list[Array]:
    return [X[start : start + BLOCK_ROWS].astype(np.float64) for start in range(0, len(X), BLOCK_ROWS)]
