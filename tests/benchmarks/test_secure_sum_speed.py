"""A secure sum beside the computation that it belongs to: a round of k-means with the default recipe's sizes."""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import pytest

from accounting import Budget
from dpfedvis import FederatedData
from dpfedvis.estimators.simulation import simulated
from dpfedvis.mechanisms import KMeans
from dpfedvis.protocol import secure_sum
from dpfedvis.protocol.signatures import Identity
from dpfedvis.server import Program, ProgramSettings

pytestmark = pytest.mark.benchmarks

SITES, RECORDS, FEATURES, LANDMARKS, ROUNDS = 10, 4000, 16, 893, 10  # 893 × 17 integers
TURNS = 8


def seconds(secure: bool) -> float:
    """A round of all sites, without the agreement of keys; the fastest of the rounds after the first."""
    rng = np.random.default_rng(0)
    fed = FederatedData([rng.normal(size=(RECORDS, FEATURES)) for _ in range(SITES)], bounds=(-4, 4))
    budget, times = Budget(1.0, 1e-5), [time.perf_counter()]
    link = simulated(fed, budget=budget, noise="discrete")
    link.secure = secure
    settings = ProgramSettings(
        mechanism=KMeans(trust="aggregate"), budget=budget, landmarks=LANDMARKS, rounds=ROUNDS, noise="discrete",
        feddl={"bounds": (-4, 4)},
    )  # fmt: skip
    link.run(Program(settings), callbacks=[lambda *_: times.append(time.perf_counter())])
    return min(np.diff(times)[1:])


def test_a_sum_is_a_small_part_of_its_round():
    """The project promises less than 15 % on a quiet machine; the rest of the room is for noise."""
    seconds(True)  # cold caches, imports and threads of BLAS are in the first run
    plain, secure = (min(times) for times in zip(*((seconds(False), seconds(True)) for _ in range(TURNS)), strict=True))
    print(f"plain {plain:.3f} s, secure {secure:.3f} s: the sum adds {secure / plain - 1:.1%} to the round")
    assert secure < 1.25 * plain


def test_masking_is_fast_beside_drawing_the_noise():
    """100,000 integers, ten sites, of whom six are needed."""
    keys = {f"site {number}": Identity() for number in range(10)}
    roster = {name: key.public for name, key in keys.items()}
    members = {name: secure_sum.Member(name, key, roster, 6, "a run") for name, key in keys.items()}
    labels = tuple(f"sum {number}" for number in range(8))
    adverts = [member.advertise(labels) for member in members.values()]
    shares = {name: member.share(adverts) for name, member in members.items()}
    own = {peer: each.to["site 0"] for peer, each in shares.items() if peer != "site 0"}
    values, times = np.arange(100_000, dtype=np.int64), []
    for label in labels:
        started = time.perf_counter()
        members["site 0"].masked(label, values, own, "a question")
        times.append(time.perf_counter() - started)
    started = time.perf_counter()
    np.random.default_rng(0).standard_normal(100_000 * 10)
    normal = time.perf_counter() - started
    print(f"masking takes {1000 * median(times):.1f} ms, a million normal numbers {1000 * normal:.1f} ms")
    assert median(times) < 3 * normal
