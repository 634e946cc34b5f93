"""Spectral clustering without an n × n matrix: embeddings of a low-rank kernel or of a graph of neighbours, k-means."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, identity

from accounting import checks
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.neighbors import Neighbors

Affinity = Literal["neighbors", "kernel"]


@dataclass(frozen=True)
class SpectralSettings:
    """How records are clustered.

    Parameters
    ----------
    clusters : int
        Number of clusters.
    affinity : {"neighbors", "kernel"}
        Which records are alike: neighbors (in the landmarks' affine span), or kernel (all, as in the paper).
    affinity_gamma : float, optional
        Width γ of the kernel affinity; by default that of the landmarks' learning.
    neighbours : int
        Neighbours of a record, itself counted, as in scikit-learn.
    starts : int
        Starts of k-means.
    """

    clusters: int = 10
    affinity: Affinity = "neighbors"
    affinity_gamma: float | None = None
    neighbours: int = 10
    starts: int = 10

    def __post_init__(self) -> None:
        checks.count("clusters", self.clusters)
        checks.one_of("affinity", self.affinity, ("neighbors", "kernel"))
        checks.at_least("neighbours", self.neighbours, 2)
        checks.count("starts", self.starts)
        if self.affinity_gamma is not None:
            checks.between("affinity_gamma", self.affinity_gamma, 1e-30, 1e30)


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


def cluster_centres(points: Array, clusters: int, starts: int, seed: int, weights: Array | None = None) -> Array:
    """Return the centres of clusters, shape (clusters, points' width), by the best of several starts of k-means.

    A point of weight w counts as w points; by default all weigh alike.
    """
    from sklearn.cluster import KMeans

    with warnings.catch_warnings():
        # Fewer distinct points than clusters: some centres coincide, and the first of them has the points.
        warnings.filterwarnings("ignore", message="Number of distinct clusters")
        found = KMeans(clusters, n_init=starts, random_state=seed).fit(points, sample_weight=weights)
    return np.asarray(found.cluster_centers_, dtype=np.float64)


def k_means(points: Array, clusters: int, starts: int, seed: int) -> NDArray[np.int64]:
    """Return the cluster of each point, shape (n,), by the best of several starts of k-means."""
    from sklearn.cluster import KMeans

    labels = KMeans(clusters, n_init=starts, random_state=seed).fit_predict(points)
    return np.asarray(labels, dtype=np.int64)
