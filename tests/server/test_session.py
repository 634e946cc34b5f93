"""A session: what the server takes from sites, what it writes down before it is seen, and sites that fail."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from accounting import Budget, BudgetExceeded, GaussianRelease, InvalidParameter, Ledger
from dpfedvis.data import FederatedData
from dpfedvis.estimators.simulation import simulated
from dpfedvis.links import InProcess
from dpfedvis.mechanisms import GradientPerturbation, Message, NoPerturbation
from dpfedvis.mechanisms.rows import DistanceRows
from dpfedvis.protocol.messages import Done, Receipt, Sent, Signed
from dpfedvis.protocol.uploads import BadUpload
from dpfedvis.server.mirror import Mirror
from dpfedvis.server.session import Failure, Session, SiteFailed

BUDGET = Budget(2.0, 1e-5)
TRUSTS = ["local", "aggregate", "central"]
OTHERS = TRUSTS[1:]


class Stop(Exception):
    pass


class Tampering(InProcess):
    """A link to sites whose replies arrive otherwise than they were sent."""

    def __init__(self, members, change):
        super().__init__(members)
        self.change = change

    def each(self, request):
        return [self.change(reply) for reply in super().each(request)]


def changed(fed, config, change, only=Sent, **watched):
    """Learn over a link that changes replies of one kind."""
    members = simulated(fed, budget=config.budget, noise=config.noise).members
    link = Tampering(members, lambda reply: change(reply) if isinstance(reply, only) else reply)
    return config.learn(link, **watched)[0]


def of(site, change):
    """Change what one site sends."""
    return lambda reply: change(reply) if reply.site == site else reply


# What the server sees


@pytest.mark.parametrize("trust", TRUSTS)
def test_every_event_is_on_disk_before_anything_is_seen(trust, configure, fed, tmp_path):
    """In the ledger of its site, and in the server's mirror."""
    seen = []

    def witness(events, values):
        with Ledger.read(tmp_path / "ledger.sqlite") as mirror:
            seen.append(list(mirror.events()))
        for number in range(3):
            with Ledger.read(tmp_path / "sites" / str(number) / "ledger.sqlite") as own:
                assert [event.round for event in own.events()] == [1]
        raise Stop

    with pytest.raises(Stop):
        configure(GradientPerturbation(trust=trust)).run(fed, checkpoint=tmp_path, witness=witness)
    (events,) = seen
    assert [(event.client, event.round) for event in events] == [(f"client-{p}", 1) for p in range(3)]


def test_uploads_are_seen_as_they_are(configure, fed):
    """A witness sees the integers of each site, and the server averages them in units of the grid."""
    sent, seen, arrived = {}, [], []

    def keep(reply):
        sent[reply.event.client, reply.event.round] = reply.values
        return reply

    average = Session.average

    def spy(self, *given):
        arrived.append(average(self, *given))
        return arrived[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "average", spy)
        result = changed(fed, configure(), keep, witness=lambda events, values: seen.append((events, values)))
    assert len(seen) == 15
    for events, values in seen:
        (event,) = events
        assert values is sent[event.client, event.round]
    for s, found in enumerate(arrived, start=1):
        events = {event.client: event for event in result.ledger.events() if event.round == s}
        slow = sum(n / 95 * sent[f"client-{p}", s] * events[f"client-{p}"].grid for p, n in enumerate((20, 30, 45)))
        np.testing.assert_allclose(found, slow, rtol=1e-12)


def test_only_the_sum_is_seen(configure, fed):
    """Beyond 2⁵³, where a sum of floats would lose the last bit."""
    seen = []

    def large(reply):
        return replace(reply, values=np.full_like(reply.values, 2**60 + int(reply.site[-1])))

    config = configure(GradientPerturbation(trust="aggregate"), rounds=1)
    result = changed(fed, config, large, witness=lambda events, values: seen.append((list(events), values)))
    ((events, total),) = seen
    assert events == list(result.ledger.events())
    np.testing.assert_array_equal(total, np.full((6, 4), 3 * 2**60 + 3, np.int64), strict=True)


def test_a_curator_adds_its_noise_before_anything_is_seen(configure, fed):
    exact, seen = [], []

    def zero(reply):
        exact.append(reply.values)
        return reply

    config = configure(GradientPerturbation(trust="central"), rounds=40)
    result = changed(fed, config, zero, witness=lambda events, values: seen.append((events[0], values)))
    sums = np.array(exact).reshape(40, 3, 6, 4).sum(axis=1)
    noise = np.stack([(values - sums[s]) * event.grid / event.sigma for s, (event, values) in enumerate(seen)])
    assert noise.std() == pytest.approx(1.0, rel=6 / np.sqrt(2 * noise.size))
    assert len(result.ledger) == 3 * 40


