"""Fed-SpeClust (Algorithm 3): spectral clusters from a graph of neighbours or a low-rank kernel, never n × n.

And private clusters: those of the map of protected landmarks, in which each client finds its own records at home.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from accounting import Budget
from accounting.errors import InvalidParameter
from accounting.events import Trust
from dpfedvis.estimators.base import FederatedEstimator, ReleaseUnavailable
from dpfedvis.estimators.known_tables import CLUSTERS
from dpfedvis.estimators.private_map import AT_SITES, PrivateMapEstimator
from dpfedvis.estimators.settings import DEFAULTS, ReleaseMode
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.rows import GramRows
from dpfedvis.numerics.distances import GramDistances, KernelFactor, kernel_factor
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix
from dpfedvis.numerics.neighbors import Method, Neighbors, TooManyNeighbors, nearest
from dpfedvis.numerics.spectral import Affinity, SpectralSettings, k_means, neighbor_embedding, spectral_embedding
from dpfedvis.server.feddl import NoiseName
from dpfedvis.site.views import checked_records


class FedSpectralClustering(PrivateMapEstimator):
    """Spectral clustering of a graph of neighbours, or of the paper's K̂ = C W⁺ Cᵀ; and clusters that are private.

    Under an end-to-end budget the server clusters protected landmarks, and nothing of a record leaves its client. It
    lays the landmarks out as the private map of `dpfedvis.FedTSNE`, and publishes the map with the centres of
    k-means in it. Each client places its own records in the map at home: a record is in the cluster whose centre is
    nearest. A t-SNE map stands for the spectral embedding: its early phase is a spectral clustering of the graph of
    neighbours (Linderman & Steinerberger 2019).

    Parameters
    ----------
    n_clusters : int
    affinity : {"neighbors", "kernel"}
        Which records are alike: those that are neighbours by their coordinates in the landmarks' affine span, all alike
        equally, or all by the kernel estimate, as in the paper. A narrow kernel needs landmarks close to every record,
        which learned landmarks are not; neighbours need their span only.
    n_neighbors : int
        Neighbours of a record, itself counted, as in scikit-learn.
    affinity_gamma : float, optional
        Width of the kernel affinity; by default that of the landmarks' learning.
    n_init : int
        Starts of k-means.
    release : {"exact", "noisy", "none"}, optional
        Rows to cluster, or none of them: private clusters. By default ``"none"`` under an end-to-end budget, else
        ``"exact"``. Noisy rows have so much noise that clusters are at chance at any useful ε.
    rank, ridge
        k and λ of W_k⁺ and W + λI, for the kernel affinity.
    private_map : mapping, optional
        Settings of the private map, for ``release="none"``: see `dpfedvis.server.recipe.Recipe`. Affinity and
        neighbours are those of rows, and play no part.
    n_landmarks, mechanism, budget, epsilon, threshold, colluders, retries, features, compare_features, rounds,
    random_state, trust, noise, release_share, tau_x, search, n_jobs, feddl
        As in `dpfedvis.FedTSNE`.

    Attributes
    ----------
    labels_ : array of shape (n,)
        In the order of the clients. Of private clusters only a simulation has those of all.
    published_map_ : PublishedMap
        Of private clusters: what the server publishes. `centres` are those of the clusters.
    embedding_ : array of shape (n, 2)
        Of private clusters: the places of the records in that map.
    spectral_ : array of shape (n, n_clusters)
        Of rows: the embedding that k-means was run on.
    neighbors_ : Neighbors
        The graph, for ``affinity="neighbors"``.
    factor_ : KernelFactor
        For ``affinity="kernel"``, F with K̂ = F Fᵀ; its `certificate` bounds the error of K̂, for exact rows.
    settings_ : EstimatorSettings
        With all choices made.
    landmarks_, ledger_, statement_, feddl_
    """

    _map: ClassVar[str] = CLUSTERS
    _names: ClassVar[Mapping[str, str | tuple[str, str] | None]] = {
        **FederatedEstimator._names,
        "n_clusters": (CLUSTERS, "clusters"),
        "affinity": (CLUSTERS, "affinity"),
        "affinity_gamma": (CLUSTERS, "affinity_gamma"),
        "n_neighbors": (CLUSTERS, "neighbours"),
        "n_init": (CLUSTERS, "starts"),
    }

    def __init__(
        self,
        n_clusters: int = SpectralSettings.clusters,
        n_landmarks: int | None = DEFAULTS.landmarks,
        mechanism: Mechanism | str | None = DEFAULTS.mechanism,
        budget: Budget | None = None,
        release: ReleaseMode | None = DEFAULTS.release,
        rounds: int | None = DEFAULTS.rounds,
        random_state: int = DEFAULTS.seed,
        affinity: Affinity = SpectralSettings.affinity,
        n_neighbors: int = SpectralSettings.neighbours,
        affinity_gamma: float | None = SpectralSettings.affinity_gamma,
        n_init: int = SpectralSettings.starts,
        trust: Trust = DEFAULTS.trust,
        noise: NoiseName | None = DEFAULTS.noise,
        release_share: float = DEFAULTS.release_share,
        tau_x: float | None = DEFAULTS.tau_x,
        rank: int | None = DEFAULTS.rank,
        ridge: float = DEFAULTS.ridge,
        search: Method = DEFAULTS.search,
        feddl: Mapping[str, Any] | None = None,
        epsilon: float | None = None,
        threshold: int | None = DEFAULTS.threshold,
        colluders: int | None = DEFAULTS.colluders,
        retries: int = DEFAULTS.retries,
        features: Any = DEFAULTS.features,
        compare_features: Any = DEFAULTS.compare_features,
        private_map: Mapping[str, Any] | None = None,
        n_jobs: int = DEFAULTS.jobs,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_landmarks = n_landmarks
        self.mechanism = mechanism
        self.budget = budget
        self.release = release
        self.rounds = rounds
        self.random_state = random_state
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.affinity_gamma = affinity_gamma
        self.n_init = n_init
        self.trust = trust
        self.noise = noise
        self.release_share = release_share
        self.tau_x = tau_x
        self.rank = rank
        self.ridge = ridge
        self.search = search
        self.feddl = feddl
        self.epsilon = epsilon
        self.threshold = threshold
        self.colluders = colluders
        self.retries = retries
        self.features = features
        self.compare_features = compare_features
        self.private_map = private_map
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Learn landmarks; then release rows and cluster them, or publish a map with clusters, as `release` says.

        See `FederatedEstimator.fit` for the parameters.
        """
        fed = self._resolve(X, y, groups)
        spectral, settings = self.settings_.spectral, self.settings_
        # Where their number is private, to refuse it would tell it.
        public = settings.budget is None or not settings.budget.hides_records
        if public and fed.origin != "federation" and spectral.clusters > fed.n_records:
            raise InvalidParameter("n_clusters", spectral.clusters, f"at most the number of records, {fed.n_records}")
        if settings.release == "none":
            return self._fit_private(fed, clusters=spectral)
        _ = settings.recipe  # raises for settings that only a private map has
        by_neighbors = spectral.affinity == "neighbors"
        if by_neighbors and spectral.clusters == fed.n_records:
            raise InvalidParameter("n_clusters", spectral.clusters, f"below the number of records, {fed.n_records}")
        if by_neighbors and spectral.neighbours > fed.n_records:
            raise TooManyNeighbors(f"n_neighbors is {spectral.neighbours}, of {fed.n_records} records in all")
        # Coordinates carry far less noise than kernel rows at the same ε, and the kernel follows from them.
        gram = by_neighbors or settings.release == "noisy"
        self._check_release()
        program = self._program(fed, "gram" if gram else "kernel", row_gamma=spectral.affinity_gamma)
        published, _ = self._carry_out(fed, program)
        rows = np.concatenate(published.rows)
        if by_neighbors:
            self.spectral_ = self._embed_neighbors(spectral, rows)
        else:
            self.spectral_ = self._embed_kernel(spectral, rows, GramRows(published.row_noise))
        self.labels_ = self._ordered(k_means(self.spectral_, spectral.clusters, spectral.starts, settings.seed))
        return self

    def _embed_neighbors(self, spectral: SpectralSettings, coordinates: Array) -> Array:
        estimate = GramDistances(coordinates.astype(np.float32))
        search, seed = self.settings_.search, self.settings_.seed
        self.neighbors_: Neighbors = nearest(estimate, spectral.neighbours - 1, method=search, seed=seed)
        return neighbor_embedding(self.neighbors_, spectral.clusters, seed)

    def _embed_kernel(self, spectral: SpectralSettings, rows: Array, frame: GramRows) -> Array:
        gamma = spectral.affinity_gamma
        kernel = self.feddl_.public.kernel if gamma is None else Kernel.gaussian(gamma)
        Y = self.landmarks_.astype(np.float64)
        if self.settings_.release == "noisy":
            C, W = (kernel_matrix(each, frame.of(Y, Y), kernel) for each in (rows, frame.of(Y, Y)))
        else:
            C, W = rows, kernel_matrix(Y, Y, kernel)
        self.factor_: KernelFactor = kernel_factor(C, W, rank=self.settings_.rank, ridge=self.settings_.ridge)
        return spectral_embedding(self.factor_.left, spectral.clusters)

    def fit_predict(self, X: Any, y: Any = None, *, groups: Any = None) -> NDArray[np.int64]:
        """Fit, and return the clusters of all records, shape (n,): in the order of clients, or of an array's rows."""
        if self._processes is not None and self.settings().chosen_release == "none":
            raise ReleaseUnavailable(AT_SITES)
        labels: NDArray[np.int64] = self.fit(X, y, groups=groups).labels_
        return labels

    def predict(self, X: Any, name: str = "newcomer") -> NDArray[np.int64]:
        """Return the clusters of a client that joins later, shape (n,). It finds them at home; nothing is spent.

        Parameters
        ----------
        X : array of shape (n, m)
        name : str
        """
        check_is_fitted(self, "landmarks_")
        if self.settings_.release != "none":
            raise ReleaseUnavailable("later records have clusters only with release='none'; fit them with the others")
        records = checked_records(name, self.new_records(X, name))
        return self.published_map_.clusters_at(self.at_home(self.published_map_, records))

    def views(self) -> dict[str, NDArray[np.int64]]:
        """Return each client's labels, by name."""
        if hasattr(self, "published_map_") and not hasattr(self, "labels_"):
            raise ReleaseUnavailable(AT_SITES)
        check_is_fitted(self, "labels_")
        return self._by_client(self.labels_)
