"""Maps from known landmarks against central openTSNE, and memory against n × n, as ratios within one run."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from dpfedvis import FederatedData, FedTSNE
from dpfedvis.data import load
from dpfedvis.distances import GramDistances
from dpfedvis.neighbors import nearest

pytestmark = pytest.mark.benchmarks

RECORDS, LANDMARKS = 4000, 500


def images(n=RECORDS, features=784):
    """MNIST where it is at hand, else ten curved clusters in as many features."""
    folder = os.environ.get("DPFEDVIS_DATA")
    if folder and features == 784 and (Path(folder) / "mnist.npz").is_file():
        X = load("mnist").X[:n]
        return np.ascontiguousarray(X, dtype=np.float32) / np.float32(X.max())
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(12, features)) / np.sqrt(12)
    inner = rng.normal(size=(n, 12)) + 3.0 * rng.normal(size=(10, 12))[rng.integers(0, 10, n)]
    X = np.tanh(inner @ basis / 2) + 0.1 * rng.normal(size=(n, features))
    return ((X - X.min()) / np.ptp(X)).astype(np.float32)


def test_a_map_takes_no_longer_than_a_central_one():
    from openTSNE import TSNE

    X = images()
    fed = FederatedData.split(X, clients=10, seed=0)
    start = X[np.random.default_rng(1).permutation(len(X))[:LANDMARKS]]
    schedule = {"early_exaggeration_iter": 60, "n_iter": 120}

    def central():
        TSNE(perplexity=30, n_jobs=2, random_state=0, **schedule).fit(X)

    def federated():
        # The landmarks are known: one round of the smallest step, which costs little beside the map.
        known = {"start": start, "bounds": (0.0, 1.0), "step_size": 1e-12}
        FedTSNE(LANDMARKS, "none", rounds=1, n_jobs=2, feddl=known, tsne=schedule).fit(fed)

    best = {"central": float("inf"), "federated": float("inf")}
    for _ in range(2):
        for name, call in (("central", central), ("federated", federated)):
            began = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - began)
    ratio = best["federated"] / best["central"]
    print(f"central {best['central']:.1f} s, federated {best['federated']:.1f} s, ratio {ratio:.2f}")
    assert ratio <= 1.2


def test_memory_stays_well_below_the_dense_way():
    """Rows, coordinates and neighbours of 20,000 records; the dense way starts with n × n float32."""
    n, landmarks = 20_000, 200
    X = images(n, 100)
    fed = FederatedData.split(X, clients=10, seed=0)
    estimator = FedTSNE(landmarks, "none", rounds=1, feddl={"bounds": (0.0, 1.0)})
    estimator._lay_out = lambda estimate: nearest(estimate, 90)
    tracemalloc.start()
    try:
        estimator.fit(fed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    dense = 4 * n * n
    print(f"peak {peak / 2**20:.0f} MiB, n × n {dense / 2**20:.0f} MiB, ratio {peak / dense:.2f}")
    assert peak <= 0.3 * dense


def test_the_approximate_search_finds_most_neighbours():
    """Twelve dimensions inside; most of the time is compilation."""
    rng = np.random.default_rng(0)
    Z = (rng.normal(size=(RECORDS, 12)) @ rng.normal(size=(12, 50))).astype(np.float32)
    found, exact = (nearest(GramDistances(Z), 15, method=method) for method in ("approximate", "exact"))
    share = (found.indices[:, :, None] == exact.indices[:, None, :]).any(axis=2).mean()
    print(f"recall {share:.3f}, reported {found.recall:.3f}")
    assert share > 0.9
    assert found.recall == pytest.approx(share, abs=0.03)
