"""Secure sum: exact for every drop-out, silent to a server that lies, the same after a crash, and fixed by vectors."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.protocol import shamir, wire
from dpfedvis.protocol import sum_group as both
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
    Total,
)
from dpfedvis.protocol.signatures import Identity

STAGES = ("advertise", "share", "masked", "confirm", "unmask")
CONTEXT = "c0ffee"
LABEL = "run/round 1"
ASKED = hashlib.sha256(b"a question").hexdigest()
RNG = np.random.default_rng(0)


def stream(seed: str) -> Callable[[int], bytes]:
    """Entropy for tests: the bytes of SHAKE-256, one after the other."""
    pool, place = hashlib.shake_256(seed.encode()).digest(2**16), 0

    def give(size: int) -> bytes:
        nonlocal place
        place += size
        assert place <= len(pool)
        return pool[place - size : place]

    return give


@dataclass
class World:
    """Sites and a server, all honest unless a test says otherwise."""

    identities: dict[str, Identity]
    members: dict[str, Member]
    collector: Collector

    @classmethod
    def of(cls, names: Collection[str], threshold: int, seed: str = "", context: str = CONTEXT) -> World:
        identities = {name: Identity(hashlib.sha256(f"identity {name}".encode()).digest()) for name in names}
        roster = {name: identity.public for name, identity in identities.items()}
        members = {
            name: Member(name, identity, roster, threshold, context, stream(f"{seed} {context} {name}"))
            for name, identity in identities.items()
        }
        return cls(identities, members, Collector(roster, threshold, context))

    def copy(self) -> World:
        """As it is now: members through their own bytes."""
        members = {
            name: Member.of_bytes(member.to_bytes(), self.identities[name], stream(f"copy {name}"))
            for name, member in self.members.items()
        }
        return World(self.identities, members, copy.deepcopy(self.collector))

    # Each stage for the sites that still answer.

    def advertise(self, names: Collection[str], labels: tuple[str, ...]) -> None:
        for name in names:
            self.collector.add_advert(self.members[name].advertise(labels))

    def share(self, names: Collection[str], labels: tuple[str, ...]) -> None:
        adverts = self.collector.adverts(labels)
        for name in names:
            self.collector.add_shares(name, self.members[name].share(adverts))

    def masked(self, names: Collection[str], label: str, labels: tuple[str, ...], values: Mapping[str, Any]) -> None:
        routed = {name: self.collector.shares(labels, name) for name in self.collector.route(labels)}
        for name in names:
            masked = self.members[name].masked(label, values[name], routed[name], ASKED)
            self.collector.add_masked(label, name, masked, len(values[name]), ASKED)

    def confirm(self, names: Collection[str], label: str) -> None:
        survivors = self.collector.survivors(label)
        for name in names:
            self.collector.add_signature(label, name, self.members[name].confirm(label, survivors))

    def unmask(self, names: Collection[str], label: str) -> None:
        signatures = self.collector.signatures(label)
        for name in names:
            self.collector.add_opened(label, name, self.members[name].unmask(label, signatures))


Gone = tuple[frozenset[str], ...]


def carry_out(world: World, values: Mapping[str, Any], gone: Gone = (), *, comeback: bool = False) -> Total:
    """One sum; `gone` says who stops answering at each stage. With `comeback` they answer when they are missed."""
    labels, totals = (LABEL,), []
    steps: list[Callable[[Collection[str]], None]] = [
        lambda names: world.advertise(names, labels),
        lambda names: world.share(names, labels),
        lambda names: world.masked(names, LABEL, labels, values),
        lambda names: world.confirm(names, LABEL),
        lambda names: world.unmask(names, LABEL),
        lambda names: totals.append(world.collector.total(LABEL)),
    ]
    world.collector.begin(labels)
    alive, late = set(world.members), frozenset[str]()
    for number, step in enumerate(steps):
        leaving = gone[number] if number < len(gone) else frozenset[str]()
        try:
            step(sorted(alive - leaving))
        except TooFewMembers:
            if not comeback:
                raise
            steps[number - 1](sorted(late))
            alive |= late
            step(sorted(alive))
        alive, late = alive - leaving, leaving
    return totals[0]


def plans(names: tuple[str, ...], threshold: int, stages: int = len(STAGES)) -> Iterator[Gone]:
    """Every way to drop out at every stage, up to the stage at which too few are left."""
    if stages == 0:
        yield ()
        return
    for size in range(len(names) + 1):
        for gone in map(frozenset, combinations(names, size)):
            left = tuple(name for name in names if name not in gone)
            if len(left) < threshold:
                yield (gone,)
            else:
                yield from ((gone, *rest) for rest in plans(left, threshold, stages - 1))


def slow_sum(values: Mapping[str, Any], names: Collection[str]) -> list[int]:
    """With Python's integers, wrapped into 64 bits at the end."""
    totals = [sum(int(values[name][place]) for name in names) for place in range(len(next(iter(values.values()))))]
    return [(total + 2**63) % 2**64 - 2**63 for total in totals]