OTHERWISE = {
    "grid": lambda reply: replace(reply, event=replace(reply.event, grid=2 * reply.event.grid)),
    "noise": lambda reply: replace(reply, event=replace(reply.event, sigma=reply.event.sigma / 2)),
    "round": lambda reply: replace(reply, event=replace(reply.event, round=reply.event.round + 1)),
    "site": lambda reply: replace(reply, event=replace(reply.event, client="client-2")),
    "receipt of a site": lambda reply: replace(reply, receipt=replace(reply.receipt, site="client-2")),
    "receipt of a contract": lambda reply: replace(reply, receipt=replace(reply.receipt, contract="0" * 64)),
    "receipt that is not signed by it": lambda reply: replace(
        reply, receipt=replace(reply.receipt, signature="0" * 128)
    ),
}


@pytest.mark.parametrize("trust", OTHERS)
@pytest.mark.parametrize("what", OTHERWISE)
def test_a_sum_of_events_that_are_not_the_contracts_is_not_seen(what, trust, configure, fed):
    """One grid, one noise, every site once: otherwise what is added up is not what was planned."""
    ledger, seen = Ledger(budget=BUDGET), []
    with pytest.raises(BadUpload):
        changed(
            fed,
            configure(GradientPerturbation(trust=trust)),
            of("client-1", OTHERWISE[what]),
            ledger=ledger,
            witness=lambda events, values: seen.append(values),
        )
    assert not seen
    assert len(ledger) == 0


# Replies that are none

BAD = {
    "floats": lambda values: values * 1.0,
    "shape": lambda values: values[:-1],
    "flat": lambda values: values.ravel(),
    "unsigned": lambda values: values.astype(np.uint64),
    "short": lambda values: values.astype(np.int32),
    "objects": lambda values: values.astype(object),
    "list": lambda values: values.tolist(),
    "nothing": lambda values: None,
}


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_array_is_neither_written_down_nor_seen(kind, trust, configure, fed):
    ledger, seen = Ledger(budget=BUDGET), []
    bad = of("client-1", lambda reply: replace(reply, values=BAD[kind](reply.values)))
    with pytest.raises(SiteFailed, match="client-1 failed in round 1"):
        changed(
            fed,
            configure(GradientPerturbation(trust=trust)),
            bad,
            ledger=ledger,
            witness=lambda events, values: seen.append(values),
        )
    # What the other sites sent did arrive, and the mirror says so; of a sum nothing is seen.
    arrived = ["client-0", "client-2"] if trust == "local" else []
    assert [event.client for event in ledger.events()] == arrived
    assert len(seen) == len(arrived)


FALSE = {
    **OTHERWISE,
    "another site": lambda reply: replace(reply, site="client-2"),
    "another reply": lambda reply: Done(reply.site),
    "too large to be added up": lambda reply: replace(reply, values=np.full_like(reply.values, 2**62)),
}


@pytest.mark.parametrize("kind", FALSE)
def test_an_upload_that_is_not_the_contracts_is_a_failure_of_its_own_site(kind, configure, fed):
    result = changed(fed, configure(policy="continue"), of("client-1", FALSE[kind]))
    assert [(each.site, each.round) for each in result.failures] == [("client-1", s) for s in range(1, 6)]
    assert result.ledger.clients == ["client-0", "client-2"]
    assert len(result.ledger) == 10


@pytest.mark.parametrize(
    "change",
    [
        lambda reply: replace(reply, contract="0" * 64),
        lambda reply: replace(reply, signature="0" * 128),
        lambda reply: replace(reply, site="client-0"),
        lambda reply: Done(reply.site),
    ],
    ids=["contract", "signature", "site", "reply"],
)
def test_a_contract_that_a_site_did_not_sign_begins_no_run(change, configure, fed):
    ledger = Ledger(budget=BUDGET)
    with pytest.raises(SiteFailed, match="client-1"):
        changed(fed, configure(), of("client-1", change), Signed, ledger=ledger)
    assert len(ledger) == 0


def test_rows_of_another_number_of_records_are_named(configure, fed):
    config = configure("none", budget=None, exact_rows=(DistanceRows.what,))
    members = simulated(fed, budget=None, noise="seeded").members
    result, session = config.learn(InProcess(members))
    assert [len(rows) for rows in session.rows(DistanceRows(), result.landmarks)] == [20, 30, 45]
    result, session = config.learn(
        Tampering(members, lambda reply: replace(reply, values=reply.values[1:]) if _rows(reply) else reply)
    )
    with pytest.raises(BadUpload, match=r"client-0: .* has 19 rows, not 20"):
        session.rows(DistanceRows(), result.landmarks)
    assert not list(result.ledger.events(what=DistanceRows.what))


