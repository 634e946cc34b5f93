"""Scores of maps and clusters. scikit-learn does the work; only the preservation of neighbours is written here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.numerics.distances import GramDistances
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.neighbors import nearest

KS = (1, 10, 50)


@dataclass(frozen=True)
class MapScores:
    """Scores of one map; each is {name: (mean, standard deviation)} over repeats.

    Parameters
    ----------
    accuracy : dict of int to (float, float)
        CA: accuracy of a k-NN classifier in the map, 7:3 split, for each k.
    preservation : dict of int to float
        NPA: mean share of a record's k nearest neighbours among those that the map gives it, for each k.
    nmi, silhouette, ari : (float, float)
        Of k-means in the map with as many clusters as classes. The silhouette is that of the k-means labels, as in
        the paper: it rises as clusters collapse, so read it beside NMI.
    trustworthiness, continuity : float
        With 10 neighbours, on a sample.
    repeats, seed : int
    """

    accuracy: dict[int, tuple[float, float]]
    preservation: dict[int, float]
    nmi: tuple[float, float]
    silhouette: tuple[float, float]
    ari: tuple[float, float]
    trustworthiness: float
    continuity: float
    repeats: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return the scores, ready for JSON."""
        return asdict(self)


def map_scores(
    X: Array,
    embedding: Array,
    y: NDArray[Any] | None,
    *,
    ks: Sequence[int] = KS,
    repeats: int = 1,
    seed: int = 0,
    sample: int = 3000,
) -> MapScores:
    """Score a map.

    Parameters
    ----------
    X : array of shape (n, m)
        The records, in the order of the map; for evaluation only.
    embedding : array of shape (n, 2)
    y : array of shape (n,)
        Classes.
    ks : sequence of int
        Those for which the training part of a split has too few records are left out.
    repeats : int
        Splits of CA and starts of k-means.
    seed : int
    sample : int
        Most records for the silhouette, trustworthiness and continuity, whose cost is quadratic.
    """
    n = len(embedding)
    if y is None or len(np.unique(y)) < 2:
        raise InvalidParameter("classes", 0 if y is None else len(np.unique(y)), "at least 2")
    if not len(X) == n == len(y):
        raise InvalidParameter("lengths of X, embedding and y", (len(X), n, len(y)), "equal")
    checks.count("repeats", repeats)
    ks = [k for k in ks if checks.count("k", k) < 0.7 * n - 1]
    if not ks:
        raise InvalidParameter("ks", [], f"with a k that {n} records have neighbours for")
    splits = [class_accuracies(embedding, y, ks, seed + repeat) for repeat in range(repeats)]
    clusters = [k_means_scores(embedding, y, seed + repeat, sample) for repeat in range(repeats)]
    chosen = np.random.default_rng(seed).permutation(n)[:sample]
    trust, continuity = trust_and_continuity(X[chosen], embedding[chosen])
    return MapScores(
        accuracy={k: _spread([split[k] for split in splits]) for k in ks},
        preservation=neighbor_preservation(X, embedding, ks),
        nmi=_spread([each[0] for each in clusters]),
        ari=_spread([each[1] for each in clusters]),
        silhouette=_spread([each[2] for each in clusters]),
        trustworthiness=trust,
        continuity=continuity,
        repeats=repeats,
        seed=seed,
    )


def neighbor_preservation(X: Array, embedding: Array, ks: Sequence[int] = KS) -> dict[int, float]:
    """NPA: mean share of a record's k nearest neighbours that are among its k nearest in the map.

    Parameters
    ----------
    X : array of shape (n, m)
    embedding : array of shape (n, 2)
    ks : sequence of int

    Returns
    -------
    dict of int to float
    """
    if len(X) != len(embedding):
        raise InvalidParameter("lengths of X and embedding", (len(X), len(embedding)), "equal")
    if not ks:
        raise InvalidParameter("ks", list(ks), "at least one k")
    return preserved(true_neighbors(X, max(ks)), embedding, ks)


