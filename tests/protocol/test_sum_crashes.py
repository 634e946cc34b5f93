"""Secure sum: a member answers alike after a crash, and forgets its secrets as it uses them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from itertools import chain, product
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from dpfedvis.protocol.secure_sum import AlreadyAnswered, InvalidMessage, Member, OutOfOrder
from tests.protocol.sum_world import (
    ASKED,
    LABEL,
    NAMES,
    STAGES,
    VALUES,
    World,
    advertised,
    masked,
    shared,
    slow_sum,
    stream,
)


@pytest.mark.parametrize("stage", range(len(STAGES)))
def test_a_member_that_crashes_goes_on_with_the_same_bytes(stage: int) -> None:
    """Killed after it wrote down an answer and before that left: restored, it answers alike; so it does later."""
    names, labels = ("a", "b", "c", "d"), (LABEL, "other")
    world = World.of(names, 3)
    world.collector.begin(labels)
    asks: list[Callable[[Member], Any]] = []

    def both(member: Member) -> None:
        state = member.to_bytes()
        again = Member.of_bytes(state, world.identities[member.name], stream("after the crash"))
        assert again.to_bytes() == state
        for ask in asks:
            np.testing.assert_equal(ask(again), ask(member))
        assert again.to_bytes() == state
        world.members[member.name] = again

    def ask_all(ask: Callable[[Member], Any], number: int, names: Collection[str] = names) -> list[Any]:
        answers = [ask(world.members[name]) for name in names]
        asks.append(ask)
        if number == stage:
            for name in names:
                both(world.members[name])
        return answers

    for advert in ask_all(lambda member: member.advertise(labels), 0):
        world.collector.add_advert(advert)
    adverts = world.collector.adverts(labels)
    for name, shares in zip(names, ask_all(lambda member: member.share(adverts), 1), strict=True):
        world.collector.add_shares(name, shares)
    routed = {name: world.collector.shares(labels, name) for name in NAMES}
    alive = names[1:]
    made = ask_all(lambda member: member.masked(LABEL, VALUES[member.name], routed[member.name], ASKED), 2, alive)
    for name, vector in zip(alive, made, strict=True):
        world.collector.add_masked(LABEL, name, vector, 3, ASKED)
    survivors = world.collector.survivors(LABEL)
    for name, signature in zip(alive, ask_all(lambda member: member.confirm(LABEL, survivors), 3, alive), strict=True):
        world.collector.add_signature(LABEL, name, signature)
    signatures = world.collector.signatures(LABEL)
    for name, opened in zip(alive, ask_all(lambda member: member.unmask(LABEL, signatures), 4, alive), strict=True):
        world.collector.add_opened(LABEL, name, opened)
    assert world.collector.total(LABEL).values.tolist() == slow_sum(VALUES, alive)
    # The second label of the batch, after the crash.
    world.masked(names, "other", labels, VALUES)
    world.confirm(names, "other")
    world.unmask(names, "other")
    assert world.collector.total("other").values.tolist() == slow_sum(VALUES, names)


def test_a_closed_label_stays_closed_after_a_crash() -> None:
    world = masked()
    world.members["a"].close(LABEL)
    restored = Member.of_bytes(world.members["a"].to_bytes(), world.identities["a"])
    with pytest.raises(OutOfOrder, match="closed"):
        restored.confirm(LABEL, NAMES)
    with pytest.raises(AlreadyAnswered):
        restored.advertise((LABEL,))


def test_a_damaged_or_foreign_state_is_refused() -> None:
    world = masked()
    state = world.members["a"].to_bytes()
    for damaged in (b"", state[:-1], state + b" ", state[:40] + bytes([state[40] ^ 1]) + state[41:]):
        with pytest.raises(InvalidMessage, match="damaged"):
            Member.of_bytes(damaged, world.identities["a"])
    with pytest.raises(InvalidMessage, match="another key"):
        Member.of_bytes(state, world.identities["b"])
    body = state[32:].replace(b'"version": 1', b'"version": 2')
    with pytest.raises(InvalidMessage, match="version 2"):
        Member.of_bytes(hashlib.sha256(body).digest() + body, world.identities["a"])


def secrets_of(member: Member) -> set[str]:
    """All secret text that a member's state holds."""
    batches, sums = member._batches.values(), member._sums.values()
    found = {batch.channel for batch in batches} | set(chain(*(batch.inbox.values() for batch in batches)))
    found |= set(chain(*(each.seeds for each in sums)))
    return (found | set(chain(*chain(*(each.shares.values() for each in sums))))) - {""}


