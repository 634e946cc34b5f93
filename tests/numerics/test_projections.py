"""Projections put landmarks into their public sets, leave points that are inside, and move none further than needed."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from accounting import InvalidParameter
from dpfedvis.numerics.projections import Box, Everywhere, SpectralBall, clip_norms

DTYPES = [np.float32, np.float64]
SETS = [Everywhere(), Box(-0.5, 1.0), partial(clip_norms, bound=0.8), SpectralBall(0.8, 1.1)]


def arrays(dtype):
    width = 32 if dtype == np.float32 else 64
    values = st.floats(-100, 100, width=width) | st.sampled_from([0.0, 1e-30, 1e15])
    return npst.arrays(dtype, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=values)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_the_bounds_hold_afterwards(dtype, data):
    Y = data.draw(arrays(dtype))
    assert np.all((Box(-0.5, 1.0)(Y) >= -0.5) & (Box(-0.5, 1.0)(Y) <= 1.0))
    assert np.linalg.norm(clip_norms(Y, 0.8).astype(np.float64), axis=1).max() <= 0.8
    inside = SpectralBall(0.8, 1.1)(Y).astype(np.float64)
    rounding = 1 + 8 * float(np.finfo(dtype).eps)
    assert np.linalg.norm(inside, axis=1).max() <= 0.8 * rounding
    assert np.linalg.norm(inside, 2) <= 1.1 * rounding


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("project", SETS)
def test_shape_and_dtype_stay_and_points_inside_do_not_move(project, dtype):
    inside = np.array([[0.1, 0.2, -0.3], [0.4, -0.1, 0.2]], dtype)
    np.testing.assert_array_equal(project(inside), inside)
    outside = 10 * np.random.default_rng(0).normal(size=(5, 3)).astype(dtype)
    before = outside.copy()
    assert project(outside).shape == outside.shape
    assert project(outside).dtype == dtype
    np.testing.assert_array_equal(outside, before)


@pytest.mark.parametrize("project", SETS[:3])
@given(first=arrays(np.float64), second=st.integers(0, 100))
def test_projections_to_convex_sets_do_not_expand(project, first, second):
    """So that a projection may follow each step without raising any sensitivity."""
    other = first + np.random.default_rng(second).normal(size=first.shape)
    gap = np.linalg.norm(project(first) - project(other))
    assert gap <= np.linalg.norm(first - other) * (1 + 1e-9) + 1e-12


def test_clipped_rows_keep_their_directions():
    Y = np.array([[3.0, 4.0], [0.0, 0.0], [0.3, 0.4]])
    np.testing.assert_allclose(clip_norms(Y, 1.0), [[0.6, 0.8], [0, 0], [0.3, 0.4]], rtol=1e-12)


def test_the_spectral_ball_clips_singular_values():
    Y = np.diag([0.7, 0.3])
    np.testing.assert_allclose(SpectralBall(1.0, 0.5)(Y), np.diag([0.5, 0.3]), atol=1e-15)


def test_clip_norms_of_tiny_and_large_rows():
    X = np.array([[1e-300, 0.0], [1e150, 1e150], [0.0, 0.0]])
    clipped = clip_norms(X, 2.0)
    np.testing.assert_array_equal(clipped[[0, 2]], X[[0, 2]])
    assert np.linalg.norm(clipped[1]) == pytest.approx(2.0, rel=1e-12)
    inside = np.ones((2, 2))
    assert clip_norms(inside, 10.0) is inside, "nothing to clip, nothing to copy"


@pytest.mark.parametrize(
    ("build", "value"),
    [
        (lambda: Box(1.0, 1.0), (1.0, 1.0)),
        (lambda: Box(2.0, 1.0), (2.0, 1.0)),
        (lambda: SpectralBall(0.0, 1.0), 0.0),
        (lambda: SpectralBall(math.inf, 1.0), math.inf),
        (lambda: SpectralBall(-1.0, 1.0), -1.0),
        (lambda: SpectralBall(1.0, -2.0), -2.0),
    ],
)
def test_bad_bounds_are_named(build, value):
    with pytest.raises(InvalidParameter) as caught:
        build()
    assert caught.value.value == value