def _rows(reply):
    return isinstance(reply, Sent) and reply.event.what == DistanceRows.what


# The mirror


def release(round=1, mu=0.1, client="client-0", what="gradient"):
    return GaussianRelease(
        what=what, client=client, round=round, sensitivity=mu, sigma=1.0, grid=2.0**-10, values=6, noise="seeded"
    )


RECEIPT = Receipt("client-0", "a contract", 1, "a hash")


def test_a_mirror_of_one_run_writes_a_release_once(tmp_path):
    mirror = Mirror(Ledger(budget=BUDGET), tmp_path)
    mirror.write([release()], [RECEIPT])
    mirror.write([release()], [RECEIPT])  # sent again
    assert len(mirror.ledger) == 1
    mirror.write([release(2)], [])
    mirror.write([release(client="client-1"), release(what="moments")], [])
    assert len(mirror.ledger) == 4
    assert mirror.receipts == {"client-0": RECEIPT}
    again = Mirror(mirror.ledger, tmp_path)  # after an interruption
    again.write([release(), release(3)], [])
    assert len(mirror.ledger) == 5


@pytest.mark.parametrize("before", [True, False])
def test_the_same_release_under_another_event_is_refused(before, tmp_path):
    mirror = Mirror(Ledger(budget=BUDGET), tmp_path)
    mirror.write([release()], [])
    if before:
        mirror = Mirror(mirror.ledger, tmp_path)
    with pytest.raises(BadUpload, match="client-0: gradient in round 1 was accounted for otherwise before"):
        mirror.write([release(client="client-1"), release(mu=0.2)], [])
    assert len(mirror.ledger) == 1, "nor was the other one written"


def test_signed_receipts_are_kept_to_be_shown_again(tmp_path):
    """A site finds by its own whether its ledger is an old copy."""
    signed = replace(RECEIPT, signature="5e")
    Mirror(Ledger(budget=BUDGET), tmp_path).write([release()], [signed])
    assert Mirror(Ledger(budget=BUDGET), tmp_path).receipts == {"client-0": signed}


def test_a_ledger_of_several_runs_has_them_all():
    mirror = Mirror(Ledger(budget=BUDGET))
    for _ in range(2):
        mirror.write([release()], [])
    assert len(mirror.ledger) == 2


def test_the_mirror_holds_its_own_budget_all_or_nothing():
    mirror = Mirror(Ledger(budget=Budget(1.0, 1e-5)))
    with pytest.raises(BudgetExceeded) as caught:
        mirror.write([release(mu=0.01), release(mu=10.0, client="client-1")], [])
    assert caught.value.client == "client-1"
    assert len(mirror.ledger) == 0


# Repeating


