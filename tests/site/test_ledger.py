"""The ledger of a site: runs add up, none is forgotten or charged twice, and a lifetime budget holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from accounting import (
    Budget,
    BudgetExceeded,
    CannotAccount,
    Event,
    GaussianRelease,
    InvalidParameter,
    Ledger,
    Unprotected,
    gaussian_epsilon,
)
from accounting.errors import LedgerError
from dpfedvis.site import SiteLedger
from dpfedvis.site.ledger import LifetimeExceeded
from dpfedvis.site.ledger_file import LedgerBusy, is_lifetime, ledger_path

BUDGET = Budget(1.0, 1e-5)
MU = BUDGET.mu * (1 - 1e-9)


def release(client: str = "a", mu: float = MU, **options) -> GaussianRelease:
    return GaussianRelease(what="sums", client=client, sensitivity=mu, sigma=1.0, noise="urandom", **options)


@contextmanager
def opened(path: Path | None, limit: float | None = None, sha256: str = "same", deal: str = "") -> Iterator[SiteLedger]:
    own = None if limit is None else (limit, 1e-5)
    with SiteLedger(path, limit=own, source="/data/a.csv", sha256=sha256, deal=deal) as ledger:
        yield ledger


def charge(ledger: SiteLedger, run: str, *events: Event, budget: Budget | None = None) -> None:
    """Record what is new of a run's events, each in the account of its site; by default the run has no own budget."""
    for site in dict.fromkeys(event.client for event in events):
        account = ledger.begin(run, site, budget)
        for event in events:
            if event.client == site and account.find(event.what, event.round) is None:
                account.record(event)


def charged(
    path: Path, run: str, *events: Event, budget: Budget | None = None, limit: float | None = None, sha256="same"
) -> float:
    """Charge a run, and return ε of all runs."""
    with opened(path, limit, sha256) as ledger:
        charge(ledger, run, *events, budget=budget)
        return ledger.all_runs(1e-5).epsilon


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledgers" / "a.sqlite"


# Runs add up


def test_runs_on_the_same_records_compose(path):
    """√r·μ after r runs, by the closed form."""
    for runs in (1, 2, 3):
        found = charged(path, f"run {runs}", release("a"), release("b"))
        assert found == pytest.approx(gaussian_epsilon(runs**0.5 * MU, 1e-5), rel=1e-9)
    with SiteLedger.read(path) as lifetime:
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
    with opened(path, sha256="other") as lifetime:
        account = lifetime.begin("two", "a", BUDGET)
        assert not lifetime.all_runs(1e-5).changed  # this run has released nothing
        account.record(release())
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
    with SiteLedger.read(path) as lifetime:
        assert lifetime.all_runs(1e-5).runs == 1


def test_the_same_release_made_twice_is_charged_twice(path):
    twice = pytest.approx(gaussian_epsilon(2**0.5 * MU, 1e-5), rel=1e-9)
    with opened(path) as ledger:
        account = ledger.begin("one", "a", None)
        for _ in range(2):
            account.record(release())
        assert ledger.all_runs(1e-5).epsilon == twice
    with opened(path) as ledger:
        assert ledger.begin("one", "a", None).events() == [release()] * 2
        assert ledger.all_runs(1e-5).epsilon == twice


def test_a_release_is_on_disk_when_it_is_recorded(path):
    with opened(path) as ledger:
        account = ledger.begin("one", "a", BUDGET)
        place = account.record(release(round=1, mu=MU / 2))
        with Ledger.read(path) as seen:
            assert [event.client for event in seen.events()] == ["one/a"]
            assert place == account.head == seen.head


def test_what_could_not_be_written_is_not_known(path):
    """A file that fails leaves no event in the account, from which uploads that were made are found."""
    with opened(path) as ledger:
        account = ledger.begin("one", "a", BUDGET)
        ledger.close()
        with pytest.raises(LedgerError):
            account.record(release())
        assert account.find("sums", None) is None
        assert account.events() == []
    with opened(path) as ledger:
        assert ledger.begin("one", "a", BUDGET).record(release())[0] == 1


def test_what_the_run_refuses_is_not_charged(path):
    with opened(path) as ledger:
        account = ledger.begin("one", "a", BUDGET)
        account.record(release())
        with pytest.raises(BudgetExceeded, match="over the budget"):
            account.record(release(round=2))
        assert ledger.all_runs(1e-5).epsilon == pytest.approx(1.0)
    with opened(path) as ledger:
        # Resumed: what was spent counts.
        with pytest.raises(BudgetExceeded):
            ledger.begin("one", "a", BUDGET).record(release(round=2))
        assert ledger.all_runs(1e-5).epsilon == pytest.approx(1.0)


