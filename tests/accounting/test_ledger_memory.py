"""What the ledger remembers: on disk at once, for other programs, and with several writers at a time."""

from __future__ import annotations

import math
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from accounting import Budget, BudgetExceeded, Ledger, LedgerError, gaussian_epsilon
from tests.accounting.ledger_events import BUDGET, discrete, gaussian

# --- What is remembered ---------------------------------------------------------------------------------------------


def test_an_event_is_on_disk_before_record_returns(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    events = [gaussian("a", round=0), discrete("b", round=1), gaussian("a", round=2, trust="aggregate")]
    with Ledger(path, BUDGET) as ledger:
        for number, event in enumerate(events, start=1):
            [receipt] = ledger.record(event)
            assert receipt.sequence == number
            with Ledger.read(path) as other:
                assert list(other.events()) == events[:number]
                assert len(other) == number
        # Level 3 is EXTRA: file and folder are flushed to disk at each commit.
        assert ledger._store._connection.execute("PRAGMA synchronous").fetchone() == (3,)


def test_another_process_sees_an_event_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(gaussian(round=7))
        code = f"from accounting import Ledger; print([e.round for e in Ledger.read({str(path)!r}).events()])"
        assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[7]"


def test_resume_after_close_goes_on_with_the_same_budget_and_chain(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        first = ledger.record(gaussian(mu=0.15), gaussian("b"))
        spent, remaining = ledger.spent(), ledger.remaining()
    with Ledger(path) as ledger:
        assert ledger.budget == BUDGET
        assert (ledger.spent(), ledger.remaining(), len(ledger)) == (spent, remaining, 2)
        [third] = ledger.record(gaussian())
        assert third.sequence == 3
        assert third.hash not in {receipt.hash for receipt in first}
        with pytest.raises(BudgetExceeded):
            ledger.record(gaussian(mu=0.2))
    with Ledger(path, BUDGET) as ledger:
        assert ledger.verify() == 3


def test_reopening_with_another_budget_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path, BUDGET).close()
    for other in (
        Budget(2.0, 1e-5),
        Budget(1.0, 1e-6),
        Budget(1.0, 1e-5, scope="landmarks"),
        Budget(1.0, 1e-5, unit="client"),
    ):
        with pytest.raises(LedgerError, match="was created with"):
            Ledger(path, other)
    Ledger(tmp_path / "none.db").close()
    with pytest.raises(LedgerError, match="was created with None"):
        Ledger(tmp_path / "none.db", BUDGET)


def test_events_can_be_filtered_and_recording_while_reading_ends() -> None:
    ledger = Ledger()
    ledger.record(gaussian("a", round=0), gaussian("b", round=0), discrete("a", round=1))
    assert [event.client for event in ledger.events(round=0)] == ["a", "b"]
    assert [event.what for event in ledger.events(client="a")] == ["gradient", "moments"]
    assert [event.round for event in ledger.events(what="moments", client="a")] == [1]
    for event in ledger.events():
        ledger.record(event)
    assert len(ledger) == 6


def test_memory_ledger_keeps_the_budget_too() -> None:
    ledger = Ledger(budget=BUDGET)
    ledger.record(gaussian())
    with pytest.raises(BudgetExceeded):
        ledger.record(gaussian(mu=1.0))
    assert ledger.verify() == 1


# --- The file, for others -------------------------------------------------------------------------------------------


def test_any_sqlite_program_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(gaussian("a", round=3), discrete("b"))
        connection = sqlite3.connect(path)
        rows = connection.execute("SELECT client, round, what, kind, stage FROM events ORDER BY seq").fetchall()
        assert rows == [
            ("a", 3, "gradient", "gaussian", "landmarks"),
            ("b", None, "moments", "gaussian", "landmarks"),
        ]
        sensitivity = "SELECT json_extract(body, '$.sensitivity') FROM events WHERE client = 'a'"
        assert connection.execute(sensitivity).fetchone() == (0.1,)
        assert connection.execute("SELECT count, json_extract(budget, '$.epsilon') FROM ledger").fetchone() == (2, 1.0)
        for statement in ("UPDATE events SET client = 'c'", "DELETE FROM events", "DELETE FROM events WHERE seq = 2"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)
        connection.close()
        assert ledger.verify() == 2


# --- Several writers ------------------------------------------------------------------------------------------------


def _fill(ledger: Ledger, client: str, mu: float, attempts: int) -> int:
    done = 0
    for number in range(attempts):
        try:
            ledger.record(gaussian(client, mu, round=number))
            done += 1
        except BudgetExceeded:
            pass
    return done


def _fitting(mu: float) -> int:
    return math.floor(BUDGET.mu**2 / mu**2)


def test_threads_do_not_overspend_together(tmp_path: Path) -> None:
    mu = BUDGET.mu / math.sqrt(60.5)
    ledger = Ledger(tmp_path / "ledger.db", BUDGET)
    done: list[int] = []
    # Four threads, and two more ledgers on the same file: 6 × 20 attempts at 60 places.
    ledgers = [ledger, ledger, ledger, ledger, Ledger(tmp_path / "ledger.db"), Ledger(tmp_path / "ledger.db")]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda one=one: done.append(_fill(one, "a", mu, 20))) for one in ledgers]
        for thread in threads:
            thread.start()
        for _ in range(20):
            assert ledger.spent() <= 1.0
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sum(done) == _fitting(mu) == 60
    assert ledger.verify() == 60
    assert ledger.spent() == pytest.approx(gaussian_epsilon(mu * math.sqrt(60), 1e-5), rel=1e-9)
    for one in ledgers[3:]:
        one.close()


def _write(path: str, client: str, mu: float, attempts: int, results: Any) -> None:
    with Ledger(path, BUDGET) as ledger:
        results.put(_fill(ledger, client, mu, attempts))


def test_processes_do_not_overspend_together(tmp_path: Path) -> None:
    # They also create the file together.
    path = str(tmp_path / "ledger.db")
    mu = BUDGET.mu / math.sqrt(40.5)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=_write, args=(path, "a", mu, 30, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    done = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    assert sum(done) == 40
    with Ledger(path) as ledger:
        assert ledger.verify() == 40
        assert ledger.spent() <= 1.0
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.db"]


def test_what_others_wrote_counts_once_also_after_a_refusal(tmp_path: Path) -> None:
    ours, theirs = Ledger(tmp_path / "ledger.db", BUDGET), Ledger(tmp_path / "ledger.db")
    theirs.record(gaussian(mu=0.15))
    for _ in range(3):
        with pytest.raises(BudgetExceeded) as caught:
            ours.record(gaussian(mu=0.9))
        assert caught.value.spent == gaussian_epsilon(0.15, 1e-5)
    ours.record(gaussian(mu=0.15))
    assert ours.spent() == pytest.approx(gaussian_epsilon(math.hypot(0.15, 0.15), 1e-5), rel=1e-12)


def test_verify_takes_notice_of_what_others_wrote(tmp_path: Path) -> None:
    ours, theirs = Ledger(tmp_path / "ledger.db", BUDGET), Ledger(tmp_path / "ledger.db")
    theirs.record(gaussian(mu=0.2))
    assert ours.verify() == 1
    assert ours.spent() == gaussian_epsilon(0.2, 1e-5)
    with pytest.raises(BudgetExceeded):
        ours.record(gaussian(mu=0.2))
