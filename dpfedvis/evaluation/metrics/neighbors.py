"""How well a map keeps neighbours: NPA, trustworthiness and continuity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpfedvis.evaluation.metrics.base import Evaluated, true_neighbors
from dpfedvis.numerics.kernels import Array

_K = 10  # neighbours of trustworthiness and continuity


def preservation(evaluated: Evaluated, k: int) -> float | None:
    """NPA: mean share of a record's k nearest neighbours that are among its k nearest in the map.

    Of very many records, that of a sample (`EXACT_NEIGHBORS`).
    """
    if k not in evaluated.ks:
        return None
    return overlap(evaluated.neighbors_among_records[:, :k], evaluated.neighbors_in_map[:, :k])


def preservation_at_home(evaluated: Evaluated, k: int) -> float | None:
    """NPA within each client: of its records' k nearest among its own, the share that it finds on its own view.

    It is what a client sees of its own records, whichever classes the others hold. Mean over records of clients with
    more than 2k records.
    """
    kept, counted = 0.0, 0
    for part, records in zip(evaluated.fed.index.slices, evaluated.fed.records, strict=True):
        if records <= 2 * k:
            continue
        true, seen = (true_neighbors(each[part], k) for each in (evaluated.X, evaluated.places))
        kept += records * overlap(true, seen)
        counted += records
    return kept / counted if counted else None


def preservation_at_home_by_chance(evaluated: Evaluated, k: int) -> float:
    """Expected value on a random map: k of the other records of a client."""
    sizes = [records for records in evaluated.fed.records if records > 2 * k]
    return sum(k * records / (records - 1) for records in sizes) / sum(sizes) if sizes else 0.0


def preservation_by_chance(evaluated: Evaluated, k: int) -> float:
    """k/(n − 1)."""
    return k / (evaluated.fed.n_records - 1)


def overlap(a: NDArray[np.int64], b: NDArray[np.int64], rows: int = 4096) -> float:
    """Mean share of a row's entries of `a` that are also in the same row of `b`; both of shape (n, k)."""
    hits = 0
    for start in range(0, len(a), rows):
        part = slice(start, start + rows)
        hits += int((a[part, :, None] == b[part, None, :]).sum())
    return hits / a.size


def trustworthiness(evaluated: Evaluated) -> float | None:
    """Whether neighbours in the map are neighbours among the records; 10 neighbours, on a sample."""
    return _trust(evaluated.X[evaluated.sample], evaluated.places[evaluated.sample])


def continuity(evaluated: Evaluated) -> float | None:
    """Whether neighbours among the records are neighbours in the map; 10 neighbours, on a sample."""
    return _trust(evaluated.places[evaluated.sample], evaluated.X[evaluated.sample])


def trust_by_chance(evaluated: Evaluated) -> float:
    """1/2, for a map that is independent of the records."""
    return 0.5


def _trust(true: Array, shown: Array) -> float | None:
    from sklearn.manifold import trustworthiness

    k = min(_K, (len(true) - 1) // 2)
    return float(trustworthiness(true, shown, n_neighbors=k)) if k >= 1 else None