def test_a_site_has_its_own_account_of_a_run(path):
    with opened(path) as ledger:
        accounts = {site: ledger.begin("one", site, BUDGET) for site in "ab"}
        for site, account in accounts.items():
            account.record(release(site, round=1))
        assert accounts["a"].find("sums", 1) == release("a", round=1)
        assert accounts["a"].find("sums", 2) is None
        assert accounts["b"].events() == [release("b", round=1)]
        assert ledger.begin("two", "a", BUDGET).find("sums", 1) is None


def test_a_ledger_in_memory_refuses_too():
    account = SiteLedger().begin("one", "a", BUDGET)
    assert account.head is None
    place = account.record(release())
    assert (account.head, account.find("sums", None)) == (place, release())
    with pytest.raises(BudgetExceeded):
        account.record(release(round=2))


def test_an_older_copy_does_not_hold_what_was_signed(path, tmp_path):
    with opened(path) as ledger:
        first = ledger.begin("one", "a", None).record(release(round=1))
    old = tmp_path / "old.sqlite"
    shutil.copy(path, old)
    with opened(path) as ledger:
        second = ledger.begin("one", "a", None).record(release(round=2))
        assert ledger.holds(*first)
        assert ledger.holds(*second)
        assert not ledger.holds(second[0], first[1])
    with opened(old) as ledger:
        assert ledger.holds(*first)
        assert not ledger.holds(*second)


# The lifetime budget


def test_a_run_without_room_is_refused_before_anything_is_charged(path):
    limit = gaussian_epsilon(2**0.5 * MU, 1e-5) * (1 + 1e-6)
    charged(path, "one", release(), budget=BUDGET, limit=limit)
    charged(path, "two", release(), budget=BUDGET)  # the limit stayed with the ledger, and is full
    with pytest.raises(LifetimeExceeded, match="no room in the lifetime budget"):
        charged(path, "three", release(mu=1e-3), budget=BUDGET)
    with SiteLedger.read(path) as lifetime:
        assert lifetime.all_runs(1e-5).runs == 2


def test_two_runs_that_fit_alone_do_not_spend_more_together(path):
    """A server may begin a second run before the first has spent anything: each event is checked, not the plan."""
    with opened(path, 1.1) as ledger:
        accounts = [ledger.begin(run, "a", BUDGET) for run in ("one", "two")]
        accounts[0].record(release())
        with pytest.raises(LifetimeExceeded):
            ledger.begin("three", "a", BUDGET)  # and what is refused makes no room
        with pytest.raises(LifetimeExceeded, match="lifetime budget of these records"):
            accounts[1].record(release())
        assert accounts[1].events() == []
        assert ledger.all_runs(1e-5).epsilon == pytest.approx(1.0)


def test_no_unprotected_release_fits_a_lifetime_budget(path):
    with opened(path, 5.0) as ledger:
        with pytest.raises(LifetimeExceeded, match="∞"):
            ledger.begin("one", "a", None)
        with pytest.raises(LifetimeExceeded):
            ledger.begin("one", "a", replace(BUDGET, scope="landmarks"))
        assert ledger.all_runs(1e-5).runs == 0


def test_a_run_that_was_refused_is_refused_again(path):
    """A server may ask a second time."""
    charged(path, "one", release(), budget=BUDGET, limit=1.1)
    with opened(path) as ledger:
        for _ in range(2):
            with pytest.raises(LifetimeExceeded):
                ledger.begin("two", "a", BUDGET)


def test_a_lifetime_budget_is_not_raised_by_a_run(path):
    charged(path, "one", release(), budget=BUDGET, limit=1.5)
    with pytest.raises(InvalidParameter, match=r"lifetime_epsilon must be 1\.5"):
        charged(path, "two", limit=9.0)
    assert charged(path, "one", limit=1.5) == pytest.approx(1.0)


def test_other_meanings_are_refused_before_anything_is_charged(path):
    charged(path, "one", release())
    for other in (replace(BUDGET, adjacency="add-remove"), replace(BUDGET, unit="client")):
        with opened(path) as ledger, pytest.raises(CannotAccount) as refused:
            ledger.begin("two", "a", other)
        said = str(refused.value)
        assert f"accounted for one record under replace-one, and this one for one {other.unit} under" in said
        assert said.endswith("choose a budget with unit='record' and adjacency='replace-one'")
        assert "(" not in said


