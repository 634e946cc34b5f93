"""Spectral clusters from the factor against those of the dense matrix, and what they release."""

from __future__ import annotations

import inspect
import tracemalloc

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

from accounting import Budget, GaussianRelease, InvalidParameter, Unprotected, UnprotectedReleaseError
from dpfedvis import FederatedData, FedSpectralClustering
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.clusters import spectral_embedding
from dpfedvis.mechanisms import InputPerturbation
from dpfedvis.mechanisms.rows import KernelRows
from dpfedvis.numerics.distances import kernel_factor
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.neighbors import TooManyNeighbors
from dpfedvis.numerics.projections import clip_norms
from tests.makers import BUDGET, digits, three_blobs


def federated(clients=4, **options):
    X, y = three_blobs(**options)
    return FederatedData.split(X, y, clients=clients, seed=0, dtype=np.float64)


def clustering(**options):
    """The paper's kernel affinity, unless told otherwise."""
    given = {"n_clusters": 3, "n_landmarks": 20, "mechanism": "none", "rounds": 5, "feddl": {"bounds": (0.0, 1.0)}}
    return FedSpectralClustering(**{"affinity": "kernel", **given, **options})


def factor(gamma=5.0, landmarks=15, seed=1, **options):
    X, y = three_blobs(**options)
    Y = np.random.default_rng(seed).uniform(size=(landmarks, 3))
    return kernel_factor(np.exp(-gamma * cdist(X, Y) ** 2), np.exp(-gamma * cdist(Y, Y) ** 2)).left, y


# Against the dense matrix


@pytest.mark.parametrize("components", [1, 3, 5])
def test_the_embedding_is_that_of_the_dense_matrix(components):
    F, _ = factor()
    K = F @ F.T
    degrees = K.sum(axis=1)
    values, vectors = np.linalg.eigh(K / np.sqrt(np.outer(degrees, degrees)))
    expected = vectors[:, ::-1][:, :components]
    found = spectral_embedding(F, components) * np.sqrt(degrees)[:, None]
    np.testing.assert_allclose(found.T @ found, np.eye(components), atol=1e-8)
    assert np.sin(subspace_angles(found, expected)).max() < 1e-6
    assert values[-1] == pytest.approx(1.0)


def test_the_first_component_is_constant():
    F, _ = factor()
    first = spectral_embedding(F, 2)[:, 0]
    np.testing.assert_allclose(first, first[0], rtol=1e-6)


def test_the_embedding_has_no_sign_to_choose():
    F, _ = factor()
    embedding = spectral_embedding(F, 4)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(F.shape[1],) * 2))[0]
    np.testing.assert_allclose(spectral_embedding(F @ turn, 4), embedding, atol=1e-7)


def test_more_components_than_the_rank_are_left_out():
    assert spectral_embedding(np.random.default_rng(0).random((10, 2)), 5).shape == (10, 2)


@pytest.mark.parametrize("data", ["blobs", "digits"])
def test_labels_agree_with_scikit_learn_on_the_dense_matrix(data):
    if data == "blobs":
        fed, clusters, gamma = federated(spread=0.12), 3, 8.0
    else:
        fed, clusters, gamma = digits(classes=5), 5, 0.1
    estimator = clustering(n_clusters=clusters, affinity_gamma=gamma, n_landmarks=60)
    labels = estimator.fit_predict(fed)
    dense = np.maximum(estimator.factor_.left @ estimator.factor_.left.T, 0)
    expected = SpectralClustering(clusters, affinity="precomputed", random_state=0).fit_predict(dense)
    assert adjusted_rand_score(expected, labels) >= 0.95
    assert adjusted_rand_score(fed.pooled()[1], labels) > 0.6


@pytest.mark.parametrize("neighbors", [10, 15])
def test_neighbours_give_the_clusters_of_scikit_learn(neighbors):
    """More landmarks than features: the coordinates keep all distances, so the graph is that of the records."""
    fed = digits(classes=5)
    estimator = clustering(affinity="neighbors", n_clusters=5, n_landmarks=80, n_neighbors=neighbors).fit(fed)
    X, y = fed.pooled()
    central = SpectralClustering(5, affinity="nearest_neighbors", n_neighbors=neighbors, random_state=0).fit(X)
    found, expected = (neighbor_graph(estimator.neighbors_), central.affinity_matrix_.toarray())
    # Some pairs are at equal distances, and broken either way; one neighbour more would change 300 entries and more.
    assert (found != expected).sum() <= 40
    assert adjusted_rand_score(central.labels_, estimator.labels_) > 0.97
    assert adjusted_rand_score(y, estimator.labels_) > 0.8


def neighbor_graph(neighbors):
    """½(A + Aᵀ) record by record."""
    n = len(neighbors.indices)
    A = np.eye(n)
    for record, others in enumerate(neighbors.indices):
        for other in others:
            A[record, other] = 1
    return (A + A.T) / 2


