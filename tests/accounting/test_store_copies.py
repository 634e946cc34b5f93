"""Copies of the file alone, taken while another process writes: complete, or refused, and never silently shorter."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from accounting import BudgetExceeded, Ledger, LedgerError
from tests.accounting.ledger_events import BUDGET, gaussian, round_of

PAGE = 2**14

WRITER = """
import sys
from accounting import Ledger
from tests.accounting.ledger_events import round_of

with Ledger(sys.argv[1]) as ledger:
    for turn in range(10**6):
        ledger.record(*(round_of(number) for number in range(40)))  # some pages at once
        print(len(ledger), flush=True)
"""


def found(path: Path) -> int | None:
    """Number of events in a copy, None if it is refused."""
    try:
        with Ledger(path) as ledger:
            return len(ledger)
    except LedgerError:
        return None


def test_a_copy_after_a_release_has_it_and_a_second_budget_does_not_fit(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    with Ledger(path, BUDGET) as ledger:
        for _ in range(10):
            ledger.record(gaussian(mu=BUDGET.mu / 10**0.5 * (1 - 1e-9)))
        subprocess.run(["cp", str(path), str(copy)], check=True)
    with Ledger(copy) as ledger:
        assert ledger.verify() == 10
        with pytest.raises(BudgetExceeded):
            ledger.record(gaussian(mu=0.01))


def test_copies_at_many_moments_of_a_writer(tmp_path: Path) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    Ledger(path).close()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    whole = 0
    try:
        for _ in range(60):
            known = int(writer.stdout.readline())  # on disk: a copy from now on has at least these
            copy.write_bytes(path.read_bytes())
            events = found(copy)
            assert events is None or events >= known, "a shorter ledger passed for a whole one"
            assert events is None or events % 40 == 0
            whole += events is not None
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    assert whole > 0


def test_every_mixture_of_the_pages_before_and_after_a_write_is_one_of_the_two_or_refused(tmp_path: Path) -> None:
    """What a copy can catch of one write: each changed page old or new, and the file long or short."""
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    with Ledger(path) as ledger:
        ledger.record(*(round_of(number) for number in range(70)))
        old = path.read_bytes()
        ledger.record(*(round_of(number) for number in range(70, 110)))
        new = path.read_bytes()
    pages = len(new) // PAGE
    split = [[data[PAGE * page :][:PAGE] for page in range(pages)] for data in (old, new)]
    changed = [page for page in range(pages) if split[0][page] != split[1][page]]
    assert 4 <= len(changed) <= 10
    [ledger_page] = [page for page in changed if b"{" not in split[1][page] and page > 0 and split[0][page]][:1]
    outcomes = set()
    for mixture in itertools.product((0, 1), repeat=len(changed)):
        chosen = dict(zip(changed, mixture, strict=True))
        copy.write_bytes(b"".join(split[chosen.get(page, 0)][page] for page in range(pages)))
        events = found(copy)
        copy.with_name("copy.db-journal").unlink(missing_ok=True)
        assert events in (None, (70, 110)[chosen[ledger_page]]), "rows and head do not belong together"
        outcomes.add(events)
    assert outcomes == {None, 70, 110}
