"""Nearest neighbours from factored distances, in blocks: never an n × n matrix."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.distances import DistanceEstimate, GramDistances
from dpfedvis.numerics.kernels import Array

Method = Literal["auto", "exact", "approximate"]

BLOCK_BYTES = 64 << 20
# Above this many records, exact search takes longer than building an approximate index.
EXACT_LIMIT = 100_000
# Groups per neighbour in `_bound`: more groups take longer; with fewer, more entries have to be sorted.
_GROUPS = 8


class TooManyNeighbors(DpfedvisError):
    """More neighbours requested than there are other records."""


@dataclass(frozen=True)
class Neighbors:
    """A k-nearest-neighbour graph.

    Parameters
    ----------
    indices : array of shape (n, k), int64
        Nearest first; a record is not its own neighbour.
    distances : array of shape (n, k), float32
    recall : float
        Share of the exact search's neighbours that were found: 1 for exact search, measured on a sample for
        approximate search.
    """

    indices: NDArray[np.int64]
    distances: Array
    recall: float = 1.0


def nearest(
    estimate: DistanceEstimate, k: int, *, method: Method = "auto", seed: int = 0, sample: int = 200
) -> Neighbors:
    """Find the k nearest other records of every record.

    Parameters
    ----------
    estimate : DistanceEstimate
    k : int
    method : {"auto", "exact", "approximate"}
        ``"approximate"`` is pynndescent on the coordinates of a Gram estimate; ``"auto"`` takes it above 100,000
        records.
    seed : int
        For the approximate search and the sample that measures its recall.
    sample : int
        Size of that sample.
    """
    n = len(estimate.left)
    if checks.count("k", k) >= n:
        raise TooManyNeighbors(f"{k} neighbours were asked for among {n} records; at most {n - 1} exist")
    checks.one_of("method", method, ("auto", "exact", "approximate"))
    if method == "approximate" or (method == "auto" and n > EXACT_LIMIT and isinstance(estimate, GramDistances)):
        return _approximate(estimate, k, seed, sample)
    return nearest_others(estimate, np.arange(n), k)


def nearest_to(estimate: DistanceEstimate, queries: Array, k: int) -> Neighbors:
    """Find the k records nearest to each of `queries`, shape (q, r)."""
    n = len(estimate.left)
    if checks.count("k", k) > n:
        raise TooManyNeighbors(f"{k} neighbours were asked for among {n} records")
    rows = _block_rows(n)
    parts = [_smallest(estimate.block(queries[start : start + rows]), k) for start in range(0, len(queries), rows)]
    return Neighbors(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))


def nearest_others(estimate: DistanceEstimate, chosen: NDArray[np.int64], k: int) -> Neighbors:
    """Find the k nearest other records of the chosen ones, exactly."""
    n, left = len(estimate.left), estimate.left
    if checks.count("k", k) >= n:
        raise TooManyNeighbors(f"{k} neighbours were asked for among {n} records; at most {n - 1} exist")
    indices = np.empty((len(chosen), k), dtype=np.int64)
    distances = np.empty((len(chosen), k), dtype=np.float32)
    rows = _block_rows(n)
    for start in range(0, len(chosen), rows):
        part = chosen[start : start + rows]
        block = estimate.block(left[part])
        block[np.arange(len(part)), part] = np.inf
        indices[start : start + rows], distances[start : start + rows] = _smallest(block, k)
    return Neighbors(indices, distances)


def _smallest(block: Array, k: int) -> tuple[NDArray[np.int64], Array]:
    """Columns and values of the k smallest entries of each row, smallest first; equal values by column.

    Partitioning whole rows costs as much as the matrix product that made them. So first find a bound that at least k
    entries do not exceed, then sort only those.
    """
    n = block.shape[1]
    kept = np.flatnonzero(~(block > _bound(block, k)))  # not "≤": NaN is kept, and sorts last
    rows, columns = np.divmod(kept, n)
    values = block.ravel()[kept]
    order = np.lexsort((columns, values, rows))
    first = np.searchsorted(rows, np.arange(len(block)))
    chosen = order[first[:, None] + np.arange(k)]
    return columns[chosen], values[chosen]


def _bound(block: Array, k: int) -> Array:
    """Return for each row a value that at least k entries do not exceed, and not many more, shape (rows, 1).

    Take the minimum of each of several disjoint groups of entries: the k-th smallest minimum is such a value.
    """
    n = block.shape[1]
    size = n // (_GROUPS * k)
    if size > 1:
        groups = n // size
        block = block[:, : size * groups].reshape(len(block), size, groups).min(axis=1)
    return np.partition(block, k - 1, axis=1)[:, k - 1 : k]


def _approximate(estimate: DistanceEstimate, k: int, seed: int, sample: int) -> Neighbors:
    if not isinstance(estimate, GramDistances):
        raise DpfedvisError("approximate search needs coordinates: use the Gram estimate, or exact search")
    from pynndescent import NNDescent

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to correctly find", module="pynndescent")
        index = NNDescent(np.asarray(estimate.left, dtype=np.float32), n_neighbors=k + 1, random_state=seed)
    found, distances = index.neighbor_graph
    found, distances = _without_self(found.astype(np.int64), distances, k)
    short = np.flatnonzero((found < 0).any(axis=1))  # not found
    searched = nearest_others(estimate, short, k)
    found[short], distances[short] = searched.indices, searched.distances
    chosen = np.random.default_rng(seed).permutation(len(found))[:sample]
    exact = nearest_others(estimate, chosen, k)
    hits = (found[chosen][:, :, None] == exact.indices[:, None, :]).any(axis=2)
    return Neighbors(found, distances, float(hits.mean()))


def _without_self(found: NDArray[np.int64], distances: Array, k: int) -> tuple[NDArray[np.int64], Array]:
    """Drop each record from its own row; if it is not there (duplicates), drop the last entry."""
    own = found == np.arange(len(found))[:, None]
    own[~own.any(axis=1), -1] = True
    keep = ~own
    return found[keep].reshape(len(found), k), distances[keep].reshape(len(found), k)


def _block_rows(n: int) -> int:
    return max(1, BLOCK_BYTES // (4 * n))
