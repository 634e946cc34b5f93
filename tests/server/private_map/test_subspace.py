"""The principal subspace of noisy second moments: the edge of noise, and slow references."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from accounting import InvalidParameter
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.server.subspace import FEWEST, MANY_VALUES, components_seen, low_frequencies, principal_subspace

RAW = Grid.of_norm(256.0, 60)


def check_axes(axes):
    """Orthonormal up to their rounding to 2⁻¹⁸, on that grid, and no longer than 1 in any direction."""
    cells = axes * 2.0**18
    np.testing.assert_array_equal(cells, np.rint(cells))
    np.testing.assert_allclose(axes.T @ axes, np.eye(axes.shape[1]), atol=4 * math.sqrt(axes.size) / 2.0**18)
    assert np.linalg.norm(axes, 2) <= 1


def test_directions_above_the_edge_have_what_noise_did_not_add():
    """m = 8 and noise 0.5: noise alone reaches 2·√4·0.5 = 2, and a quarter more is asked for."""
    moments = np.diag([9.0, 2.4, 5.0, 2.6, 0.5, 0.1, 0.0, -1.0])
    few = principal_subspace(np.zeros(8), moments, 0.5, 12, RAW)
    np.testing.assert_array_equal(np.flatnonzero(np.abs(few.axes).sum(axis=1)), [0, 2, 3], "most of the variance")
    found = principal_subspace(np.zeros(8), moments, 0.5, 12, RAW, spread=30.0)
    np.testing.assert_array_equal(np.abs(found.axes).argmax(axis=0)[:3], [0, 2, 3])
    clear, others = found.variances[:3], found.variances[3:]
    np.testing.assert_array_equal(clear, few.variances)
    lifted = clear + 2.0**2 / (4 * clear)
    np.testing.assert_allclose(lifted, [9.0, 5.0, 2.6], rtol=1e-12, err_msg="λ + edge²/(4λ) is what noise makes of λ")
    left = 30.0 + 0.5 * math.sqrt(8) - clear.sum()
    assert left / 5 > 2.0
    np.testing.assert_allclose(others, 2.0, rtol=1e-12, err_msg="others with more than edge·(1.25 + 0.75)/2 were seen")
    less = principal_subspace(np.zeros(8), moments, 0.5, 12, RAW, spread=22.0).variances[3:]
    np.testing.assert_allclose(less, (left - 8.0) / 5, rtol=1e-12, err_msg="the others share what is left")
    assert principal_subspace(np.zeros(8), moments, 0.5, 2, RAW).axes.shape == (8, 2), "no more than asked for"


def test_with_enough_clear_directions_no_others_are_kept():
    moments = np.diag([*np.linspace(9.0, 5.0, FEWEST + 1), *np.zeros(9)])
    found = principal_subspace(np.zeros(FEWEST + 10), moments, 0.3, 32, Grid.of_norm(256.0, FEWEST + 10))
    assert found.axes.shape == (FEWEST + 10, FEWEST + 1)


@pytest.mark.parametrize("features", [2, 3, 60])
def test_noise_alone_ends_at_the_edge(features, setting_of):
    """So that a larger eigenvalue means something; of pure noise few directions are kept, all alike."""
    release, noise, most = SecondMoments(clip=2.0), 0.3, []
    for seed in range(20):
        relative = release.relative_noise(setting_of(features))
        moments = release.matrix(np.random.default_rng(seed).normal(0, noise / 4 * relative), features)
        most.append(np.linalg.eigvalsh(moments)[-1])
        found = principal_subspace(np.zeros(features), moments, noise, 12, RAW)
        if features == 60:
            assert found.axes.shape == (60, FEWEST)
            assert np.ptp(found.variances) == 0
        assert (found.variances > 0).all()
    if features == 60:
        assert 0.8 < np.mean(most) / (2 * math.sqrt(features / 2) * noise) < 1


def test_a_seen_direction_has_its_variance_back(setting_of):
    """One direction of variance 4 under noise whose edge is 2: its eigenvalue is lifted, and that is undone."""
    rng, found = np.random.default_rng(0), []
    release, features = SecondMoments(), 50
    for _ in range(30):
        moments = np.zeros((features, features))
        moments[0, 0] = 4.0
        noise = release.matrix(rng.normal(0, 0.2 * release.relative_noise(setting_of(features))), features)
        found.append(principal_subspace(np.zeros(features), moments + noise, 0.2, 12, RAW).variances[0])
    assert np.mean(found) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("moments", [np.zeros((3, 3)), np.full((3, 3), 1e-300), -np.eye(3)])
def test_degenerate_moments_still_give_a_plane(moments):
    found = principal_subspace(np.zeros(3), moments, 0.0, 12, RAW)
    kept = found.axes.shape[1]
    assert kept >= 2
    check_axes(found.axes)
    assert (found.variances > 0).all()


@given(npst.arrays(np.float64, (5, 5), elements=st.floats(-3, 3)), st.integers(1, 9), st.floats(0, 1))
def test_axes_are_orthonormal_and_coordinates_invert(values, most, noise):
    moments = values @ values.T
    found = principal_subspace(np.ones(5), moments, noise, most, RAW)
    kept = found.axes.shape[1]
    assert 2 <= kept <= max(2, min(most, 5))
    check_axes(found.axes)
    spread = math.sqrt(found.variances.sum())
    Z = spread * np.random.default_rng(0).normal(size=(4, kept)).astype(np.float32)
    # Records are rounded to their grid, coordinates to theirs, and axes are as much shorter as their rounding needs.
    rounding = found.grid.step + math.sqrt(5) * RAW.step + 1e-4 * np.abs(Z).max()
    np.testing.assert_allclose(found.coordinates(found.points(Z)), Z, atol=rounding)
    assert found.coordinates(found.points(Z)).dtype == np.float32
    np.testing.assert_array_equal(principal_subspace(np.ones(5), moments.copy(), noise, most, RAW).axes, found.axes)


def test_components_must_be_some():
    with pytest.raises(InvalidParameter, match="components"):
        principal_subspace(np.zeros(3), np.eye(3), 0.1, 0, RAW)


# Low frequencies of images


@pytest.mark.parametrize("shape", [(28, 28), (13, 12), (7, 7, 8), (6, 5, 5), (40, 5, 1), (1, 3, 60)])
def test_low_frequencies_are_the_lowest_waves_of_space_and_circle(shape):
    """A slow reference: each wave by its formula, one value at a time, and all of them in order."""
    basis, (height, width, size) = low_frequencies(shape), (*shape, 1)[:3]
    assert basis.shape == (math.prod(shape), MANY_VALUES)
    np.testing.assert_allclose(basis.T @ basis, np.eye(MANY_VALUES), atol=1e-12)
    waves = []
    for u, v, w in itertools.product(range(height), range(width), range(size)):
        turns = (w + 1) // 2
        turned = [2 * math.pi * turns * c / size for c in range(size)]
        wave = [
            math.cos(math.pi * u * (a + 0.5) / height)
            * math.cos(math.pi * v * (b + 0.5) / width)
            * (math.cos(turned[c]) if w % 2 or w == 0 else math.sin(turned[c]))
            for a, b, c in itertools.product(range(height), range(width), range(size))
        ]
        waves.append((u * u + v * v + 4 * turns * turns, np.array(wave) / np.linalg.norm(wave)))
    waves.sort(key=lambda each: each[0])
    lowest = np.stack([wave for _, wave in waves[:MANY_VALUES]], axis=1)
    np.testing.assert_allclose(basis, lowest, atol=1e-9)


def test_small_images_are_seen_whole():
    assert low_frequencies((8, 8)) is None
    assert low_frequencies((MANY_VALUES, 1)) is None
    assert low_frequencies((MANY_VALUES + 1, 1)) is not None


def test_a_subspace_of_a_basis_is_one_of_the_records():
    basis = low_frequencies((14, 14))
    moments = np.zeros((MANY_VALUES, MANY_VALUES))
    moments[3, 3], moments[10, 10] = 9.0, 4.0
    raw = Grid.of_norm(256.0, 196)
    found = principal_subspace(np.zeros(196), moments, 1e-3, 2, raw, basis)
    check_axes(found.axes)
    np.testing.assert_allclose(np.abs(basis[:, [3, 10]].T @ found.axes), np.eye(2), atol=1e-3)


@pytest.mark.parametrize("features", [2, 10, 40])
def test_no_direction_is_seen_in_noise_alone(features: int) -> None:
    """Verdict and frame count directions by one threshold, which few features need higher: 1.1 would let 5 % pass."""
    rng, releases = np.random.default_rng(0), 1500
    upper = np.triu(rng.normal(size=(releases, features, features)) / math.sqrt(2), 1)
    noise = upper + upper.transpose(0, 2, 1) + rng.normal(size=(releases, features))[:, :, None] * np.eye(features)
    assert np.mean([components_seen(each, 1.0) > 0 for each in noise]) <= 0.02  # 1 % expected at most
