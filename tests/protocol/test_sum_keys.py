"""Secure sum: a server that lies about keys and shares is refused, and the member stays as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from accounting.errors import InvalidParameter
from dpfedvis.protocol import shamir
from dpfedvis.protocol.secure_sum import (
    Advert,
    AlreadyAnswered,
    Collector,
    InvalidMessage,
    NotAuthentic,
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
    exchanged,
    shared,
)


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
