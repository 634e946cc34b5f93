"""Fed-tSNE and Fed-UMAP (Algorithm 2): maps of records that stay where they are."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from itertools import count
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from openTSNE.nearest_neighbors import KNNIndex

from accounting import Budget, checks
from dpfedvis.estimators.base import ReleaseMode
from dpfedvis.estimators.maps import FederatedMap
from dpfedvis.federation.private_map import Anchored, ByUMAPTransform, Placement
from dpfedvis.mechanisms import Mechanism
from dpfedvis.numerics.distances import DistanceEstimate, GramDistances
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.neighbors import Method, Neighbors, nearest, nearest_to


class FedTSNE(FederatedMap):
    """Fed-tSNE on openTSNE.

    Parameters
    ----------
    n_landmarks : int, optional
        n_y; by default 500, or with ``release="none"`` as many as the noise allows.
    mechanism : Mechanism or str, optional
        How the landmarks are learned; see `dpfedvis.mechanisms`. By default ``"k-means"`` with ``release="none"``, and
        ``"gradient"`` otherwise.
    budget : Budget, optional
        Needed by every mechanism and release that protects.
    release : {"exact", "noisy", "none"}, optional
        What each client gives away of its records once the landmarks are there. Exact rows are the data: under an
        end-to-end budget they are refused. With ``"none"`` the server publishes the landmarks' map and each client
        places its own records at home. By default ``"none"`` under an end-to-end budget, else ``"exact"``.
    distances : {"gram", "nystrom"}
        Coordinates in the landmarks' affine span, or the paper's B W_k⁺ Bᵀ.
    rounds : int
        S.
    random_state : int
    perplexity : float
        Lowered, with openTSNE's rule, where there are fewer than 3·perplexity other records.
    release_share : float
        Share of μ² for noisy rows; the landmarks get the rest.
    tau_x : float, optional
        Public bound on the norm of records, for noisy rows.
    rank, ridge
        k and λ of the paper's W_k⁺ and W + λI, for ``distances="nystrom"``.
    neighbors : {"auto", "exact", "approximate"}
        How neighbours are searched.
    n_jobs : int
        Threads of openTSNE; with ``release="none"``, clients that place their records at the same time.
    feddl : mapping, optional
        Further settings of `dpfedvis.federation.feddl.FedDL`, such as ``bandwidth`` and ``bounds``.
    private_map : mapping, optional
        Settings of the end-to-end private map, ``release="none"``; see `dpfedvis.federation.private_map.Recipe`.
    tsne : mapping, optional
        Further settings of `openTSNE.TSNE`.

    Attributes
    ----------
    embedding_ : array of shape (n, 2)
        In the order of the clients; `views` gives each client's part. With ``release="none"`` no one but this
        simulation has it: in a real federation each client has its own part.
    board_, density_
        With ``release="none"``, what everybody sees.
    distances_, neighbors_
        The estimate and the graph that the map was made from.
    landmarks_, ledger_, statement_, feddl_
    """

    def __init__(
        self,
        n_landmarks: int | None = None,
        mechanism: Mechanism | str | None = None,
        budget: Budget | None = None,
        release: ReleaseMode | None = None,
        distances: Literal["gram", "nystrom"] = "gram",
        rounds: int = 50,
        random_state: int = 0,
        perplexity: float = 30.0,
        release_share: float = 0.5,
        tau_x: float | None = None,
        rank: int | None = None,
        ridge: float = 0.0,
        neighbors: Method = "auto",
        n_jobs: int = 2,
        feddl: Mapping[str, Any] | None = None,
        private_map: Mapping[str, Any] | None = None,
        tsne: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_landmarks = n_landmarks
        self.mechanism = mechanism
        self.budget = budget
        self.release = release
        self.distances = distances
        self.rounds = rounds
        self.random_state = random_state
        self.perplexity = perplexity
        self.release_share = release_share
        self.tau_x = tau_x
        self.rank = rank
        self.ridge = ridge
        self.neighbors = neighbors
        self.n_jobs = n_jobs
        self.feddl = feddl
        self.private_map = private_map
        self.tsne = tsne

    def lay_out(self, estimate: DistanceEstimate) -> Array:
        from openTSNE import TSNE, affinity, initialization

        n = len(estimate.left)
        k = min(n - 1, int(3 * checks.positive("perplexity", self.perplexity)))
        self.neighbors_ = nearest(estimate, k, method=self.neighbors, seed=self.random_state)
        affinities = affinity.PerplexityBasedNN(
            perplexity=min(self.perplexity, k / 3), knn_index=_Index(estimate, self.neighbors_), n_jobs=self.n_jobs
        )
        settings = {"n_jobs": self.n_jobs, "random_state": self.random_state, **(self.tsne or {})}
        start = settings.pop("initialization", None)
        if start is None and isinstance(estimate, GramDistances) and estimate.left.shape[1] > 1:
            start = _pca_start(estimate.left, self.random_state)
        elif start is None:
            # Without two coordinates there is no PCA to start from.
            start = initialization.spectral(affinities.P, random_state=self.random_state, tol=1e-2)
        self._layout = TSNE(**self._counted(settings)).fit(affinities=affinities, initialization=start)
        self._layout.gradient_descent_params["callbacks"] = settings.get("callbacks")  # of newcomers nobody counts
        # openTSNE's `transform` centres the map's box in place. Done here, newcomers land in the map as it is shown.
        self._layout -= (self._layout.max(axis=0) + self._layout.min(axis=0)) / 2
        return np.array(self._layout, dtype=np.float64)

    def _counted(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Settings with which openTSNE tells how far it is, if anybody looks on; its result is the same."""
        if self._progress is None or "callbacks" in settings:
            return settings
        every, calls = 50, count(1)  # iterations, openTSNE's own
        total = settings.get("early_exaggeration_iter", 250) // every + settings.get("n_iter", 500) // every
        settings = {**settings, "callbacks_every_iters": every}
        self._tick("layout", 0, total)
        return {**settings, "callbacks": lambda *_: self._tick("layout", next(calls), total)}

    @property
    def _threads(self) -> int:
        return self.n_jobs if self.n_jobs > 0 else os.cpu_count() or 1

    def lay_out_anchors(self, anchors: Array) -> Array:
        from openTSNE import TSNE

        perplexity = min(checks.positive("perplexity", self.perplexity), (len(anchors) - 1) / 3)
        start = _pca_start(anchors, self.random_state)
        common = {"initialization": start, "n_jobs": 1, "random_state": self.random_state, "neighbors": "exact"}
        layout = TSNE(**{**common, "perplexity": perplexity, **(self.tsne or {})}).fit(anchors)
        return np.array(layout, dtype=np.float64)

    def _place(self, queries: Array) -> Array:
        # Perplexity 5 and openTSNE's own schedule: its advice for new points among fixed ones.
        perplexity = min(5.0, self.perplexity, len(self.embedding_) / 3)
        return np.array(self._layout.transform(queries, perplexity=perplexity), dtype=np.float64)