def test_the_neighbour_embedding_is_that_of_the_dense_laplacian():
    estimator = clustering(affinity="neighbors", n_clusters=4).fit(federated(spread=0.2))
    A = neighbor_graph(estimator.neighbors_)
    off = A - np.diag(np.diag(A))  # scikit-learn leaves a record's affinity to itself out
    degrees = off.sum(axis=1)
    _, vectors = np.linalg.eigh(off / np.sqrt(np.outer(degrees, degrees)))
    found = estimator.spectral_ * np.sqrt(degrees)[:, None]
    assert np.sin(subspace_angles(found, vectors[:, ::-1][:, :4])).max() < 1e-5


def test_clusters_that_nothing_connects_are_found():
    fed = federated(spread=0.001)
    labels = clustering(affinity="neighbors", n_neighbors=4).fit_predict(fed)
    assert adjusted_rand_score(fed.pooled()[1], labels) == 1.0


def test_neighbours_are_the_default():
    assert FedSpectralClustering().affinity == "neighbors"


@pytest.mark.parametrize("clients", [1, 4])
@pytest.mark.parametrize("affinity", ["kernel", "neighbors"])
def test_blobs_are_found(clients, affinity):
    fed = federated(clients=clients)
    estimator = clustering(affinity=affinity)
    labels = estimator.fit_predict(fed)
    assert labels.dtype == np.int64
    assert adjusted_rand_score(fed.pooled()[1], labels) == 1.0
    views = estimator.views()
    assert list(views) == [client.name for client in fed.clients]
    np.testing.assert_array_equal(np.concatenate(list(views.values())), labels)


def test_the_certificate_holds_for_the_fitted_factor():
    fed = federated()
    estimator = clustering(affinity_gamma=3.0).fit(fed)
    X = fed.pooled()[0]
    E = np.exp(-3.0 * cdist(X, X) ** 2) - estimator.factor_.left @ estimator.factor_.left.T
    assert np.linalg.norm(E, 2) <= np.linalg.norm(E) <= estimator.factor_.certificate + 1e-6
    assert np.linalg.eigvalsh(E)[0] > -1e-6


def test_rank_and_ridge_reach_the_factor():
    fed = federated()
    full, low, ridged = (clustering(**options).fit(fed).factor_ for options in ({}, {"rank": 4}, {"ridge": 0.5}))
    assert low.left.shape[1] == 4
    assert full.certificate < min(low.certificate, ridged.certificate)


def test_the_kernel_is_that_of_the_landmarks_by_default():
    fed = federated()
    kernel = Kernel((2.0, 6.0))
    estimator = clustering(feddl={"gamma": kernel, "bounds": (0, 1)}).fit(fed)
    C = KernelRows(kernel).of(fed.pooled()[0], estimator.landmarks_)
    Y = estimator.landmarks_.astype(np.float64)
    expected = kernel_factor(C, KernelRows(kernel).of(Y, Y)).left
    np.testing.assert_allclose(estimator.factor_.left @ estimator.factor_.left.T, expected @ expected.T, atol=1e-6)


def test_one_seed_one_result():
    fed = federated(spread=0.2)
    first, second = clustering().fit(fed), clustering().fit(fed)
    np.testing.assert_array_equal(first.labels_, second.labels_)
    np.testing.assert_array_equal(first.spectral_, second.spectral_)


def test_no_square_matrix_is_formed():
    F = np.random.default_rng(0).random((20_000, 10))
    tracemalloc.start()
    try:
        spectral_embedding(F, 5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 8 * F.nbytes


# Outliers and odd data


def test_a_record_without_affinity_does_not_blow_up():
    F, _ = factor()
    lonely = np.concatenate([F, np.zeros((1, F.shape[1]))])
    embedding = spectral_embedding(lonely, 3)
    assert np.isfinite(embedding).all()
    np.testing.assert_allclose(embedding[-1], 0, atol=1e-12)
    np.testing.assert_allclose(embedding[:-1], spectral_embedding(F, 3), atol=1e-8)


def test_a_record_whose_affinities_cancel_does_not_blow_up():
    """Its degree is negative; it counts as if it had no affinity but to itself."""
    F, _ = factor()
    embedding = spectral_embedding(np.concatenate([F, -F[:1]]), 3)
    assert np.abs(embedding).max() <= 1 / np.linalg.norm(F[0])


def test_an_outlier_far_from_all_landmarks_leaves_the_clusters():
    X, y = three_blobs()
    fed = FederatedData([np.concatenate([X, [[50.0, 50.0, 50.0]]])], dtype=np.float64)
    labels = clustering(affinity_gamma=5.0).fit_predict(fed)
    assert adjusted_rand_score(y, labels[:-1]) > 0.95


def test_a_kernel_that_sees_nothing_is_named():
    fed = FederatedData([np.full((10, 3), 40.0) + np.arange(10)[:, None]], dtype=np.float64)
    with pytest.raises(DpfedvisError, match="smaller gamma"):
        clustering(affinity_gamma=1000.0).fit(fed)


def test_a_client_with_one_record_is_clustered():
    X, y = three_blobs()
    fed = FederatedData([X[:1], X[1:]], [y[:1], y[1:]], dtype=np.float64)
    assert adjusted_rand_score(y, clustering().fit_predict(fed)) == 1.0


def test_as_many_clusters_as_records():
    fed = FederatedData([np.random.default_rng(0).uniform(size=(5, 3))])
    assert sorted(clustering(n_clusters=5, affinity_gamma=20.0).fit_predict(fed)) == list(range(5))


# Named errors


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("n_clusters", {"n_clusters": 121}),
        ("n_clusters", {"n_clusters": 0}),
        ("release", {"release": "some"}),
        ("tau_x", {"release": "noisy", "budget": BUDGET, "mechanism": "gradient", "feddl": {}}),
        ("rank", {"rank": 0}),
        ("affinity", {"affinity": "cosine"}),
        ("n_neighbors", {"affinity": "neighbors", "n_neighbors": 1}),
        ("mechanism", {"mechanism": "magic"}),
    ],
)
def test_bad_parameters_are_named(name, options):
    with pytest.raises(InvalidParameter) as caught:
        clustering(**options).fit(federated())
    assert caught.value.name == name


