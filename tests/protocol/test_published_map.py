"""The published map: nobody moves it, and the place of a record in it depends on that record alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import InvalidParameter
from dpfedvis.numerics.exact import Grid
from dpfedvis.protocol import wire
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.site.policy import Refusal
from dpfedvis.site.views import check_map
from tests.protocol.boards import board_of, records_of

RAW = Grid.of_norm(32.0, 3)


def test_nobody_moves_the_board():
    published = PublishedMap(
        Subspace(np.zeros(3), np.eye(3)[:, :2], np.ones(2), RAW), np.zeros((4, 2), np.float32), np.ones((4, 2)), 0
    )
    arrays = (
        published.anchors,
        published.places,
        published.subspace.centre,
        published.subspace.axes,
        published.subspace.variances,
    )
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    with pytest.raises(AttributeError):
        published.places = np.zeros((4, 2))
    assert published.half == pytest.approx(1.1)


@pytest.mark.parametrize("places", [np.ones((3, 2)), np.full((4, 2), np.nan)])
def test_a_board_that_is_none_is_named(places):
    subspace = Subspace(np.zeros(3), np.eye(3)[:, :2], np.ones(2), RAW)
    with pytest.raises(InvalidParameter):
        PublishedMap(subspace, np.zeros((4, 2), np.float32), places, 0)


@pytest.mark.parametrize("anchors", [1, 4, 40])
def test_the_place_that_is_counted_is_that_of_slow_weights(anchors):
    """A weighted mean of the ten nearest anchors' places; the mean square above the nearest has weight e⁻³."""
    published, _ = board_of(anchors)
    X = np.random.default_rng(4).normal(3, 5, (50, 5)).astype(np.float32)
    Z = published.subspace.coordinates(X).astype(np.float64)
    for z, place in zip(Z, published.place(X), strict=True):
        squares = np.sum((published.subspace.grid.snap(published.anchors) - z) ** 2, axis=1)
        near = np.argsort(squares, kind="stable")[:10]
        above = squares[near] - squares[near[0]]
        weights = np.exp(-3 * above / max(above.mean(), 1e-300))
        np.testing.assert_allclose(place, weights @ published.places[near] / weights.sum(), atol=1e-9)


def test_the_place_that_is_counted_depends_on_nothing_but_the_record():
    """To the last bit: on no other record, nor on their number or order, also where anchors are equally near."""
    published, _ = board_of()
    X = np.concatenate([records_of(published, g, 700, seed=g) for g in range(3)])
    X[::50] = X[0]
    whole = published.place(X)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_array_equal(published.place(X[order]), whole[order])
    for rows in (slice(0, 1), slice(7, 60), slice(1000, 2100)):
        np.testing.assert_array_equal(published.place(X[rows]), whole[rows])
    assert (whole[::50] == whole[0]).all()


# Clusters


def with_centres(centres):
    subspace = Subspace(np.zeros(3), np.eye(3)[:, :2], np.ones(2), RAW)
    return PublishedMap(subspace, np.zeros((4, 2), np.float32), np.ones((4, 2)), 0, centres)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(0, 30))
def test_a_cluster_is_that_of_the_nearest_centre(seed, count, records):
    rng = np.random.default_rng(seed)
    centres, places = rng.normal(size=(count, 2)), rng.normal(size=(records, 2))
    expected = [min(range(count), key=lambda c, z=place: float(np.sum((centres[c] - z) ** 2))) for place in places]
    found = with_centres(centres).clusters_at(places)
    assert found.dtype == np.int64
    assert found.tolist() == expected
    assert with_centres(np.concatenate([centres, centres])).clusters_at(places).tolist() == expected  # first of equals


def test_a_record_without_a_place_is_in_no_cluster():
    places = np.array([[0.0, 0.0], [np.nan, 1.0], [9.0, 9.0], [np.inf, 0.0]])
    assert with_centres(np.array([[0.0, 0.0], [8.0, 8.0]])).clusters_at(places).tolist() == [0, -1, 1, -1]


def test_centres_are_part_of_the_map():
    plain, one, other = with_centres(None), with_centres(np.zeros((2, 2))), with_centres(np.ones((2, 2)))
    assert len({plain.digest, one.digest, other.digest}) == 3
    assert wire.decode(wire.encode(other)).digest == other.digest
    with pytest.raises(ValueError, match="read-only"):
        one.centres[0] = 5
    with pytest.raises(InvalidParameter):
        with_centres(np.full((2, 2), np.nan))
    with pytest.raises(InvalidParameter, match="with clusters"):
        plain.clusters_at(np.zeros((1, 2)))


@pytest.mark.parametrize("centres", [np.zeros((0, 2)), np.zeros((3, 1)), np.zeros(2), np.full((2, 2), 1e16)])
def test_a_site_refuses_centres_that_are_none(centres):
    check_map(with_centres(np.ones((2, 2))), 3)
    with pytest.raises(Refusal):
        check_map(with_centres(centres), 3)
