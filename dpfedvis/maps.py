"""Fed-tSNE and Fed-UMAP (Algorithm 2): maps of records that stay where they are."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from openTSNE.nearest_neighbors import KNNIndex
from sklearn.utils.validation import check_is_fitted

from accounting import Budget, checks
from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.distances import (
    DistanceEstimate,
    GramDistances,
    NystromDistances,
    gram_frame,
    nystrom_factor,
)
from dpfedvis.estimators import FederatedEstimator, ReleaseMode, as_new_records
from dpfedvis.kernels import Array, squared_distances
from dpfedvis.mechanisms import Mechanism
from dpfedvis.neighbors import Method, Neighbors, nearest, nearest_to
from dpfedvis.rows import DistanceRows, GramRows, Rows

# Fewer have no spectral start in two dimensions.
LEAST_RECORDS = 4


class _FederatedMap(FederatedEstimator):
    """Landmarks → rows → distances → neighbours; what follows differs between t-SNE and UMAP."""

    distances: Literal["gram", "nystrom"]
    rank: int | None
    ridge: float
    neighbors: Method

    def fit(self, fed: FederatedData, y: None = None) -> Self:
        """Learn landmarks, release rows, and lay out the map."""
        self._check_data(fed)
        if fed.n_records < LEAST_RECORDS:
            raise InvalidParameter("number of records", fed.n_records, f"at least {LEAST_RECORDS} for a map")
        rows = self._rows(0.0)
        self._learn(fed, rows)
        self.noise_ = self._row_noise(rows)
        self._frame = self._make_frame()
        uploads = self._release(self._rows(self.noise_), self.feddl_.clients)
        left = np.concatenate([self._represent(upload) for upload in uploads])
        self.distances_: DistanceEstimate = (
            GramDistances(left) if self.distances == "gram" else NystromDistances(left, self._signs)
        )
        self.embedding_ = self._lay_out(self.distances_)
        return self

    def fit_transform(self, fed: FederatedData, y: None = None) -> Array:
        """Fit, and return the map of all records in the order of the clients, shape (n, 2)."""
        return self.fit(fed).embedding_

    def views(self) -> dict[str, Array]:
        """Return each client's part of the map, by name."""
        check_is_fitted(self, "embedding_")
        return self._by_client(self.embedding_)

    def transform(self, X: Any, name: str = "newcomer") -> Array:
        """Place the records of a client that joins later.

        It releases rows as the others did, and they are accounted for under its name.

        Parameters
        ----------
        X : array of shape (n, m)
        name : str

        Returns
        -------
        array of shape (n, 2)
        """
        check_is_fitted(self, "embedding_")
        records = as_new_records(X, self.landmarks_.shape[1])
        uploads = self._release(self._rows(self.noise_), [self._newcomer(records, name)])
        return self._place(self._represent(uploads[0]))

    def _rows(self, noise: float) -> Rows:
        checks.one_of("distances", self.distances, ("gram", "nystrom"))
        # The Gram coordinates are projected at home when they are to carry noise; otherwise distances, as in the paper.
        noisy = self.distances == "gram" and self.release == "noisy"
        return GramRows(noise) if noisy else DistanceRows()

    def _make_frame(self) -> Any:
        Y = self.landmarks_.astype(np.float64)
        W = np.sqrt(squared_distances(Y, Y))
        if self.distances == "gram":
            return None if self.release == "noisy" else gram_frame(W)
        matrix, signs = nystrom_factor(W, rank=self.rank, ridge=self.ridge)
        self._signs = signs.astype(np.float32)
        return matrix

    def _represent(self, rows: Array) -> Array:
        """Turn released rows into the short vectors of the distance estimate, float32."""
        if self.distances == "nystrom":
            return np.asarray(rows @ self._frame, dtype=np.float32)
        if self._frame is None:
            return np.asarray(rows, dtype=np.float32)
        coordinates: Array = self._frame.coordinates(rows)
        return coordinates

    def _lay_out(self, estimate: DistanceEstimate) -> Array:
        raise NotImplementedError

    def _place(self, queries: Array) -> Array:
        raise NotImplementedError


