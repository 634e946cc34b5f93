"""Fed-SpeClust (Algorithm 3): spectral clusters from a graph of neighbours or a low-rank kernel, never n × n."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, identity

from accounting import Budget, checks
from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.base import FederatedEstimator, ReleaseMode
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.rows import GramRows, KernelRows, Rows
from dpfedvis.numerics.distances import GramDistances, KernelFactor, kernel_factor
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix
from dpfedvis.numerics.neighbors import Method, Neighbors, TooManyNeighbors, nearest

Affinity = Literal["neighbors", "kernel"]


class FedSpectralClustering(FederatedEstimator):
    """Spectral clustering of a graph of neighbours, or of the paper's K̂ = C W⁺ Cᵀ.

    Parameters
    ----------
    n_clusters : int
    affinity : {"neighbors", "kernel"}
        Which records are alike: those that are neighbours by their coordinates in the landmarks' affine span, all alike
        equally, or all by the kernel estimate, as in the paper. A narrow kernel needs landmarks close to every record,
        which learned landmarks are not; neighbours need their span only.
    n_neighbors : int
        Neighbours of a record, itself counted, as in scikit-learn.
    gamma : float, optional
        Width of the kernel affinity; by default that of the landmarks' learning.
    n_init : int
        Starts of k-means.
    rank, ridge
        k and λ of W_k⁺ and W + λI, for the kernel affinity.
    n_landmarks, mechanism, budget, release, rounds, random_state, release_share, tau_x, neighbors, feddl
        As in `dpfedvis.estimators.tsne_umap.FedTSNE`.

    Attributes
    ----------
    labels_ : array of shape (n,)
        In the order of the clients.
    spectral_ : array of shape (n, n_clusters)
        The embedding that k-means was run on.
    neighbors_ : Neighbors
        The graph, for ``affinity="neighbors"``.
    factor_ : KernelFactor
        For ``affinity="kernel"``, F with K̂ = F Fᵀ; its `certificate` bounds the error of K̂, for exact rows.
    landmarks_, ledger_, statement_, feddl_
    """

    def __init__(
        self,
        n_clusters: int = 8,
        n_landmarks: int = 500,
        mechanism: Mechanism | str = "gradient",
        budget: Budget | None = None,
        release: ReleaseMode = "exact",
        rounds: int = 50,
        random_state: int = 0,
        affinity: Affinity = "neighbors",
        n_neighbors: int = 10,
        gamma: float | None = None,
        n_init: int = 10,
        release_share: float = 0.5,
        tau_x: float | None = None,
        rank: int | None = None,
        ridge: float = 0.0,
        neighbors: Method = "auto",
        feddl: Mapping[str, Any] | None = None,
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
        self.gamma = gamma
        self.n_init = n_init
        self.release_share = release_share
        self.tau_x = tau_x
        self.rank = rank
        self.ridge = ridge
        self.neighbors = neighbors
        self.feddl = feddl

    def fit(self, fed: FederatedData, y: None = None) -> Self:
        """Learn landmarks, release rows, and cluster."""
        self._check_data(fed)
        clusters = checks.count("n_clusters", self.n_clusters)
        if clusters > fed.n_records:
            raise InvalidParameter("n_clusters", clusters, f"at most the number of records, {fed.n_records}")
        by_neighbors = checks.one_of("affinity", self.affinity, ("neighbors", "kernel")) == "neighbors"
        if by_neighbors and checks.at_least("n_neighbors", self.n_neighbors, 2) > fed.n_records:
            raise TooManyNeighbors(f"n_neighbors is {self.n_neighbors}, of {fed.n_records} records in all")
        # Coordinates carry far less noise than kernel rows at the same ε, and the kernel follows from them.
        self._learn(fed, GramRows() if by_neighbors or self._mode == "noisy" else KernelRows(Kernel.gaussian(1.0)))
        self.spectral_ = self._embed_neighbors(clusters) if by_neighbors else self._embed_kernel(clusters)
        self.labels_ = _k_means(self.spectral_, clusters, self.n_init, self.random_state)
        return self

    def _embed_neighbors(self, clusters: int) -> Array:
        coordinates = self._rows_of_all(GramRows(self._row_noise(GramRows())))
        estimate = GramDistances(coordinates.astype(np.float32))
        self.neighbors_: Neighbors = nearest(
            estimate, self.n_neighbors - 1, method=self.neighbors, seed=self.random_state
        )
        return neighbor_embedding(self.neighbors_, clusters, self.random_state)

    def _embed_kernel(self, clusters: int) -> Array:
        kernel = self.feddl_.public.kernel if self.gamma is None else Kernel.gaussian(self.gamma)
        Y = self.landmarks_.astype(np.float64)
        if self._mode == "noisy":
            rows = GramRows(self._row_noise(GramRows()))
            C, W = (kernel_matrix(each, rows.of(Y, Y), kernel) for each in (self._rows_of_all(rows), rows.of(Y, Y)))
        else:
            C, W = self._rows_of_all(KernelRows(kernel)), kernel_matrix(Y, Y, kernel)
        self.factor_: KernelFactor = kernel_factor(C, W, rank=self.rank, ridge=self.ridge)
        return spectral_embedding(self.factor_.left, clusters)

    def _rows_of_all(self, rows: Rows) -> Array:
        return np.concatenate(self._release(rows, self.feddl_.clients, self._outbox))

    def fit_predict(self, fed: FederatedData, y: None = None) -> NDArray[np.int64]:
        """Fit, and return the labels of all records in the order of the clients."""
        labels: NDArray[np.int64] = self.fit(fed).labels_
        return labels

    def views(self) -> dict[str, NDArray[np.int64]]:
        """Return each client's labels, by name."""
        return self._by_client(self.labels_)


