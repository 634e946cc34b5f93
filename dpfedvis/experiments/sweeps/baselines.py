"""Baselines of private maps: no privacy at all, and no data at all."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.estimators.maps import FederatedMap
from dpfedvis.evaluation.metrics import Evaluated
from dpfedvis.evaluation.scores import Scores, score
from dpfedvis.experiments.sweeps.landmarks import Given
from dpfedvis.numerics.distances import GramDistances
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.runs.settings import RunConfig
from dpfedvis.server.recipe import Recipe


def central_map(config: RunConfig, fed: FederatedData) -> Array:
    """Lay out the pooled records themselves, shape (n, 2), in the order of the clients.

    The layout is that of the federated map, so that they differ in nothing but the distances.
    """
    X, _ = fed.pooled()
    estimator = config.resolved(fed).estimator()
    if not isinstance(estimator, FederatedMap):
        raise InvalidParameter("map", config.map, "tsne or umap for a central map")
    centred = (X - X.mean(axis=0, dtype=np.float64)).astype(np.float32)
    return estimator.lay_out(GramDistances(centred))


def central_scores(config: RunConfig, fed: FederatedData, neighbors: NDArray[np.int64] | None) -> Scores:
    """Score the map or the clusters of the pooled records themselves: what a trusted party with all data gets.

    Layouts are those of the federated maps, fed with exact distances; clusters are scikit-learn's.
    """
    if config.map != "clusters":
        return score(Evaluated(fed, central_map(config, fed), seed=config.seed, neighbors=neighbors))
    return score(Evaluated(fed, labels=_spectral(config, fed.pooled()[0]), seed=config.seed))


def _spectral(config: RunConfig, X: NDArray[np.floating]) -> NDArray[np.int64]:
    import warnings

    from sklearn.cluster import SpectralClustering

    spectral = config.spectral
    common = {"n_clusters": spectral.clusters, "n_init": spectral.starts, "random_state": config.seed}
    if spectral.affinity == "neighbors":
        made = SpectralClustering(affinity="nearest_neighbors", n_neighbors=spectral.neighbours, **common)
    elif spectral.affinity_gamma is None:
        raise InvalidParameter("affinity_gamma", None, "given for central clusters with affinity='kernel'")
    else:
        made = SpectralClustering(affinity="rbf", gamma=spectral.affinity_gamma, **common)
    with warnings.catch_warnings():
        # Parts that nothing connects are as good as clusters can be.
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        labels: NDArray[np.int64] = made.fit_predict(np.asarray(X, np.float64))
    return labels


def data_free_scores(config: RunConfig, fed: FederatedData, neighbors: NDArray[np.int64] | None) -> Scores:
    """Score a private map that saw no data: ε = 0.

    The server lays out public random points, uniform in the public bounds or else normal around 0, and each client
    places its own records among them at home, as with ``release="none"``. Nothing leaves a client, so that whatever
    this map shows a client knows of its own records: it is what a private map must beat.
    """
    config = config.resolved(fed)
    estimator = config.estimator()
    if not isinstance(estimator, FederatedMap):
        raise InvalidParameter("map", config.map, "tsne or umap for the data-free baseline")
    bounds, layout = config.feddl.get("bounds"), config.layout
    public = FedDL(
        landmarks=config.landmarks or 0,
        mechanism=Given(),
        gamma="public" if bounds is not None else 1 / (2 * fed.n_features),
        bounds=bounds,
        start="normal" if bounds is None else "uniform",
        seed=config.seed,
    ).run(fed)
    if len(public.ledger):
        raise RuntimeError("a data-free baseline has released something")
    features = fed.n_features
    grid = (
        Grid.of_norm(2.0**8 * math.sqrt(features), features)
        if bounds is None
        else Grid.of_bounds(bounds[0], bounds[1], features)
    )
    whole = Subspace(np.zeros(features), np.eye(features), np.ones(features), grid)
    anchors = public.landmarks.astype(np.float32)
    places = Recipe().scaled(layout.lay_out_anchors(anchors, config.seed), fed.n_records / fed.n_clients)
    published = PublishedMap(whole, anchors, places, config.seed)
    embedding = np.concatenate([estimator.at_home(published, client.X) for client in fed.clients])
    kernel = public.public.kernel
    return score(Evaluated(fed, embedding, None, public.landmarks, kernel, seed=config.seed, neighbors=neighbors))
