"""The ledger of some records: runs add up, none is forgotten or charged twice, and a lifetime budget holds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from accounting import (
    Budget,
    CannotAccount,
    Event,
    GaussianRelease,
    InvalidParameter,
    Ledger,
    Unprotected,
    gaussian_epsilon,
)
from accounting.errors import LedgerError
from dpfedvis.runs.lifetime import LedgerBusy, LifetimeExceeded, RunMark, is_lifetime, ledger_path, opened, read

BUDGET = Budget(1.0, 1e-5)
MU = BUDGET.mu * (1 - 1e-9)


def mark(name: str, sha256: str = "same", delta: float = 1e-5) -> RunMark:
    return RunMark(name, "2025-01-01T00:00:00+00:00", "/data/a.csv", sha256, delta)


def release(client: str = "a", mu: float = MU, **options) -> GaussianRelease:
    return GaussianRelease(what="sums", client=client, sensitivity=mu, sigma=1.0, noise="urandom", **options)


def charged(path: Path, name: str, *events: Event, limit: float | None = None, **facts) -> float:
    """Charge a run, and return ε of all runs."""
    with opened(path, mark(name, **facts), BUDGET, limit) as lifetime:
        lifetime.charge(events)
        return lifetime.all_runs(1e-5).epsilon


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledgers" / "a.sqlite"


# Runs add up


def test_runs_on_the_same_records_compose(path):
    """√r·μ after r runs, by the closed form."""
    for runs in (1, 2, 3):
        found = charged(path, f"run {runs}", release("a"), release("b"))
        assert found == pytest.approx(gaussian_epsilon(runs**0.5 * MU, 1e-5), rel=1e-9)
    with read(path) as lifetime:
        assert lifetime.all_runs(1e-5).runs == 3
        assert lifetime.all_runs(1e-6).epsilon == pytest.approx(gaussian_epsilon(3**0.5 * MU, 1e-6), rel=1e-9)


def test_a_record_may_be_at_another_client_in_another_run(path):
    """By name, client a would have spent μ and b 2μ; but another deal may put b's record where a was."""
    charged(path, "one", release("a", 2 * MU), release("b", MU))
    found = charged(path, "two", release("a", MU), release("b", 2 * MU))
    assert found == pytest.approx(gaussian_epsilon(8**0.5 * MU, 1e-5), rel=1e-9)


def test_one_unprotected_run_leaves_no_epsilon(path):
    assert charged(path, "one", Unprotected(what="rows", client="a", why="they are records")) == float("inf")
    assert charged(path, "two", release()) == float("inf")


def test_another_file_under_the_same_name_is_told_and_counts(path):
    charged(path, "one", release())
    with opened(path, mark("two", sha256="other"), BUDGET, None) as lifetime:
        assert not lifetime.all_runs(1e-5).changed  # this run has released nothing
        lifetime.charge([release()])
        found = lifetime.all_runs(1e-5)
    assert (found.runs, found.changed) == (2, True)
    assert found.epsilon == pytest.approx(gaussian_epsilon(2**0.5 * MU, 1e-5))


# Nothing is forgotten, nothing is charged twice


def test_a_resumed_run_is_not_charged_twice(path):
    events = [release(round=1), release(round=2)]
    once = charged(path, "one", *events)
    assert charged(path, "one", *events) == once
    more = charged(path, "one", *events, release(round=3))
    assert more == pytest.approx(gaussian_epsilon(3**0.5 * MU, 1e-5), rel=1e-9)
    with read(path) as lifetime:
        assert lifetime.all_runs(1e-5).runs == 1


def test_the_same_release_made_twice_is_charged_twice(path):
    assert charged(path, "one", release(), release()) == pytest.approx(gaussian_epsilon(2**0.5 * MU, 1e-5), rel=1e-9)
    assert charged(path, "one", release(), release()) == pytest.approx(gaussian_epsilon(2**0.5 * MU, 1e-5), rel=1e-9)


def test_it_is_written_before_the_ledger_of_the_run(path, tmp_path):
    """A run's ledger that fails after the mirror leaves the spend in that of the records."""
    with opened(path, mark("one"), BUDGET, None) as lifetime:

        def charge_and_fail(events):
            lifetime.charge(events)
            raise OSError("no space left")

        with Ledger(tmp_path / "run.sqlite", BUDGET, mirror=charge_and_fail) as own:
            with pytest.raises(OSError, match="no space"):
                own.record(release())
            assert len(own) == 0
    with read(path) as lifetime:
        assert lifetime.all_runs(1e-5).epsilon == pytest.approx(1.0)


def test_what_the_run_refuses_is_not_charged(path, tmp_path):
    with (
        opened(path, mark("one"), BUDGET, None) as lifetime,
        Ledger(tmp_path / "run.sqlite", BUDGET, mirror=lifetime.charge) as own,
    ):
        own.record(release())
        with pytest.raises(Exception, match="over the budget"):
            own.record(release(round=2))
        assert lifetime.all_runs(1e-5).epsilon == pytest.approx(1.0)


