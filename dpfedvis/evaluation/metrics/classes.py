"""How well a map keeps classes apart: accuracy of k-NN classifiers in it (CA)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.evaluation.metrics.base import Evaluated
from dpfedvis.numerics.kernels import Array


def accuracy(evaluated: Evaluated, k: int) -> float | None:
    """CA: accuracy of a k-NN classifier in the map, one 7:3 split over all clients' points."""
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import KNeighborsClassifier

    if k not in evaluated.ks:
        return None
    places, y = evaluated.places, evaluated.classes
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=evaluated.seed)
    return float(KNeighborsClassifier(k).fit(places[train], y[train]).score(places[test], y[test]))


def accuracy_across_clients(evaluated: Evaluated, k: int) -> float | None:
    """`cross_client_accuracy`; None if clients share no class: it would be 0 for any map."""
    fed, slices = evaluated.fed, evaluated.fed.index.slices
    labels = [evaluated.classes[part] for part in slices]
    held = [set(np.unique(each).tolist()) for each in labels]
    shared = len(set().union(*held)) < sum(map(len, held))
    if not shared or fed.n_records - max(fed.records) < k:
        return None
    return cross_client_accuracy([evaluated.places[part] for part in slices], labels, k)


def accuracy_of_shared_classes(evaluated: Evaluated, k: int) -> float | None:
    """CA across clients where it makes sense: over classes of which the other clients have at least k records.

    For clients that hold different classes. A point whose class nobody else holds cannot be classified by the others,
    and `accuracy_across_clients` counts it as wrong on any map. Here it is left out as a question; as an answer all
    points of the others count. Mean over classes, so that a class that few clients hold counts as much as one that all
    do. None if there is no such class.
    """
    fed, y = evaluated.fed, evaluated.classes
    names, codes = np.unique(y, return_inverse=True)
    counted = np.bincount(codes, minlength=len(names))
    asked, right = np.zeros(len(names)), np.zeros(len(names))
    for part in fed.index.slices:
        own = codes[part]
        shared = counted - np.bincount(own, minlength=len(names)) >= k
        chosen = shared[own]
        if not chosen.any():
            continue
        others = np.ones(len(codes), dtype=bool)
        others[part] = False
        found = _voted(evaluated.places[others], codes[others], evaluated.places[part][chosen], k)
        asked += np.bincount(own[chosen], minlength=len(names))
        right += np.bincount(own[chosen][found == own[chosen]], minlength=len(names))
    return float(np.mean(right[asked > 0] / asked[asked > 0])) if asked.any() else None


def purity(evaluated: Evaluated, k: int) -> float | None:
    """Share of a point's k nearest points on the map, of all clients, that are of its class; mean over classes.

    It makes sense for any partition. If each client holds one class, it says whether the classes of different clients
    land in different regions: a client whose records are drawn to other clients' anchors lies on their points. It does
    not say whether one class of several clients lands in one region; that is `accuracy_of_shared_classes`.
    """
    if k not in evaluated.ks:
        return None
    names, codes = np.unique(evaluated.classes, return_inverse=True)
    same = (codes[evaluated.neighbors_in_map[:, :k]] == codes[:, None]).mean(axis=1)
    return float(np.mean([same[codes == code].mean() for code in range(len(names))]))


def one_of_the_classes(evaluated: Evaluated) -> float:
    """Score of a random map where classes count alike: one over their number."""
    return 1 / len(np.unique(evaluated.classes))


def _voted(known: Array, codes: NDArray[np.int64], asked: Array, k: int) -> NDArray[np.int64]:
    from sklearn.neighbors import KNeighborsClassifier

    found: NDArray[np.int64] = KNeighborsClassifier(k).fit(known, codes).predict(asked)
    return found


def largest_class(evaluated: Evaluated) -> float:
    """Accuracy of always guessing the largest class."""
    return float(np.unique(evaluated.classes, return_counts=True)[1].max() / evaluated.fed.n_records)


def cross_client_accuracy(places: Sequence[Array], labels: Sequence[NDArray[Any]], k: int = 10) -> float:
    """Accuracy of classifying each client's points by those of the *other* clients; mean over clients.

    It is low if clients lay out their own records well, but in different places.

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
