"""Values of single metrics against slow references and zadu."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from zadu.measures import trustworthiness_continuity
from zadu.measures.utils import knn

from accounting import InvalidParameter
from dpfedvis import FederatedData
from dpfedvis.evaluation.metrics import Evaluated, base, classes, clusters, cross_client_accuracy, neighbors
from dpfedvis.evaluation.metrics.base import true_neighbors
from dpfedvis.evaluation.metrics.neighbors import overlap
from dpfedvis.evaluation.scores import score


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(n_class=5, return_X_y=True)
    # Digits are whole numbers: a little noise, so that no two distances are equal.
    X, y = (X[:300] + np.random.default_rng(0).normal(0, 0.1, (300, 64))).astype(np.float32), y[:300]
    return X, PCA(2, random_state=0).fit_transform(X), y


def one_client(X, Z, y=None, seed=0):
    return Evaluated(FederatedData([X], None if y is None else [y]), Z, seed=seed)


def npa(X, Z, *ks):
    most = max(ks)
    true, found = true_neighbors(X, most), true_neighbors(Z, most)
    return {k: overlap(true[:, :k], found[:, :k]) for k in ks}


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
    found = npa(X, Z, 1, 5, 20, 59)
    assert found == pytest.approx({k: slow_preservation(X, Z, k) for k in (1, 5, 20, 59)})
    assert found[59] == 1.0


def test_npa_of_very_many_records_is_that_of_a_sample_among_all(monkeypatch):
    monkeypatch.setattr(base, "EXACT_NEIGHBORS", 50)
    monkeypatch.setattr(base, "SAMPLE", 40)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    Z = X[:, :2] + 0.3 * rng.normal(size=(60, 2))
    sample = np.random.default_rng(0).permutation(60)[:40]
    kept = []
    for i in sample:
        rows = (cdist(each, each)[i] for each in (X, Z))
        near = [set(np.argsort(np.where(np.arange(60) == i, np.inf, row))[:5]) for row in rows]
        kept.append(len(near[0] & near[1]) / 5)
    evaluated = one_client(X, Z)
    assert evaluated.neighbors_in_map.shape[0] == 40
    assert overlap(evaluated.neighbors_among_records[:, :5], evaluated.neighbors_in_map[:, :5]) == np.mean(kept)
    known = true_neighbors(X, 50)
    assert neighbors.preservation(replace(one_client(X, Z), neighbors=known), 10) == neighbors.preservation(
        one_client(X, Z), 10
    )


def test_npa_of_a_faithful_map_is_one():
    X = np.random.default_rng(1).normal(size=(50, 2))
    turned = 3.0 * X @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 100.0
    assert npa(X, turned, 1, 10) == {1: 1.0, 10: 1.0}


def test_npa_of_a_random_map_is_that_of_chance():
    rng = np.random.default_rng(2)
    found = npa(rng.normal(size=(400, 5)), rng.normal(size=(400, 2)), 10)
    assert found[10] == pytest.approx(10 / 399, abs=0.01)


def test_npa_survives_data_far_from_the_origin():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 4))
    assert npa(X + 1e5, X[:, :2], 5) == pytest.approx(npa(X, X[:, :2], 5))


def test_npa_does_not_depend_on_blocks():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(90, 4))
    true, found = true_neighbors(X, 7), true_neighbors(X[:, :2], 7)
    assert overlap(true, found, rows=11) == overlap(true, found)


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
    evaluated = one_client(X, Z, y)
    trust, continuity = neighbors.trustworthiness(evaluated), neighbors.continuity(evaluated)
    assert trust == pytest.approx(expected["trustworthiness"], abs=1e-9)
    assert continuity == pytest.approx(expected["continuity"], abs=1e-9)
    assert trust != continuity


@pytest.mark.parametrize("k", [1, 10, 50])
def test_npa_is_the_overlap_of_zadus_neighbours(digits, k):
    X, Z, _ = digits
    high, low = knn.knn(X, k), knn.knn(Z, k)
    expected = np.mean([len(set(a) & set(b)) / k for a, b in zip(high.tolist(), low.tolist(), strict=True)])
    assert neighbors.preservation(one_client(X, Z), k) == pytest.approx(expected, abs=1e-3)


# Maps whose scores are known


def test_another_seed_is_another_split(digits):
    first, second = ({k: classes.accuracy(one_client(*digits, seed=seed), k) for k in base.KS} for seed in (1, 2))
    assert first != second
    assert first == pytest.approx(second, abs=0.15)


def test_separate_classes_score_one():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 40)
    Z = rng.normal(0, 0.05, (120, 2)) + np.array([[0, 0], [9, 0], [0, 9]])[y]
    scores = score(one_client(Z, Z, y))
    assert [scores[key] for key in ("ca_1", "ca_10", "trustworthiness", "continuity")] == [1.0] * 4
    assert scores["nmi"] == pytest.approx(1.0)
    assert scores["ari"] == pytest.approx(1.0)
    assert scores["silhouette"] > 0.95


def test_labels_that_mean_nothing_score_by_chance():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(400, 2)), rng.integers(0, 4, 400)
    scores = score(one_client(Z, Z, y))
    assert scores["ca_10"] == pytest.approx(0.25, abs=0.1)
    assert scores["nmi"] < 0.05
    assert abs(scores["ari"]) < 0.05


def test_classes_may_have_names(digits):
    X, Z, y = digits
    named = Evaluated(FederatedData([X], [np.array(["zero", "one", "two", "three", "four"])[y]]), Z)
    numbered = one_client(X, Z, y)
    assert classes.accuracy(named, 1) == classes.accuracy(numbered, 1)
    assert clusters.nmi(named) == pytest.approx(clusters.nmi(numbered))


def test_a_sample_stands_in_for_all(digits, monkeypatch):
    whole = score(one_client(*digits))
    for module in (base, clusters):
        monkeypatch.setattr(module, "SAMPLE", 150)
    sampled = score(one_client(*digits))
    assert sampled["trustworthiness"] == pytest.approx(whole["trustworthiness"], abs=0.05)
    assert sampled["silhouette"] == pytest.approx(whole["silhouette"], abs=0.1)
    assert sampled["trustworthiness"] != whole["trustworthiness"]
    assert sampled["silhouette"] != whole["silhouette"]
    assert sampled["ca_10"] == whole["ca_10"]


# Clusters


def test_the_names_of_clusters_do_not_matter():
    y = np.array([0, 0, 1, 1, 2, 2])
    for labels, expected in ((np.array([5, 5, 3, 3, 9, 9]), 1.0), (np.zeros(6), 0.0)):
        evaluated = Evaluated(FederatedData([np.zeros((6, 1))], [y]), labels=labels)
        assert clusters.nmi(evaluated) == pytest.approx(expected)
        assert clusters.ari(evaluated) == pytest.approx(expected)


# Clients that lack classes


def uneven(seed=0, spread=1.2):
    """Four classes; the first client holds two, the second three, the third one that it alone has."""
    rng = np.random.default_rng(seed)
    held = [[0] * 30 + [1] * 25, [0] * 20 + [1] * 4 + [2] * 30, [3] * 25]
    corners = np.array([[0, 0], [3, 0], [0, 3], [3, 3]])
    places = [corners[y] + rng.normal(0, spread, (len(y), 2)) for y in held]
    fed = FederatedData(places, [np.array(y) for y in held])
    return Evaluated(fed, fed.pooled()[0])


def slow_shared(evaluated, k):
    """Record by record: classes of which the others have k, and the vote of the k nearest of the others."""
    owner = np.repeat(np.arange(len(evaluated.fed.records)), evaluated.fed.records)
    y, D = evaluated.classes, cdist(evaluated.places, evaluated.places)
    right: dict = {}
    for i in range(len(y)):
        others = [j for j in range(len(y)) if owner[j] != owner[i]]
        if sum(y[j] == y[i] for j in others) < k:
            continue
        votes = [y[j] for j in sorted(others, key=D[i].__getitem__)[:k]]
        guess = max(sorted(set(votes)), key=votes.count)
        right.setdefault(y[i], []).append(guess == y[i])
    return float(np.mean([np.mean(each) for each in right.values()])), set(right)


@pytest.mark.parametrize("k", [1, 10])
def test_shared_classes_are_those_of_a_slow_vote(k):
    for seed in range(3):
        evaluated = uneven(seed)
        expected, asked = slow_shared(evaluated, k)
        assert asked == {0, 1}
        assert classes.accuracy_of_shared_classes(evaluated, k) == pytest.approx(expected)


def test_a_class_that_one_client_alone_holds_is_no_question():
    """On a perfect map the others still cannot name it, and the plain score counts that against the map."""
    evaluated = uneven(spread=0.05)
    assert classes.accuracy_of_shared_classes(evaluated, 10) == 1.0
    assert classes.accuracy_across_clients(evaluated, 10) < 0.6


def test_classes_count_alike_however_few_records_they_have():
    places = [np.zeros((200, 2)), np.concatenate([np.zeros((100, 2)), np.full((20, 2), 9.0)]), np.full((20, 2), -9.0)]
    held = [np.zeros(200, int), np.repeat([0, 1], [100, 20]), np.ones(20, int)]
    fed = FederatedData([place + 1e-5 * np.arange(len(place))[:, None] for place in places], held)
    evaluated = Evaluated(fed, fed.pooled()[0])
    # Of the second class, no record of one client lies near those of the other; of the first, all do.
    assert classes.accuracy_of_shared_classes(evaluated, 10) == pytest.approx(0.5)


def test_purity_is_that_of_a_slow_count():
    evaluated = uneven()
    D = cdist(evaluated.places, evaluated.places)
    np.fill_diagonal(D, np.inf)
    same = np.mean(evaluated.classes[np.argsort(D)[:, :10]] == evaluated.classes[:, None], axis=1)
    expected = np.mean([same[evaluated.classes == c].mean() for c in range(4)])
    assert classes.purity(evaluated, 10) == pytest.approx(expected, abs=1e-12)


def test_purity_finds_a_client_that_is_drawn_to_the_others():
    """One class a client: the scores across clients have nothing to say, and purity does."""
    rng, y = np.random.default_rng(2), np.repeat(np.arange(3), 60)
    X = rng.normal(0, 0.3, (180, 2)) + np.array([[0, 0], [8, 0], [0, 8]])[y]
    fed = FederatedData([X[y == c] for c in range(3)], [y[y == c] for c in range(3)])
    drawn = X.copy()
    drawn[y == 2] = rng.normal(0, 0.3, (60, 2))  # on the first client's
    good, bad = (Evaluated(fed, each) for each in (X, drawn))
    assert classes.accuracy_across_clients(good, 10) is classes.accuracy_of_shared_classes(good, 10) is None
    assert classes.purity(good, 10) == 1.0
    assert classes.purity(bad, 10) < 0.75


def test_neighbours_at_home_are_those_of_each_client_alone(digits):
    X, Z, y = digits
    fed = FederatedData([X[:150], X[150:280], X[280:]], [y[:150], y[150:280], y[280:]])
    expected = (
        150 * slow_preservation(X[:150], Z[:150], 10) + 130 * slow_preservation(X[150:280], Z[150:280], 10)
    ) / 280
    assert neighbors.preservation_at_home(Evaluated(fed, Z), 10) == pytest.approx(expected, abs=2e-3)
    moved = Z.copy()
    moved[150:280] += 1000  # where a client lies among the others is no matter
    assert neighbors.preservation_at_home(Evaluated(fed, moved), 10) == pytest.approx(expected, abs=2e-3)
