"""Places of records among those that were laid out, against a slow reference."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpfedvis.numerics.interpolation import SHIFTS, SIMILAR, interpolate


def slow_place(known, places, point, width):
    """One record: its nearest by brute force, the densest of them, then mean shift."""
    squares = [float(np.sum((each.astype(np.float64) - point) ** 2)) for each in known]
    near = sorted(range(len(known)), key=lambda i: squares[i])[:SIMILAR]
    mean = sum(squares[i] for i in near) / len(near)
    weights = {i: math.exp(-squares[i] / mean) for i in near}

    def pull(i, at):
        return weights[i] * math.exp(-float(np.sum((places[i] - at) ** 2)) / (2 * width**2))

    at = places[max(near, key=lambda j: sum(pull(i, places[j]) for i in near))]
    for _ in range(SHIFTS):
        pulls = [pull(i, at) for i in near]
        at = sum(p * places[i] for p, i in zip(pulls, near, strict=True)) / sum(pulls)
    return at


def drawn(k=50, n=12, seed=0):
    rng = np.random.default_rng(seed)
    known, points = rng.normal(size=(k, 6)).astype(np.float32), rng.normal(size=(n, 6)).astype(np.float32)
    return known, 20 * known[:, :2].astype(np.float64) + rng.normal(size=(k, 2)), points


@pytest.mark.parametrize("width", [0.5, 4.0, 100.0])
@pytest.mark.parametrize("k", [1, 2, SIMILAR - 1, SIMILAR, 50])
def test_records_are_placed_as_one_by_one(k, width):
    known, places, points = drawn(k)
    expected = [slow_place(known, places, point.astype(np.float64), width) for point in points]
    np.testing.assert_allclose(interpolate(known, places, points, width), expected, rtol=1e-4, atol=1e-3)


def test_a_record_has_the_same_place_in_any_company():
    known, places, points = drawn()
    together = interpolate(known, places, points, 4.0)
    order = np.random.default_rng(1).permutation(len(points))
    np.testing.assert_allclose(interpolate(known, places, points[order], 4.0), together[order], atol=1e-4)
    for number in range(len(points)):
        alone = interpolate(known, places, points[number : number + 1], 4.0)
        np.testing.assert_allclose(alone, together[number : number + 1], atol=1e-4)


def test_no_record_lands_in_a_gap():
    """Between two regions of the map: with the nearer one, where the plain mean would be in between."""
    known = np.concatenate([np.full((5, 2), -1.0), np.full((5, 2), 1.0)]).astype(np.float32)
    known += 0.01 * np.arange(20, dtype=np.float32).reshape(10, 2)
    places = np.concatenate([np.full((5, 2), -50.0), np.full((5, 2), 50.0)])
    np.testing.assert_allclose(interpolate(known, places, np.array([[0.3, 0.4]], np.float32), 5.0), [[50.0, 50.0]])


@pytest.mark.parametrize("width", [1e-9, 1.0, 1e9])
def test_equal_records_have_places(width):
    same = np.ones((30, 4), np.float32)
    places = np.random.default_rng(0).normal(size=(30, 2))
    for points in (same[:3], same[:3] + 5):
        found = interpolate(same, places, points, width)
        assert np.isfinite(found).all()
        assert (np.abs(found) <= np.abs(places).max()).all()
