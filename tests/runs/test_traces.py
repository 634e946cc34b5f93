"""Ledgers that are lost or shorter than what was released: found by its traces, and nothing takes their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounting import Budget, GaussianRelease, Ledger, LedgerError
from dpfedvis.runs.resume import NotResumable, ResumeFolder
from dpfedvis.runs.traces import Released, released_before
from dpfedvis.site import SiteLedger

BUDGET = Budget(1.0, 1e-5)


def release(round: int) -> GaussianRelease:
    return GaussianRelease(what="sums", client="a", round=round, sensitivity=0.01, sigma=1.0, noise="urandom")


@pytest.fixture
def run(tmp_path: Path) -> ResumeFolder:
    (tmp_path / "run").mkdir()
    return ResumeFolder(tmp_path / "run")


@pytest.fixture
def lifetime(tmp_path: Path) -> Path:
    """The ledger of the records, with three releases of the run."""
    path = tmp_path / "records.sqlite"
    with SiteLedger(path) as kept:
        account = kept.begin("one", "a", BUDGET)
        for number in range(3):
            account.record(release(number))
    return path


def own(run: ResumeFolder, rounds: int) -> Path:
    path = run.run / "ledger.sqlite"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(*(release(number) for number in range(rounds)))
    return path


def test_a_run_that_was_interrupted_before_its_ledger_has_released_nothing(run: ResumeFolder, tmp_path: Path) -> None:
    assert released_before(run, (), "one") == Released(False, 0)
    assert released_before(run, [tmp_path / "none.sqlite"], "one") == Released(False, 0)
    assert list(run.run.iterdir()) == []
    assert not (tmp_path / "none.sqlite").exists()


def test_the_ledger_of_the_records_may_be_one_release_ahead_and_not_more(run: ResumeFolder, lifetime: Path) -> None:
    own(run, 2)
    assert released_before(run, [lifetime], "one") == Released(True, 2)
    (run.run / "ledger.sqlite").unlink()
    for rounds in (0, 1):  # such as a copy from before
        path = own(run, rounds)
        before = path.read_bytes()
        with pytest.raises(NotResumable, match=rf"has lost events, for {lifetime} tells of releases that it has not"):
            released_before(run, [lifetime], "one")
        assert path.read_bytes() == before
        path.unlink()
    with pytest.raises(NotResumable, match=rf"the ledger is lost, for {lifetime} tells of it"):
        released_before(run, [lifetime], "one")
    assert not path.exists()
    assert released_before(run, [lifetime], "another") == Released(False, 0)


def test_a_lost_ledger_of_the_records_is_not_made_anew(run: ResumeFolder, tmp_path: Path) -> None:
    own(run, 2)
    path = tmp_path / "records.sqlite"
    with pytest.raises(NotResumable, match="the ledger of the records is lost"):
        released_before(run, [path], "one")
    with pytest.raises(LedgerError, match="the ledger is lost"):
        SiteLedger(path, create=False)
    assert not path.exists()
    Ledger(path).close()  # an empty one
    with pytest.raises(NotResumable, match="the ledger of the records is lost"):
        released_before(run, [path], "one")


@pytest.mark.parametrize("trace", ["uploads", "checkpoint"])
def test_what_is_made_after_the_ledger_tells_of_it(run: ResumeFolder, trace: str) -> None:
    made = run.run / "uploads" if trace == "uploads" else run.checkpoint
    made.mkdir(parents=True)
    with pytest.raises(NotResumable, match=rf"the ledger is lost, for {made} tells of it"):
        released_before(run, (), "one")
    assert not (run.run / "ledger.sqlite").exists()
    own(run, 0)  # interrupted before its first release
    assert released_before(run, (), "one") == Released(True, 0)
