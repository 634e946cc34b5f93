"""Whose records are placed worse: how well a map keeps neighbours, by class and by site. For simulations only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.evaluation.metrics.base import true_neighbors
from dpfedvis.numerics.kernels import Array

NEIGHBORS = 10
ASKED = 2000  # records at most: more take long, and groups have enough of them


@dataclass(frozen=True)
class Placed:
    """How the records of one group are placed.

    Parameters
    ----------
    group : str
    asked : int
        Records of it that were looked at.
    kept : float
        Share of a record's nearest others that are also near it in the map; the mean.
    among_own : float
        Share of a record's neighbours in the map that are of its group.
    among_own_before : float
        The same of its nearest others among the records themselves: without noise and without a map.
    """

    group: str
    asked: int
    kept: float
    among_own: float
    among_own_before: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)


def placed_by_group(
    X: Array, places: Array, groups: Mapping[str, NDArray[Any]], *, seed: int = 0
) -> dict[str, list[Placed]]:
    """Return how the records of each group are placed, worst first, for each way to group them.

    Parameters
    ----------
    X : array of shape (n, m)
    places : array of shape (n, 2)
    groups : mapping of str to array of shape (n,)
        Name of a grouping, such as class or site → the group of each record.
    seed : int
        Of the sample that is asked where there are many records.
    """
    n = len(X)
    k = min(NEIGHBORS, n - 1)
    if k < 1:
        return {name: [] for name in groups}
    asked = np.sort(np.random.default_rng(seed).permutation(n)[:ASKED])
    before, after = true_neighbors(X, k, asked), true_neighbors(places, k, asked)
    kept = (before[:, :, None] == after[:, None, :]).any(axis=2).mean(axis=1)
    return {name: _of(np.asarray(values), asked, before, after, kept) for name, values in groups.items()}


def _of(
    values: NDArray[Any],
    asked: NDArray[np.int64],
    before: NDArray[np.int64],
    after: NDArray[np.int64],
    kept: NDArray[np.float64],
) -> list[Placed]:
    own = values[asked]
    same = [(values[found] == own[:, None]).mean(axis=1) for found in (after, before)]
    found = []
    for group in np.unique(own):
        mine = own == group
        shares = (float(each[mine].mean()) for each in (kept, *same))
        found.append(Placed(str(group), int(mine.sum()), *shares))
    return sorted(found, key=lambda each: (each.kept, each.group))