def spectral_embedding(F: Array, components: int) -> Array:
    """Leading eigenvectors of the normalised affinity D^{−½} F Fᵀ D^{−½}, scaled by D^{−½}; shape (n, components).

    With A = D^{−½} F, the eigenvectors of the n × n matrix A Aᵀ are A v/√λ for those (λ, v) of the r × r matrix Aᵀ A,
    so that nothing larger than n × r is formed. Degrees D = diag(F Fᵀ 1) come from F (Fᵀ 1). scikit-learn leaves a
    record's affinity to itself out of the Laplacian; here it is in, which shifts each degree d by at most 1.

    Parameters
    ----------
    F : array of shape (n, r)
    components : int
    """
    degrees = F @ F.sum(axis=0)
    # K̂ may have negative entries, and a record whose affinities cancel must not blow up. Where K̂ ≥ 0, the affinity to
    # itself is part of a record's degree, so that this changes nothing there; it makes every row of A at most 1 long.
    degrees = np.maximum(degrees, np.einsum("ij,ij->i", F, F))
    degrees = np.maximum(degrees, 1e-6 * max(float(degrees.max()), np.finfo(np.float64).tiny))
    A = F / np.sqrt(degrees)[:, None]
    values, vectors = np.linalg.eigh(A.T @ A)
    order = np.argsort(-values)[:components]
    kept = order[values[order] > max(values[order[0]] * 1e-12, 0)]
    if not len(kept):
        raise DpfedvisError("every record is far from every landmark, with kernel values of 0: take a smaller gamma")
    embedding = (A @ vectors[:, kept]) / np.sqrt(values[kept]) / np.sqrt(degrees)[:, None]
    # The sign of an eigenvector means nothing; fix it, so that equal runs give equal arrays.
    signs = np.sign(embedding[np.abs(embedding).argmax(axis=0), np.arange(len(kept))])
    fixed: Array = embedding * signs
    return fixed


def neighbor_embedding(neighbors: Neighbors, components: int, seed: int) -> Array:
    """Spectral embedding of the graph ½(A + Aᵀ), A with a 1 for each neighbour and the record itself.

    It is the graph of scikit-learn's ``SpectralClustering(affinity="nearest_neighbors")``, and its embedding.

    Parameters
    ----------
    neighbors : Neighbors
        Of n records.
    components : int
    seed : int
        For the first vector of the Lanczos iteration.

    Returns
    -------
    array of shape (n, components)
    """
    from sklearn.manifold import spectral_embedding as embed_graph

    n, k = neighbors.indices.shape
    pointers = np.arange(0, n * k + 1, k)
    others = csr_matrix((np.ones(n * k), neighbors.indices.ravel(), pointers), shape=(n, n))
    graph = 0.5 * (others + others.T) + identity(n, format="csr")
    with warnings.catch_warnings():
        # Parts that nothing connects are as good as clusters can be.
        warnings.filterwarnings("ignore", message="Graph is not fully connected")
        embedded: Array = embed_graph(graph, n_components=components, drop_first=False, random_state=seed)
    return embedded


def _k_means(points: Array, clusters: int, starts: int, seed: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    labels = KMeans(clusters, n_init=starts, random_state=seed).fit_predict(points)
    return np.asarray(labels, dtype=np.int64)
