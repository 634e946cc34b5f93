"""What a score is held against: chance, a map without data, and one of all records in one place. For simulations only.

None of it is protected: all three read every record and label. So their scores stand where only a simulation's do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.estimators.known_tables import CLUSTERS, FEDDL
from dpfedvis.estimators.maps import FederatedMap
from dpfedvis.estimators.registry import estimator_of
from dpfedvis.estimators.settings import LANDMARKS, EstimatorSettings
from dpfedvis.evaluation.metrics import Evaluated
from dpfedvis.evaluation.scores import Scores, by_chance, score, scores_of
from dpfedvis.numerics.distances import GramDistances
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix
from dpfedvis.numerics.layouts import LAYOUTS

NO_DATA = 0.001  # at this ε a private map is one of noise
_OF_THE_RUN = ("mmd", "certificate")  # at the kernel of one run, so that another one is no yardstick


def chance_scores(settings: EstimatorSettings, fed: FederatedData) -> Scores:
    """Return what a map, or clusters, without any information would get, for the metrics where that is known."""
    places, labels = np.zeros((fed.n_records, 2), np.float32), np.zeros(fed.n_records, np.int64)
    if settings.map == CLUSTERS:
        return by_chance(Evaluated(fed, labels=labels))
    return by_chance(Evaluated(fed, places))


def no_data_scores(
    settings: EstimatorSettings, fed: FederatedData, neighbors: NDArray[np.int64] | None = None
) -> Scores:
    """Score the private map of the same recipe at ε = 0.001, whose budget sees nothing of the records.

    Clients still place their own records in it at home. So whatever it shows a client knows by itself, and a private
    map must beat it. Beside a run that is no private map it is one by the default recipe, on the same public facts:
    with the map, layout, landmarks, features, bounds and tau_x of the run. Where the settings of such a run are
    resolved, its landmarks count as given only if they are not the default number of rows.

    Parameters
    ----------
    settings : EstimatorSettings
    fed : FederatedData
    neighbors : array of shape (n, k), optional
        As in `Evaluated`.
    """
    if settings.epsilon is not None and settings.chosen_release == "none":
        recipe = settings.updated(epsilon=NO_DATA, noise="seeded", density=False, classes=())
    else:
        recipe = _default_recipe(settings)
    estimator = estimator_of(recipe.resolved(fed)).watch(warns=False).fit(fed)
    return _of_any_run(scores_of(estimator, fed, seed=settings.seed, neighbors=neighbors))


def _default_recipe(settings: EstimatorSettings) -> EstimatorSettings:
    """Return a private map of the same kind and with the same public facts, and the defaults for all else."""
    kept = {name: getattr(settings, name) for name in ("map", "seed", "jobs", "landmarks", "features", "tau_x")}
    if settings.release is not None and settings.landmarks == LANDMARKS:
        kept["landmarks"] = None  # what `resolved` takes for rows
    tables = {name: table for name, table in settings.tables.items() if name in (*LAYOUTS, CLUSTERS)}
    if "bounds" in settings.feddl:
        tables[FEDDL] = {"bounds": settings.feddl["bounds"]}
    return EstimatorSettings(**kept, tables=tables, epsilon=NO_DATA, noise="seeded")


def central_map(settings: EstimatorSettings, fed: FederatedData) -> Array:
    """Lay out the pooled records themselves, shape (n, 2), in the order of the clients.

    The layout is that of the federated map, so that they differ in nothing but the distances.
    """
    X, _ = fed.pooled()
    estimator = estimator_of(settings.resolved(fed))
    if not isinstance(estimator, FederatedMap):
        raise InvalidParameter("map", settings.map, "tsne or umap for a central map")
    centred = (X - X.mean(axis=0, dtype=np.float64)).astype(np.float32)
    return estimator.lay_out(GramDistances(centred))


def central_scores(
    settings: EstimatorSettings,
    fed: FederatedData,
    neighbors: NDArray[np.int64] | None = None,
    kernel: Kernel | None = None,
) -> Scores:
    """Score the map or the clusters of the pooled records themselves: what a trusted party with all data gets.

    Layouts are those of the federated maps, fed with exact distances; clusters are scikit-learn's.

    Parameters
    ----------
    settings : EstimatorSettings
    fed : FederatedData
    neighbors : array of shape (n, k), optional
        As in `Evaluated`.
    kernel : Kernel, optional
        That a run learned, for clusters by a kernel whose width is open.
    """
    if settings.map != CLUSTERS:
        return score(Evaluated(fed, central_map(settings, fed), seed=settings.seed, neighbors=neighbors))
    return score(Evaluated(fed, labels=_spectral(settings, fed.pooled()[0], kernel), seed=settings.seed))


def _spectral(settings: EstimatorSettings, X: NDArray[np.floating], kernel: Kernel | None) -> NDArray[np.int64]:
    import warnings

    from sklearn.cluster import SpectralClustering

    spectral, X = settings.spectral, np.asarray(X, np.float64)
    if spectral.affinity_gamma is not None:
        kernel = Kernel.gaussian(spectral.affinity_gamma)
    common = {"n_clusters": spectral.clusters, "n_init": spectral.starts, "random_state": settings.seed}
    if spectral.affinity == "neighbors":
        made, alike = SpectralClustering(affinity="nearest_neighbors", n_neighbors=spectral.neighbours, **common), X
    elif kernel is None:
        raise InvalidParameter("affinity_gamma", None, "given for central clusters with affinity='kernel'")
    else:
        made, alike = SpectralClustering(affinity="precomputed", **common), kernel_matrix(X, X, kernel)
    with warnings.catch_warnings():
        # Parts that nothing connects are as good as clusters can be.
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        labels: NDArray[np.int64] = made.fit_predict(alike)
    return labels


def _of_any_run(scores: Scores) -> Scores:
    return {key: value for key, value in scores.items() if key not in _OF_THE_RUN}
