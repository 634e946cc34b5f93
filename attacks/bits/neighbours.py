"""Neighbouring data sets that rounding tells apart: one record changes what floating point makes of the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two data sets that differ in one record.

    Parameters
    ----------
    inside, outside : arrays of shape (n, …)
    public : array, optional
        Landmarks, where the path has any.
    """

    inside: Array
    outside: Array
    public: Array | None = None


def moved(total: Callable[[Array], NDArray[np.generic]], pair: Neighbours) -> float:
    """Return the distance of the two totals."""
    inside, outside = (np.asarray(total(side), dtype=np.float64) for side in (pair.inside, pair.outside))
    return float(np.linalg.norm(inside - outside))


def over_a_power_of_two(exponent: int = 15, pairs: int = 4096) -> Neighbours:
    """Records in the plane whose products x₁x₂ add up to just below 2^exponent, or to just above with one of them.

    Then come pairs of products .6u and −.4u, u the width of float32 above. There they are rounded to u and 0, so that
    the sum drifts by u a pair; below, where the width is u/2, they are rounded to u/2 and −u/2, and it stays.
    """
    width = 2.0 ** (exponent - 23)
    steps = np.tile([0.6 * width, -0.4 * width], pairs)
    products = np.concatenate([[0.25], np.full(2 ** (exponent + 1) - 1, 0.5), steps])
    sides = []
    for first in (0.5, 0.0):
        # 2^exponent − ¼ without the first record.
        chosen = np.concatenate([[first], products])
        records = np.stack([np.sqrt(np.abs(chosen)), np.sign(chosen) * np.sqrt(np.abs(chosen))], axis=1)
        sides.append(records)
    return Neighbours(sides[0], sides[1])


def beside_a_landmark(clip: float, times: float, seed: int = 0, far: float = 1000.0) -> Neighbours:
    """A record beside a far landmark, `times`·clip away, whose distance float32 takes for 0; and one on it.

    ‖x‖² + ‖y‖² − 2x·y has an error of some 2⁻²³‖y‖², in which the distance vanishes.
    """
    generator = np.random.default_rng(seed)
    landmark = np.full((1, 4), far / 2)
    for _ in range(10_000):
        offset = generator.standard_normal(4)
        record = (landmark + times * clip * offset / np.linalg.norm(offset)).astype(np.float32)
        if float(cancelling_squares(record, landmark.astype(np.float32))[0, 0]) <= clip * clip:
            break
    return Neighbours(record, landmark.astype(np.float32), landmark.astype(np.float32))


def cancelling_squares(X: Array, Y: Array) -> Array:
    """Squared distances by ‖x‖² + ‖y‖² − 2x·y, in the dtype of the points: fast, and wrong where they are small."""
    squares: Array = (X * X).sum(axis=1)[:, None] + (Y * Y).sum(axis=1) - 2 * (X @ Y.T)
    return squares


def tied(records: int, features: int, seed: int = 0) -> Neighbours:
    """Records as far from one landmark as from another, and the same with one more: add-remove neighbours.

    The landmarks are ±v and the records orthogonal to v over the reals, so that rounding alone breaks the ties.
    """
    generator = np.random.default_rng(seed)
    v = generator.standard_normal(features)
    X = generator.standard_normal((records + 1, features))
    X -= np.outer(X @ v, v) / (v @ v)
    points = X.astype(np.float32)
    return Neighbours(points, points[:-1], np.stack([v, -v]).astype(np.float32))


def new_label(labels: int, records: int) -> Neighbours:
    """Labels 1, 2, …, and the same where one record has label 0, which nobody else has."""
    known = 1 + np.arange(records) % labels
    return Neighbours(np.concatenate([[0], known]), np.concatenate([[1], known]))
