"""Secure sum: a server that lies once keys are shared opens nothing, and the member stays as it was."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from dpfedvis.protocol import sum_group as both
from dpfedvis.protocol.secure_sum import (
    AlreadyAnswered,
    InvalidMessage,
    NotAuthentic,
    OutOfOrder,
    SecureSumError,
    TooFewMembers,
)
from dpfedvis.protocol.signatures import Identity
from tests.protocol.sum_world import (
    ASKED,
    CONTEXT,
    LABEL,
    NAMES,
    VALUES,
    Refused,
    World,
    advertised,
    masked,
    shared,
    slow_sum,
)


def test_it_masks_with_at_least_t_members_that_it_shared_with() -> None:
    world, _ = advertised()
    a = world.members["a"]
    with Refused(a, OutOfOrder, "not yet shared"):
        a.masked(LABEL, VALUES["a"], dict.fromkeys("bcd", "00"), ASKED)
    world.share(NAMES, (LABEL,))
    right = world.collector.shares((LABEL,), "a")
    with Refused(a, TooFewMembers, "2 sites, of at least 3"):
        a.masked(LABEL, VALUES["a"], {"b": right["b"]}, ASKED)
    with Refused(a, InvalidMessage, "'e'"):
        a.masked(LABEL, VALUES["a"], right | {"e": right["b"]}, ASKED)
    with Refused(a, InvalidMessage, "twice"):
        a.masked(LABEL, VALUES["a"], right | {"a": right["b"]}, ASKED)
    with Refused(a, OutOfOrder, "unknown"):
        a.masked("other", VALUES["a"], right, ASKED)
    part, adverts = advertised()
    part.members["a"].share(adverts[:3])
    with Refused(part.members["a"], OutOfOrder, "not yet shared"):
        part.members["a"].masked(LABEL, VALUES["a"], right, ASKED)


@pytest.mark.parametrize(
    "values",
    [np.ones(3), np.ones((1, 3), dtype=np.int64), np.ones(0, dtype=np.int64), [1, 2, 3], np.ones(3, dtype=np.uint64)],
    ids=str,
)
def test_values_are_a_vector_of_int64(values: Any) -> None:
    world = shared()
    with Refused(world.members["a"], InvalidMessage, "vector of int64"):
        world.members["a"].masked(LABEL, values, world.collector.shares((LABEL,), "a"), ASKED)


def test_masked_values_are_the_same_whatever_is_asked_later() -> None:
    """Two vectors behind the same masks would tell their difference."""
    world = shared()
    a, shares = world.members["a"], world.collector.shares((LABEL,), "a")
    first = a.masked(LABEL, VALUES["a"], {name: shares[name] for name in ("b", "c")}, ASKED)
    before = a.to_bytes()
    for values, shown in ((VALUES["b"], shares), (VALUES["a"], shares), (VALUES["a"][:1], {})):
        np.testing.assert_array_equal(a.masked(LABEL, values, shown, ASKED), first)
    assert a.to_bytes() == before
    assert not first.flags.writeable


@pytest.mark.parametrize("asked", ["", None, 5])
def test_a_sum_without_a_question_is_refused(asked: Any) -> None:
    world = shared()
    a, collector, labels = world.members["a"], world.collector, (LABEL,)
    shares, group = collector.shares(labels, "a"), collector._group
    with Refused(a, InvalidMessage, f"asked for is {asked!r}"):
        a.masked(LABEL, VALUES["a"], shares, asked)
    for derive in (
        lambda: group.pair_mask(bytes(32), LABEL, "a", "b", 3, asked),
        lambda: group.survivors_text(LABEL, NAMES, asked),
        lambda: collector.add_masked(LABEL, "a", VALUES["a"], 3, asked),
        lambda: collector.restore(LABEL, NAMES, VALUES["a"], asked),
    ):
        with pytest.raises(InvalidMessage, match=f"asked for is {asked!r}"):
            derive()
    world.masked(NAMES, LABEL, labels, VALUES)
    world.confirm(NAMES, LABEL)
    world.unmask(NAMES, LABEL)
    assert collector.total(LABEL).values.tolist() == slow_sum(VALUES, NAMES)


def test_sites_with_different_questions_are_not_in_one_sum() -> None:
    """Their masks do not cancel, and neither takes the other's signature; a server that follows the rules says so."""
    world, other = shared(), hashlib.sha256(b"another question").hexdigest()
    group, collector = world.collector._group, world.collector
    mask = group.pair_mask(bytes(32), LABEL, "a", "b", 3, ASKED)
    assert (mask + group.pair_mask(bytes(32), LABEL, "b", "a", 3, ASKED)).tolist() == [0, 0, 0]
    assert (mask + group.pair_mask(bytes(32), LABEL, "b", "a", 3, other)).all()
    world.masked("abc", LABEL, (LABEL,), VALUES)
    d = world.members["d"]
    values = d.masked(LABEL, VALUES["d"], collector.shares((LABEL,), "d"), other)
    with pytest.raises(InvalidMessage, match=f"values of 'd' answer {other}, those before them {ASKED}"):
        collector.add_masked(LABEL, "d", values, 3, other)
    signatures = {name: world.members[name].confirm(LABEL, NAMES) for name in NAMES}
    with Refused(world.members["a"], NotAuthentic, "'d'"):
        world.members["a"].unmask(LABEL, {name: signatures[name] for name in "abd"})
    with Refused(d, NotAuthentic, "'a'"):
        d.unmask(LABEL, {name: signatures[name] for name in "abd"})


