"""Distances and kernels against loops, and the errors for what is no kernel and no point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpfedvis.numerics.kernels import (
    InvalidKernel,
    InvalidPoints,
    Kernel,
    Workspace,
    block_rows,
    kernel_matrix,
    squared_distances,
)


def slow_squared_distances(X, Y):
    return np.array([[math.fsum((float(a) - float(b)) ** 2 for a, b in zip(x, y, strict=True)) for y in Y] for x in X])


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    return rng.normal(size=(7, 5)), rng.normal(size=(4, 5))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 1e-5)])
def test_squared_distances_match_the_loop(points, dtype, tolerance):
    X, Y = (array.astype(dtype) for array in points)
    distances = squared_distances(X, Y)
    assert distances.dtype == dtype
    np.testing.assert_allclose(distances, slow_squared_distances(X, Y), rtol=tolerance, atol=tolerance)


def test_mixed_dtypes_compute_in_float64(points):
    X, Y = points
    assert squared_distances(X.astype(np.float32), Y).dtype == np.float64


def test_squared_distances_write_into_out(points):
    X, Y = points
    out = np.full((7, 4), np.nan)
    assert squared_distances(X, Y, out=out) is out
    np.testing.assert_array_equal(out, squared_distances(X, Y))


def test_squared_distances_do_not_need_contiguous_rows(points):
    X, Y = points
    expected = squared_distances(X, Y)
    np.testing.assert_allclose(squared_distances(np.asfortranarray(X), np.repeat(Y, 2, axis=0)[::2]), expected)


def test_squared_distances_are_never_negative():
    X = np.random.default_rng(1).normal(loc=50, size=(40, 30)).astype(np.float32)
    assert squared_distances(X, X).min() >= 0


@pytest.mark.parametrize("gammas", [(0.3,), (0.1, 0.7), (0.1, 0.7, 2.0, 0.7)])
def test_kernel_matrix_is_the_mean_over_bandwidths(points, gammas):
    X, Y = points
    expected = sum(np.exp(-gamma * slow_squared_distances(X, Y)) for gamma in gammas) / len(gammas)
    np.testing.assert_allclose(kernel_matrix(X, Y, Kernel(gammas)), expected, rtol=1e-12)


def test_far_points_have_kernel_zero():
    assert kernel_matrix(np.zeros((1, 2)), np.full((1, 2), 1e6), Kernel.gaussian(1.0)) == 0


def test_kernel_is_a_value():
    assert Kernel((1, 2)) == Kernel((1.0, 2.0))
    assert Kernel((1.0, 3.0)).mean_gamma == 2
    assert Kernel((1.0, 3.0)).gradient_coefficients == (0.25, 0.75)
    assert Kernel.gaussian(0.5) == Kernel((0.5,))
    with pytest.raises(AttributeError):
        Kernel((1.0,)).gammas = (2.0,)


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan, math.inf, "wide", None])
def test_bad_gamma_is_named(gamma):
    with pytest.raises(InvalidKernel, match="gamma must be positive and finite") as error:
        Kernel((1.0, gamma))
    assert error.value.value is gamma
    with pytest.raises(InvalidKernel):
        Kernel.gaussian(gamma)


@pytest.mark.parametrize(("gammas", "message"), [((), "at least one"), (0.5, "tuple"), ("12", "tuple")])
def test_bad_gammas_are_named(gammas, message):
    with pytest.raises(InvalidKernel, match=message):
        Kernel(gammas)


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.zeros(3), np.zeros((2, 3)), r"shape \(rows, features\), got \(3,\)"),
        (np.zeros((2, 0)), np.zeros((2, 0)), "shape"),
        (np.zeros((0, 3)), np.zeros((2, 3)), "at least 1 rows, got 0"),
        (np.zeros((2, 3)), np.zeros((2, 4)), "same number of features, got 3 and 4"),
        (np.zeros((2, 3), int), np.zeros((2, 3)), "float32 or float64, got int64"),
        (np.zeros((2, 3), np.float16), np.zeros((2, 3)), "float16"),
        (np.array([[0.0], [math.nan]]), np.zeros((2, 1)), "row 1 of the X is not finite"),
        (np.zeros((2, 1)), np.array([[math.inf]]), "row 0 of the Y is not finite"),
    ],
)
def test_bad_points_are_named(X, Y, message):
    with pytest.raises(InvalidPoints, match=message):
        squared_distances(X, Y)


@pytest.mark.parametrize("out", [np.zeros((4, 7)), np.zeros((7, 4), np.float32), np.zeros((4, 7)).T])
def test_bad_out_is_refused(points, out):
    with pytest.raises(InvalidPoints, match="out must be"):
        squared_distances(*points, out=out)


def test_workspace_gives_the_same_memory_again():
    workspace, dtype = Workspace(), np.dtype(np.float32)
    first = workspace.block(0, 10, 8, dtype)
    assert first.shape == (10, 8)
    assert first.flags.c_contiguous
    assert np.shares_memory(first, workspace.block(0, 3, 5, np.dtype(np.float64)))
    assert not np.shares_memory(first, workspace.block(1, 10, 8, dtype))
    assert workspace.block(0, 100, 8, dtype).shape == (100, 8)


@pytest.mark.parametrize(("records", "landmarks"), [(0, 5), (1, 5), (4000, 500), (60_000, 500), (60_000, 10**6)])
def test_blocks_are_of_equal_size_and_bounded(records, landmarks):
    rows = block_rows(records, landmarks, 4)
    blocks = -(-records // rows)
    assert 1 <= rows <= 4096
    assert rows * landmarks * 4 <= max(4 << 20, 64 * landmarks * 4)
    assert blocks == 0 or rows * blocks - records < blocks
