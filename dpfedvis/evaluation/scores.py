"""All scores of a result: every metric of `METRICS` whose needs it meets.

For simulations only: metrics read every record and label.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data import FederatedData
from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.evaluation.metrics import METRICS, Evaluated

Scores = dict[str, float]


def scores_of(
    estimator: FederatedEstimator,
    fed: FederatedData,
    *,
    seed: int = 0,
    neighbors: NDArray[np.int64] | None = None,
) -> Scores:
    """Score a fitted FedTSNE, FedUMAP or FedSpectralClustering on the records that it was fitted to.

    With ``release="none"`` the scored map is the union of the clients' private views: only a simulation has it. A
    clustering is scored by its clusters, also where it has a map.

    Parameters
    ----------
    estimator : FederatedEstimator
    fed : FederatedData
    seed, neighbors
        As in `Evaluated`.

    Returns
    -------
    dict of str to float
        Key of a metric → score.
    """
    return score(evaluated_of(estimator, fed, seed=seed, neighbors=neighbors))


def evaluated_of(
    estimator: FederatedEstimator,
    fed: FederatedData,
    *,
    seed: int = 0,
    neighbors: NDArray[np.int64] | None = None,
) -> Evaluated:
    """Return what metrics need of a fitted estimator and its records; see `scores_of`."""
    labels = getattr(estimator, "labels_", None)
    return Evaluated(
        fed,
        getattr(estimator, "embedding_", None) if labels is None else None,
        labels=labels,
        landmarks=estimator.landmarks_,
        kernel=estimator.feddl_.public.kernel,
        seed=seed,
        neighbors=neighbors,
    )


def score(evaluated: Evaluated) -> Scores:
    """Compute every metric whose needs this result meets, in the order of `METRICS`."""
    possible = [metric for metric in METRICS.values() if evaluated.has.issuperset(metric.needs)]
    computed = {metric.key: metric.function(evaluated) for metric in possible}
    return {key: value for key, value in computed.items() if value is not None}


def by_chance(evaluated: Evaluated) -> Scores:
    """Return what each metric that can be computed would be of a result without any information, where it is known."""
    possible = [each for each in METRICS.values() if each.chance and evaluated.has.issuperset(each.needs)]
    return {metric.key: float(metric.chance(evaluated)) for metric in possible if metric.chance is not None}


def pooled_neighbors(original: NDArray[np.int64], fed: FederatedData) -> NDArray[np.int64]:
    """Convert neighbours of the data's rows to neighbours of the pooled records, for any partition.

    Parameters
    ----------
    original : array of shape (n, k)
        From `true_neighbors` of the records in the order of the data.
    fed : FederatedData
    """
    rows = fed.index.rows
    place = np.empty_like(rows)
    place[rows] = np.arange(len(rows))
    found: NDArray[np.int64] = place[original[rows]]
    return found