class FedTSNE(_FederatedMap):
    """Fed-tSNE on openTSNE.

    Parameters
    ----------
    n_landmarks : int
        n_y.
    mechanism : Mechanism or str
        How the landmarks are learned; see `dpfedvis.mechanisms`.
    budget : Budget, optional
        Needed by every mechanism and release that protects.
    release : {"exact", "noisy", "none"}
        What each client gives away of its records once the landmarks are there. Exact rows are the data: under an
        end-to-end budget they are refused.
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
        Threads of openTSNE.
    feddl : mapping, optional
        Further settings of `dpfedvis.feddl.FedDL`, such as ``bandwidth`` and ``bounds``.
    tsne : mapping, optional
        Further settings of `openTSNE.TSNE`.

    Attributes
    ----------
    embedding_ : array of shape (n, 2)
        In the order of the clients; `views` gives each client's part.
    distances_, neighbors_
        The estimate and the graph that the map was made from.
    landmarks_, ledger_, statement_, feddl_
    """

    def __init__(
        self,
        n_landmarks: int = 500,
        mechanism: Mechanism | str = "gradient",
        budget: Budget | None = None,
        release: ReleaseMode = "exact",
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
        self.tsne = tsne

    def _lay_out(self, estimate: DistanceEstimate) -> Array:
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
            start = initialization.pca(estimate.left, random_state=self.random_state)
        elif start is None:
            # Without two coordinates there is no PCA to start from.
            start = initialization.spectral(affinities.P, random_state=self.random_state, tol=1e-2)
        self._layout = TSNE(**settings).fit(affinities=affinities, initialization=start)
        # openTSNE's `transform` centres the map's box in place. Done here, newcomers land in the map as it is shown.
        self._layout -= (self._layout.max(axis=0) + self._layout.min(axis=0)) / 2
        return np.array(self._layout, dtype=np.float64)

    def _place(self, queries: Array) -> Array:
        # Perplexity 5 and openTSNE's own schedule: its advice for new points among fixed ones.
        perplexity = min(5.0, self.perplexity, len(self.embedding_) / 3)
        return np.array(self._layout.transform(queries, perplexity=perplexity), dtype=np.float64)


class FedUMAP(_FederatedMap):
    """Fed-UMAP on umap-learn.

    Parameters
    ----------
    n_neighbors : int
        Lowered to the number of records where there are fewer.
    min_dist : float
    umap : mapping, optional
        Further settings of `umap.UMAP`.
    n_landmarks, mechanism, budget, release, distances, rounds, random_state, release_share, tau_x, rank, ridge,
    neighbors, feddl
        As in `FedTSNE`.
    """

    def __init__(
        self,
        n_landmarks: int = 500,
        mechanism: Mechanism | str = "gradient",
        budget: Budget | None = None,
        release: ReleaseMode = "exact",
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
        self.umap = umap

    def _lay_out(self, estimate: DistanceEstimate) -> Array:
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
            from umap import UMAP

            layout = UMAP(**settings, precomputed_knn=(indices, distances)).fit_transform(estimate.left)
        return np.asarray(layout, dtype=np.float64)

    def _place(self, queries: Array) -> Array:
        """Weighted mean of the places of the nearest records, weights as in UMAP's graph: exp(−(d − d₁)/scale)."""
        found = nearest_to(self.distances_, queries, min(self.n_neighbors, len(self.embedding_)))
        beyond = found.distances - found.distances[:, :1]
        weights = np.exp(-beyond / np.maximum(beyond.mean(axis=1, keepdims=True), 1e-12))
        weights /= weights.sum(axis=1, keepdims=True)
        placed: Array = np.einsum("ij,ijk->ik", weights, self.embedding_[found.indices])
        return placed


class _Index(KNNIndex):  # type: ignore[misc]
    """Our neighbours in openTSNE's terms, also for records that come later."""

    def __init__(self, estimate: DistanceEstimate, neighbors: Neighbors) -> None:
        self._estimate, self._neighbors = estimate, neighbors
        self.n_samples, self.k = neighbors.indices.shape

    def build(self) -> tuple[NDArray[np.int64], Array]:
        return self._neighbors.indices, self._neighbors.distances.astype(np.float64)

    def query(self, query: Array, k: int) -> tuple[NDArray[np.int64], Array]:
        found = nearest_to(self._estimate, np.asarray(query, dtype=np.float32), k)
        return found.indices, found.distances.astype(np.float64)
