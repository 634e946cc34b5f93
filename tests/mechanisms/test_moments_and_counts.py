"""Second moments and grid counts: what one upload is, and how far one record, or one client, can move it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from accounting import InvalidParameter
from dpfedvis.mechanisms import PreparedRecords
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.kernels import Kernel


def public_for(features, adjacency="replace-one"):
    return PublicParameters(Kernel((1.0,)), 1, features, 1, 1, 1.0, adjacency=adjacency)


def message(release, X, public, denominator=None):
    local = PreparedRecords(release.prepare(X), float(denominator or len(X)))
    return release.message(local, np.zeros((1, X.shape[1])), public, np.random.default_rng(0)).values


# Second moments


def test_second_moments_are_the_mean_of_outer_products():
    X = np.random.default_rng(0).normal(1, 2, (40, 5))
    release = SecondMoments(centre=np.full(5, 0.5), clip=3.0, norm=20.0)
    expected = np.zeros((5, 5))
    for x in X:
        x = (x - 0.5) * min(1.0, 3.0 / np.linalg.norm(x - 0.5))
        expected += np.outer(x, x) / 40
    upload = message(release, X, public_for(5))
    assert upload.shape == release.shape(public_for(5)) == (15,)
    # Records are rounded towards zero, to 2⁻¹⁵ of the clipping norm.
    np.testing.assert_allclose(release.matrix(upload, 5), expected, rtol=1e-3, atol=1e-3)


@given(npst.arrays(np.float64, (4, 4), elements=st.floats(-10, 10)), st.floats(0.1, 10))
def test_uploads_over_their_relative_noise_have_the_norm_of_their_matrix(values, clip):
    """An isometry: noise on the upload is noise of the same size in the matrix, and Δ carries over."""
    release, upload = SecondMoments(clip=clip), np.random.default_rng(0).normal(size=10)
    norm = np.linalg.norm(upload / release.relative_noise(public_for(4)))
    assert np.linalg.norm(release.matrix(upload, 4)) == pytest.approx(clip**2 * norm, rel=1e-9)
    there = release.matrix(values[np.triu_indices(4)], 4)
    np.testing.assert_array_equal(there, there.T)


def test_second_moments_attain_their_sensitivity():
    """Two orthogonal records at the clipping radius; adding one of them moves the mean by 1/n."""
    X = np.zeros((6, 3))
    X[-1, 0] = 50.0
    other = X.copy()
    other[-1] = 0, 50.0, 0
    release = SecondMoments(clip=2.0)
    for adjacency, second in (("replace-one", other), ("add-remove", X[:-1])):
        public = public_for(3, adjacency)
        moved = np.linalg.norm(message(release, X, public, 6) - message(release, second, public, 6))
        assert moved == pytest.approx(release.sensitivity(public, 6.0), rel=1e-9)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_a_clip_that_is_none_is_named(clip):
    with pytest.raises(InvalidParameter, match="clip"):
        SecondMoments(clip=clip)


# Grid counts


@given(st.lists(st.integers(0, 8), min_size=2, max_size=6), st.integers(0, 8))
def test_neighbours_change_counts_by_at_most_delta(cells, replaced):
    """And by exactly Δ unless the record stays in its cell."""
    counts, n = GridCounts(cells=9), len(cells)
    public = public_for(1)
    here, there = (np.array(each, float)[:, None] for each in (cells, [*cells[:-1], replaced]))
    moved = np.linalg.norm(message(counts, here, public) - message(counts, there, public))
    expected = 0.0 if replaced == cells[-1] else counts.sensitivity(public, n)
    assert moved == pytest.approx(expected, rel=1e-9)
    add = public_for(1, "add-remove")
    moved = np.linalg.norm(message(counts, here, add, 7) - message(counts, here[:-1], add, 7))
    assert moved == pytest.approx(counts.sensitivity(add, 7), rel=1e-9)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_whole_clients_change_counts_by_at_most_the_delta_of_one_record(cells, others):
    counts, public = GridCounts(cells=5), public_for(1)
    here, there = (message(counts, np.array(each, float)[:, None], public) for each in (cells, others))
    assert np.linalg.norm(here - there) <= counts.sensitivity(public, 1.0) * (1 + 1e-9)
