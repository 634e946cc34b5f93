"""The published map: nobody moves it, and the place of a record in it depends on that record alone."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import InvalidParameter
from dpfedvis.numerics.exact import Grid
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace
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
