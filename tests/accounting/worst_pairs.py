"""The search for the pair of neighbours that moves an upload the most: a bound must be above what it finds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize

Array = np.ndarray
ROUNDING = 1 + 1e-9
BOTH = pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
RECORDS = np.random.default_rng(3).normal(size=(2, 2))  # those that both neighbours share


def worst(moved: Callable[[Array], float], size: int, scale: float, *, starts: int = 2, seed: int = 0) -> float:
    """Largest value of `moved` that quasi-Newton search finds, started from `starts` random points."""
    generator = np.random.default_rng(seed)
    best = 0.0
    for _ in range(starts):
        found = minimize(
            lambda z: -math.log(moved(scale * z) + 1e-300),
            generator.normal(size=size) * generator.uniform(0.3, 1.5),
            method="L-BFGS-B",
            options={"maxiter": 40},
        )
        best = max(best, moved(scale * found.x))
    return best


def neighbours(X: Array, x: Array, other: Array, adjacency: str) -> tuple[Array, Array]:
    """Return two data sets: with record x, and with it replaced or removed."""
    return np.vstack([X, x]), np.vstack([X, other]) if adjacency == "replace-one" else X


def ball(point: Array, radius: float) -> Array:
    return point * min(1.0, radius / max(float(np.linalg.norm(point)), 1e-300))


def pieces(z: Array, landmarks: int, features: int = 2) -> tuple[Array, Array, Array]:
    Y = z[: landmarks * features].reshape(landmarks, features)
    return Y, z[landmarks * features :][:features], z[landmarks * features :][features:]
