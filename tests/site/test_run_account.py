"""The account of a run at a site: an event is on disk before anything leaves, and nothing goes beyond the budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accounting import Budget, BudgetExceeded, GaussianRelease, Ledger, Unprotected, UnprotectedReleaseError
from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol.messages import ANSWERED, Forget, Refused, Send, Sent, ShowEvents
from dpfedvis.site import Identity, SiteLedger
from dpfedvis.site.run_account import RunAccount
from tests.site.agreed import SIMULATED, agreed, contract_of, sites_of

BUDGET = Budget(1.0, 1e-5)


def release(round=1, mu=0.1, what="gradient"):
    return GaussianRelease(
        what=what, client="client-0", round=round, sensitivity=mu, sigma=1.0, grid=2.0**-10, values=6, noise="seeded"
    )


@pytest.fixture(params=["memory", "disk"])
def account(request, tmp_path):
    with SiteLedger(tmp_path / "ledger.sqlite" if request.param == "disk" else None) as ledger:
        yield ledger.begin("a run", "client-0", BUDGET)


def test_a_budget_runs_out(account):
    mu = BUDGET.mu / np.sqrt(3.5)
    for round in range(1, 4):
        account.record(release(round, mu))
    with pytest.raises(BudgetExceeded) as caught:
        account.record(release(4, mu))
    assert caught.value.total > 1.0
    assert [event.round for event in account.events()] == [1, 2, 3]
    assert account.find("gradient", 4) is None
    account.record(release(4, mu / 10))  # what does fit still does


def test_unprotected_releases_are_refused_under_a_budget(account):
    with pytest.raises(UnprotectedReleaseError):
        account.record(Unprotected(what="gradient", client="client-0", why="exact"))
    assert account.events() == []
    assert account.head is None


def test_places_go_up_and_the_chain_with_them(account):
    marks = [account.record(release(round)) for round in (1, 2, 3)]
    assert [sequence for sequence, _ in marks] == [1, 2, 3]
    assert len({hash for _, hash in marks}) == 3
    assert account.head == marks[-1]
    assert account.find("gradient", 2) == release(2)


def test_an_account_that_is_opened_again_knows_what_was_released(tmp_path):
    path, mu = tmp_path / "ledger.sqlite", BUDGET.mu / np.sqrt(1.5)
    with SiteLedger(path) as ledger:
        ledger.begin("a run", "client-0", BUDGET).record(release(1, mu))
    with SiteLedger(path) as ledger:
        again = ledger.begin("a run", "client-0", BUDGET)
        assert again.find("gradient", 1) == release(1, mu)
        with pytest.raises(BudgetExceeded):
            again.record(release(2, mu))
        assert len(Ledger(path)) == 1, "nor is the first written a second time"
        other = RunAccount(ledger, "another run", "client-0", BUDGET)
        assert other.find("gradient", 1) is None


# The account of a site that answers

PUBLIC = PublicParameters(Kernel((0.2,)), landmarks=3, features=4, rounds=2, local_steps=1, step_size=0.5)
Y = np.zeros((3, 4))


class Stop(BaseException):
    """Stands for the end of the process."""


def opened(folder, noise="seeded"):
    """Return a site with its files in a folder, its contract's hash, and a request."""
    policy = replace(SIMULATED, noise=noise)
    X = np.random.default_rng(0).normal(size=(10, 4))
    ledger = SiteLedger(folder / "ledger.sqlite")
    sites = sites_of([X], policy, ledger=ledger, identity=Identity.kept(folder / "key"), folder=folder)
    contract = contract_of(sites, [10], GradientPerturbation(), rounds=2, values=12, noise=noise)
    label = agreed(sites, contract)
    return sites[0], Send(label, GradientPerturbation(), PUBLIC, 1, Y)


def on_disk(folder):
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        return [event.round for event in ledger.events()]


def test_the_event_is_on_disk_before_there_is_a_reply(tmp_path, monkeypatch):
    """A process that ends at the write has replied nothing; one that ends just after it has the event on disk."""
    site, request = opened(tmp_path)
    record = Ledger.record

    def before(ledger, *events):
        raise Stop

    def after(ledger, *events):
        record(ledger, *events)
        if not ledger.in_memory:
            raise Stop

    for how, written in ((before, []), (after, [1])):
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "record", how)
            with pytest.raises(Stop):
                site.answer(request)
        assert on_disk(tmp_path) == written
    site.ledger.close()


@pytest.mark.parametrize("noise", ["seeded", "discrete"])
def test_the_same_bytes_again_cost_nothing(noise, tmp_path):
    """In the same process and in another one; the next round is a release of its own."""
    site, request = opened(tmp_path, noise)
    first = site.answer(request)
    again = site.answer(request)
    site.ledger.close()
    site, same = opened(tmp_path, noise)
    assert same.contract == request.contract
    later = site.answer(same)
    for reply in (again, later):
        assert isinstance(reply, Sent)
        assert reply.event == first.event
        np.testing.assert_array_equal(reply.values, first.values)
    assert on_disk(tmp_path) == [1]
    second = site.answer(replace(same, round=2))
    assert second.values.tobytes() != first.values.tobytes()
    assert on_disk(tmp_path) == [1, 2]
    site.ledger.close()


def test_without_the_bytes_a_release_is_not_made_a_second_time(tmp_path):
    """Fresh noise on the same records would be a second release; and the round before the last is not kept."""
    site, request = opened(tmp_path, "discrete")
    for round in (1, 2):
        assert isinstance(site.answer(replace(request, round=round)), Sent)
    reply = site.answer(request)
    assert isinstance(reply, Refused)
    assert (reply.site, reply.code) == ("client-0", ANSWERED)
    assert "gradient was released already" in reply.words
    (kept,) = (tmp_path / "outbox").glob("*/*.npz")
    kept.unlink()
    assert site.answer(replace(request, round=2)).code == ANSWERED
    assert on_disk(tmp_path) == [1, 2]
    site.ledger.close()


def test_the_ledger_outlives_the_run(tmp_path):
    site, request = opened(tmp_path)
    sent = site.answer(request)
    assert site.answer(ShowEvents(request.contract)).events == (sent.event,)
    site.answer(Forget(request.contract))
    assert not list((tmp_path / "outbox").glob("*/*.npz"))
    assert on_disk(tmp_path) == [1]
    site.ledger.close()
