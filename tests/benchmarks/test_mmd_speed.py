"""Speed and memory of the gradient, as ratios within one run."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from dpfedvis.numerics import mmd
from dpfedvis.numerics.kernels import Kernel, Workspace, squared_norms
from tests.benchmarks.timing import best_times, points

pytestmark = pytest.mark.benchmarks

RECORDS, LANDMARKS, FEATURES = 4000, 500, 784
SINGLE, SEVERAL = Kernel((0.01,)), Kernel((0.005, 0.01, 0.02))


def gradient_call(X, Y, kernel=SINGLE):
    workspace, norms = Workspace(), squared_norms(X)
    options = {"denominator": len(X), "workspace": workspace, "squared_norms": norms}
    return lambda: mmd.data_gradient(X, Y, kernel, **options)


def test_data_gradient_runs_near_the_rate_of_matmul():
    X, Y = points(RECORDS, LANDMARKS)
    K, G = np.empty((RECORDS, LANDMARKS), np.float32), np.empty_like(Y)

    def two_products():
        np.matmul(X, Y.T, out=K)
        np.matmul(K.T, X, out=G)

    calls = {
        "matmul": two_products,
        "data": gradient_call(X, Y),
        "data, nothing kept": lambda: mmd.data_gradient(X, Y, SINGLE, denominator=RECORDS),
        "three bandwidths": gradient_call(X, Y, SEVERAL),
    }
    times = dict(zip(calls, best_times(list(calls.values())), strict=True))
    flops = 4 * RECORDS * LANDMARKS * FEATURES
    for name, seconds in times.items():
        print(f"{name}: {flops / seconds / 1e9:.0f} Gflop/s, {times['matmul'] / seconds:.2f} of matmul")
    assert times["matmul"] / times["data"] >= 0.75
    assert times["matmul"] / times["three bandwidths"] >= 0.4


@pytest.mark.parametrize("of", ["records", "landmarks"])
def test_time_is_linear(of):
    sizes = [1000, 2000, 4000, 8000] if of == "records" else [250, 500, 1000, 2000]
    calls = [gradient_call(*(points(n, 250) if of == "records" else points(2000, n))) for n in sizes]
    times = best_times(calls, rounds=8)
    exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    print(f"time grows as {of}^{exponent:.3f}")
    assert exponent <= 1.1


@pytest.mark.parametrize("kernel", [SINGLE, SEVERAL])
def test_memory_stays_within_three_blocks(kernel):
    X, Y = points(20_000, LANDMARKS, 100)
    call = gradient_call(X, Y, kernel)
    tracemalloc.start()
    try:
        call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    block = 4 << 20
    print(f"{peak / block:.2f} blocks; the whole of K would be {20_000 * LANDMARKS * 4 / block:.1f}")
    # The outputs are the sum and its product with Y.
    assert peak <= 3 * block + 2 * Y.nbytes + (1 << 16)