def some_values(names: Collection[str], size: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-(2**62), 2**62, size=size) for name in names}


# Exact for every drop-out.


def test_every_drop_out_at_every_stage_gives_the_exact_sum_or_a_clean_refusal() -> None:
    names = ("a", "b", "c", "d")
    values, seen = some_values(names, 3), 0
    for gone in plans(names, threshold=3):
        world, seen = World.of(names, 3), seen + 1
        left = frozenset(names) - frozenset(chain(*gone))
        if len(left) >= 3:
            total = carry_out(world, values, gone)
            # Who drops out after the masked values came is still in the sum.
            assert set(total.survivors) == frozenset(names) - frozenset(chain(*gone[:3]))
            assert total.values.tolist() == slow_sum(values, total.survivors)
        else:
            with pytest.raises(TooFewMembers) as refused:
                carry_out(world, values, gone)
            assert (refused.value.found, refused.value.needed) == (len(left), 3)
            assert str(len(left)) in str(refused.value)
    assert seen == 5 * 11 + 4 * (7 * 10 + 5) + 1


def test_a_sum_goes_on_when_the_missing_come_back() -> None:
    names = ("a", "b", "c", "d")
    values = some_values(names, 3)
    for gone in plans(names, threshold=3):
        if len(frozenset(names) - frozenset(chain(*gone))) < 3:
            earlier, back = frozenset(chain(*gone[:-1])), gone[-1]
            total = carry_out(World.of(names, 3), values, gone, comeback=True)
            assert back <= set(total.survivors)
            assert set(total.survivors) == frozenset(names) - (
                earlier if len(gone) <= 3 else frozenset(chain(*gone[:3]))
            )
            assert total.values.tolist() == slow_sum(values, total.survivors)


EXTREMES = [-(2**63), -(2**62), -1, 0, 1, 2**62, 2**63 - 1]


