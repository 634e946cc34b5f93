"""The collector of a secure sum: what it refuses, whom it names, and how it goes on from what it kept."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.protocol import wire
from dpfedvis.protocol.secure_sum import (
    Advert,
    AlreadyAnswered,
    CannotOpen,
    Collector,
    InvalidMessage,
    Member,
    NotAuthentic,
    Opened,
    OutOfOrder,
    SecureSumError,
    Shares,
    TooFewMembers,
)
from dpfedvis.protocol.signatures import Identity
from dpfedvis.protocol.sum_collector import _sets
from tests.protocol.sum_world import (
    ASKED,
    CONTEXT,
    LABEL,
    NAMES,
    VALUES,
    World,
    advertised,
    masked,
    slow_sum,
    some_values,
)


def test_a_wrong_share_is_found_and_routed_around() -> None:
    """One that lies is harmless while t others opened; then it is said whose secret cannot be opened."""
    for kind, gone, owner in (("masks", "", "b"), ("keys", "d", "d")):
        survivors = [name for name in NAMES if name != gone]
        world = masked(survivors)
        world.confirm(survivors, LABEL)
        signatures = world.collector.signatures(LABEL)
        answers = {name: world.members[name].unmask(LABEL, signatures) for name in survivors}
        shares = dict(getattr(answers["a"], kind))
        shares[owner] = f"{int(shares[owner], 16) ^ 1:064x}"
        world.collector.add_opened(LABEL, "a", replace(answers["a"], **{kind: shares}))
        world.collector.add_opened(LABEL, "b", answers["b"])
        with pytest.raises(TooFewMembers, match="total: 2 sites, of at least 3"):
            world.collector.total(LABEL)
        world.collector.add_opened(LABEL, "c", answers["c"])
        what = {"masks": "self mask", "keys": "mask key"}[kind]
        with pytest.raises(CannotOpen, match=f"{what} of '{owner}' .* \\['a', 'b', 'c'\\]"):
            world.collector.total(LABEL)
        if not gone:
            world.collector.add_opened(LABEL, "d", answers["d"])
            assert world.collector.total(LABEL).values.tolist() == slow_sum(VALUES, NAMES)


@pytest.mark.parametrize(
    ("sites", "threshold", "liars"), [(15, 11, 1), (15, 11, 2), (30, 27, 1), (30, 27, 2), (9, 5, 4)]
)
def test_wrong_shares_are_routed_around_wherever_their_givers_stand(sites: int, threshold: int, liars: int) -> None:
    """First, last, or in between: not all sets of t are tried, so that the order of the sets matters."""
    names = [f"s{number:02d}" for number in range(sites)]
    values = some_values(names, 3)
    world = World.of(names, threshold)
    world.collector.begin((LABEL,))
    world.advertise(names, (LABEL,))
    world.share(names, (LABEL,))
    world.masked(names, LABEL, (LABEL,), values)
    world.confirm(names, LABEL)
    signatures = world.collector.signatures(LABEL)
    opened = {name: world.members[name].unmask(LABEL, signatures) for name in names}
    middle = (sites - liars) // 2
    for wrong in (names[:liars], names[-liars:], names[middle : middle + liars]):
        collector = copy.deepcopy(world.collector)
        for name, given in opened.items():
            lie = Opened(dict.fromkeys(given.masks, "00" * 31 + "07"), given.keys)
            collector.add_opened(LABEL, name, lie if name in wrong else given)
        assert collector.total(LABEL).values.tolist() == slow_sum(values, names)


def test_every_set_of_shares_is_tried_once() -> None:
    places = (3, 1, 2, 7, 5, 4)
    for size in range(1, 7):
        found = list(_sets(places, size))
        assert len(found) == math.comb(6, size)
        assert {frozenset(each) for each in found} == {frozenset(each) for each in combinations(places, size)}
        # The first of all, then one without each place in turn.
        assert set(places[:size]) == set(found[0])
        if size < 6:
            assert all(any(place not in each for each in found[:7]) for place in places)


def test_a_site_that_dealt_wrong_shares_is_named() -> None:
    world, _ = advertised()
    seeds = world.members["b"]._sums[LABEL].seeds
    world.members["b"]._sums[LABEL].seeds = (f"{int(seeds[0], 16) ^ 1:064x}", seeds[1])
    world.share(NAMES, (LABEL,))
    world.masked(NAMES, LABEL, (LABEL,), VALUES)
    world.confirm(NAMES, LABEL)
    world.unmask(NAMES, LABEL)
    with pytest.raises(CannotOpen, match="self mask of 'b'"):
        world.collector.total(LABEL)


def test_the_collector_refuses_what_does_not_fit_and_takes_the_first_of_a_site() -> None:
    world = World.of(NAMES, 3)
    collector, labels = world.collector, (LABEL,)
    with pytest.raises(OutOfOrder, match="no such batch"):
        collector.add_advert(world.members["a"].advertise(labels))
    for wrong_labels in ((), ("x", "x")):
        with pytest.raises(AlreadyAnswered, match="at least one, distinct"):
            collector.begin(wrong_labels)
    collector.begin(labels)
    with pytest.raises(AlreadyAnswered):
        collector.begin(labels)
    world.advertise(("a", "b"), labels)
    with pytest.raises(TooFewMembers, match="share: 2 sites"):
        collector.adverts(labels)
    world.advertise("abc", labels)
    adverts = collector.adverts(labels)
    with pytest.raises(OutOfOrder, match="advert of 'd' came too late"):
        world.advertise("d", labels)
    made = {name: world.members[name].share(adverts) for name in "abc"}
    for name, wrong in (("d", made["a"]), ("b", made["a"]), ("a", replace(made["a"], to={"b": made["a"].to["b"]}))):
        with pytest.raises(InvalidMessage):
            collector.add_shares(name, wrong)
    for name in "ab":
        collector.add_shares(name, made[name])
    with pytest.raises(TooFewMembers, match="masked: 2 sites"):
        collector.shares(labels, "a")
    with pytest.raises(OutOfOrder):
        collector.add_masked(LABEL, "a", VALUES["a"], 3, ASKED)
    collector.add_shares("c", made["c"])
    assert collector.route(labels) == ("a", "b", "c")
    with pytest.raises(OutOfOrder, match="'d'"):
        collector.shares(labels, "d")
    for wrong in (VALUES["a"][:2], VALUES["a"].astype(float), VALUES["a"][None], [1, 2, 3]):
        with pytest.raises(InvalidMessage, match="masked values of 'a'"):
            collector.add_masked(LABEL, "a", wrong, 3, ASKED)
    with pytest.raises(OutOfOrder, match="no masked values"):
        collector.masked_sum(LABEL)
    world.masked("ab", LABEL, labels, VALUES)
    with pytest.raises(InvalidMessage, match="values of 'c' are not 1 "):
        collector.add_masked(LABEL, "c", np.ones(1, dtype=np.int64), 1, ASKED)
    world.masked("ab", LABEL, labels, VALUES)
    with pytest.raises(TooFewMembers, match="confirm: 2 sites"):
        collector.survivors(LABEL)
    with pytest.raises(OutOfOrder):
        collector.add_signature(LABEL, "a", "00" * 64)
    world.masked("c", LABEL, labels, VALUES)
    world.confirm("ab", LABEL)
    with pytest.raises(NotAuthentic, match="'c'"):
        collector.add_signature(LABEL, "c", world.members["b"].confirm(LABEL, "abc"))
    with pytest.raises(TooFewMembers, match="unmask: 2 sites"):
        collector.signatures(LABEL)
    world.confirm("c", LABEL)
    signatures = collector.signatures(LABEL)
    opened = world.members["a"].unmask(LABEL, signatures)
    for wrong in (
        Opened({}, {}),
        Opened(opened.masks, {"a": opened.masks["a"]}),
        Opened({**opened.masks, "a": "00"}, {}),
    ):
        with pytest.raises(InvalidMessage):
            collector.add_opened(LABEL, "a", wrong)
    with pytest.raises(InvalidMessage, match="below the prime"):
        collector.add_opened(LABEL, "a", Opened({**opened.masks, "a": "ff" * 32}, {}))
    world.unmask("abc", LABEL)
    assert collector.total(LABEL).values.tolist() == slow_sum(VALUES, "abc")
    assert collector.total(LABEL).values.tolist() == slow_sum(VALUES, "abc")


def test_a_collector_that_lost_its_memory_goes_on_from_the_list_that_went_out() -> None:
    """It feeds adverts and shares again; the list and the masked sum it kept. Another list would be refused."""
    world = masked("abc")
    kept = world.collector.survivors(LABEL), world.collector.masked_sum(LABEL).copy(), ASKED
    world.confirm("a", LABEL)
    old, world.collector = world.collector, Collector(world.collector._group.roster, 3, CONTEXT)
    world.collector.begin((LABEL,))
    world.advertise(NAMES, (LABEL,))
    world.share(NAMES, (LABEL,))
    with pytest.raises(OutOfOrder, match="'a'"):
        world.collector.restore(LABEL, *kept)
    assert world.collector.route((LABEL,)) == old.route((LABEL,))
    with pytest.raises(TooFewMembers):
        world.collector.restore(LABEL, kept[0][:2], *kept[1:])
    world.collector.restore(LABEL, *kept)
    for refused in (lambda: world.masked("d", LABEL, (LABEL,), VALUES), lambda: world.collector.restore(LABEL, *kept)):
        with pytest.raises(OutOfOrder):
            refused()
    world.confirm("abc", LABEL)
    world.unmask("abc", LABEL)
    assert world.collector.total(LABEL).values.tolist() == slow_sum(VALUES, "abc")


def test_late_shares_and_late_values_are_refused() -> None:
    world, adverts = advertised()
    world.share("abc", (LABEL,))
    world.masked("ab", LABEL, (LABEL,), VALUES)
    with pytest.raises(OutOfOrder, match="shares of 'd' came too late"):
        world.collector.add_shares("d", world.members["d"].share(adverts))
    late = masked("abc")
    late.collector.survivors(LABEL)
    with pytest.raises(OutOfOrder, match="values of 'd' came too late"):
        late.masked("d", LABEL, (LABEL,), VALUES)


def test_roster_and_threshold_are_checked() -> None:
    identity, roster = Identity(bytes(32)), {"a": Identity(bytes(32)).public, "b": Identity(b"b" * 32).public}
    for threshold in (0, 1, 3):
        with pytest.raises(InvalidParameter, match="threshold"):
            Collector(roster, threshold, CONTEXT)
    for wrong, kind in (
        (roster | {"b": roster["a"]}, InvalidParameter),
        (roster | {"b": "ab"}, InvalidMessage),
        (roster | {"b": roster["a"].upper()}, InvalidMessage),
        ({"a": roster["a"], "": roster["b"]}, InvalidParameter),
    ):
        with pytest.raises(kind):
            Collector(wrong, 2, CONTEXT)
    for name in ("b", "c"):
        with pytest.raises(InvalidMessage, match="another key"):
            Member(name, identity, roster, 2, CONTEXT)
    assert issubclass(SecureSumError, DpfedvisError)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Advert("a", (), "00" * 32, (), ()),
        lambda: Advert("a", ("x",), "00" * 32, (), ("00" * 32,)),
        lambda: Advert("a", ("x",), "00" * 31, ("00" * 32,), ("00" * 32,)),
        lambda: Advert("a", ("x",), "AA" * 32, ("00" * 32,), ("00" * 32,)),
        lambda: Advert(5, ("x",), "00" * 32, ("00" * 32,), ("00" * 32,)),  # type: ignore[arg-type]
        lambda: Advert("a", ("x",), "00" * 32, (None,), ("00" * 32,)),  # type: ignore[arg-type]
        lambda: Shares(({},), {}),  # type: ignore[arg-type]
        lambda: Shares(("x",), ["a"]),  # type: ignore[arg-type]
        lambda: Shares(("x",), {"a": 5}),  # type: ignore[dict-item]
        lambda: Opened({"a": None}, {}),  # type: ignore[dict-item]
    ],
)
def test_messages_check_their_own_parts(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidMessage):
        make()


def test_messages_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As bytes, like every other message, once they are registered there."""
    monkeypatch.setattr(wire, "_CLASSES", dict(wire._CLASSES))
    wire.register(Advert, Shares, Opened)
    world = masked("abc")
    world.confirm("abc", LABEL)
    advert = world.members["a"].advertise((LABEL,))
    for message in (
        advert,
        world.members["a"].share(world.collector.adverts((LABEL,))),
        world.members["a"].unmask(LABEL, world.collector.signatures(LABEL)),
    ):
        assert wire.decode(wire.encode(message)) == message
