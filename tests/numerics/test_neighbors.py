"""Neighbours against brute force: ties, blocks, memory, and the recall of the approximate search."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from accounting import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics import neighbors
from dpfedvis.numerics.distances import GramDistances, NystromDistances
from dpfedvis.numerics.neighbors import TooManyNeighbors, nearest, nearest_to


def grid(n=60, seed=0):
    """Whole numbers, so that float32 is exact; with many ties and some duplicates."""
    return np.random.default_rng(seed).integers(-3, 4, (n, 3)).astype(np.float32)


def gaussian(n, features, seed=0):
    return np.random.default_rng(seed).normal(size=(n, features)).astype(np.float32)


def brute_force(D, k):
    """Neighbours row by row, smallest first, equal ones by column."""
    found = []
    for i, row in enumerate(D):
        others = sorted((d, j) for j, d in enumerate(row) if j != i)
        found.append([j for _, j in others[:k]])
    return np.array(found)


def check_graph(found, D):
    """Rows name different others at the stated distances."""
    n, k = found.indices.shape
    assert (found.indices != np.arange(n)[:, None]).all()
    assert all(len(set(row)) == k for row in found.indices.tolist())
    np.testing.assert_allclose(found.distances, np.take_along_axis(D, found.indices, axis=1), rtol=1e-4, atol=1e-5)
    assert (np.diff(found.distances, axis=1) >= 0).all()


# With many records a neighbour, rows are bounded by groups first.
@pytest.mark.parametrize(("n", "k"), [(60, 1), (60, 7), (60, 59), (400, 1), (400, 3), (401, 24), (401, 25)])
def test_ties_and_duplicates_are_those_of_brute_force(n, k):
    Z = grid(n)
    D = cdist(Z, Z).astype(np.float32)
    found = nearest(GramDistances(Z), k)
    check_graph(found, D)
    np.testing.assert_array_equal(found.indices, brute_force(D, k))
    assert found.recall == 1.0
    assert found.indices.dtype == np.int64
    assert found.distances.dtype == np.float32


@pytest.mark.parametrize("features", [2, 40])
def test_without_ties_the_records_are_those_of_brute_force(features):
    Z = gaussian(80, features)
    np.testing.assert_array_equal(nearest(GramDistances(Z), 12).indices, brute_force(cdist(Z, Z), 12))


def test_equal_distances_are_ordered_by_record():
    Z = np.array([[0], [1], [-1], [2], [-2]], np.float32)
    assert nearest(GramDistances(Z), 4).indices[0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("n", [30, 300])
def test_records_that_are_all_alike_are_taken_in_their_order(n):
    found = nearest(GramDistances(np.ones((n, 2), np.float32)), 4)
    assert found.indices[0].tolist() == [1, 2, 3, 4]
    assert found.indices[n - 1].tolist() == [0, 1, 2, 3]


def test_nystrom_distances_are_searched_as_they_are():
    rng = np.random.default_rng(2)
    left, signs = rng.normal(size=(50, 6)).astype(np.float32), np.array([1, -1, -1, -1, -1, -1], np.float32)
    D = np.maximum((left * signs) @ left.T, 0)
    found = nearest(NystromDistances(left, signs), 5)
    check_graph(found, D)
    np.testing.assert_allclose(found.distances, np.take_along_axis(D, brute_force(D, 5), axis=1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 7, 30, 60])
def test_blocks_do_not_change_the_result(monkeypatch, rows):
    estimate = GramDistances(grid())
    whole, placed = nearest(estimate, 9), nearest_to(estimate, grid(31, seed=1), 9)
    monkeypatch.setattr(neighbors, "BLOCK_BYTES", 4 * 60 * rows)
    for one, other in ((whole, nearest(estimate, 9)), (placed, nearest_to(estimate, grid(31, seed=1), 9))):
        np.testing.assert_array_equal(one.indices, other.indices)
        np.testing.assert_array_equal(one.distances, other.distances)


def test_no_square_matrix_is_ever_formed(monkeypatch):
    n = 3000
    monkeypatch.setattr(neighbors, "BLOCK_BYTES", 1 << 20)
    estimate = GramDistances(gaussian(n, 4))
    tracemalloc.start()
    try:
        nearest(estimate, 5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A block, the columns of its partition (int64), and the graph.
    assert peak <= 5 * (1 << 20)
    assert peak < 4 * n * n / 6


def test_new_records_find_the_old():
    Z, queries = gaussian(70, 3), gaussian(9, 3, seed=1)
    found = nearest_to(GramDistances(Z), queries, 6)
    D = cdist(queries, Z)
    np.testing.assert_array_equal(found.indices, np.argsort(D, axis=1)[:, :6])
    np.testing.assert_allclose(found.distances, np.sort(D, axis=1)[:, :6], rtol=1e-4)


def test_new_records_may_ask_for_all():
    Z = gaussian(8, 3)
    assert sorted(nearest_to(GramDistances(Z), Z[:1], 8).indices[0]) == list(range(8))


@pytest.mark.parametrize("method", ["exact", "approximate"])
def test_more_neighbours_than_records_are_refused(method):
    with pytest.raises(TooManyNeighbors, match="10 neighbours were asked for among 10 records; at most 9"):
        nearest(GramDistances(gaussian(10, 2)), 10, method=method)


def test_new_records_cannot_ask_for_more_than_all():
    with pytest.raises(TooManyNeighbors, match="11 neighbours"):
        nearest_to(GramDistances(gaussian(10, 2)), gaussian(1, 2), 11)


@pytest.mark.parametrize(("name", "options"), [("method", {"method": "fast"}), ("k", {"k": 0}), ("k", {"k": 2.5})])
def test_bad_options_are_named(name, options):
    with pytest.raises(InvalidParameter) as caught:
        nearest(GramDistances(gaussian(10, 2)), **{"k": 3, **options})
    assert caught.value.name == name


# Approximate: pynndescent itself, which compiles for a minute, runs with the benchmarks


class Sloppy:
    """In its place: finds each record itself, and then skips up to three of its neighbours."""

    def __init__(self, Z, n_neighbors, random_state):
        D = cdist(Z, Z)
        order = np.argsort(D, axis=1, kind="stable")
        skipped = np.arange(len(Z)) % 4
        found = np.stack([np.r_[row[0], row[1 + s : n_neighbors + s]] for row, s in zip(order, skipped, strict=True)])
        self.neighbor_graph = found.astype(np.int32), np.take_along_axis(D, found, axis=1).astype(np.float32)


class GivesUp(Sloppy):
    """Finds too little for every third record, and warns, as pynndescent does."""

    def __init__(self, Z, n_neighbors, random_state):
        super().__init__(Z, n_neighbors, random_state)
        found, lengths = self.neighbor_graph
        found[::3, 2:], lengths[::3, 2:] = -1, np.inf
        warnings.warn_explicit("Failed to correctly find n_neighbors", UserWarning, "x.py", 1, "pynndescent.x")


def test_recall_is_what_it_says(monkeypatch):
    monkeypatch.setattr("pynndescent.NNDescent", Sloppy)
    Z = gaussian(400, 5)
    estimate = GramDistances(Z)
    found, exact = nearest(estimate, 10, method="approximate", sample=400), nearest(estimate, 10)
    check_graph(found, cdist(Z, Z))
    shares = [len(set(a) & set(b)) / 10 for a, b in zip(found.indices.tolist(), exact.indices.tolist(), strict=True)]
    assert found.recall == pytest.approx(np.mean(shares)) == pytest.approx(0.85)
    sampled = nearest(estimate, 10, method="approximate", sample=200)
    assert sampled.recall == pytest.approx(0.85, abs=0.03)


def test_what_the_approximate_search_gives_up_on_is_searched_exactly(monkeypatch):
    monkeypatch.setattr("pynndescent.NNDescent", GivesUp)
    Z = gaussian(40, 3)
    found, exact = (nearest(GramDistances(Z), 5, method=method) for method in ("approximate", "exact"))
    check_graph(found, cdist(Z, Z))
    np.testing.assert_array_equal(found.indices[::3], exact.indices[::3])


def test_duplicates_hide_no_record_from_itself(monkeypatch):
    """With duplicates a record need not be in its own row; then the last one goes."""
    monkeypatch.setattr("pynndescent.NNDescent", Sloppy)
    Z = np.repeat(grid(5), 10, axis=0)
    check_graph(nearest(GramDistances(Z), 4, method="approximate"), cdist(Z, Z))


def test_auto_is_approximate_for_many_records_with_coordinates(monkeypatch):
    asked = []
    monkeypatch.setattr(neighbors, "EXACT_LIMIT", 50)
    monkeypatch.setattr(neighbors, "_approximate", lambda estimate, *rest: asked.append(estimate))
    many = gaussian(51, 2)
    nearest(GramDistances(many), 3)
    nearest(GramDistances(many[:50]), 3)
    nearest(NystromDistances(many, np.array([1, -1], np.float32)), 3)
    assert len(asked) == 1
    assert len(asked[0].left) == 51


def test_approximate_needs_coordinates():
    with pytest.raises(DpfedvisError, match="needs coordinates"):
        nearest(NystromDistances(gaussian(20, 2), np.array([1, -1], np.float32)), 3, method="approximate")