@given(st.data())
def test_sums_of_any_size_with_any_drop_outs(data: st.DataObject) -> None:
    sites = data.draw(st.integers(1, 7), label="sites")
    threshold = data.draw(st.integers(sites // 2 + 1, sites), label="threshold")
    size = data.draw(st.one_of(st.integers(1, 9), st.sampled_from([1000, 99_999, 100_000])), label="size")
    names = data.draw(st.lists(st.text(min_size=1), min_size=sites, max_size=sites, unique=True), label="names")
    world = World.of(
        [name.encode("utf-8", "replace").decode() + str(place) for place, name in enumerate(names)], threshold
    )
    names = list(world.members)
    values = some_values(names, size, data.draw(st.integers(0, 99)))
    for name in names:
        few = data.draw(st.lists(st.one_of(st.sampled_from(EXTREMES), st.integers(-(2**63), 2**63 - 1)), max_size=size))
        values[name][: len(few)] = few
    gone: list[frozenset[str]] = []
    spare = list(data.draw(st.permutations(names)))[: sites - threshold]
    for _ in STAGES:
        cut = data.draw(st.integers(0, len(spare)))
        gone, spare = [*gone, frozenset(spare[:cut])], spare[cut:]
    total = carry_out(world, values, tuple(gone))
    assert total.values.dtype == np.int64
    assert set(total.survivors) == set(names) - set(chain(*gone[:3]))
    assert total.values[:9].tolist() == slow_sum({name: each[:9] for name, each in values.items()}, total.survivors)
    np.testing.assert_array_equal(total.values, np.sum([values[name] for name in total.survivors], axis=0))


def test_a_batch_of_labels_shares_its_first_two_exchanges() -> None:
    """Every label is a sum of its own, with its own survivors and size."""
    names, sizes = ("a", "b", "c"), {f"round {number}": number for number in (1, 2, 3)}
    world = World.of(names, 2)
    labels = tuple(sizes)
    world.collector.begin(labels)
    world.advertise(names, labels)
    world.share(names, labels)
    for left_out, (label, size) in zip(("b", "", "c"), sizes.items(), strict=True):
        values, alive = some_values(names, size, size), [name for name in names if name != left_out]
        world.masked(alive, label, labels, values)
        world.confirm(alive, label)
        world.unmask(alive, label)
        total = world.collector.total(label)
        assert total.survivors == tuple(alive)
        assert total.values.tolist() == slow_sum(values, alive)
        for name in names:
            world.members[name].close(label)
        world.collector.close(label)
    with pytest.raises(OutOfOrder, match="no such label"):
        world.collector.total("round 1")
    with pytest.raises(OutOfOrder, match="no such batch"):
        world.collector.adverts(labels)


# A server that lies. Every refusal leaves the member as it was.


class Refused:
    """Asserts that a member refuses, and that its state has not moved."""

    def __init__(self, member: Member, kind: type[Exception], words: str | None = None) -> None:
        self._member, self._raises = member, pytest.raises(kind, match=words)

    def __enter__(self) -> None:
        self._before = self._member.to_bytes()
        self._raises.__enter__()

    def __exit__(self, *error: Any) -> bool:
        caught = bool(self._raises.__exit__(*error))
        assert self._member.to_bytes() == self._before
        return caught


NAMES = ("a", "b", "c", "d")


def advertised(
    seed: str = "", labels: tuple[str, ...] = (LABEL,), context: str = CONTEXT
) -> tuple[World, list[Advert]]:
    world = World.of(NAMES, 3, seed, context)
    world.collector.begin(labels)
    world.advertise(NAMES, labels)
    return world, list(world.collector.adverts(labels))


def shared(seed: str = "", labels: tuple[str, ...] = (LABEL,), context: str = CONTEXT) -> World:
    world, _ = advertised(seed, labels, context)
    world.share(NAMES, labels)
    return world


def masked(survivors: Collection[str] = NAMES, labels: tuple[str, ...] = (LABEL,)) -> World:
    world = shared(labels=labels)
    for label in labels:
        world.masked(survivors, label, labels, VALUES)
    return world


VALUES = some_values(NAMES, 3)


def signed(world: World, advert: Advert, by: str) -> Advert:
    """An advert with a signature that is right for its text."""
    return replace(advert, signature=world.identities[by].sign(world.collector._group.advert_text(advert)))


def test_a_key_that_was_swapped_is_refused() -> None:
    world, adverts = advertised()
    other = X25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw().hex()
    for changed in ({"channel": other}, {"keys": (other,)}, {"commitments": (other,)}, {"labels": ("x",)}):
        with Refused(world.members["a"], SecureSumError):
            world.members["a"].share([adverts[0], replace(adverts[1], **changed), *adverts[2:]])
    for changed in ({"channel": other}, {"keys": (other,)}, {"commitments": (other,)}):
        with Refused(world.members["a"], NotAuthentic, "signature of 'b'"):
            world.members["a"].share([adverts[0], replace(adverts[1], **changed), *adverts[2:]])
        with pytest.raises(NotAuthentic, match="signature of 'b'"):
            world.collector.add_advert(replace(adverts[1], **changed))


def test_a_site_that_is_not_on_the_roster_is_refused() -> None:
    world, adverts = advertised()
    stranger = Identity(bytes(31) + b"x")
    forged = replace(adverts[1], signature=stranger.sign(world.collector._group.advert_text(adverts[1])))
    with Refused(world.members["a"], NotAuthentic):
        world.members["a"].share([adverts[0], forged, *adverts[2:]])
    named = replace(adverts[1], name="e")
    named = replace(named, signature=stranger.sign(world.collector._group.advert_text(named)))
    for shown in ([*adverts, named], [adverts[0], named, *adverts[2:]]):
        with Refused(world.members["a"], InvalidMessage, "not on the roster"):
            world.members["a"].share(shown)
    with pytest.raises(InvalidMessage, match="not on the roster"):
        world.collector.add_advert(named)
    # One site's advert under another's name.
    with Refused(world.members["a"], NotAuthentic):
        world.members["a"].share([adverts[0], replace(adverts[1], name="c"), replace(adverts[2], name="b"), adverts[3]])


def test_a_key_that_occurs_twice_is_refused_though_its_site_signed_it() -> None:
    world, adverts = advertised(labels=("one", "two"))
    _, b, c, _ = adverts
    for copied in (
        replace(b, channel=c.channel),
        replace(b, channel=c.keys[0]),
        replace(b, keys=(b.keys[0], b.keys[0])),
        replace(b, keys=(b.keys[0], c.keys[1])),
        replace(b, keys=(b.channel, b.keys[1])),
    ):
        with Refused(world.members["a"], NotAuthentic, "twice"):
            world.members["a"].share([adverts[0], signed(world, copied, "b"), *adverts[2:]])
        server = Collector(world.collector._group.roster, 3, CONTEXT)
        server.begin(("one", "two"))
        server.add_advert(c)
        with pytest.raises(NotAuthentic, match="twice"):
            server.add_advert(signed(world, copied, "b"))
        server.add_advert(b)


@pytest.mark.parametrize(
    "point", [0, 1, 2**255 - 20, 39382357235489614581723060781553021112529911719440698176882885853963445705823]
)
def test_a_key_without_a_secret_is_refused(point: int) -> None:
    """Points of small order: whatever the other's secret, all would know what they agree on."""
    world, adverts = advertised()
    weak = point.to_bytes(32, "little").hex()
    for changed in (replace(adverts[1], channel=weak), replace(adverts[1], keys=(weak,))):
        with Refused(world.members["a"], NotAuthentic, "'b' is a point of small order"):
            world.members["a"].share([adverts[0], signed(world, changed, "b"), *adverts[2:]])
        with pytest.raises(NotAuthentic, match="small order"):
            world.collector.add_advert(signed(world, changed, "b"))


def test_fewer_than_t_adverts_or_one_of_them_twice_are_refused() -> None:
    world, adverts = advertised()
    a = world.members["a"]
    for few in (adverts[:1], adverts[:2]):
        with Refused(a, TooFewMembers, f"{len(few)} sites, of at least 3"):
            a.share(few)
    with Refused(a, InvalidMessage, "twice"):
        a.share([*adverts[:2], adverts[1]])
    with Refused(a, InvalidMessage, "'a' is missing"):
        a.share(adverts[1:])
    with Refused(a, InvalidMessage, "'a' is missing"):
        a.share([])
    with Refused(a, InvalidMessage, "adverts were expected"):
        a.share([*adverts[:3], None])  # type: ignore[list-item]


def test_its_own_advert_must_be_unchanged_even_where_the_signature_is_right() -> None:
    world, adverts = advertised()
    elsewhere, others = advertised(seed="another life of the same sites")
    assert elsewhere.identities == world.identities
    with Refused(world.members["a"], InvalidMessage, "not the one that it made"):
        world.members["a"].share([others[0], *adverts[1:]])
    world.members["a"].share(adverts)


def test_adverts_of_another_batch_context_or_roster_are_refused() -> None:
    world, adverts = advertised()
    a = world.members["a"]
    _, other_batch = advertised(labels=("other",))
    _, other_context = advertised(context="another contract")
    fewer = World.of(NAMES, 4)
    other_threshold = fewer.members["b"].advertise([LABEL])
    larger = World.of((*NAMES, "e"), 3)
    other_roster = larger.members["b"].advertise([LABEL])
    with Refused(a, InvalidMessage, "other labels"):
        a.share([adverts[0], other_batch[1], *adverts[2:]])
    for replayed in (other_context[1], other_threshold, other_roster):
        with Refused(a, NotAuthentic):
            a.share([adverts[0], replayed, *adverts[2:]])


def test_a_label_is_used_once() -> None:
    world, adverts = advertised(labels=("one", "two"))
    a = world.members["a"]
    assert a.advertise(("one", "two")) == adverts[0]
    for labels in (("two", "one"), ("two",), ("two", "three")):
        with Refused(a, AlreadyAnswered, "two"):
            a.advertise(labels)
    a.close("one")
    a.close("two")
    with Refused(a, AlreadyAnswered):
        a.advertise(("one", "two"))
    for labels in ((), ("x", "x")):
        with Refused(a, InvalidMessage):
            a.advertise(labels)
    for label in ("", 5, "\ud800"):
        with Refused(a, InvalidParameter):
            a.advertise([label])  # type: ignore[list-item]


def test_shares_are_made_for_one_list() -> None:
    world, adverts = advertised()
    first = world.members["a"].share(adverts[:3])
    assert world.members["a"].share(adverts[2::-1]) == first
    for others in (adverts, [adverts[0], *adverts[2:]]):
        with Refused(world.members["a"], AlreadyAnswered):
            world.members["a"].share(others)


def test_a_ciphertext_for_another_receiver_sender_batch_label_or_context_is_refused() -> None:
    world, labels = shared(), (LABEL,)
    a, right = world.members["a"], world.collector.shares(labels, "a")
    for_b = world.collector.shares(labels, "b")
    other_batch = shared(labels=("other",)).collector.shares(("other",), "a")
    other_context = shared(context="another contract").collector.shares(labels, "a")
    other_life = shared(seed="again").collector.shares(labels, "a")
    cut, flipped = right["b"][:-2], f"{int(right['b'][:2], 16) ^ 1:02x}{right['b'][2:]}"
    own = world.members["a"].share(world.collector.adverts(labels)).to
    wrong = (for_b["c"], right["c"], other_batch["b"], other_context["b"], other_life["b"], cut, flipped, own["b"])
    for ciphertext in wrong:
        with Refused(a, NotAuthentic, "shares from 'b'"):
            a.masked(LABEL, VALUES["a"], right | {"b": ciphertext}, ASKED)
    for ciphertext in ("", "zz", right["b"].upper(), None, 5):
        with Refused(a, InvalidMessage, "ciphertext of 'b'"):
            a.masked(LABEL, VALUES["a"], right | {"b": ciphertext}, ASKED)  # type: ignore[dict-item]
    # After all of it the right ones still do.
    assert a.masked(LABEL, VALUES["a"], right, ASKED).shape == (3,)


def test_a_peer_that_deals_other_than_two_shares_a_label_is_refused() -> None:
    world, _ = advertised()
    world.share(("a", "c", "d"), (LABEL,))
    a = world.members["a"]
    b = world.members["b"]
    channel = bytes.fromhex(b._batches[(LABEL,)].channel)
    key = world.collector._group.channel_key(exchanged(channel, a.advertise((LABEL,)).channel), (LABEL,), "b", "a")
    text = world.collector._group.shares_text((LABEL,), "b", "a")
    for plain in (bytes(32), bytes(63), bytes(96), bytes(128), bytes(32) + shamir.PRIME.to_bytes(32, "big")):
        sealed = ChaCha20Poly1305(key).encrypt(bytes(12), plain, text).hex()
        with Refused(a, InvalidMessage):
            a.masked(LABEL, VALUES["a"], world.collector.shares((LABEL,), "a") | {"b": sealed}, ASKED)
    good = ChaCha20Poly1305(key).encrypt(bytes(12), bytes(64), text).hex()
    a.masked(LABEL, VALUES["a"], world.collector.shares((LABEL,), "a") | {"b": good}, ASKED)


def exchanged(secret: bytes, public: str) -> bytes:
    peer = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
    return X25519PrivateKey.from_private_bytes(secret).exchange(peer)


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


# The collector.


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


# What server and colluders see.

LENGTH = 40_000
FALSE_ALARM = 1e-9


def uniform_bytes(words: np.ndarray) -> bool:
    """Chi-square of each of the eight bytes of a word, and of neighbours' lowest bytes against each other."""
    octets = words.astype("<i8").view(np.uint8).reshape(-1, 8)
    counts = [np.bincount(octets[:, place], minlength=256) for place in range(8)]
    pairs = octets[:-1, 0].astype(np.int64) // 16 * 16 + octets[1:, 0] // 16
    counts.append(np.bincount(pairs[::2], minlength=256))
    tests = [((found - found.sum() / 256) ** 2 / (found.sum() / 256)).sum() for found in counts]
    return bool(max(tests) < chi2.isf(FALSE_ALARM / len(tests), 255))


def left_of(world: World, label: str, name: str, labels: tuple[str, ...], colluders: Collection[str]) -> np.ndarray:
    """What is left of a site's masked values when server and colluders took off all masks that they can open."""
    group, members = world.collector._group, world.members
    survivors = world.collector.survivors(label)
    rest = members[name].masked(label, np.zeros(1, dtype=np.int64), {}, ASKED).view(np.uint64)
    public = {peer: members[peer].advertise(labels).keys[labels.index(label)] for peer in members}
    masks, keys = SEEDS[name, label], {peer: SEEDS[peer, label][1] for peer in members}
    rest = rest - group.self_mask(masks[0], label, name, rest.size)
    for peer in members:
        if peer in colluders or peer not in survivors:
            key = group.mask_key(keys[peer], label, peer)
            rest = rest + group.pair_mask(both.exchange(key, public[name], "peer"), label, peer, name, rest.size, ASKED)
    return rest.view(np.int64)


SEEDS: dict[tuple[str, str], tuple[str, str]] = {}


def attacked(values: Mapping[str, np.ndarray]) -> tuple[World, list[np.ndarray]]:
    """P = 5, t = 4, c = 1: e drops out, d colludes, two labels of one batch; what is left of a's two vectors."""
    names, labels = ("a", "b", "c", "d", "e"), ("one", "two")
    world = World.of(names, 4)
    world.collector.begin(labels)
    world.advertise(names, labels)
    SEEDS.update({(name, label): tuple(world.members[name]._sums[label].seeds) for name in names for label in labels})
    world.share(names, labels)
    for label in labels:
        world.masked("abcd", label, labels, values)
        world.confirm("abcd", label)
        world.unmask("abcd", label)
        expected = np.sum([values[name] for name in "abcd"], axis=0)
        np.testing.assert_array_equal(world.collector.total(label).values, expected)
    return world, [left_of(world, label, "a", labels, "d") for label in labels]


def test_a_masked_vector_is_uniform_to_server_and_colluders_and_independent_of_its_values() -> None:
    nothing = {name: np.zeros(LENGTH, dtype=np.int64) for name in "abcde"}
    something = nothing | {"a": np.arange(LENGTH) % 7 - 3 + 2**62}
    _, (one, two) = attacked(nothing)
    world, (other, _) = attacked(something)
    assert not uniform_bytes(nothing["a"])  # the test can tell
    assert not uniform_bytes(something["a"])
    for seen in (one, two, other):
        assert uniform_bytes(seen)
    assert uniform_bytes(one - two)  # no mask is used for two labels
    # The masks are the same whatever the values are: what is seen is values plus something uniform that knows nothing.
    np.testing.assert_array_equal(other - one, something["a"] - nothing["a"])
    assert uniform_bytes(world.members["a"].masked("one", something["a"], {}, ASKED))


def test_each_mask_is_another() -> None:
    """Between any two sites, for any two labels, and of a site with itself."""
    names, labels = ("a", "b", "c", "d"), ("one", "two")
    world, found = World.of(names, 3), []
    for name in names:
        world.members[name].advertise(labels)
    group = world.collector._group
    public = {name: world.members[name].advertise(labels).keys for name in names}
    for place, label in enumerate(labels):
        seeds = {name: world.members[name]._sums[label].seeds for name in names}
        found += [group.self_mask(seeds[name][0], label, name, 4) for name in names]
        for one, other in combinations(names, 2):
            key = group.mask_key(seeds[one][1], label, one)
            mask = group.pair_mask(both.exchange(key, public[other][place], "peer"), label, one, other, 4, ASKED)
            back = group.mask_key(seeds[other][1], label, other)
            inverse = group.pair_mask(both.exchange(back, public[one][place], "peer"), label, other, one, 4, ASKED)
            np.testing.assert_array_equal(inverse + mask, 0)
            found += [mask, np.negative(mask)]
    assert len({each.tobytes() for each in found}) == len(found) == 2 * (4 + 2 * 6)
    # The same secrets under another label or context make other masks.
    elsewhere = replace(group, context="another contract")
    seed = world.members["a"]._sums["one"].seeds[0]
    masks = [
        group.self_mask(seed, "one", "a", 4),
        group.self_mask(seed, "two", "a", 4),
        group.self_mask(seed, "one", "b", 4),
    ]
    masks.append(elsewhere.self_mask(seed, "one", "a", 4))
    assert len({each.tobytes() for each in masks}) == 4


# Crashes.


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


# Vectors: every step worked out with the primitives alone.


def hkdf(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, None, info).derive(secret)


def keystream(key: bytes, words: int) -> list[int]:
    stream = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(8 * words))
    return [int.from_bytes(stream[8 * place : 8 * place + 8], "little") for place in range(words)]


@pytest.mark.parametrize("size", [1, 7, 8, 2**15 - 1, 2**15, 2**15 + 1, 3 * 2**15 + 5])
def test_a_long_keystream_is_that_of_one_call(size: int) -> None:
    """It is made in pieces of 2¹⁵ words."""
    assert both.keystream(bytes(range(32)), size).tolist() == keystream(bytes(range(32)), size)


VECTOR = {
    "group": "2823f33b0ff14932ac534f6026a5258815ada446a45a1cf144ced453e2d1557c",
    "asked": "32303716b88fbfeb9506b016968e94ab395ab39e24ea2571d91d971f84e97861",
    "channel": "0837d115950009e67a26e068b97f35cd10cd234331dbeab33c58a8a3db9f1ca3",
    "mask seed": "649d35289163312eae56e2275d8da2fd09b0a1fd01c521636dc88608650c9166",
    "key seed": "643e8e617aadcd43929b9212df6d5933a74d15efd2c072cb03af028554ab80b4",
    "mask key": "5e0ee987a462a492981407f3f4e2958b8e4ac249a4b9264f5054d83afae04164",
    "commitment": "6cd616acaf46967827860e6c9d528a92633f4e49408c68e652e9634a481796ce",
    "advert": "37d523b24ac4e948e4ad23d009a815b68f8e5ec130da622beb4a6b132877def7"
    "a0996361b0f89f31254470909cb08d604a87e6dc2924c21befd34dc0bb85790c",
    "share of mask seed for b": "5297be0145d2c345de5f1254f8bbe656fc47626342b65441810ce054ee6c39d4",
    "share of key seed for b": "688ce779a821bbe44c229efae2a93092b2ca86285cc744b5fc52123f07435755",
    "ciphertext a to b": "1de26d1e925118385a54b11c17f6fe0a",
    "self mask": "21d8fd37ca045af72cfaa2d87928e7afce035edec59ace3a",
    "pair mask": "068e084d411fb6fb92284e82e7c36c640dac72bdb8cb256c",
    "masked": "161167cc60113a0cc5dda1d3c597604323e7de70153d7c46",
    "survivors": "c9985b213cb417657579613e1a6b6666b2ef0297bca90e75c556084d4d8e9506"
    "11046a6449f3ed0a44cef310aa89a3c8681131442b035f0907766f09437b6702",
}


def test_vectors() -> None:
    """Sites a, b and ü, t = 2; of a everything for the first label of two, with b, after ü dropped out."""
    names, labels, values = ("a", "b", "ü"), ("sum 1", "sum 2"), np.array([-1, 2**62, 0], dtype=np.int64)
    world = World.of(names, 2, "vectors")
    world.collector.begin(labels)
    world.advertise(names, labels)
    adverts = {advert.name: advert for advert in world.collector.adverts(labels)}
    a = world.members["a"]
    asked = hashlib.sha256(b"a question").hexdigest()
    found = {"channel": a._batches[labels].channel, "asked": asked}
    found["mask seed"], found["key seed"] = a._sums["sum 1"].seeds
    world.share(names, labels)
    ciphertexts = {name: world.collector.shares(labels, name) for name in names}
    masked = a.masked("sum 1", values, ciphertexts["a"], ASKED)
    held = a._sums["sum 1"].shares["b"]
    world.masked("ab", "sum 1", labels, {"a": values, "b": values})
    world.confirm("ab", "sum 1")

    # The group, and the words that begin everything.
    secrets = {name: hashlib.sha256(f"identity {name}".encode()).digest() for name in names}
    identities = {name: Ed25519PrivateKey.from_private_bytes(secret) for name, secret in secrets.items()}
    public = {name: identity.public_key().public_bytes_raw().hex() for name, identity in identities.items()}
    listed = ",".join(f'["{name}","{public[name]}"]' for name in names)
    found["group"] = hashlib.sha256(f"[2,[{listed}]]".encode()).hexdigest()
    batch = hashlib.sha256(b'["sum 1","sum 2"]').hexdigest()

    def said(purpose: str, rest: str) -> bytes:
        return f'["dpfedvis secure sum",1,"{purpose}","c0ffee","{found["group"]}",{rest}]'.encode()

    # Entropy in order: channel; mask and key seed of each label; then one coefficient for each of them.
    drawn = stream("vectors c0ffee a")
    numbers = [drawn(32) for _ in range(9)]
    seeds = [int.from_bytes(number, "big") % 2**255 for number in numbers]
    assert max(seeds[1:]) < 2**255 - 19
    channel = X25519PrivateKey.from_private_bytes(numbers[0])
    assert found["channel"] == numbers[0].hex()
    assert [found["mask seed"], found["key seed"]] == [f"{seed:064x}" for seed in seeds[1:3]]

    # The advert.
    mask_seeds, key_seeds = seeds[1:5:2], seeds[2:5:2]
    mask_keys = [
        X25519PrivateKey.from_private_bytes(hkdf(seed.to_bytes(32, "big"), said("mask key", f'"{label}","a"')))
        for seed, label in zip(key_seeds, labels, strict=True)
    ]
    commitments = [
        hkdf(seed.to_bytes(32, "big"), said("commitment", f'"{label}","a"')).hex()
        for seed, label in zip(mask_seeds, labels, strict=True)
    ]
    keys = [key.public_key().public_bytes_raw().hex() for key in mask_keys]
    assert (adverts["a"].keys, adverts["a"].commitments) == (tuple(keys), tuple(commitments))
    assert adverts["a"].channel == channel.public_key().public_bytes_raw().hex()
    found["mask key"], found["commitment"], found["advert"] = keys[0], commitments[0], adverts["a"].signature
    facts = ["a", labels, adverts["a"].channel, keys, commitments]
    text = said("advert", json.dumps(facts, separators=(",", ":"))[1:-1])
    assert identities["a"].sign(text).hex() == found["advert"]

    # Shares for b, whose place is 2, and their ciphertext.
    prime, place = 2**255 - 19, 2
    dealt = [f"{(seed + place * slope) % prime:064x}" for seed, slope in zip(seeds[1:5], seeds[5:9], strict=True)]
    found["share of mask seed for b"], found["share of key seed for b"] = dealt[:2]
    agreed = exchanged(numbers[0], adverts["b"].channel)
    key = hkdf(agreed, said("channel", f'"{batch}","a","b"'))
    associated = said("shares", f'"{batch}","a","b"')
    sealed = ChaCha20Poly1305(key).encrypt(bytes(12), bytes.fromhex("".join(dealt)), associated)
    assert sealed.hex() == ciphertexts["b"]["a"]
    found["ciphertext a to b"] = sealed[-16:].hex()
    back = hkdf(agreed, said("channel", f'"{batch}","b","a"'))  # the other way, another key
    plain = ChaCha20Poly1305(back).decrypt(
        bytes(12), bytes.fromhex(ciphertexts["a"]["b"]), said("shares", f'"{batch}","b","a"')
    )
    assert [plain[:32].hex(), plain[32:64].hex()] == list(held)

    # Masks. The first of two names adds, so a adds for both.
    own = keystream(hkdf(seeds[1].to_bytes(32, "big"), said("self mask", '"sum 1","a"')), 3)
    pairs = {}
    for peer in ("b", "ü"):
        agreed = mask_keys[0].exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(adverts[peer].keys[0])))
        pairs[peer] = keystream(hkdf(agreed, said("pair mask", f'"sum 1",["a","{peer}"],"{asked}"')), 3)
    found["self mask"] = "".join(f"{word:016x}" for word in own)
    found["pair mask"] = "".join(f"{word:016x}" for word in pairs["b"])
    expected = [sum(words) % 2**64 for words in zip((-1, 2**62, 0), own, pairs["b"], pairs["ü"], strict=True)]
    found["masked"] = "".join(f"{word:016x}" for word in expected)
    assert [int(word) % 2**64 for word in masked] == expected

    # The list of survivors, and what b opens of a and ü.
    signatures = world.collector.signatures("sum 1")
    found["survivors"] = signatures["a"]
    assert identities["a"].sign(said("survivors", f'"sum 1",["a","b"],"{asked}"')).hex() == found["survivors"]
    opened = world.members["b"].unmask("sum 1", signatures)
    assert opened.masks["a"] == dealt[0]
    assert set(opened.masks) == {"a", "b"}
    assert set(opened.keys) == {"ü"}
    assert found == VECTOR


def test_the_agreed_constants() -> None:
    assert (both.PROTOCOL, both.VERSION) == ("dpfedvis secure sum", 1)
    assert shamir.PRIME == 2**255 - 19
