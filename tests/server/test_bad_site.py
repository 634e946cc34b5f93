"""One site that answers wrongly does not end a run that the others can finish."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from dpfedvis import FederatedData
from dpfedvis.estimators.simulation import simulated
from dpfedvis.protocol.messages import NOT_PLANNED, Refused
from dpfedvis.protocol.secure_sum import Opened
from dpfedvis.protocol.sum_messages import (
    Advertise,
    Advertised,
    Confirmed,
    Masked,
    SendMasked,
    Shared,
    Unmasked,
    unreadable,
)
from dpfedvis.server.session import SiteFailed
from tests.server.leaky_link import BUDGET, Spoiling, data, events, leaky, plain, program

BAD = "client-4"


def garbled(reply: Shared, towards: Collection[str] | None = None) -> Shared:
    """Ciphertexts that nobody can read, or not these sites."""
    to = {name: "00" * (len(each) // 2) if towards is None or name in towards else each
          for name, each in reply.shares.to.items()}  # fmt: skip
    return replace(reply, shares=replace(reply.shares, to=to))


def fewer(reply: Shared) -> Shared:
    to = dict(list(reply.shares.to.items())[:-1])
    return replace(reply, shares=replace(reply.shares, to=to))


SPOILED = {
    "an advert with a false signature": (
        Advertised,
        lambda reply: replace(reply, advert=replace(reply.advert, signature="00" * 64)),
    ),
    "an advert of another name": (
        Advertised,
        lambda reply: replace(reply, advert=replace(reply.advert, name="client-0")),
    ),
    "shares for too few": (Shared, fewer),
    "shares of other labels": (Shared, lambda reply: replace(reply, shares=replace(reply.shares, labels=("x",)))),
    "shares that nobody can read": (Shared, garbled),
    "too few values": (Masked, lambda reply: replace(reply, values=reply.values[:-1].copy())),
    "values that are no integers": (Masked, lambda reply: replace(reply, values=reply.values.astype(np.float64))),
    "another event": (
        Masked,
        lambda reply: replace(reply, event=replace(reply.event, sigma=2 * reply.event.sigma)),
    ),
    "another round": (Masked, lambda reply: replace(reply, event=replace(reply.event, round=7))),
    "another site's event": (Masked, lambda reply: replace(reply, event=replace(reply.event, client="client-0"))),
    "another site's receipt": (Masked, lambda reply: replace(reply, receipt=replace(reply.receipt, site="client-0"))),
    "a receipt with a false signature": (
        Masked,
        lambda reply: replace(reply, receipt=replace(reply.receipt, signature="00" * 64)),
    ),
    "a false signature": (Confirmed, lambda reply: replace(reply, signature="00" * 64)),
    "no shares to open": (Unmasked, lambda reply: replace(reply, opened=Opened({}, {}))),
}
IN_THE_SUM = {"a false signature", "no shares to open"}


def spoiling(fed: FederatedData, kind, change, bad: Collection[str] = (BAD,)) -> Spoiling:
    def spoil(name, request, reply):
        return change(reply) if name in bad and isinstance(reply, kind) else reply

    return Spoiling(simulated(fed, budget=BUDGET, noise="seeded").members, spoil)


@pytest.mark.parametrize("what", SPOILED)
def test_a_run_goes_on_without_a_site_that_answers_wrongly(what):
    fed, made = data(), program()
    found = spoiling(fed, *SPOILED[what]).run(made)
    if what in IN_THE_SUM:
        whole, missed = plain(fed, made), set()
    else:
        whole = leaky(fed, lambda name, request: name == BAD and isinstance(request, SendMasked)).run(made)
        missed = {(BAD, number) for number in (1, 2, 3)}
    assert np.array_equal(found.landmarks, whole.landmarks)
    assert sorted(events(found)) == sorted(events(whole)), "nobody was charged twice"
    assert {(each.site, each.round) for each in found.feddl.failures} == missed
    assert all("away" not in each.reason for each in found.feddl.failures), "it is said what was wrong"


def test_two_senders_whose_shares_nobody_can_read():
    rng = np.random.default_rng(0)
    fed = FederatedData([rng.normal(size=(30, 5)) for _ in range(7)], bounds=(-3, 3))
    bad = {"client-0", "client-6"}
    found = spoiling(fed, Shared, garbled, bad).run(program(threshold=5))
    assert {event.client for event in found.feddl.ledger.events()} == {f"client-{number}" for number in range(1, 6)}


def test_a_resumed_run_takes_the_site_back(tmp_path):
    """What was agreed with unreadable shares is of no use; the release was masked by nobody else."""
    fed, made, spoiled = data(), program(), [True]

    def spoil(name, request, reply):
        if spoiled[0] and isinstance(request, SendMasked) and request.label.startswith("gradient|3|"):
            raise KeyboardInterrupt
        return garbled(reply) if spoiled[0] and name == BAD and isinstance(reply, Shared) else reply

    with simulated(fed, budget=BUDGET, noise="seeded", folder=tmp_path / "sites") as link:
        with pytest.raises(KeyboardInterrupt):
            Spoiling(link.members, spoil).run(made, checkpoint=tmp_path / "server")
        spoiled[0] = False
        found = Spoiling(link.members, spoil).run(made, checkpoint=tmp_path / "server")
    rounds = {number: set() for number in (1, 2, 3)}
    for event in found.feddl.ledger.events():
        rounds[event.round].add(event.client)
    assert all(len(names) >= 4 for names in rounds.values())
    assert BAD not in rounds[1] | rounds[2]


def test_one_site_alone_cannot_have_another_left_out():
    """As many sites as work together may lie."""
    fed, asked = data(), []

    def accuse(name, request, reply):
        asked.extend([request] * isinstance(request, Advertise))
        lies = name == BAD and isinstance(request, SendMasked)
        return Refused(BAD, NOT_PLANNED, unreadable("client-0")) if lies else reply

    found = Spoiling(simulated(fed, budget=BUDGET, noise="seeded").members, accuse).run(program())
    assert {event.client for event in found.feddl.ledger.events()} == {f"client-{number}" for number in range(4)}
    assert len(asked) == 5, "keys were agreed on once"


def test_a_release_that_some_have_masked_is_not_asked_for_under_other_keys():
    """It can be repeated with noise of its own, and then without the sender that some could not read."""
    fed, labels = data(), {}

    def spoil(name, request, reply):
        if isinstance(reply, Masked):
            labels.setdefault((name, reply.event.round), set()).add(request.label)
        bad = name == BAD and isinstance(reply, Shared)
        return garbled(reply, ("client-0", "client-1")) if bad else reply

    def link():
        return Spoiling(simulated(fed, budget=BUDGET, noise="seeded").members, spoil)

    with pytest.raises(SiteFailed, match="confirm: 3 sites, of at least 4"):
        link().run(program())
    assert all(len(each) == 1 for each in labels.values())
    labels.clear()
    found = link().run(program(retries=1))
    assert all(len(each) == 1 for each in labels.values())
    rounds = {number: {event.client for event in found.feddl.ledger.events() if event.round == number}
              for number in (1, 2, 3, 4)}  # fmt: skip
    assert rounds[4] == rounds[2] == rounds[3] == {f"client-{number}" for number in range(4)}


def test_a_site_that_cannot_be_spared_is_asked_for_keys_again():
    """Of three sites all are needed: a repeated sum is under new keys, and not without the one that was wrong once."""
    fed, spoiled = data(3), []

    def once(reply):
        spoiled.append(reply)
        return garbled(reply) if len(spoiled) == 1 else reply

    found = spoiling(fed, Shared, once, ("client-2",)).run(program(retries=1))
    assert len(spoiled) == 2
    rounds = [event.round for event in found.feddl.ledger.events()]
    assert {number: rounds.count(number) for number in rounds} == {1: 1, 2: 3, 3: 3, 4: 3}
