"""The principal subspace of noisy second moments: the edge of noise, and slow references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from accounting import InvalidParameter
from dpfedvis.federation.private_map.subspace import principal_subspace
from dpfedvis.mechanisms.second_moments import SecondMoments


def test_directions_above_the_edge_are_kept_and_no_more():
    """m = 8 and noise 0.5: noise alone reaches 2·√4·0.5 = 2, and a tenth more is asked for."""
    moments = np.diag([9.0, 2.1, 5.0, 2.3, 0.5, 0.1, 0.0, -1.0])
    found = principal_subspace(np.zeros(8), moments, 0.5, 12)
    np.testing.assert_array_equal(np.flatnonzero(np.abs(found.axes).sum(axis=1)), [0, 2, 3])
    lifted = found.variances + 2.0**2 / (4 * found.variances)
    np.testing.assert_allclose(lifted, [9.0, 5.0, 2.3], rtol=1e-12, err_msg="λ + edge²/(4λ) is what noise makes of λ")
    assert principal_subspace(np.zeros(8), moments, 0.5, 2).axes.shape == (8, 2), "no more than asked for"


@pytest.mark.parametrize("features", [2, 3, 60])
def test_noise_alone_keeps_two_directions(features):
    """And its eigenvalues do end at the edge, so that a larger one means something."""
    release, noise, most = SecondMoments(clip=2.0), 0.3, []
    for seed in range(20):
        upload = np.random.default_rng(seed).normal(0, noise / 4, features * (features + 1) // 2)
        moments = release.matrix(upload, features)
        most.append(np.linalg.eigvalsh(moments)[-1])
        found = principal_subspace(np.zeros(features), moments, noise, 12)
        if features == 60:
            assert found.axes.shape == (60, 2)
        assert (found.variances > 0).all()
    if features == 60:
        assert 0.8 < np.mean(most) / (2 * math.sqrt(features / 2) * noise) < 1


def test_a_seen_direction_has_its_variance_back():
    """One direction of variance 4 under noise whose edge is 2: its eigenvalue is lifted, and that is undone."""
    rng, found = np.random.default_rng(0), []
    release, features = SecondMoments(), 50
    for _ in range(30):
        moments = np.zeros((features, features))
        moments[0, 0] = 4.0
        noise = release.matrix(rng.normal(0, 0.2, features * (features + 1) // 2), features)
        found.append(principal_subspace(np.zeros(features), moments + noise, 0.2, 12).variances[0])
    assert np.mean(found) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("moments", [np.zeros((3, 3)), np.full((3, 3), 1e-300), -np.eye(3)])
def test_degenerate_moments_still_give_a_plane(moments):
    found = principal_subspace(np.zeros(3), moments, 0.0, 12)
    kept = found.axes.shape[1]
    assert kept >= 2
    np.testing.assert_allclose(found.axes.T @ found.axes, np.eye(kept), atol=1e-12)
    assert (found.variances > 0).all()


@given(npst.arrays(np.float64, (5, 5), elements=st.floats(-3, 3)), st.integers(1, 9), st.floats(0, 1))
def test_axes_are_orthonormal_and_coordinates_invert(values, most, noise):
    moments = values @ values.T
    found = principal_subspace(np.ones(5), moments, noise, most)
    kept = found.axes.shape[1]
    assert 2 <= kept <= max(2, min(most, 5))
    np.testing.assert_allclose(found.axes.T @ found.axes, np.eye(kept), atol=1e-9)
    Z = np.random.default_rng(0).normal(size=(4, kept)).astype(np.float32)
    np.testing.assert_allclose(found.coordinates(found.points(Z)), Z, atol=1e-5)
    assert found.coordinates(found.points(Z)).dtype == np.float32
    np.testing.assert_array_equal(principal_subspace(np.ones(5), moments.copy(), noise, most).axes, found.axes)


def test_components_must_be_some():
    with pytest.raises(InvalidParameter, match="components"):
        principal_subspace(np.zeros(3), np.eye(3), 0.1, 0)