def _pca_start(points: Array, seed: int) -> Array:
    """Return the first two principal components, shape (n, 2); a random start where all points are one."""
    from openTSNE import initialization

    with np.errstate(divide="ignore", invalid="ignore"):
        start: Array = initialization.pca(points, random_state=seed)
    if not np.isfinite(start).all():
        start = initialization.random(len(points), random_state=seed)
    return start


class FedUMAP(FederatedMap):
    """Fed-UMAP on umap-learn.

    Parameters
    ----------
    n_neighbors : int
        Lowered to the number of records where there are fewer.
    min_dist : float
    umap : mapping, optional
        Further settings of `umap.UMAP`.
    n_landmarks, mechanism, budget, release, distances, rounds, random_state, release_share, tau_x, rank, ridge,
    neighbors, feddl, private_map
        As in `FedTSNE`.
    """

    def __init__(
        self,
        n_landmarks: int | None = None,
        mechanism: Mechanism | str | None = None,
        budget: Budget | None = None,
        release: ReleaseMode | None = None,
        distances: Literal["gram", "nystrom"] = "gram",
        rounds: int = 50,
        random_state: int = 0,
        n_neighbors: int = 15,
        min_dist: float = 0.1,
        release_share: float = 0.5,
        tau_x: float | None = None,
        rank: int | None = None,
        ridge: float = 0.0,
        neighbors: Method = "auto",
        feddl: Mapping[str, Any] | None = None,
        private_map: Mapping[str, Any] | None = None,
        umap: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_landmarks = n_landmarks
        self.mechanism = mechanism
        self.budget = budget
        self.release = release
        self.distances = distances
        self.rounds = rounds
        self.random_state = random_state
        self.n_neighbors = n_neighbors
        self.min_dist = min_dist
        self.release_share = release_share
        self.tau_x = tau_x
        self.rank = rank
        self.ridge = ridge
        self.neighbors = neighbors
        self.feddl = feddl
        self.private_map = private_map
        self.umap = umap

    def lay_out(self, estimate: DistanceEstimate) -> Array:
        return self._umap(estimate)

    def _umap(self, estimate: DistanceEstimate) -> Array:
        n = len(estimate.left)
        k = min(n - 1, checks.count("n_neighbors", self.n_neighbors))
        self.neighbors_ = nearest(estimate, k, method=self.neighbors, seed=self.random_state)
        # umap counts a record among its own neighbours, first.
        indices = np.column_stack([np.arange(n), self.neighbors_.indices])[:, :k]
        distances = np.column_stack([np.zeros(n, np.float32), self.neighbors_.distances])[:, :k].astype(np.float32)
        settings = {
            "n_neighbors": k,
            "min_dist": self.min_dist,
            "random_state": self.random_state,
            "n_jobs": 1,  # what umap takes with a seed, said here so that it need not warn
            **(self.umap or {}),
        }
        with warnings.catch_warnings():
            # Told that a graph without an index cannot place new records (`transform` does that without umap), and that
            # a part of umap which is not used here lacks TensorFlow.
            warnings.filterwarnings("ignore", module="umap")
            # Parts that nothing connects are laid out apart, as they should be.
            warnings.filterwarnings("ignore", message="Graph is not fully connected")
            from umap import UMAP

            layout = UMAP(**settings, precomputed_knn=(indices, distances)).fit_transform(estimate.left)
        return np.asarray(layout, dtype=np.float64)

    # t-SNE with exaggeration 4 has the forces of UMAP (Böhm, Berens & Kobak 2022).
    _anchored = Anchored(exaggeration=4.0, exaggerated=300, plain=0)

    @property
    def _transform(self) -> Placement:
        return ByUMAPTransform(neighbors=max(self.n_neighbors, 2), min_dist=self.min_dist)

    def lay_out_anchors(self, anchors: Array) -> Array:
        return self._umap(GramDistances(anchors))

    def _place(self, queries: Array) -> Array:
        """Weighted mean of the places of the nearest records, weights as in UMAP's graph: exp(−(d − d₁)/scale)."""
        found = nearest_to(self.distances_, queries, min(self.n_neighbors, len(self.embedding_)))
        beyond = found.distances - found.distances[:, :1]
        weights = np.exp(-beyond / np.maximum(beyond.mean(axis=1, keepdims=True), 1e-12))
        weights /= weights.sum(axis=1, keepdims=True)
        placed: Array = np.einsum("ij,ijk->ik", weights, self.embedding_[found.indices])
        return placed


class _Index(KNNIndex):  # type: ignore[misc]  # openTSNE has no types
    """Our neighbours in openTSNE's terms, also for records that come later."""

    def __init__(self, estimate: DistanceEstimate, neighbors: Neighbors) -> None:
        self._estimate, self._neighbors = estimate, neighbors
        self.n_samples, self.k = neighbors.indices.shape

    def build(self) -> tuple[NDArray[np.int64], Array]:
        return self._neighbors.indices, self._neighbors.distances.astype(np.float64)

    def query(self, query: Array, k: int) -> tuple[NDArray[np.int64], Array]:
        found = nearest_to(self._estimate, np.asarray(query, dtype=np.float32), k)
        return found.indices, found.distances.astype(np.float64)
