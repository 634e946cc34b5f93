"""Scores of maps against slow references and zadu."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from zadu.measures import trustworthiness_continuity
from zadu.measures.utils import knn

from accounting import InvalidParameter
from dpfedvis.evaluation import cluster_scores, cross_client_accuracy, map_scores, metrics, neighbor_preservation
from dpfedvis.numerics.neighbors import TooManyNeighbors


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(n_class=5, return_X_y=True)
    # Digits are whole numbers: a little noise, so that no two distances are equal.
    X, y = (X[:300] + np.random.default_rng(0).normal(0, 0.1, (300, 64))).astype(np.float32), y[:300]
    return X, PCA(2, random_state=0).fit_transform(X), y


def slow_preservation(X, Z, k):
    """Share of kept neighbours, record by record."""
    shares = []
    for D in zip(cdist(X, X), cdist(Z, Z), strict=True):
        i = len(shares)
        sets = [set(sorted((j for j in range(len(X)) if j != i), key=row.__getitem__)[:k]) for row in D]
        shares.append(len(sets[0] & sets[1]) / k)
    return float(np.mean(shares))


# NPA


def test_npa_is_the_share_of_kept_neighbours():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    Z = X[:, :2] + 0.3 * rng.normal(size=(60, 2))
    found = neighbor_preservation(X, Z, (1, 5, 20, 59))
    assert found == pytest.approx({k: slow_preservation(X, Z, k) for k in (1, 5, 20, 59)})
    assert found[59] == 1.0


def test_npa_of_a_faithful_map_is_one():
    X = np.random.default_rng(1).normal(size=(50, 2))
    turned = 3.0 * X @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 100.0
    assert neighbor_preservation(X, turned, (1, 10)) == {1: 1.0, 10: 1.0}


def test_npa_of_a_random_map_is_that_of_chance():
    rng = np.random.default_rng(2)
    found = neighbor_preservation(rng.normal(size=(400, 5)), rng.normal(size=(400, 2)), (10,))
    assert found[10] == pytest.approx(10 / 399, abs=0.01)


def test_npa_survives_data_far_from_the_origin():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 4))
    assert neighbor_preservation(X + 1e5, X[:, :2], (5,)) == pytest.approx(neighbor_preservation(X, X[:, :2], (5,)))


def test_npa_does_not_depend_on_blocks(monkeypatch):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(90, 4))
    whole = neighbor_preservation(X, X[:, :2], (7,))
    overlap = metrics._overlap
    monkeypatch.setattr(metrics, "_overlap", lambda a, b: overlap(a, b, rows=11))
    assert neighbor_preservation(X, X[:, :2], (7,)) == whole


# Across clients


def slow_cross_accuracy(places, labels, k):
    shares = []
    for own, points in enumerate(places):
        hits = 0
        for point, truth in zip(points, labels[own], strict=True):
            others = [
                (np.linalg.norm(point - other), label)
                for client in range(len(places))
                if client != own
                for other, label in zip(places[client], labels[client], strict=True)
            ]
            votes = [label for _, label in sorted(others, key=lambda pair: pair[0])[:k]]
            hits += np.bincount(votes).argmax() == truth
        shares.append(hits / len(points))
    return np.mean(shares)


def test_cross_client_accuracy_asks_the_other_clients():
    rng = np.random.default_rng(5)
    labels = [rng.integers(0, 3, n) for n in (20, 30, 15)]
    places = [np.eye(3)[own][:, :2] * 2 + rng.normal(size=(len(own), 2)) for own in labels]
    assert cross_client_accuracy(places, labels, k=5) == pytest.approx(slow_cross_accuracy(places, labels, 5))


def test_cross_client_accuracy_of_clients_that_disagree_is_nothing():
    """Each client keeps its classes apart, but at swapped places."""
    labels = np.repeat([0, 1], 20)
    places = np.where(labels[:, None] == 0, -1.0, 1.0) + 0.01 * np.random.default_rng(6).normal(size=(40, 2))
    assert cross_client_accuracy([places, -places], [labels, labels]) == 0.0
    assert cross_client_accuracy([places, places], [labels, labels]) == 1.0


def test_cross_client_accuracy_needs_others():
    with pytest.raises(InvalidParameter, match="clients"):
        cross_client_accuracy([np.zeros((5, 2))], [np.zeros(5, int)])
    with pytest.raises(InvalidParameter, match="k"):
        cross_client_accuracy([np.zeros((5, 2))] * 2, [np.zeros(5, int)] * 2, k=6)


# zadu


def test_trustworthiness_and_continuity_are_those_of_zadu(digits):
    X, Z, y = digits
    expected = trustworthiness_continuity.measure(X, Z, k=10)
    found = map_scores(X, Z, y)
    assert found.trustworthiness == pytest.approx(expected["trustworthiness"], abs=1e-9)
    assert found.continuity == pytest.approx(expected["continuity"], abs=1e-9)
    assert found.trustworthiness != found.continuity


@pytest.mark.parametrize("k", [1, 10, 50])
def test_npa_is_the_overlap_of_zadus_neighbours(digits, k):
    X, Z, _ = digits
    high, low = knn.knn(X, k), knn.knn(Z, k)
    expected = np.mean([len(set(a) & set(b)) / k for a, b in zip(high.tolist(), low.tolist(), strict=True)])
    assert neighbor_preservation(X, Z, (k,))[k] == pytest.approx(expected, abs=1e-3)


# All at once


def test_one_call_gives_all(digits):
    X, Z, y = digits
    scores = map_scores(X, Z, y, repeats=3, seed=7)
    assert list(scores.accuracy) == list(scores.preservation) == [1, 10, 50]
    assert (scores.repeats, scores.seed) == (3, 7)
    for mean, spread in (*scores.accuracy.values(), scores.nmi, scores.ari, scores.silhouette):
        assert 0 < mean < 1
        assert 0 <= spread < 0.2
    assert 0.5 < scores.trustworthiness < 1
    assert 0.5 < scores.continuity < 1
    assert scores.preservation == neighbor_preservation(X, Z)
    again = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    assert again["nmi"] == list(scores.nmi)


def test_one_seed_one_score(digits):
    X, Z, y = digits
    assert map_scores(X, Z, y, seed=1) == map_scores(X, Z, y, seed=1)
    assert map_scores(X, Z, y, seed=1).accuracy != map_scores(X, Z, y, seed=2).accuracy


def test_repeats_are_the_single_runs(digits):
    X, Z, y = digits
    singles = [map_scores(X, Z, y, seed=seed).accuracy[10][0] for seed in (4, 5)]
    assert map_scores(X, Z, y, repeats=2, seed=4).accuracy[10] == pytest.approx((np.mean(singles), np.std(singles)))


def test_separate_classes_score_one():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 40)
    Z = rng.normal(0, 0.05, (120, 2)) + np.array([[0, 0], [9, 0], [0, 9]])[y]
    scores = map_scores(Z, Z, y)
    assert scores.accuracy[1] == (1.0, 0.0)
    assert scores.accuracy[10] == (1.0, 0.0)
    assert scores.nmi[0] == pytest.approx(1.0)
    assert scores.ari[0] == pytest.approx(1.0)
    assert scores.silhouette[0] > 0.95
    assert scores.trustworthiness == scores.continuity == 1.0


def test_labels_that_mean_nothing_score_by_chance():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(400, 2)), rng.integers(0, 4, 400)
    scores = map_scores(Z, Z, y)
    assert scores.accuracy[10][0] == pytest.approx(0.25, abs=0.1)
    assert scores.nmi[0] < 0.05
    assert abs(scores.ari[0]) < 0.05


def test_classes_may_have_names(digits):
    X, Z, y = digits
    names = np.array(["zero", "one", "two", "three", "four"])[y]
    named, numbered = map_scores(X, Z, names), map_scores(X, Z, y)
    assert named.accuracy[1] == numbered.accuracy[1]
    assert named.nmi == pytest.approx(numbered.nmi)


def test_a_sample_stands_in_for_all(digits):
    X, Z, y = digits
    whole, sampled = map_scores(X, Z, y), map_scores(X, Z, y, sample=150)
    assert sampled.trustworthiness == pytest.approx(whole.trustworthiness, abs=0.05)
    assert sampled.silhouette[0] == pytest.approx(whole.silhouette[0], abs=0.1)
    assert sampled.accuracy == whole.accuracy


# Limits


@pytest.mark.parametrize(("records", "kept"), [(80, [1, 10, 50]), (60, [1, 10]), (14, [1])])
def test_a_k_for_which_records_are_too_few_is_left_out(digits, records, kept):
    X, Z, y = (part[:records] for part in digits)
    scores = map_scores(X, Z, y)
    assert list(scores.accuracy) == list(scores.preservation) == kept


def test_no_k_left_is_named(digits):
    X, Z, y = (part[:20] for part in digits)
    with pytest.raises(InvalidParameter, match="ks"):
        map_scores(X, Z, y, ks=(50,))
    with pytest.raises(InvalidParameter, match="ks"):
        neighbor_preservation(X, Z, ())


@pytest.mark.parametrize("y", [None, np.zeros(300), np.zeros(0)])
def test_one_class_is_named(digits, y):
    X, Z, _ = digits
    with pytest.raises(InvalidParameter, match="classes must be at least 2"):
        map_scores(X, Z, y)


@pytest.mark.parametrize("short", [0, 1, 2])
def test_other_lengths_are_named(digits, short):
    parts = list(digits)
    parts[short] = parts[short][:-1]
    with pytest.raises(InvalidParameter, match="lengths of X, embedding and y"):
        map_scores(*parts)


def test_other_lengths_are_named_for_npa(digits):
    X, Z, _ = digits
    with pytest.raises(InvalidParameter, match="lengths of X and embedding"):
        neighbor_preservation(X, Z[:-1])


def test_more_neighbours_than_records_are_named_for_npa(digits):
    X, Z, _ = digits
    with pytest.raises(TooManyNeighbors):
        neighbor_preservation(X[:40], Z[:40])


@pytest.mark.parametrize(("name", "options"), [("repeats", {"repeats": 0}), ("k", {"ks": (0,)})])
def test_bad_options_are_named(digits, name, options):
    with pytest.raises(InvalidParameter) as caught:
        map_scores(*digits, **options)
    assert caught.value.name == name


def test_cluster_scores_ignore_the_names_of_clusters():
    y = np.array([0, 0, 1, 1, 2, 2])
    assert cluster_scores(y, np.array([5, 5, 3, 3, 9, 9])) == pytest.approx({"nmi": 1.0, "ari": 1.0})
    assert cluster_scores(y, np.zeros(6)) == pytest.approx({"nmi": 0.0, "ari": 0.0})
