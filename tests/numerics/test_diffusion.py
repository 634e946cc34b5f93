"""Diffusion and mean shift against slow references."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from accounting import InvalidParameter
from dpfedvis.numerics import diffusion
from dpfedvis.numerics.diffusion import OwnFrame, diffuse, nearby_weights, settle, strongest


def own_coordinates(X):
    return OwnFrame.of(X).coordinates(X)


def test_own_components_are_evened_a_little():
    """Distances as in the formula, from the eigenvectors of the covariance."""
    X = np.random.default_rng(3).normal(0, [8, 4, 1, 0.5], (60, 4)) @ np.linalg.qr(np.ones((4, 4)) + np.eye(4))[0]
    values, vectors = np.linalg.eigh(np.cov(X.T))
    expected = (X - X.mean(axis=0)) @ vectors / (values / values[-1]) ** 0.125
    found = own_coordinates(X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(cdist(found, found), cdist(expected, expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("n", "m", "kept"), [(2, 5, 2), (70, 3, 3), (70, 60, 40), (10, 60, 10)])
def test_no_more_components_than_there_are(n, m, kept):
    found = own_coordinates(np.random.default_rng(0).normal(size=(n, m)).astype(np.float32))
    assert found.shape == (n, kept)
    assert np.isfinite(found).all()


def test_equal_records_are_alike():
    assert not np.ptp(own_coordinates(np.full((6, 3), 2.0)), axis=0).any()
    flat = np.zeros((9, 4))
    flat[:, 1] = np.arange(9)
    assert np.isfinite(own_coordinates(flat)).all(), "one feature varies"
    ones = np.ones((700, 64), np.float32)
    ones[5, 5] = np.nextafter(np.float32(1), np.float32(0))
    assert np.isfinite(own_coordinates(ones)).all(), "one record is the smallest step apart"


def graph(n=12, seed=0):
    """Weights among n records, three neighbours each, and to five anchors; rows sum to 1."""
    rng = np.random.default_rng(seed)
    among, to = np.zeros((n, n)), np.zeros((n, 5))
    for i in range(n):
        near = rng.choice([j for j in range(n) if j != i], 3, replace=False)
        among[i, near] = rng.dirichlet(np.ones(3))
        to[i, rng.choice(5, 2, replace=False)] = rng.dirichlet(np.ones(2))
    return csr_array(among), csr_array(to)


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_diffusion_step_by_step(steps):
    among, to = graph()
    both = among.toarray() + among.toarray().T
    P, home = both / both.sum(axis=1, keepdims=True), to.toarray()
    expected = home
    for _ in range(steps):
        expected = 0.7 * P @ expected + 0.3 * home
    found = diffuse(to, among, 0.7, steps)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


def test_many_steps_reach_the_limit():
    among, to = graph()
    both = among.toarray() + among.toarray().T
    P = both / both.sum(axis=1, keepdims=True)
    limit = 0.2 * np.linalg.solve(np.eye(12) - 0.8 * P, to.toarray())
    np.testing.assert_allclose(diffuse(to, among, 0.8, 100), limit, atol=1e-5)


def densities(row, places, at, width):
    return row * np.exp(-np.sum((places - at) ** 2, axis=1) / (2 * width**2))


def test_settling_record_by_record(monkeypatch):
    rng = np.random.default_rng(1)
    weights, places = rng.dirichlet(np.ones(6), 9).astype(np.float32), rng.normal(0, 5, (6, 2))
    expected = []
    for row in weights.astype(np.float64):
        centre = max(places, key=lambda at, row=row: densities(row, places, at, 3.0).sum())
        for _ in range(4):
            near = densities(row, places, centre, 3.0)
            centre = near @ places / near.sum()
        expected.append(centre)
    monkeypatch.setattr(diffusion, "block_rows", lambda *_: 4)
    np.testing.assert_allclose(settle(weights, places, 3.0, 4), expected, atol=1e-4)


def test_a_record_between_two_regions_settles_in_the_heavier():
    places = np.array([(0.0, 0.0), (1.0, 0.0), (100.0, 0.0)])
    weights = np.array([(0.4, 0.4, 0.2), (0.1, 0.1, 0.8)])
    settled = settle(weights, places, 30.0, 20)
    np.testing.assert_allclose(settled[0], (0.5, 0), atol=2)
    np.testing.assert_allclose(settled[1], (100, 0), atol=2)


def test_a_small_region_beside_the_mean_does_not_keep_a_record():
    """Mean shift from the mean alone would end in the middle."""
    places = np.array([(-10.0, 0.0), (0.0, 0.0), (9.0, 0.0), (11.0, 0.0), (-11.0, 0.0)])
    weights = np.array([(0.2, 0.1, 0.3, 0.3, 0.1)])
    np.testing.assert_allclose(settle(weights, places, 2.0, 8), [(10.0, 0.0)], atol=0.1)


def test_a_window_that_reaches_no_other_anchor_leaves_the_heaviest():
    places = np.array([(-1000.0, 0.0), (1000.0, 0.0)])
    np.testing.assert_allclose(settle(np.array([(0.4, 0.6)]), places, 1.0, 8), [(1000.0, 0.0)], rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1.0, 1e10, 1e30])
def test_the_scale_of_the_map_does_not_matter(scale):
    rng = np.random.default_rng(1)
    weights, places = rng.dirichlet(np.ones(6), 9).astype(np.float32), rng.normal(0, 5, (6, 2))
    expected = settle(weights, places, 3.0, 4)
    np.testing.assert_allclose(settle(weights, places * scale, 3.0 * scale, 4), expected * scale, rtol=1e-4)
    found = nearby_weights(weights, places * scale, expected * scale, 3.0 * scale, 4)
    np.testing.assert_allclose(found.toarray(), nearby_weights(weights, places, expected, 3.0, 4).toarray(), rtol=1e-4)


@pytest.mark.parametrize("width", [0.0, -1.0, np.nan])
def test_a_window_without_width_is_refused(width):
    with pytest.raises(InvalidParameter, match="width must be above 0"):
        settle(np.ones((1, 2)), np.zeros((2, 2)), width, 1)


def test_pulling_weights_record_by_record(monkeypatch):
    rng = np.random.default_rng(4)
    weights, places, settled = rng.dirichlet(np.ones(6), 9), rng.normal(0, 5, (6, 2)), rng.normal(0, 5, (9, 2))
    monkeypatch.setattr(diffusion, "block_rows", lambda *_: 4)
    found = nearby_weights(weights, places, settled, 3.0, 2).toarray()
    for row, at, kept in zip(weights, settled, found, strict=True):
        near = densities(row, places, at, 3.0)
        near[np.argsort(near)[:-2]] = 0
        np.testing.assert_allclose(kept, near / near.sum(), rtol=1e-4)


def test_a_record_that_no_anchor_is_near_keeps_its_weights():
    places = np.array([(-1000.0, 0.0), (1000.0, 0.0)])
    found = nearby_weights(np.array([(0.25, 0.75)], np.float32), places, np.zeros((1, 2)), 1.0, 2)
    np.testing.assert_allclose(found.toarray(), [(0.25, 0.75)])


@pytest.mark.parametrize("count", [1, 3, 5, 9])
def test_the_strongest_weights_row_by_row(count):
    weights = np.random.default_rng(2).dirichlet(np.ones(5), 8).astype(np.float32)
    found = strongest(weights, count).toarray()
    for row, kept in zip(weights, found, strict=True):
        largest = np.argsort(-row)[:count]
        expected = np.zeros(5)
        expected[largest] = row[largest] / row[largest].sum()
        np.testing.assert_allclose(kept, expected, rtol=1e-6)