def test_more_clusters_than_records_release_nothing():
    estimator = clustering(n_clusters=121)
    with pytest.raises(InvalidParameter, match="at most the number of records, 120"):
        estimator.fit(federated())
    assert not hasattr(estimator, "ledger_")


def test_more_neighbours_than_records_release_nothing():
    estimator = clustering(affinity="neighbors", n_neighbors=121)
    with pytest.raises(TooManyNeighbors, match="121, of 120 records"):
        estimator.fit(federated())
    assert not hasattr(estimator, "ledger_")


def test_gamma_must_make_a_kernel():
    with pytest.raises(InvalidParameter, match="affinity_gamma"):
        clustering(affinity_gamma=-1.0).fit(federated())


def test_data_must_be_federated():
    with pytest.raises(InvalidParameter, match="FederatedData"):
        clustering().fit("digits")


# Releases and conventions


def test_exact_kernel_rows_are_refused_end_to_end():
    with pytest.raises(UnprotectedReleaseError, match="Ways out"):
        clustering(mechanism="gradient", budget=BUDGET, release="exact").fit(federated())


def test_exact_kernel_rows_are_unprotected():
    estimator = clustering(mechanism="gradient", budget=Budget(2.0, 1e-5, scope="landmarks")).fit(federated())
    rows = [event for event in estimator.ledger_.events() if event.stage == "release"]
    assert all(isinstance(event, Unprotected) and event.what == "kernel rows" for event in rows)
    assert estimator.statement_.end_to_end == np.inf


@pytest.mark.parametrize("affinity", ["kernel", "neighbors"])
def test_perturbed_records_keep_the_budget(affinity):
    options = {"mechanism": InputPerturbation(tau_x=2.0), "budget": BUDGET, "affinity": affinity}
    estimator = clustering(**options).fit(federated())
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("affinity", ["kernel", "neighbors"])
def test_noisy_rows_are_coordinates_and_spend_the_budget_with_their_own_sensitivity(affinity):
    fed = federated()
    options = {"mechanism": "gradient", "budget": BUDGET, "release": "noisy", "tau_x": 0.1, "affinity_gamma": 2.0}
    estimator = clustering(affinity=affinity, **options).fit(fed)
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(2.0, rel=1e-6)
    rows = [event for event in estimator.ledger_.events() if event.stage == "release"]
    assert all(isinstance(event, GaussianRelease) for event in rows)
    assert {event.what for event in rows} == {"gram rows"}
    # Each value of a row is rounded by itself, which adds a cell.
    assert {event.values for event in rows} <= {1, 2, 3}
    expected = [2 * 0.1 + event.grid * np.sqrt(event.values) for event in rows]
    assert [event.sensitivity for event in rows] == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx([0.2] * 4, rel=1e-4)
    assert len(estimator.labels_) == 120


def test_little_noise_changes_few_labels():
    """At an absurd ε and with directions below the noise cut off, the clusters are those of clipped records."""
    fed = federated()
    options = {"mechanism": "gradient", "budget": Budget(500, 1e-5), "release": "noisy", "tau_x": 1.3, "rank": 5}
    for affinity in ("kernel", "neighbors"):
        labels = clustering(affinity=affinity, **options).fit_predict(fed)
        assert adjusted_rand_score(fed.pooled()[1], labels) > 0.9
    assert (clip_norms(fed.pooled()[0], 1.3) == fed.pooled()[0]).all()


def test_init_only_stores():
    given = {name: object() for name in inspect.signature(FedSpectralClustering).parameters}
    estimator = FedSpectralClustering(**given)
    assert vars(estimator) == given
    assert estimator.get_params(deep=False) == given


def test_clone_and_repr():
    estimator = clustering(affinity_gamma=2.0).fit(federated())
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert not hasattr(copy, "labels_")
    assert "affinity_gamma=2.0" in repr(copy)
