"""A process that records and then releases is killed at random moments, many times: nothing released is forgotten."""

from __future__ import annotations

import multiprocessing
import random
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from accounting import Budget, GaussianRelease, Ledger, LedgerError, gaussian_epsilon

KILLS = 25
BUDGET = Budget(3.0, 1e-5)

Announced = tuple[int, str, int, int]


def _live(path: str, life: int, door: Connection) -> None:
    """Record two events and then release them, over and over; announcing on the pipe is the release."""
    assert BUDGET.mu > 0  # whatever is loaded late is loaded now
    door.send("ready")
    ledger = Ledger(path, BUDGET)
    for turn in range(100_000):
        receipts = ledger.record(
            GaussianRelease(
                what="gradient", client="a", round=turn, sensitivity=0.005, sigma=1.0, noise=f"life {life}"
            ),
            GaussianRelease(what="moments", client="b", round=turn, sensitivity=1e-4, sigma=1.0, noise=f"life {life}"),
        )
        door.send([(receipt.sequence, receipt.hash, life, turn) for receipt in receipts])


def _one_life(path: Path, life: int, seconds: float) -> list[Announced]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["accounting", "scipy.optimize"])
    receiver, door = context.Pipe(duplex=False)
    process = context.Process(target=_live, args=(str(path), life, door))
    process.start()
    door.close()
    assert receiver.recv() == "ready"
    time.sleep(seconds)
    process.kill()
    announced: list[Announced] = []
    while True:
        try:
            announced += receiver.recv()
        except EOFError:
            break
    receiver.close()
    process.join(timeout=60)
    assert process.exitcode == -signal.SIGKILL
    return announced


def test_nothing_released_is_forgotten_after_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    moments = random.Random(20)
    announced: list[Announced] = []
    for life in range(KILLS):
        # Every other life is short, so that opening and creating are hit as well.
        announced += _one_life(path, life, moments.uniform(0.0, 0.02 if life % 2 else 0.15))
        if life % 5 == 0 and path.exists():
            try:
                Ledger.read(path).close()
            except LedgerError as error:  # of a write that was cut off, which the next writer undoes
                assert "-journal" in str(error)  # noqa: PT017
    assert len(announced) > KILLS, "the writers were killed before they wrote: the test says nothing"

    with Ledger(path, BUDGET) as ledger:
        events = list(ledger.events())
        assert ledger.verify() == len(events) >= len(announced)
        hashes = dict(ledger._store._connection.execute("SELECT seq, hash FROM events"))
        for sequence, digest, life, turn in announced:
            event = events[sequence - 1]
            assert hashes[sequence] == digest
            assert (event.noise, event.round) == (f"life {life}", turn)
        # Two events of one call are there both or not at all, and each kill cuts off one call at most.
        assert [event.client for event in events] == ["a", "b"] * (len(events) // 2)
        assert len(events) - len(announced) <= 2 * KILLS
        assert ledger.spent() == pytest.approx(gaussian_epsilon(0.005 * (len(events) / 2) ** 0.5, 1e-5), rel=1e-9)


def test_a_killed_writer_leaves_the_budget_spent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    code = (
        "import os, signal, sys\n"
        "from accounting import Budget, GaussianRelease, Ledger\n"
        "ledger = Ledger(sys.argv[1], Budget(1.0, 1e-5))\n"
        "ledger.record(GaussianRelease(what='x', client='a', sensitivity=0.25, sigma=1.0))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -signal.SIGKILL
    with Ledger(path) as ledger:
        assert len(ledger) == 1
        assert ledger.spent() == gaussian_epsilon(0.25, 1e-5)