def test_sites_as_units_must_be_the_same_sites(path):
    """Of one site in the first run the records may be at many in the second."""
    budget, event = replace(BUDGET, unit="client"), release(unit="client")
    for run in ("one", "two"):
        with opened(path, deal="groups of column ward") as ledger:
            charge(ledger, run, event, budget=budget)
    words = "by groups of column ward, and this one by groups of column house"
    with opened(path, deal="groups of column house") as ledger, pytest.raises(CannotAccount, match=words):
        ledger.begin("three", "a", budget)
    with opened(path, deal="groups of column ward") as ledger:
        charge(ledger, "three", event, budget=budget)
        assert ledger.all_runs(1e-5).runs == 3


def test_records_as_units_may_be_dealt_anew(path):
    for number, name in enumerate(("one", "two"), 1):
        with opened(path, deal=name) as ledger:
            charge(ledger, name, release(), budget=BUDGET)
            assert ledger.all_runs(1e-5).runs == number


def test_a_run_that_is_refused_leaves_no_file(path):
    with opened(path, limit=5.0) as ledger, pytest.raises(LifetimeExceeded):
        ledger.begin("one", "a", None)
    assert list(path.parent.iterdir()) == []
    with opened(path) as ledger:
        ledger.begin("one", "a", BUDGET)
    assert list(path.parent.iterdir()) == []
    charged(path, "one", release())
    with opened(path) as ledger, pytest.raises(CannotAccount):
        ledger.begin("two", "a", replace(BUDGET, unit="client"))
    assert path.exists()


def test_the_statement_counts_sites_before_they_are_merged(path):
    events = [release(name) for name in "abc"]
    charged(path, "one", *events)
    charged(path, "two", *events)
    with SiteLedger.read(path) as ledger:
        found = ledger.statement()
    assert [(line.clients, line.per_client) for line in found.lines] == [(3, 2)]
    assert found.facts["clients"] == 3
    # √2·μ for two runs, and √2 more for two sites.
    assert found.at_two_sites == pytest.approx(gaussian_epsilon(2 * MU, 1e-5), rel=1e-9)
    page = str(found)
    assert "Sites are disjoint." in page
    assert "The number n of records is not known here." in page
    assert "## What the ledger knows of these runs" in page
    assert "Public facts of the run" not in page


def test_one_site_cannot_share_a_record(path):
    charged(path, "one", release())
    with SiteLedger.read(path) as ledger:
        assert ledger.statement().at_two_sites is None


def test_a_lifetime_budget_may_be_set_when_a_run_is_resumed(path):
    budget = Budget(1.8, 1e-5)
    charged(path, "one", release(round=1), budget=budget)
    charged(path, "one", release(round=1), release(round=2), budget=budget, limit=2.0)
    with pytest.raises(LifetimeExceeded):
        charged(path, "two", release(), budget=budget)
    with SiteLedger.read(path) as lifetime:
        assert lifetime.statement().budget["epsilon"] == 2.0


# The file


def test_only_one_process_at_a_time(path):
    with (
        opened(path),
        pytest.raises(LedgerBusy, match="another run on these records"),
        opened(path),
    ):
        pass
    with opened(path):
        pass


def test_the_ledger_of_a_run_is_not_taken(tmp_path):
    path = tmp_path / "run.sqlite"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(release())
    assert not is_lifetime(path)
    with pytest.raises(LedgerError, match="ledger of one run"):
        SiteLedger(path)
    with opened(tmp_path / "new.sqlite"):
        assert is_lifetime(tmp_path / "new.sqlite")


def test_the_statement_is_of_all_runs(path):
    """Of the clients that share the noise, each run has its own two."""
    shared = [release(name, trust="aggregate") for name in "ab"]
    charged(path, "one", *shared, budget=BUDGET, limit=3.0)
    charged(path, "two", *shared, budget=BUDGET)
    with SiteLedger.read(path) as lifetime:
        found = lifetime.statement()
    assert found.end_to_end == pytest.approx(gaussian_epsilon(2**0.5 * MU, 1e-5))
    assert found.against_a_client == pytest.approx(gaussian_epsilon(2 * MU, 1e-5))
    assert found.facts == {"data": "/data/a.csv", "runs": 2, "clients": 2}
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
    code = "from dpfedvis.site.ledger_file import ledger_path; from pathlib import Path; print(ledger_path(Path('a')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert str(Path.home()) not in done.stdout
