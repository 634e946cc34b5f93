"""Speed and memory of a FedDL round, as ratios within one run."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from accounting import Budget, Ledger
from dpfedvis.data import FederatedData
from dpfedvis.federation import Client, Door, Streams
from dpfedvis.federation.feddl import FedDL
from dpfedvis.federation.noise_plan import client_plans, plan_run
from dpfedvis.mechanisms import GradientPerturbation, NoPerturbation
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import BLOCK_BYTES, Kernel
from tests.benchmarks.timing import best_times, points

pytestmark = pytest.mark.benchmarks

RECORDS, LANDMARKS, FEATURES = 4000, 500, 784
GAMMA = 0.01


def client_of(X, landmarks, chosen=None, rounds=10_000):
    """A client with the noise plan of a long run."""
    chosen = chosen or GradientPerturbation()
    public = PublicParameters(Kernel((GAMMA,)), landmarks, X.shape[1], rounds, 1, 1.0)
    plan = plan_run(Budget(2.0, 1e-5), chosen, rounds, None, "seeded", {}, landmarks * X.shape[1])
    own = client_plans(plan, chosen, public, ["client-0"], [len(X)], [1.0])[0]
    return Client(X, own, chosen, public, Streams(0), "seeded")


def round_call(client, Y, door):
    numbers = iter(range(1, 10**6))
    return lambda: door.release([client.upload(Y, next(numbers))], Y.shape)


def test_a_round_runs_near_the_rate_of_matmul(tmp_path):
    X, Y = points(RECORDS)

    def two_products(dtype):
        x, y = X.astype(dtype), Y.astype(dtype)
        K, G = np.empty((RECORDS, LANDMARKS), dtype), np.empty_like(y)

        def multiply():
            np.matmul(x, y.T, out=K)
            np.matmul(K.T, x, out=G)

        return multiply

    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        calls = {
            "matmul": two_products(np.float32),
            "matmul in float64": two_products(np.float64),
            "round, gradient": round_call(client_of(X, LANDMARKS), Y, Door(ledger)),
            "round, no noise": round_call(client_of(X, LANDMARKS, NoPerturbation()), Y, Door(ledger)),
            "noise alone": lambda: np.random.default_rng(0).standard_normal(Y.shape),
        }
        times = dict(zip(calls, best_times(list(calls.values())), strict=True))
    flops = 4 * RECORDS * LANDMARKS * FEATURES
    for name, seconds in times.items():
        rate = "" if name == "noise alone" else f", {flops / seconds / 1e9:.0f} Gflop/s"
        print(f"{name}: {1e3 * seconds:.2f} ms{rate}, {times['matmul'] / seconds:.2f} of matmul")
    assert times["matmul"] / times["round, no noise"] >= 0.75
    # Exact sums are products of float64. Noise for 392,000 values comes on top, some 20 ms.
    assert times["matmul in float64"] / times["round, gradient"] >= 0.6


def test_door_and_ledger_take_little_of_a_round(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    fed = FederatedData([rng.random((RECORDS, FEATURES), np.float32) for _ in range(10)])
    spent, release = [], Door.release

    def timed(self, uploads, shape):
        start = time.perf_counter()
        result = release(self, uploads, shape)
        spent.append(time.perf_counter() - start)
        return result

    monkeypatch.setattr(Door, "release", timed)
    marks = [time.perf_counter()]
    config = FedDL(
        landmarks=LANDMARKS, mechanism="gradient", budget=Budget(2.0, 1e-5), rounds=7, gamma=GAMMA, start="normal"
    )
    with Ledger(tmp_path / "ledger.sqlite", config.budget) as ledger:
        config.run(fed, ledger=ledger, callbacks=[lambda done, Y: marks.append(time.perf_counter())])
    rounds = np.diff(marks)[1:]
    share = np.median(spent[1:]) / np.median(rounds)
    print(f"round {1e3 * np.median(rounds):.0f} ms, door and ledger {1e3 * np.median(spent[1:]):.1f} ms: {share:.2%}")
    assert share < 0.02


@pytest.mark.parametrize("of", ["records", "landmarks"])
def test_time_of_a_round_is_linear(of):
    sizes = [1000, 2000, 4000, 8000] if of == "records" else [250, 500, 1000, 2000]
    calls = []
    for size in sizes:
        X, Y = points(size, 250) if of == "records" else points(2000, size)
        calls.append(round_call(client_of(X, len(Y)), Y, Door(Ledger())))
    times = best_times(calls, rounds=6)
    exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    print(f"time of a round grows as {of}^{exponent:.3f}")
    assert exponent <= 1.1


def test_memory_of_a_client_is_its_records_and_three_blocks():
    records, features = 20_000, 100
    tracemalloc.start()
    try:
        X, Y = points(records, LANDMARKS, features)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        client = client_of(X, LANDMARKS)
        for number in range(1, 4):
            client.upload(Y, number)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    extra = peak - before
    print(f"beside X_p ({X.nbytes / BLOCK_BYTES:.2f} blocks) and Y: {extra / BLOCK_BYTES:.2f} blocks of {BLOCK_BYTES}")
    # Records were there before; the norms of records, and the noise in float64, come on top of the blocks.
    assert extra <= 3 * BLOCK_BYTES
