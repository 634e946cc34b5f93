"""Speed and memory of a FedDL round, as ratios within one run."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest

from accounting import Budget, Ledger
from dpfedvis.data import FederatedData
from dpfedvis.estimators.simulation import policy_for, simulated
from dpfedvis.links import InProcess
from dpfedvis.mechanisms import GradientPerturbation, NoPerturbation
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import BLOCK_BYTES, Kernel
from dpfedvis.protocol.contract import Contract, Member
from dpfedvis.protocol.messages import Send, Sent
from dpfedvis.server.feddl import FedDL
from dpfedvis.server.mirror import Mirror
from dpfedvis.server.session import Session
from dpfedvis.site import Site, SiteLedger
from dpfedvis.site.computation import Computation
from tests.benchmarks.timing import best_times, points

pytestmark = pytest.mark.benchmarks

RECORDS, LANDMARKS, FEATURES = 4000, 500, 784
GAMMA = 0.01


def round_call(X, Y, ledger=None, chosen=None, rounds=10_000):
    """Return a function that asks a site for the next round of a long run: it computes, adds noise and accounts."""
    chosen = chosen or GradientPerturbation()
    budget = None if chosen.protection == "none" else Budget(2.0, 1e-5)
    site = Site("client-0", X, policy=policy_for(budget, "seeded"), ledger=ledger)
    contract = Contract(
        run=f"a run of {chosen.name}",
        budget=budget,
        mechanism=chosen,
        rounds=rounds,
        noise="seeded",
        seed=0,
        features=X.shape[1],
        members=(Member(site.name, float(len(X)), 1.0, site.identity.public),),
        values=Y.size,
        unprotected=(chosen.what,) if budget is None else (),
    )
    link = InProcess([site])
    session = Session(link, contract, Mirror(Ledger()))
    session.open()
    grid = Grid.of_bounds(0.0, 1.0, X.shape[1])
    public = PublicParameters(Kernel((GAMMA,)), len(Y), X.shape[1], rounds, 1, 1.0, grid=grid)
    numbers, sent = iter(range(1, rounds + 1)), grid.snap(Y)

    def ask():
        (reply,) = link.each(Send(session.label, chosen, public, next(numbers), sent))
        assert isinstance(reply, Sent), reply

    return ask


def test_a_round_runs_near_the_rate_of_matmul(tmp_path):
    X, Y = points(RECORDS)

    def two_products(dtype):
        x, y = X.astype(dtype), Y.astype(dtype)
        K, G = np.empty((RECORDS, LANDMARKS), dtype), np.empty_like(y)

        def multiply():
            np.matmul(x, y.T, out=K)
            np.matmul(K.T, x, out=G)

        return multiply

    with SiteLedger(tmp_path / "a.sqlite") as noisy, SiteLedger(tmp_path / "b.sqlite") as plain:
        calls = {
            "matmul": two_products(np.float32),
            "matmul in float64": two_products(np.float64),
            "round, gradient": round_call(X, Y, noisy),
            "round, no noise": round_call(X, Y, plain, NoPerturbation()),
            "noise alone": lambda: np.random.default_rng(0).standard_normal(Y.shape),
        }
        times = dict(zip(calls, best_times(list(calls.values())), strict=True))
    flops = 4 * RECORDS * LANDMARKS * FEATURES
    for name, seconds in times.items():
        rate = "" if name == "noise alone" else f", {flops / seconds / 1e9:.0f} Gflop/s"
        print(f"{name}: {1e3 * seconds:.2f} ms{rate}, {times['matmul'] / seconds:.2f} of matmul")
    # A durable write of the site's ledger and the checks of a request take 2 to 3 ms of some 30.
    assert times["matmul"] / times["round, no noise"] >= 0.65
    # Exact sums are products of float64. Noise for 392,000 values comes on top, some 20 ms, and the durable write.
    assert times["matmul in float64"] / times["round, gradient"] >= 0.5


def test_all_but_the_computation_takes_little_of_a_round(tmp_path, monkeypatch):
    """Ledgers of the sites and of the server on disk, receipts, checks, the average and the step."""
    rng = np.random.default_rng(0)
    fed = FederatedData([rng.random((RECORDS, FEATURES), np.float32) for _ in range(10)])
    upload, computed, marks = Computation.upload, [0.0], [time.perf_counter()]

    def timed(self, request):
        start = time.perf_counter()
        result = upload(self, request)
        computed[-1] += time.perf_counter() - start
        return result

    def mark(done, Y):
        marks.append(time.perf_counter())
        computed.append(0.0)

    monkeypatch.setattr(Computation, "upload", timed)
    config = FedDL(
        landmarks=LANDMARKS, mechanism="gradient", budget=Budget(2.0, 1e-5), rounds=7, gamma=GAMMA, start="normal"
    )
    with Ledger(tmp_path / "mirror.sqlite", config.budget) as mirror, SiteLedger(tmp_path / "sites.sqlite") as own:
        link = simulated(fed, budget=config.budget, noise=config.noise, ledger=own)
        config.learn(link, ledger=mirror, callbacks=[mark])
    rounds, left = np.diff(marks)[1:], np.diff(marks)[1:] - computed[1:-1]
    share = np.median(left) / np.median(rounds)
    print(f"round {1e3 * np.median(rounds):.0f} ms, all but computing {1e3 * np.median(left):.1f} ms: {share:.2%}")
    # Eleven commits to disk, one after the other; ten checks of the landmarks; the server's average of ten uploads.
    assert share < 0.1


@pytest.mark.parametrize("of", ["records", "landmarks"])
def test_time_of_a_round_is_linear(of):
    sizes = [1000, 2000, 4000, 8000] if of == "records" else [250, 500, 1000, 2000]
    calls = []
    for size in sizes:
        X, Y = points(size, 250) if of == "records" else points(2000, size)
        calls.append(round_call(X, Y))
    times = best_times(calls, rounds=6)
    exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    print(f"time of a round grows as {of}^{exponent:.3f}")
    assert exponent <= 1.1


def test_memory_of_a_site_is_its_records_and_three_blocks():
    records, features = 20_000, 100
    tracemalloc.start()
    try:
        X, Y = points(records, LANDMARKS, features)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        ask = round_call(X, Y)
        for _ in range(3):
            ask()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    cells = 2 * X.size  # int16
    extra = peak - before - cells
    print(f"beside X_p as integers ({cells / BLOCK_BYTES:.2f} blocks): {extra / BLOCK_BYTES:.2f} blocks")
    assert extra <= 3 * BLOCK_BYTES
