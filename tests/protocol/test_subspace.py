"""A public subspace: coordinates of records, each by itself and on its grid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedvis.numerics.exact import AXES_UNIT, Grid, integer_axes
from dpfedvis.protocol.subspace import Subspace

RAW = Grid.of_norm(256.0, 6)


def subspace_of(seed=0, kept=3, spread=2.0):
    rng = np.random.default_rng(seed)
    axes, _ = np.linalg.qr(rng.normal(size=(6, kept)))
    centre = RAW.snap(rng.normal(size=6))
    return Subspace(centre, integer_axes(axes) / AXES_UNIT, spread * rng.uniform(0.5, 1.0, kept), RAW)


@given(st.integers(0, 1000), st.integers(1, 6))
def test_coordinates_are_those_of_slow_products_and_invert(seed, kept):
    found = subspace_of(seed, kept)
    X = np.random.default_rng(seed + 1).normal(0, 3, (8, 6))
    slow = np.array([[sum((x - c) * a for x, c, a in zip(row, found.centre, axis, strict=True))
                      for axis in found.axes.T] for row in X])  # fmt: skip
    rounding = found.grid.step + math.sqrt(6) * RAW.step
    Z = found.coordinates(X)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z, slow, atol=rounding)
    np.testing.assert_array_equal(found.grid.snap(Z), Z, err_msg="on the grid")
    again = found.coordinates(found.points(Z))
    np.testing.assert_allclose(again, Z, atol=rounding + 1e-4 * np.abs(Z).max())


def test_coordinates_depend_on_nothing_but_the_record():
    found = subspace_of()
    X = np.random.default_rng(3).normal(0, 3, (5000, 6))
    whole = found.coordinates(X)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_array_equal(found.coordinates(X[order]), whole[order])
    for rows in (slice(0, 1), slice(7, 60), slice(4000, 5000)):
        np.testing.assert_array_equal(found.coordinates(X[rows]), whole[rows])


def test_a_record_far_away_is_at_the_edge():
    found = subspace_of()
    far = found.coordinates(np.full((1, 6), 1e12))
    assert np.isfinite(far).all()
    assert np.abs(far).max() <= found.grid.most * found.grid.step


def test_arrays_and_back():
    found = subspace_of()
    again = Subspace.of_arrays(found.arrays())
    assert again.raw == found.raw
    for name in ("centre", "axes", "variances"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name), strict=True)


def test_nobody_turns_it():
    found = subspace_of()
    for array in (found.centre, found.axes, found.variances):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
