"""From settings to the estimator that has them."""

from __future__ import annotations

from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.estimators.clusters import FedSpectralClustering
from dpfedvis.estimators.known_tables import CLUSTERS
from dpfedvis.estimators.maps import FedMap
from dpfedvis.estimators.settings import EstimatorSettings
from dpfedvis.estimators.tsne import FedTSNE
from dpfedvis.estimators.umap import FedUMAP

# Maps with an estimator of their own; any other layout is drawn by `FedMap`.
_ESTIMATORS: dict[str, type[FederatedEstimator]] = {
    "tsne": FedTSNE,
    "umap": FedUMAP,
    CLUSTERS: FedSpectralClustering,
}


def estimator_of(settings: EstimatorSettings) -> FederatedEstimator:
    """Return the estimator with these settings, ready to fit."""
    if settings.chosen_release != "none":
        _ = settings.recipe  # raises for settings that only a private map has
    return _ESTIMATORS.get(settings.map, FedMap).of(settings)
