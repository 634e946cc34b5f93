"""Projections of the landmarks to public convex sets, on whose bounds a sensitivity may rely."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.numerics.kernels import Array


class Projection(Protocol):
    """Protocol: maps Y, shape (n_y, m), to the nearest point, or at least some point, of a public set.

    Landmarks are rounded to the grid afterwards. A set with a method ``shrunk(step, shape)`` is replaced by what that
    returns: a set whose points stay in this one when each coordinate is rounded to a multiple of `step`.
    """

    def __call__(self, Y: Array) -> Array: ...


@runtime_checkable
class Shrinking(Projection, Protocol):
    """A projection to a set that can make room for rounding."""

    def shrunk(self, step: float, shape: tuple[int, int]) -> Projection: ...


@dataclass(frozen=True)
class Everywhere:
    """No bound."""

    def __call__(self, Y: Array) -> Array:
        """Return Y."""
        return Y


@dataclass(frozen=True)
class Box:
    """Every coordinate in [low, high]."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InvalidParameter("box", (self.low, self.high), "(low, high) with low < high")

    def shrunk(self, step: float, shape: tuple[int, int]) -> Box:
        """Return the box between the outermost multiples of `step`; this one where it has fewer than two of them."""
        low, high = math.ceil(self.low / step) * step, math.floor(self.high / step) * step
        return Box(low, high) if low < high else self

    def __call__(self, Y: Array) -> Array:
        """Clamp each coordinate."""
        return np.clip(Y, self.low, self.high)


@dataclass(frozen=True)
class SpectralBall:
    """Every landmark within `radius` of the origin, and the spectral norm of Y at most `spectral` (τ_Y of Thm 6).

    Rows are clipped first, then singular values. The second step replaces U S Vᵀ by U S′ Vᵀ with S′ ≤ S, so row i, of
    norm ‖u_i S‖, does not grow, and both bounds hold.
    """

    radius: float
    spectral: float

    def __post_init__(self) -> None:
        checks.positive("radius", self.radius)
        checks.positive("spectral", self.spectral)

    def shrunk(self, step: float, shape: tuple[int, int]) -> SpectralBall:
        """Return the set whose points stay in this one when each coordinate is rounded to a multiple of `step`.

        Rounding moves a row by √m·step/2 at most, and Y, in the Frobenius norm, by √(n_y m)·step/2.
        """
        row, whole = (math.sqrt(size) * step for size in (shape[1], shape[0] * shape[1]))
        return SpectralBall(self.radius - row, self.spectral - whole)

    def contains(self, Y: Array) -> bool:
        """Whether the bounds hold for Y, up to rounding."""
        rows, spectral = float(np.linalg.norm(Y, axis=1).max(initial=0.0)), float(np.linalg.norm(Y, 2))
        return rows <= self.radius * (1 + 1e-12) and spectral <= self.spectral * (1 + 1e-12)

    def __call__(self, Y: Array) -> Array:
        """Clip rows, then singular values."""
        Y = clip_norms(Y, self.radius)
        if float(np.linalg.norm(Y)) <= self.spectral:
            return Y  # the Frobenius norm is at least the spectral one
        left, values, right = np.linalg.svd(Y, full_matrices=False)
        clipped: Array = ((left * np.minimum(values, self.spectral)) @ right).astype(Y.dtype, copy=False)
        return clipped


def clip_norms(X: Array, bound: float) -> Array:
    """Scale rows to Euclidean norm at most `bound`, shape (n, m); shorter rows are not changed."""
    norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    # Slightly below the bound: rounding to the array's dtype must not exceed it.
    target = bound * (1 - 4 * float(np.finfo(X.dtype).eps))
    scale = target / np.maximum(norms, target)
    return X if np.all(scale == 1) else (X * scale[:, None]).astype(X.dtype, copy=False)