# The lifetime budget


def test_a_run_without_room_is_refused_before_anything_is_charged(path):
    limit = gaussian_epsilon(2**0.5 * MU, 1e-5)
    charged(path, "one", release(), limit=limit * (1 + 1e-9))
    charged(path, "two", release())  # the budget stayed with the ledger, and is full
    with pytest.raises(LifetimeExceeded, match="no room in the lifetime budget"):
        charged(path, "three", release(mu=1e-3))
    with read(path) as lifetime:
        assert lifetime.all_runs(1e-5).runs == 2


def test_a_run_that_spends_more_than_it_said_is_stopped(path):
    with opened(path, mark("one"), BUDGET, 1.1) as lifetime:
        lifetime.charge([release("a"), release("b")])
        with pytest.raises(LifetimeExceeded, match="lifetime budget of these records"):
            lifetime.charge([release("b", round=2)])
        assert lifetime.all_runs(1e-5).epsilon == pytest.approx(1.0)
    with pytest.raises(LifetimeExceeded), opened(path, mark("one"), BUDGET, None) as lifetime:
        lifetime.charge([release("a"), release("b"), release("a", round=2)])  # resumed: the first two count


def test_no_unprotected_release_fits_a_lifetime_budget(path):
    with pytest.raises(LifetimeExceeded, match="∞"), opened(path, mark("one"), None, 5.0):
        pass
    landmarks = replace(BUDGET, scope="landmarks")
    with pytest.raises(LifetimeExceeded), opened(path, mark("one"), landmarks, 5.0):
        pass


def test_a_lifetime_budget_is_not_raised_by_a_run(path):
    charged(path, "one", release(), limit=1.5)
    with pytest.raises(InvalidParameter, match=r"lifetime_epsilon must be 1\.5"):
        charged(path, "two", limit=9.0)
    assert charged(path, "one", limit=1.5) == pytest.approx(1.0)


def test_other_meanings_are_refused_before_anything_is_charged(path):
    charged(path, "one", release())
    for other in (replace(BUDGET, adjacency="add-remove"), replace(BUDGET, unit="client")):
        with pytest.raises(CannotAccount, match="same adjacency and unit"), opened(path, mark("two"), other, None):
            pass


def test_a_lifetime_budget_may_be_set_when_a_run_is_resumed(path):
    charged(path, "one", release(round=1))
    charged(path, "one", release(round=1), release(round=2), limit=2.0)
    with pytest.raises(LifetimeExceeded):
        charged(path, "two", release(), release(round=2), release(round=3))
    with read(path) as lifetime:
        assert lifetime.statement().budget["epsilon"] == 2.0


# The file


def test_only_one_run_at_a_time(path):
    with (
        opened(path, mark("one"), BUDGET, None),
        pytest.raises(LedgerBusy, match="another run on these records"),
        opened(path, mark("two"), BUDGET, None),
    ):
        pass


def test_the_ledger_of_a_run_is_not_taken(tmp_path):
    path = tmp_path / "run.sqlite"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(release())
    assert not is_lifetime(path)
    with pytest.raises(LedgerError, match="ledger of one run"), opened(path, mark("one"), BUDGET, None):
        pass


def test_the_statement_is_of_all_runs(path):
    """Of the clients that share the noise, each run has its own two."""
    shared = [release(name, trust="aggregate") for name in "ab"]
    charged(path, "one", *shared, limit=3.0)
    charged(path, "two", *shared)
    with read(path) as lifetime:
        found = lifetime.statement()
    assert found.end_to_end == pytest.approx(gaussian_epsilon(2**0.5 * MU, 1e-5))
    assert found.against_a_client == pytest.approx(gaussian_epsilon(2 * MU, 1e-5))
    assert found.facts == {"data": "/data/a.csv", "runs": 2}
    assert found.budget == Budget(3.0, 1e-5).to_dict()
    assert not found.simulation


def test_its_place_follows_from_the_path_of_the_data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    found = ledger_path(Path("a.csv"))
    assert found.parent == tmp_path / "state" / "dpfedvis" / "ledgers"
    assert found == ledger_path(tmp_path / "sub" / ".." / "a.csv")
    assert found != ledger_path(tmp_path / "b" / "a.csv")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ledger_path(Path("a.csv")).parent == tmp_path / ".local" / "state" / "dpfedvis" / "ledgers"


def test_no_test_writes_to_the_home(tmp_path):
    """The fixture of the suite reaches processes that tests start."""
    code = "from dpfedvis.runs.lifetime import ledger_path; from pathlib import Path; print(ledger_path(Path('a')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert str(Path.home()) not in done.stdout
