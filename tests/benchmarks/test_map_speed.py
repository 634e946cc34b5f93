"""Maps from known landmarks against central openTSNE, and memory against n × n, as ratios within one run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.data import load
from dpfedvis.numerics.distances import GramDistances
from dpfedvis.numerics.neighbors import nearest
from dpfedvis.protocol.published_map import MOST_TOGETHER
from dpfedvis.site.placement import Anchored
from tests.protocol.boards import board_of, records_of

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


def known_landmarks(X, schedule):
    """Fed-tSNE whose landmarks are known: one round of the smallest step, which costs little beside the map."""
    start = X[np.random.default_rng(1).permutation(len(X))[:LANDMARKS]]
    known = {"start": start, "bounds": (0.0, 1.0), "step_size": 1e-12}
    return FedTSNE(LANDMARKS, "none", rounds=1, n_jobs=2, feddl=known, tsne=schedule)


def ratio_to_central(X, schedule, repeats):
    from openTSNE import TSNE

    fed = FederatedData.split(X, clients=10, seed=0)
    calls = {
        "central": lambda: TSNE(perplexity=30, n_jobs=2, random_state=0, **schedule).fit(X),
        "federated": lambda: known_landmarks(X, schedule).fit(fed),
    }
    best, processor = dict.fromkeys(calls, float("inf")), dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            began, used = time.perf_counter(), time.process_time()
            call()
            best[name] = min(best[name], time.perf_counter() - began)
            processor[name] = min(processor[name], time.process_time() - used)
    ratio = best["federated"] / best["central"]
    print(f"n = {len(X)}: central {best['central']:.1f} s, federated {best['federated']:.1f} s, ratio {ratio:.2f}")
    print(f"processor time: {processor['federated'] / processor['central']:.2f} of central")
    return ratio


def test_a_map_takes_no_longer_than_a_central_one():
    assert ratio_to_central(images(), {"early_exaggeration_iter": 60, "n_iter": 120}, repeats=2) <= 1.2


@pytest.mark.full_size
def test_a_map_of_40000_takes_no_longer_than_a_central_one():
    assert ratio_to_central(images(40_000), {}, repeats=1) <= 1.2


@pytest.mark.full_size
def test_a_private_map_of_40000_takes_no_longer_than_a_central_one():
    """All of it: every protected stage, and every record placed at its site."""
    from openTSNE import TSNE

    X, used = images(40_000), []
    fed = FederatedData.split(X, clients=10, seed=0, bounds=(0.0, 1.0))
    private = FedTSNE(budget=Budget(1, 1e-5), trust="aggregate", n_jobs=2)
    for fit in (lambda: TSNE(perplexity=30, n_jobs=2, random_state=0).fit(X), lambda: private.fit(fed)):
        began, busy = time.perf_counter(), time.process_time()
        fit()
        used.append((time.perf_counter() - began, time.process_time() - busy))
    (central, central_busy), (ours, ours_busy) = used
    print(f"central {central:.0f} s, private {ours:.0f} s, ratio {ours / central:.2f}")
    print(f"processor time: {ours_busy / central_busy:.2f} of central")
    assert ours <= 1.0 * central


def test_records_that_are_not_laid_out_cost_a_small_part_of_those_that_are():
    """A site of four times as many records as it lays out takes less than twice the processor time."""
    rng = np.random.default_rng(0)
    published, _ = board_of(400)
    groups = [records_of(published, group, 7000, seed=group) for group in range(3)]
    X = rng.permutation(np.concatenate(groups))[: 4 * MOST_TOGETHER]
    Anchored()(published, X[:200])
    used = []
    for n in (MOST_TOGETHER, 4 * MOST_TOGETHER):
        busy = time.process_time()
        Anchored()(published, X[:n])
        used.append(time.process_time() - busy)
    print(f"{MOST_TOGETHER} records {used[0]:.1f} s, four times as many {used[1]:.1f} s, ratio {used[1] / used[0]:.2f}")
    assert used[1] < 2 * used[0]


_PEAK = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from test_map_speed import FederatedData, images, known_landmarks
X = images(40_000)
known_landmarks(X, {"early_exaggeration_iter": 10, "n_iter": 10}).fit(FederatedData.split(X, clients=10, seed=0))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.full_size
def test_memory_of_a_map_of_40000_stays_below_2_gb():
    """Of the whole process, data and libraries included; memory does not depend on how long t-SNE goes on."""
    command = [sys.executable, "-c", _PEAK, str(Path(__file__).parent)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    peak = 1024 * int(output.split()[-1])
    print(f"peak {peak / 1e9:.2f} GB")
    assert peak < 2e9


def test_memory_stays_well_below_the_dense_way():
    """Rows, coordinates and neighbours of 20,000 records; the dense way starts with n × n float32."""
    n, landmarks = 20_000, 200
    X = images(n, 100)
    fed = FederatedData.split(X, clients=10, seed=0)
    estimator = FedTSNE(landmarks, "none", rounds=1, feddl={"bounds": (0.0, 1.0)})
    estimator.lay_out = lambda estimate: nearest(estimate, 90)
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
