"""Fed-SpeClust (Algorithm 3): spectral clusters from the low-rank kernel estimate, never an n × n matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, checks
from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.distances import KernelFactor, kernel_factor
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators import FederatedEstimator, ReleaseMode
from dpfedvis.kernels import Array, Kernel, kernel_matrix
from dpfedvis.mechanisms import Mechanism
from dpfedvis.rows import GramRows, KernelRows


class FedSpectralClustering(FederatedEstimator):
    """Spectral clustering of K̂ = C W⁺ Cᵀ.

    Parameters
    ----------
    n_clusters : int
    gamma : float, optional
        Kernel width of the clusters' affinity; by default that of the landmarks' learning.
    n_init : int
        Starts of k-means.
    n_landmarks, mechanism, budget, release, rounds, random_state, release_share, tau_x, rank, ridge, feddl
        As in `dpfedvis.maps.FedTSNE`.

    Attributes
    ----------
    labels_ : array of shape (n,)
        In the order of the clients.
    factor_ : KernelFactor
        F with K̂ = F Fᵀ; its `certificate` bounds the error of K̂, for exact rows.
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
        gamma: float | None = None,
        n_init: int = 10,
        release_share: float = 0.5,
        tau_x: float | None = None,
        rank: int | None = None,
        ridge: float = 0.0,
        feddl: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_landmarks = n_landmarks
        self.mechanism = mechanism
        self.budget = budget
        self.release = release
        self.rounds = rounds
        self.random_state = random_state
        self.gamma = gamma
        self.n_init = n_init
        self.release_share = release_share
        self.tau_x = tau_x
        self.rank = rank
        self.ridge = ridge
        self.feddl = feddl

    def fit(self, fed: FederatedData, y: None = None) -> Self:
        """Learn landmarks, release kernel rows, and cluster."""
        self._check_data(fed)
        clusters = checks.count("n_clusters", self.n_clusters)
        if clusters > fed.n_records:
            raise InvalidParameter("n_clusters", clusters, f"at most the number of records, {fed.n_records}")
        noisy = self.release == "noisy"
        result = self._learn(fed, GramRows() if noisy else KernelRows(Kernel.gaussian(1.0)))
        kernel = result.setting.kernel if self.gamma is None else Kernel.gaussian(self.gamma)
        Y = self.landmarks_.astype(np.float64)
        if noisy:
            # Coordinates carry far less noise than kernel rows at the same ε, and the kernel follows from them.
            rows = GramRows(self._row_noise(GramRows()))
            coordinates = np.concatenate(self._release(rows, result.clients))
            C, W = (kernel_matrix(each, rows.of(Y, Y), kernel) for each in (coordinates, rows.of(Y, Y)))
        else:
            C = np.concatenate(self._release(KernelRows(kernel), result.clients))
            W = kernel_matrix(Y, Y, kernel)
        self.factor_: KernelFactor = kernel_factor(C, W, rank=self.rank, ridge=self.ridge)
        self.spectral_ = spectral_embedding(self.factor_.left, clusters)
        self.labels_ = _k_means(self.spectral_, clusters, self.n_init, self.random_state)
        return self

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


def _k_means(points: Array, clusters: int, starts: int, seed: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    labels = KMeans(clusters, n_init=starts, random_state=seed).fit_predict(points)
    return np.asarray(labels, dtype=np.int64)
