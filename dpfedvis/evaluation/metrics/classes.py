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
