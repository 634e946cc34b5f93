"""The flat table of scores, and the scores of landmarks against slow references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from accounting import Budget, InvalidParameter
from dpfedvis import FederatedData, FedSpectralClustering, FedTSNE
from dpfedvis.data import load
from dpfedvis.evaluation.metrics import Evaluated, classes, clusters, cross_client_accuracy, landmarks, neighbors
from dpfedvis.evaluation.metrics.base import true_neighbors
from dpfedvis.evaluation.metrics.landmarks import certificate_per_record, common_kernel, root_mmd
from dpfedvis.evaluation.scores import pooled_neighbors, score, scores_of
from dpfedvis.numerics.distances import kernel_factor
from dpfedvis.numerics.kernels import Kernel, kernel_matrix

MAP = {
    "ca_1", "ca_10", "ca_50", "ca_cross_10", "ca_shared_10", "purity_10", "npa_1", "npa_10", "npa_50", "npa_home_10",
    "nmi", "ari", "silhouette", "trustworthiness", "continuity",
}  # fmt: skip
LANDMARKS = {"mmd", "certificate", "mmd_common", "certificate_common"}
TSNE = {"perplexity": 10, "n_jobs": 1, "tsne": {"n_iter": 50, "early_exaggeration_iter": 50}}


@pytest.fixture(scope="module")
def fed() -> FederatedData:
    return FederatedData.from_dataset(load("digits", records=200), clients=3, seed=1)


@pytest.fixture(scope="module")
def tsne(fed: FederatedData) -> FedTSNE:
    return FedTSNE(n_landmarks=30, mechanism="none", rounds=3, **TSNE).fit(fed)


def test_a_map_has_all_scores_and_they_are_those_of_the_metrics(fed: FederatedData, tsne: FedTSNE) -> None:
    found = scores_of(tsne, fed, seed=3)
    assert set(found) == MAP | LANDMARKS
    X, _ = fed.pooled()
    whole = Evaluated(fed, tsne.embedding_, seed=3)
    assert {k: found[f"ca_{k}"] for k in (1, 10, 50)} == {k: classes.accuracy(whole, k) for k in (1, 10, 50)}
    assert {k: found[f"npa_{k}"] for k in (1, 10, 50)} == {k: neighbors.preservation(whole, k) for k in (1, 10, 50)}
    assert [found[key] for key in ("nmi", "ari", "silhouette")] == [
        clusters.nmi(whole), clusters.ari(whole), clusters.silhouette(whole)
    ]  # fmt: skip
    assert found["trustworthiness"] == neighbors.trustworthiness(whole)
    assert found["continuity"] == neighbors.continuity(whole)
    labels = [client.y for client in fed.clients]
    assert found["ca_cross_10"] == cross_client_accuracy(list(tsne.views().values()), labels)
    assert found["mmd"] == root_mmd(X, tsne.landmarks_, tsne.feddl_.public.kernel)
    assert found["mmd_common"] == root_mmd(X, tsne.landmarks_, common_kernel(X))
    assert all(type(value) is float and math.isfinite(value) for value in found.values())


def test_private_maps_are_scored_too(fed: FederatedData) -> None:
    private = FedTSNE(budget=Budget(50, 1e-5), perplexity=10, private_map={"anchors": 20}).fit(fed)
    found = scores_of(private, fed)
    assert set(found) == MAP | LANDMARKS
    assert 0 < found["certificate_common"] < 1


def test_clusters_have_no_map(fed: FederatedData) -> None:
    fitted = FedSpectralClustering(n_clusters=10, n_landmarks=30, mechanism="none", rounds=2).fit(fed)
    found = scores_of(fitted, fed)
    assert set(found) == {"nmi", "ari"} | LANDMARKS
    y = fed.pooled()[1]
    assert found["nmi"] == normalized_mutual_info_score(y, fitted.labels_)
    assert found["ari"] == adjusted_rand_score(y, fitted.labels_)


# MMD and certificate


def test_mmd_is_the_distance_of_mean_embeddings() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 3)), rng.normal(0.5, 1, (7, 3))

    def mean(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.exp(-0.3 * cdist(a, b) ** 2).mean())

    expected = math.sqrt(mean(X, X) - 2 * mean(X, Y) + mean(Y, Y))
    assert root_mmd(X, Y, Kernel.gaussian(0.3)) == pytest.approx(expected)


def test_mmd_of_many_records_is_that_of_a_fixed_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    X, Y, kernel = rng.normal(size=(400, 2)), rng.normal(1, 1, (9, 2)), Kernel.gaussian(0.5)
    whole = root_mmd(X, Y, kernel)
    monkeypatch.setattr(landmarks, "EXACT_MMD", 100)
    sampled = root_mmd(X, Y, kernel, seed=5)
    assert sampled == root_mmd(X, Y, kernel, seed=5) != whole
    assert sampled == pytest.approx(whole, rel=0.3)


@pytest.mark.parametrize("gammas", [(0.5,), (0.2, 0.9)])
def test_certificate_is_the_trace_per_record(gammas: tuple[float, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    X, Y, kernel = rng.normal(size=(50, 3)), rng.normal(size=(8, 3)), Kernel(gammas)
    C, W = kernel_matrix(X, Y, kernel), kernel_matrix(Y, Y, kernel)
    monkeypatch.setattr(landmarks, "_BLOCK", 13)
    found = certificate_per_record(X, Y, kernel)
    assert found == pytest.approx(kernel_factor(C, W).certificate / 50)
    error = kernel_matrix(X, X, kernel) - C @ np.linalg.solve(W, C.T)
    assert found == pytest.approx(np.trace(error) / 50)
    assert np.linalg.norm(error) <= 50 * found


def test_landmarks_that_are_the_records_leave_nothing() -> None:
    X = np.random.default_rng(3).normal(size=(12, 2))
    assert certificate_per_record(X, X, Kernel.gaussian(1.0)) == pytest.approx(0, abs=1e-6)
    assert root_mmd(X, X, Kernel.gaussian(1.0)) == pytest.approx(0, abs=1e-7)


def test_the_common_kernel_is_that_of_the_mean_squared_distance() -> None:
    X = np.random.default_rng(4).normal(size=(40, 3))
    kernel = common_kernel(X)
    assert kernel is not None
    assert kernel.gammas[0] == pytest.approx(1 / np.mean(cdist(X, X) ** 2))
    assert common_kernel(np.ones((5, 2))) is None


# Neighbours that are known


def test_known_neighbours_change_nothing(fed: FederatedData, tsne: FedTSNE) -> None:
    known = true_neighbors(fed.pooled()[0], 50)
    assert scores_of(tsne, fed, neighbors=known) == scores_of(tsne, fed)
    with pytest.raises(InvalidParameter, match="shape of the neighbours"):
        scores_of(tsne, fed, neighbors=known[:, :20])


@pytest.mark.parametrize("partition", ["iid", "by-class", "dirichlet:0.3"])
def test_neighbours_of_the_data_serve_every_partition(partition: str) -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(90, 4)).astype(np.float32), np.arange(90) % 3
    dealt = FederatedData.split(X, y, clients=3, partition=partition, seed=2)
    assert (dealt.index.rows != np.arange(90)).any()
    found = pooled_neighbors(true_neighbors(X, 7), dealt)
    np.testing.assert_array_equal(found, true_neighbors(dealt.pooled()[0], 7))


# What is not there


def _table(n: int, y: np.ndarray | None, clients: int = 2) -> dict[str, float]:
    X = np.random.default_rng(6).normal(size=(n, 3))
    dealt = FederatedData.split(X, y, clients=clients)
    return score(Evaluated(dealt, dealt.pooled()[0][:, :2]))


@pytest.mark.parametrize("y", [None, np.zeros(100, int)])
def test_without_classes_there_is_no_accuracy(y: np.ndarray | None) -> None:
    assert set(_table(100, y)) == {"npa_1", "npa_10", "npa_50", "npa_home_10", "trustworthiness", "continuity"}


def test_few_records_have_few_scores() -> None:
    assert {"ca_1", "ca_10"} <= set(_table(40, np.arange(40) % 2)) == MAP - {"ca_50", "npa_50", "npa_home_10"}
    tens = {"ca_cross_10", "ca_shared_10", "purity_10", "npa_home_10"}
    assert (
        set(_table(12, np.arange(12) % 2)) == MAP - {f"{name}_{k}" for name in ("ca", "npa") for k in (10, 50)} - tens
    )
    assert set(_table(4, np.arange(4))) == {"npa_1", "trustworthiness", "continuity"}


def test_one_client_has_no_others() -> None:
    assert set(_table(100, np.arange(100) % 2, clients=1)) == MAP - {"ca_cross_10", "ca_shared_10"}


def test_clients_that_share_no_class_cannot_classify_each_other() -> None:
    X, y = np.random.default_rng(7).normal(size=(100, 2)), np.arange(100) % 2
    apart = FederatedData([X[y == 0], X[y == 1]], [y[y == 0], y[y == 1]])
    assert set(score(Evaluated(apart, apart.pooled()[0]))) == MAP - {"ca_cross_10", "ca_shared_10"}


def test_a_map_of_other_records_is_refused(fed: FederatedData) -> None:
    with pytest.raises(InvalidParameter, match="points of the map"):
        score(Evaluated(fed, np.zeros((5, 2))))