def test_one_list_of_survivors_is_signed_and_only_a_right_one() -> None:
    world = shared()
    a, shares = world.members["a"], world.collector.shares((LABEL,), "a")
    with Refused(a, OutOfOrder, "masked"):
        a.confirm(LABEL, NAMES)
    a.masked(LABEL, VALUES["a"], {name: shares[name] for name in ("b", "c")}, ASKED)
    for wrong, kind in (
        (("a", "b"), TooFewMembers),
        (("b", "c"), TooFewMembers),
        ((), TooFewMembers),
        (("a", "b", "b"), InvalidMessage),
        (("a", "b", "e"), InvalidMessage),
        (("b", "c", "d"), InvalidMessage),  # it is not on it itself
        (NAMES, InvalidMessage),  # it holds no shares of d
        (("a", "b", 5), InvalidMessage),
        (("a", "b", ["c"]), InvalidMessage),
        ("abe", InvalidMessage),
    ):
        with Refused(a, kind):
            a.confirm(LABEL, wrong)  # type: ignore[arg-type]
    everyone = masked().members["a"]
    first = everyone.confirm(LABEL, ("a", "b", "c"))
    assert everyone.confirm(LABEL, ["c", "b", "a"]) == first
    for other in (NAMES, ("a", "b", "d")):
        with Refused(everyone, AlreadyAnswered):
            everyone.confirm(LABEL, other)


def test_shares_are_given_for_t_signatures_of_the_same_list() -> None:
    world = masked(labels=(LABEL, "other"))
    a, three = world.members["a"], ("a", "b", "c")
    right = {name: world.members[name].confirm(LABEL, NAMES) for name in ("b", "c", "d")}
    with Refused(a, OutOfOrder, "not yet signed"):
        a.unmask(LABEL, right)
    a.confirm(LABEL, three)
    with Refused(a, InvalidMessage, "of survivors"):
        a.unmask(LABEL, right)  # d is not on the list that it signed
    own = {name: sign_list(world, name, three) for name in three}
    for wrong, kind in (
        ({name: own[name] for name in ("a", "b")}, TooFewMembers),
        ({}, TooFewMembers),
        (own | {"c": right["c"]}, NotAuthentic),  # of another list
        (own | {"c": own["b"]}, NotAuthentic),
        (own | {"c": sign_list(world, "c", three, label="other")}, NotAuthentic),
        (own | {"c": sign_list(world, "c", three, context="another contract")}, NotAuthentic),
        (own | {"c": world.members["c"].advertise((LABEL, "other")).signature}, NotAuthentic),
        (
            own | {"c": Identity(bytes(32)).sign(world.collector._group.survivors_text(LABEL, three, ASKED))},
            NotAuthentic,
        ),
        (own | {"c": ""}, InvalidMessage),
        (own | {"c": None}, InvalidMessage),
        (own | {"d": sign_list(world, "d", three)}, InvalidMessage),  # not on the list itself
        (own | {"e": own["b"]}, InvalidMessage),
    ):
        with Refused(a, kind):
            a.unmask(LABEL, wrong)  # type: ignore[arg-type]
    opened = a.unmask(LABEL, own)
    before = a.to_bytes()
    assert a.unmask(LABEL, {}) == opened
    assert a.to_bytes() == before


def sign_list(world: World, name: str, survivors: Collection[str], label: str = LABEL, context: str = CONTEXT) -> str:
    group = replace(world.collector._group, context=context)
    return world.identities[name].sign(group.survivors_text(label, sorted(survivors), ASKED))


def test_one_of_the_two_secrets_of_a_site_is_opened_and_never_both() -> None:
    for gone in ("", *NAMES):
        survivors = [name for name in NAMES if name != gone]
        world = masked(survivors)
        world.confirm(survivors, LABEL)
        for name in survivors:
            held = copy.deepcopy(world.members[name]._sums[LABEL].shares)
            opened = world.members[name].unmask(LABEL, world.collector.signatures(LABEL))
            assert opened.masks == {owner: held[owner][0] for owner in survivors}
            assert opened.keys == {owner: held[owner][1] for owner in NAMES if owner == gone}
            assert not world.members[name]._sums[LABEL].shares  # what was not opened is gone