def true_neighbors(X: Array, k: int) -> NDArray[np.int64]:
    """Return the k nearest other records of every record, nearest first, shape (n, k)."""
    return nearest(GramDistances(_centred(X)), k, method="exact").indices


def preserved(true: NDArray[np.int64], embedding: Array, ks: Sequence[int] = KS) -> dict[int, float]:
    """NPA, as `neighbor_preservation`, from neighbours that are known: one search does for all maps of the same data.

    Parameters
    ----------
    true : array of shape (n, at least max(ks))
        From `true_neighbors`.
    embedding : array of shape (n, 2)
    ks : sequence of int
    """
    found = true_neighbors(embedding, max(ks))
    return {k: _overlap(true[:, :k], found[:, :k]) for k in ks}


def cross_client_accuracy(places: Sequence[Array], labels: Sequence[NDArray[Any]], k: int = 10) -> float:
    """Mean over clients of the accuracy with which the points of the *other* clients classify a client's own.

    A client that lays out its own records well, but not where the others lay out theirs, scores nothing here.

    Parameters
    ----------
    places : sequence of arrays of shape (n_p, 2)
    labels : sequence of arrays of shape (n_p,)
    k : int
        Neighbours that vote.
    """
    from sklearn.neighbors import KNeighborsClassifier

    if len(places) < 2 or len(places) != len(labels):
        raise InvalidParameter("clients", (len(places), len(labels)), "at least 2, each with places and labels")
    scores = []
    for own in range(len(places)):
        others = [client for client in range(len(places)) if client != own]
        known = np.concatenate([places[client] for client in others])
        classes = np.concatenate([labels[client] for client in others])
        if checks.count("k", k) > len(known):
            raise InvalidParameter("k", k, f"at most {len(known)}, the records of the other clients")
        scores.append(KNeighborsClassifier(k).fit(known, classes).score(places[own], labels[own]))
    return float(np.mean(scores))


def cluster_scores(y: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """NMI and ARI of a clustering against the classes."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    return {
        "nmi": float(normalized_mutual_info_score(y, labels)),
        "ari": float(adjusted_rand_score(y, labels)),
    }


def _centred(points: Array) -> Array:
    # Distances far from the origin would lose digits in float32.
    return np.asarray(points - points.mean(axis=0, dtype=np.float64), dtype=np.float32)


def _overlap(a: NDArray[np.int64], b: NDArray[np.int64], rows: int = 4096) -> float:
    hits = 0
    for start in range(0, len(a), rows):
        part = slice(start, start + rows)
        hits += int((a[part, :, None] == b[part, None, :]).sum())
    return hits / a.size


def class_accuracies(embedding: Array, y: NDArray[Any], ks: Sequence[int], seed: int) -> dict[int, float]:
    """CA: accuracy of a k-NN classifier in the map, one 7:3 split, for each k."""
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import KNeighborsClassifier

    train, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=seed)
    return {
        k: float(KNeighborsClassifier(k).fit(embedding[train], y[train]).score(embedding[test], y[test])) for k in ks
    }


def k_means_scores(embedding: Array, y: NDArray[Any], seed: int, sample: int) -> tuple[float, float, float]:
    """NMI, ARI and silhouette of k-means in the map; the silhouette on a sample of the records."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    labels = KMeans(len(np.unique(y)), n_init=10, random_state=seed).fit_predict(embedding)
    scores = cluster_scores(y, labels)
    size = sample if sample < len(y) else None
    return scores["nmi"], scores["ari"], float(silhouette_score(embedding, labels, sample_size=size, random_state=seed))


def trust_and_continuity(X: Array, embedding: Array, k: int = 10) -> tuple[float, float]:
    """Trustworthiness and continuity with k neighbours, or as many as so few records allow; nan for none."""
    from sklearn.manifold import trustworthiness

    k = min(k, (len(X) - 1) // 2)
    if k < 1:
        return float("nan"), float("nan")
    return (
        float(trustworthiness(X, embedding, n_neighbors=k)),
        float(trustworthiness(embedding, X, n_neighbors=k)),
    )


def _spread(values: list[float]) -> tuple[float, float]:
    return fmean(values), pstdev(values)
