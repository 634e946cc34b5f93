"""Speed and memory of exact sums, as ratios within one run."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.linalg.blas import dgemm, dsyrk

from dpfedvis.numerics import exact_sums
from dpfedvis.numerics.exact import BLOCK_VALUES, Grid
from dpfedvis.numerics.kernels import Kernel, squared_distances
from dpfedvis.numerics.mmd import data_gradient
from dpfedvis.numerics.projections import clip_norms
from tests.benchmarks.timing import best_times

pytestmark = pytest.mark.benchmarks

RECORDS, LANDMARKS, FEATURES = 4000, 500, 784
KERNEL = Kernel((6 / FEATURES,))


def pixels(records=RECORDS, landmarks=LANDMARKS, features=FEATURES):
    generator = np.random.default_rng(0)
    grid = Grid.of_bounds(0.0, 1.0, features)
    X, Y = (generator.random((n, features), dtype=np.float32) for n in (records, landmarks))
    return grid, X, grid.snap(Y)


def test_an_exact_gradient_runs_near_the_rate_of_dgemm():
    grid, X, Y = pixels()
    cells, landmarks = grid.cells(X), grid.nearest(Y)
    x, y, weights = X.astype(np.float64), Y.astype(np.float64), np.ones((RECORDS, LANDMARKS))

    def two_products():
        dgemm(1.0, y.T, x.T, trans_a=True)
        dgemm(1.0, x.T, weights.T, trans_b=True)

    exact, products, float32 = best_times(
        [
            lambda: exact_sums.kernel_pulls(cells, landmarks, KERNEL, grid),
            two_products,
            lambda: data_gradient(X, Y, KERNEL, denominator=RECORDS),
        ]
    )
    print(f"exact gradient: {products / exact:.2f} of dgemm, {exact / float32:.2f} times float32")
    assert products / exact >= 0.75
    assert exact / float32 <= 2.2


def test_exact_second_moments_run_near_the_rate_of_dsyrk():
    grid, X, _ = pixels()
    cells, centre = grid.cells(X), grid.nearest(np.full(FEATURES, 0.5))
    x = X.astype(np.float64)

    def float32():
        centred = clip_norms(X - np.float32(0.5), 9.0)
        return centred.T @ centred

    exact, product, usual = best_times(
        [
            lambda: exact_sums.second_moment_sums(cells, centre, grid.step / 9.0),
            lambda: dsyrk(1.0, x.T, lower=1),
            float32,
        ]
    )
    print(f"exact second moments: {product / exact:.2f} of dsyrk, {exact / usual:.2f} times float32")
    # Widening, centring, rounding and clipping take one thread, the product both.
    assert product / exact >= 0.5
    # NumPy takes ssyrk for AᵀA. One product of float64 has twice its time, and nothing shorter is exact.
    assert exact / usual <= 3


def test_exact_k_means_takes_little_longer_than_float32():
    generator = np.random.default_rng(0)
    Z, Y = (generator.standard_normal((n, 16)).astype(np.float32) for n in (RECORDS, 1000))
    grid = Grid.of_range(256.0, 2.0**-12, 16)
    cells, landmarks = grid.cells(Z), grid.nearest(Y)

    def float32():
        total = np.zeros((len(Y), 17))
        for start in range(0, RECORDS, 1000):
            block = Z[start : start + 1000]
            nearest = squared_distances(block, Y).argmin(axis=1)
            offsets = clip_norms(block - Y[nearest], 1.6)
            assigned = np.zeros((len(Y), len(block)), np.float32)
            assigned[nearest, np.arange(len(block))] = 1
            total[:, :-1] += assigned @ offsets
            total[:, -1] += assigned.sum(axis=1)
        return total

    exact, usual = best_times([lambda: exact_sums.cluster_sums(cells, landmarks, grid, 1.6), float32])
    print(f"exact k-means: {exact / usual:.2f} times float32")
    assert exact / usual <= 1.5


def test_memory_stays_within_three_blocks():
    grid, X, Y = pixels(20_000, LANDMARKS, 100)
    cells, landmarks = grid.cells(X), grid.nearest(Y)
    assert cells.dtype == np.int16
    tracemalloc.start()
    try:
        exact_sums.kernel_pulls(cells, landmarks, KERNEL, grid)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    block = 8 * BLOCK_VALUES
    print(f"{peak / block:.2f} blocks; the whole of K would be {20_000 * LANDMARKS * 8 / block:.1f}")
    # Beside blocks: landmarks as floats, and the two parts of the sum.
    assert peak <= 3 * block + 6 * 8 * Y.size
