"""Speed of noise and ledger, as ratios within one run, so that they mean the same on every machine."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
import time
import tracemalloc
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
    line = b"x" * 512  # about what one event takes
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
    # Five flushes one after the other: of the journal two, of the folder two, of the file one.
    assert ratio <= 12
    assert growth <= 1.3
    ledger.close()


def many_rounds(path: Path, events: int) -> None:
    """Write a ledger of ten clients, round by round."""
    with Ledger(path, Budget(1.0, 1e-5)) as ledger:
        for start in range(0, events, 10_000):
            ledger.record(
                *(
                    GaussianRelease(
                        what="gradient", client=f"client-{number % 10}", round=number // 10, sensitivity=1.2345678e-5,
                        sigma=1.0987654321, grid=2.0**-20, values=100, noise="discrete",
                    )
                    for number in range(start, start + 10_000)
                )
            )  # fmt: skip


def read_and_hash(path: Path) -> None:
    """What no reader can do without: read every column, and hash as many bytes as often."""
    connection = sqlite3.connect(path)
    for *_, body, digest in connection.execute("SELECT * FROM events ORDER BY seq"):
        hashlib.sha256(f"{digest}{body}".encode()).hexdigest()
    connection.close()


def test_opening_against_reading_and_hashing(tmp_path: Path) -> None:
    path, events = tmp_path / "ledger.db", 100_000
    many_rounds(path, events)
    ours, bare = [], []
    for _ in range(5):
        bare.append(seconds(lambda: read_and_hash(path)))
        ours.append(seconds(lambda: Ledger.read(path).close()))
    ratio = min(ours) / min(bare)
    print(f"\nopening {events} events: {min(ours):.2f} s, bare {min(bare):.2f} s, ratio {ratio:.2f} (2)")
    assert ratio <= 2
    tracemalloc.start()
    with Ledger.read(path) as ledger:
        for event in ledger.events():
            assert event.client
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"peak {peak / 1e6:.1f} MB of Python objects (4)")
    assert peak <= 4e6


OPENING = """
import sys, time
from accounting import Ledger
start = time.perf_counter()
with Ledger.read(sys.argv[1]) as ledger:
    took = time.perf_counter() - start
    # Not getrusage: its peak is also that of the process that started this one.
    (peak,) = (int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(len(ledger), took, peak)
"""


@pytest.mark.full_size
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_opening_a_million_events(tmp_path: Path) -> None:
    """Whole chain and totals, in a process of its own."""
    path = tmp_path / "ledger.db"
    many_rounds(path, 1_000_000)
    bare = seconds(lambda: read_and_hash(path))
    said = subprocess.check_output([sys.executable, "-c", OPENING, str(path)], text=True)
    events, took, peak = map(float, said.split())
    print(f"\nopening {events:g} events: {took:.2f} s, {took / bare:.2f} of bare (2), peak {peak:.0f} MB (200)")
    assert events == 1_000_000
    assert took / bare <= 2
    assert peak <= 200
