"""Random Fourier features: norm 1, the kernel in the mean, and the gradient of the gap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from accounting import InvalidParameter
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.exact_sums import FEATURE_UNIT, feature_sums
from dpfedvis.numerics.kernels import Kernel, kernel_matrix
from dpfedvis.numerics.random_features import RandomFeatures

KERNELS = [Kernel((0.3,)), Kernel((0.05, 0.3, 1.5))]


def total(features, X):
    """Σ φ(x), by the exact sum that clients upload."""
    grid = Grid.of_norm(max(float(np.abs(X).max(initial=1.0)), 1.0), X.shape[1])
    integers = feature_sums(grid.cells(X), features.integers, features.unit * grid.step)
    return integers / (FEATURE_UNIT * math.sqrt(features.frequencies))


def slow_features(features, x):
    angles = x.astype(np.float64) @ features.matrix.astype(np.float64)
    return np.concatenate([np.cos(angles), np.sin(angles)]) / math.sqrt(features.frequencies)


@given(
    x=npst.arrays(np.float64, (1, 4), elements=st.floats(-1e3, 1e3)), seed=st.integers(0, 50), count=st.integers(1, 40)
)
def test_every_record_has_norm_one(x, seed, count):
    features = RandomFeatures(KERNELS[1], 4, count, seed)
    assert np.linalg.norm(total(features, x)) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("kernel", KERNELS)
def test_products_estimate_the_kernel(kernel):
    features = RandomFeatures(kernel, 3, 30_000, seed=0)
    X = np.random.default_rng(1).normal(size=(6, 3))
    embedded = np.stack([total(features, x[None]) for x in X])
    # The mean of K cosines, whose variance is at most one.
    assert np.abs(embedded @ embedded.T - kernel_matrix(X, X, kernel)).max() < 6 / math.sqrt(30_000)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_totals_are_sums(dtype):
    features = RandomFeatures(KERNELS[0], 4, 20, seed=3)
    X = np.random.default_rng(2).normal(size=(25, 4)).astype(dtype)
    expected = sum(slow_features(features, x) for x in X)
    np.testing.assert_allclose(total(features, X), expected, atol=2e-4)
    assert total(features, X).shape == (features.size,) == (40,)
    np.testing.assert_array_equal(total(features, X[:0]), np.zeros(40))


def test_the_gap_and_its_gradient():
    features = RandomFeatures(KERNELS[1], 4, 30, seed=3)
    rng = np.random.default_rng(0)
    Y, target = rng.normal(size=(5, 4)).astype(np.float32), rng.normal(size=60) / 8

    def slow_gap(Y):
        return float(np.sum((np.mean([slow_features(features, y) for y in Y], axis=0) - target) ** 2))

    value, gradient = features.gap(Y, target)
    assert value == pytest.approx(slow_gap(Y), rel=1e-5)
    for i in range(5):
        for k in range(4):
            step = np.zeros((5, 4))
            step[i, k] = 1e-5
            numeric = (slow_gap(Y + step) - slow_gap(Y - step)) / 2e-5
            assert gradient[i, k] == pytest.approx(numeric, rel=1e-3, abs=1e-6)


def test_frequencies_are_public_and_repeatable():
    same = [RandomFeatures(KERNELS[0], 4, 10, seed=3).matrix for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.array_equal(same[0], RandomFeatures(KERNELS[0], 4, 10, seed=4).matrix)


@pytest.mark.parametrize("counts", [{"features": 0, "frequencies": 3}, {"features": 3, "frequencies": 0}])
def test_bad_counts_are_named(counts):
    with pytest.raises(InvalidParameter) as caught:
        RandomFeatures(KERNELS[0], **counts, seed=0)
    assert caught.value.value == 0