def test_no_order_of_questions_opens_two_lists() -> None:
    """P = 4, t = 3, c = 1: the server shows two lists to the honest sites, in any order; d signs whatever is asked."""
    start = masked()
    lists = [names for size in (3, 4) for names in combinations(NAMES, size)]
    for one, other in combinations(lists, 2):
        for order in product((0, 1), repeat=3):
            world = start.copy()
            signatures: dict[tuple[str, ...], dict[str, str]] = {
                names: {"d": sign_list(world, "d", names)} if "d" in names else {} for names in (one, other)
            }
            for name, first in zip("abc", order, strict=True):
                for names in ((one, other), (other, one))[first]:
                    try:
                        signatures[names][name] = world.members[name].confirm(LABEL, names)
                    except SecureSumError:
                        continue
            opened = [names for names in (one, other) if len(signatures[names]) >= 3]
            assert len(opened) <= 1
            masks, keys = dict.fromkeys(NAMES, 1), dict.fromkeys(NAMES, 1)  # d's own share of each
            for name, names in product("abc", (one, other)):
                try:
                    shares = world.members[name].unmask(LABEL, signatures[names])
                except SecureSumError:
                    continue
                for owner in shares.masks:
                    masks[owner] += 1
                for owner in shares.keys:
                    keys[owner] += 1
                break
            for honest in "abc":
                assert min(masks[honest], keys[honest]) < 3


def test_a_server_that_shows_different_sites_different_peers_gets_no_part_of_the_sum() -> None:
    """P = 4, t = 3, c = 1: for each honest site any set of peers, then any list of survivors (obligation 3)."""
    start, honest = shared(), "abc"
    group, labels = start.collector._group, (LABEL,)
    seeds = {name: tuple(start.members[name]._sums[LABEL].seeds) for name in NAMES}
    public = {name: start.members[name].advertise(labels).keys[0] for name in NAMES}
    whole = parts = 0
    for routes in product(
        *([peers for size in (2, 3) for peers in combinations(set(NAMES) - {name}, size)] for name in honest)
    ):
        masked_world = start.copy()
        seen = {}
        for name, peers in zip(honest, routes, strict=True):
            shares = start.collector.shares(labels, name)
            seen[name] = masked_world.members[name].masked(
                LABEL, VALUES[name], {peer: shares[peer] for peer in peers}, ASKED
            )
        for survivors in (names for size in (3, 4) for names in combinations(NAMES, size)):
            world = masked_world.copy()
            signatures = {"d": sign_list(world, "d", survivors)} if "d" in survivors else {}
            for name in honest:
                try:
                    signatures[name] = world.members[name].confirm(LABEL, survivors)
                except SecureSumError:
                    continue
            if len(signatures) < 3:
                continue
            known = {"d", *(set(NAMES) - set(survivors))}  # whose keys server and d have
            left = {}
            for name in (name for name in honest if name in survivors):
                peers = routes[honest.index(name)]
                rest = seen[name].view(np.uint64) - group.self_mask(seeds[name][0], LABEL, name, 3)
                key = group.mask_key(seeds[name][1], LABEL, name)
                for peer in known & set(peers):
                    rest = rest - group.pair_mask(both.exchange(key, public[peer], "peer"), LABEL, name, peer, 3, ASKED)
                left[name] = rest.view(np.int64)
            for size in range(1, len(left) + 1):
                for some in combinations(left, size):
                    open_sum = np.array_equal(sum(left[name] for name in some), sum(VALUES[name] for name in some))
                    assert not (open_sum and size < len(left)), (routes, survivors, some)
                    whole, parts = whole + open_sum, parts + (not open_sum)
    assert whole > 0  # the honest server's sum is among them
    assert parts > whole


def test_a_closed_label_is_refused_at_every_stage_and_the_rest_of_its_batch_goes_on() -> None:
    labels = (LABEL, "other")
    world = shared(labels=labels)
    a, shares = world.members["a"], world.collector.shares(labels, "a")
    a.masked(LABEL, VALUES["a"], shares, ASKED)
    a.confirm(LABEL, NAMES)
    a.close(LABEL)
    a.close(LABEL)
    for ask in (
        lambda: a.masked(LABEL, VALUES["a"], shares, ASKED),
        lambda: a.confirm(LABEL, NAMES),
        lambda: a.unmask(LABEL, {}),
    ):
        with Refused(a, OutOfOrder, "closed"):
            ask()
    assert a.masked("other", VALUES["a"], shares, ASKED).shape == (3,)
    early, adverts = advertised(labels=labels)
    early.members["a"].close("other")
    with Refused(early.members["a"], OutOfOrder, "closed"):
        early.members["a"].share(adverts)