def everything_in(state: bytes) -> str:
    """A state as text; numbers would show as hexadecimal digits too."""
    return state[32:].decode()


def test_secrets_are_forgotten_as_soon_as_they_are_used_and_all_of_them_at_close() -> None:
    labels = (LABEL, "other")
    world, _ = advertised(labels=labels)
    a, ever = world.members["a"], set()

    def kept(label: str) -> set[str]:
        nonlocal ever
        ever |= secrets_of(a)
        state, found = everything_in(a.to_bytes()), a._sums[label]
        told = set(chain(*(each.opened.masks.values() for each in a._sums.values() if each.opened)))
        assert {secret for secret in ever - told if secret in state} == secrets_of(a)
        return {*found.seeds, *chain(*found.shares.values())}

    channel, seeds = a._batches[labels].channel, tuple(a._sums[LABEL].seeds)
    assert {channel, *seeds} <= secrets_of(a)
    assert len(secrets_of(a)) == 1 + 2 * 2
    world.share(NAMES, labels)
    kept(LABEL)
    assert channel not in everything_in(a.to_bytes())  # else what it sent could be read with it
    assert len(a._batches[labels].inbox) == 3
    world.masked(NAMES, LABEL, labels, VALUES)
    assert not set(seeds) & kept(LABEL)  # its masks cannot be made again
    assert set(a._secrets) == {"other"}
    assert not a._batches[labels].inbox  # nor can ciphertexts be read again
    assert len(kept(LABEL)) == 2 * 4
    world.confirm(NAMES, LABEL)
    world.unmask(NAMES, LABEL)
    assert not kept(LABEL)
    assert kept("other")
    a.close(LABEL)
    kept("other")
    a.close("other")
    state = everything_in(a.to_bytes())
    assert not secrets_of(a)
    assert not a._secrets
    assert not [secret for secret in ever if secret in state]
    left = json.loads(state)
    assert left["batches"] == []
    assert left["sums"] == {}
    assert left["closed"] == sorted(labels)


def test_a_peer_that_comes_with_a_later_label_leaves_no_shares_for_an_earlier_one() -> None:
    labels = (LABEL, "other")
    world = shared(labels=labels)
    a, shares = world.members["a"], world.collector.shares(labels, "a")
    first = a.masked(LABEL, VALUES["a"], {name: shares[name] for name in "bc"}, ASKED)
    assert sorted(a._sums[LABEL].shares) == ["a", "b", "c"]
    a.masked("other", VALUES["a"], {"b": "", "c": "", "d": shares["d"]}, ASKED)  # those of b and c were read already
    assert sorted(a._sums[LABEL].shares) == ["a", "b", "c"]
    assert sorted(a._sums["other"].shares) == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(a.masked(LABEL, VALUES["a"], {}, ASKED), first)


def test_a_seized_state_opens_no_closed_label() -> None:
    """With all ciphertexts and all that a keeps for the labels to come, nothing of the closed one can be decrypted."""
    labels = (LABEL, "other")
    world = shared(labels=labels)
    a = world.members["a"]
    world.masked(NAMES, LABEL, labels, VALUES)
    a.close(LABEL)
    group = world.collector._group
    routed = {name: world.collector.shares(labels, name) for name in NAMES}
    keys = [bytes.fromhex(secret) for secret in secrets_of(a)]
    for key, sender, receiver in product(keys, NAMES, NAMES):
        if sender != receiver:
            sealed, text = bytes.fromhex(routed[receiver][sender]), group.shares_text(labels, sender, receiver)
            with pytest.raises(InvalidTag):
                ChaCha20Poly1305(key).decrypt(bytes(12), sealed, text)
