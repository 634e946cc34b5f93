"""All scores of a fitted estimator as one flat table, for simulations: they look at every record.

| key | what it is |
|---|---|
| `ca_1`, `ca_10`, `ca_50` | accuracy of a k-NN classifier in the map, one 7:3 split over all clients' points |
| `ca_cross_10` | accuracy with which the points of the *other* clients classify a client's own |
| `npa_1`, `npa_10`, `npa_50` | share of a record's true k nearest neighbours that the map keeps |
| `nmi`, `ari`, `silhouette` | of k-means in the map, or of the clusters themselves, which have no silhouette |
| `trustworthiness`, `continuity` | with 10 neighbours, on a sample |
| `mmd`, `certificate` | of the landmarks, at the kernel that the run learned them with |
| `mmd_common`, `certificate_common` | the same at one kernel for all runs on the same records, so that runs compare |

A key is absent where there is nothing to compute: no labels or one class, too few records, no map.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.evaluation.metrics import (
    KS,
    class_accuracies,
    cluster_scores,
    cross_client_accuracy,
    k_means_scores,
    preserved,
    true_neighbors,
    trust_and_continuity,
)
from dpfedvis.numerics.distances import CUTOFF, nystrom_factor
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix
from dpfedvis.numerics.mmd import mmd2

Scores = dict[str, float]

# The MMD costs n²: beyond this many records it is that of a sample.
EXACT_MMD = 5000
# Most records for the silhouette, trustworthiness and continuity, whose cost is quadratic.
SAMPLE = 3000
_BLOCK = 2048
_CROSS_K = 10


def scores_of(
    estimator: FederatedEstimator,
    fed: FederatedData,
    *,
    seed: int = 0,
    neighbors: NDArray[np.int64] | None = None,
) -> Scores:
    """Score a fitted FedTSNE, FedUMAP or FedSpectralClustering on the records that it was fitted to.

    With ``release="none"`` the map that is scored is the union of what the clients see at home, which nobody has.

    Parameters
    ----------
    estimator : FederatedEstimator
    fed : FederatedData
    seed : int
        Of the split, of k-means and of the samples.
    neighbors : array of shape (n, at least the largest k), optional
        True neighbours of the pooled records (`dpfedvis.evaluation.metrics.true_neighbors`), where they are known
        already: one search does for many maps.

    Returns
    -------
    dict of str to float
    """
    X, y = fed.pooled()
    embedding, labels = getattr(estimator, "embedding_", None), getattr(estimator, "labels_", None)
    scores: Scores = {}
    if embedding is not None:
        scores |= map_table(fed, embedding, seed=seed, neighbors=neighbors)
    elif labels is not None and _classes(y) > 1:
        scores |= cluster_scores(_labels(y), labels)
    return scores | landmark_table(X, estimator.landmarks_, estimator.feddl_.public.kernel, seed=seed)


def map_table(
    fed: FederatedData, embedding: Array, *, seed: int = 0, neighbors: NDArray[np.int64] | None = None
) -> Scores:
    """Score a map of all records in the order of the clients, shape (n, 2), whoever made it.

    Parameters
    ----------
    fed : FederatedData
    embedding : array of shape (n, 2)
    seed, neighbors
        As in `scores_of`.
    """
    X, y = fed.pooled()
    n = len(X)
    if len(embedding) != n:
        raise InvalidParameter("points of the map", len(embedding), f"one for each of {n} records")
    # Of fewer than k + 1 training records a classifier has no k neighbours; the same k for all scores.
    ks = [k for k in KS if k < 0.7 * n - 1]
    scores: Scores = {}
    if ks and 1 < _classes(y) < n:
        labels = _labels(y)
        scores |= {f"ca_{k}": value for k, value in class_accuracies(embedding, labels, ks, seed).items()}
        scores |= _across(fed, embedding)
        scores |= dict(zip(("nmi", "ari", "silhouette"), k_means_scores(embedding, labels, seed, SAMPLE), strict=True))
    if ks:
        true = true_neighbors(X, max(ks)) if neighbors is None else neighbors
        if true.shape[0] != n or true.shape[1] < max(ks):
            raise InvalidParameter("shape of the neighbours", true.shape, f"({n}, at least {max(ks)})")
        scores |= {f"npa_{k}": value for k, value in preserved(true, embedding, ks).items()}
    chosen = np.random.default_rng(seed).permutation(n)[:SAMPLE]
    trust = dict(
        zip(("trustworthiness", "continuity"), trust_and_continuity(X[chosen], embedding[chosen]), strict=True)
    )
    return scores | {name: value for name, value in trust.items() if math.isfinite(value)}


def landmark_table(X: Array, landmarks: Array, kernel: Kernel, *, seed: int = 0) -> Scores:
    """MMD and certificate of landmarks, at the kernel of their run and at the common one.

    Parameters
    ----------
    X : array of shape (n, m)
        All records.
    landmarks : array of shape (n_y, m)
    kernel : Kernel
        Of the run. With ``release="none"`` it was made for the subspace; here it is taken between whole records.
    seed : int
        Of the sample that the MMD is computed on where there are more than 5000 records: it is public, and the same
        for all landmarks.
    """
    scores: Scores = {}
    for suffix, each in (("", kernel), ("_common", common_kernel(X))):
        if each is not None:
            scores[f"mmd{suffix}"] = root_mmd(X, landmarks, each, seed=seed)
            scores[f"certificate{suffix}"] = certificate_per_record(X, landmarks, each)
    return scores


def common_kernel(X: Array) -> Kernel | None:
    """Return exp(−d²/s) with s the mean squared distance of two records; None where all records are equal."""
    spread = 2 * float(np.var(X, axis=0, dtype=np.float64).sum())
    return Kernel.gaussian(1 / spread) if spread > 0 else None


def root_mmd(X: Array, landmarks: Array, kernel: Kernel, *, seed: int = 0) -> float:
    """Return the MMD (not squared, biased: at least 0) of records and landmarks.

    Exact up to 5000 records; beyond, that of a sample of 5000 which follows from the seed alone.
    """
    if len(X) > EXACT_MMD:
        X = X[np.sort(np.random.default_rng(seed).permutation(len(X))[:EXACT_MMD])]
    square = mmd2(np.asarray(X, np.float64), np.asarray(landmarks, np.float64), kernel, estimator="biased")
    return math.sqrt(max(square, 0.0))


def certificate_per_record(X: Array, landmarks: Array, kernel: Kernel) -> float:
    """Return tr(K − C W⁺ Cᵀ)/n: the trace certificate of the Nyström estimate, per record, from 0 to 1.

    It is the mean of E_ii = 1 − ‖F_i‖², what the landmarks leave unexplained of a record, and n times it bounds the
    error of the estimated kernel matrix in the spectral and the Frobenius norm (`dpfedvis.evaluation.theory`). It is
    computed from the *exact* rows of all records, so that runs compare by their landmarks whatever they release: a
    server has it only where it sees exact rows. Rounding, which `kernel_certificate` allows for, is left out.
    """
    Y = np.asarray(landmarks, np.float64)
    # As in `kernel_factor`, in blocks: neither all rows nor all factors are held at once.
    matrix, signs = nystrom_factor(kernel_matrix(Y, Y, kernel), cutoff=CUTOFF)
    matrix, total = matrix[:, signs > 0], 0.0
    for start in range(0, len(X), _BLOCK):
        block = np.asarray(X[start : start + _BLOCK], np.float64)
        factor = kernel_matrix(block, Y, kernel) @ matrix
        total += float(np.maximum(1 - np.vecdot(factor, factor), 0).sum())
    return total / len(X)


def pooled_neighbors(original: NDArray[np.int64], fed: FederatedData) -> NDArray[np.int64]:
    """Turn neighbours of the data's rows into those of the pooled records, whatever the partition.

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


def _across(fed: FederatedData, embedding: Array) -> Mapping[str, float]:
    """Cross-client accuracy, unless no client has a class that another has: then it is 0 whatever the map."""
    labels = [_labels(client.y) for client in fed.clients]
    held = [set(np.unique(each).tolist()) for each in labels]
    shared = len(set().union(*held)) < sum(map(len, held))
    if not shared or fed.n_records - max(fed.records) < _CROSS_K:
        return {}
    places = [embedding[part] for part in fed.index.slices]
    return {f"ca_cross_{_CROSS_K}": cross_client_accuracy(places, labels, _CROSS_K)}


def _classes(y: NDArray[Any] | None) -> int:
    return 0 if y is None else len(np.unique(y))


def _labels(y: NDArray[Any] | None) -> NDArray[Any]:
    if y is None:
        raise InvalidParameter("labels", None, "there")
    return y