def test_the_same_seed_repeats_and_another_does_not(configure, fed):
    runs = [configure(seed=seed).run(fed).landmarks for seed in (3, 3, 4)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_the_order_of_clients_changes_only_what_it_must(trust, configure, fed):
    """Without noise nothing but rounding; with noise the streams go by number, the events by name."""
    parts = [client.X for client in fed.clients]
    turned = FederatedData(parts[::-1], names=["client-2", "client-1", "client-0"])
    plain = [configure("none", budget=None).run(each).landmarks for each in (fed, turned)]
    np.testing.assert_allclose(plain[0], plain[1], atol=1e-5)
    noisy = [configure(GradientPerturbation(trust=trust)).run(each) for each in (fed, turned)]
    events = [sorted(event.to_json() for event in run.ledger.events()) for run in noisy]
    assert events[0] == events[1]
    assert noisy[0].ledger.spent() == noisy[1].ledger.spent()


# Sites that fail


@dataclass(frozen=True)
class Unreliable(GradientPerturbation):
    """Fails at the client with 30 records, in round 2."""

    how: str = "nan"
    records: int = 30
    seen: ClassVar[dict[int, int]] = {}

    def total(self, local, Y, public, grid, factor=1.0):
        values = super().total(local, Y, public, grid, factor)
        key = len(local.records)
        self.seen[key] = self.seen.get(key, 0) + 1
        if key != self.records or self.seen[key] != 2:
            return values
        if self.how == "raise":
            raise RuntimeError("the disk is gone")
        broken = {"nan": values * np.nan, "floats": values * 1.0, "shape": values[:-1], "list": values.tolist()}
        return broken.get(self.how)  # or nothing


@dataclass(frozen=True)
class Careless(NoPerturbation):
    """Uploads the wrong type, which only an upload without noise can."""

    how: str = "integers"

    def message(self, local, Y, public, generator):
        values = super().message(local, Y, public, generator).values
        if len(local.records) != 30:
            return Message(values)
        return Message(
            {"integers": values.astype(np.int64), "nothing": None, "half": values.astype(np.float16)}[self.how]
        )


@pytest.fixture(autouse=True)
def _forget():
    Unreliable.seen.clear()


HOW = ["nan", "floats", "shape", "raise", "nothing", "list"]
WORDS = "this site could not do it; its own log says why"


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("how", HOW)
def test_a_round_goes_on_without_a_site_that_fails(how, jobs, configure, fed):
    seen = []
    config = configure(Unreliable(how=how), policy="continue")
    result = config.run(fed, jobs=jobs, witness=lambda events, values: seen.append(events[0]))
    assert result.failures[0] == Failure("client-1", 2, WORDS)
    assert [(each.site, each.round) for each in result.failures] == [("client-1", s) for s in (2, 3, 4, 5)]
    assert len(result.trace) == 5
    assert np.isfinite(result.landmarks).all()
    counts = {name: len(list(result.ledger.events(client=name))) for name in ("client-0", "client-1", "client-2")}
    assert counts == {"client-0": 5, "client-1": 1, "client-2": 5}, "a site that failed waits for its owner"
    assert [event.to_json() for event in seen] == [event.to_json() for event in result.ledger.events()]
    assert result.ledger.spent(client="client-1") < result.ledger.spent(client="client-0")


@pytest.mark.parametrize("how", HOW)
def test_a_run_that_must_not_go_on_stops(how, configure, fed):
    ledger = Ledger(budget=BUDGET)
    with pytest.raises(SiteFailed, match="client-1 failed in round 2") as caught:
        configure(Unreliable(how=how), policy="fail").run(fed, ledger=ledger)
    assert "disk" not in str(caught.value)
    assert len(ledger) == 5, "round 1, and what the two others sent in round 2"


@pytest.mark.parametrize("trust", OTHERS)
@pytest.mark.parametrize("how", HOW)
def test_a_sum_is_never_taken_over_some_sites_only(how, trust, configure, fed):
    ledger, seen = Ledger(budget=BUDGET), []
    with pytest.raises(SiteFailed, match="client-1 failed in round 2"):
        configure(Unreliable(how=how, trust=trust), policy="continue").run(
            fed, ledger=ledger, witness=lambda events, values: seen.append(events)
        )
    assert len(ledger) == 3
    assert len(seen) == 1


@pytest.mark.parametrize("how", ["integers", "nothing", "half"])
def test_the_wrong_type_is_a_failure(how, configure, fed, tmp_path):
    config = configure(Careless(how=how), policy="continue", budget=None, rounds=2)
    for checkpoint in (None, tmp_path / "run"):
        result = config.run(fed, checkpoint=checkpoint)
        assert [(failure.site, failure.round) for failure in result.failures] == [("client-1", 1), ("client-1", 2)]
        assert len(result.ledger) == 4
        result.ledger.close()


def test_weights_are_renormalised_over_those_who_answer(configure, fed):
    """Without noise the run equals one of the others alone."""
    others = FederatedData([fed.clients[0].X, fed.clients[2].X])
    start = np.random.default_rng(0).normal(size=(6, 4))
    broken = configure(Careless(), policy="continue", budget=None, start=start).run(fed)
    alone = configure("none", budget=None, start=start).run(others)
    np.testing.assert_allclose(broken.landmarks, alone.landmarks, atol=1e-6)


def test_a_round_without_any_answer_ends_the_run(configure):
    single = FederatedData([np.random.default_rng(0).normal(size=(30, 4))])
    with pytest.raises(SiteFailed, match="no site gave a valid upload"):
        configure(Careless(), policy="continue", budget=None).run(single)


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_a_run_that_failed_can_be_tried_again(trust, configure, fed, tmp_path):
    """What the others had sent when one failed must not stand for the whole round."""
    config = configure(Unreliable(how="raise", trust=trust))
    with pytest.raises(SiteFailed):
        config.run(fed, checkpoint=tmp_path)
    seen = []
    result = config.run(fed, checkpoint=tmp_path, witness=lambda events, values: seen.extend(events))
    assert len(seen) == 3 * 4, "rounds 2 to 5, of all sites"
    assert len(result.ledger) == 15
    whole = configure(GradientPerturbation(trust=trust)).run(fed)
    np.testing.assert_array_equal(result.landmarks, whole.landmarks)
    result.ledger.close()


def test_a_bad_policy_is_named(configure, fed):
    link = simulated(fed, budget=BUDGET, noise="seeded")
    _, session = configure(rounds=1).learn(link)
    with pytest.raises(InvalidParameter) as caught:
        Session(link, session.contract, Mirror(Ledger()), on_failure="hope")
    assert caught.value.value == "hope"
