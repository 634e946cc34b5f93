"""Speed of noise and ledger, as ratios within one run, so that they mean the same on every machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from accounting import Budget, DiscreteNoise, GaussianRelease, Ledger, NoiseSource, SeededNoise

pytestmark = pytest.mark.benchmarks

VALUES = 392_000  # 500 landmarks of 784 features
EVENTS = 5_000


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@pytest.mark.parametrize("cells", [4.0, 33.0, 2.0**40])
@pytest.mark.parametrize(
    ("source", "limit"), [(SeededNoise(np.random.default_rng(0)), 8), (DiscreteNoise(), 12)], ids=["seeded", "discrete"]
)
def test_noise_against_numpy(source: NoiseSource, limit: float, cells: float) -> None:
    generator, values = np.random.default_rng(0), np.zeros(VALUES, dtype=np.int64)
    ours, numpy = [], []
    for _ in range(40):  # taken in turns, so that a busy moment hurts both
        numpy.append(seconds(lambda: generator.standard_normal(VALUES)))
        ours.append(seconds(lambda: source.add_integers(values, cells)))
    ratio = min(ours) / min(numpy)
    print(f"\n{source.name}, {cells:g} cells: {min(ours):.4f} s, numpy {min(numpy):.4f} s, ratio {ratio:.1f} ({limit})")
    assert ratio <= limit


def test_recording_against_bare_durable_writes(tmp_path: Path) -> None:
    budget = Budget(1.0, 1e-5)
    sensitivity = budget.mu / (EVENTS + 1) ** 0.5
    events = [
        GaussianRelease(what="gradient", client="a", round=number, sensitivity=sensitivity, sigma=1.0)
        for number in range(EVENTS)
    ]
    line = b"x" * 512  # about what one event takes in the log
    bare, recorded = [], []
    descriptor = os.open(tmp_path / "bare", os.O_WRONLY | os.O_CREAT)
    ledger = Ledger(tmp_path / "ledger.db", budget)

    def write() -> None:
        os.write(descriptor, line)
        os.fdatasync(descriptor)

    for event in events:
        bare.append(seconds(write))
        recorded.append(seconds(lambda event=event: ledger.record(event)))
    os.close(descriptor)
    half = EVENTS // 2
    ratio = sum(recorded) / sum(bare)
    growth = np.median(recorded[half:]) / np.median(recorded[:half])
    print(f"\n{EVENTS} events: {sum(recorded):.2f} s, bare {sum(bare):.2f} s, ratio {ratio:.2f}, growth {growth:.2f}")
    assert len(ledger) == EVENTS
    assert ledger.spent() <= 1.0
    assert ratio <= 2.5
    assert growth <= 1.3
    reopening = seconds(lambda: Ledger.read(tmp_path / "ledger.db").verify())
    print(f"opening and verifying {EVENTS} events: {reopening:.2f} s")
    ledger.close()
