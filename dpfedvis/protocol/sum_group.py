"""What both sides of a secure sum derive, sign and check alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.protocol import shamir
from dpfedvis.protocol.signatures import verify
from dpfedvis.protocol.sum_facts import (
    KEY,
    SIGNATURE,
    Advert,
    InvalidMessage,
    Labels,
    NotAuthentic,
    OutOfOrder,
    TooFewMembers,
    check_asked,
    raw,
)

PROTOCOL, VERSION = "dpfedvis secure sum", 1

Words = NDArray[np.uint64]

# Bytes and primitives.

NONCE = bytes(12)  # a key encrypts one message
_ZEROS = memoryview(bytes(2**18))
_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(KEY)))  # no secret


def plain(facts: Any) -> bytes:
    """Return text, numbers and lists as JSON in UTF-8: different facts have different bytes."""
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()


def digest(facts: Any) -> str:
    return hashlib.sha256(plain(facts)).hexdigest()


def as_text(number: int) -> str:
    return number.to_bytes(KEY, "big").hex()


def check_share(name: str, share: str) -> None:
    if int.from_bytes(raw(f"a share from {name!r}", share, KEY), "big") >= shamir.PRIME:
        raise InvalidMessage(f"a share from {name!r} is not below the prime")


def in_order(right: bool, words: str) -> None:
    if not right:
        raise OutOfOrder(words)


def expected(name: str, names: Sequence[str]) -> None:
    in_order(name in names, f"nothing is expected from {name!r} at this stage")


def public_of(secret: X25519PrivateKey) -> str:
    return secret.public_key().public_bytes_raw().hex()


def exchange(secret: X25519PrivateKey, public: str, owner: str) -> bytes:
    try:
        return secret.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
    except ValueError:
        raise NotAuthentic(f"a key of {owner!r} is a point of small order") from None


def derive(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), KEY, None, info).derive(secret)


def keystream(key: bytes, size: int) -> Words:
    """Return so many uint64 of ChaCha20's keystream, for a key that is used for nothing else."""
    cipher, words = Cipher(ChaCha20(key, bytes(16)), None).encryptor(), np.empty(size, dtype="<u8")
    stream = words.view(np.uint8).data
    for start in range(0, len(stream), len(_ZEROS)):  # in pieces that stay in the processor's cache
        piece = stream[start : start + len(_ZEROS)]
        cipher.update_into(_ZEROS[: len(piece)], piece)
    return words


# What a group derives, signs and checks alike on both sides.


@dataclass(frozen=True)
class Group:
    """What all sites fixed beforehand, and what is derived from secrets with it."""

    roster: Mapping[str, str]
    threshold: int
    context: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "roster", dict(sorted(self.roster.items())))
        sites = len(self.roster)
        checks.whole("threshold", self.threshold, 1, sites)
        if 2 * self.threshold <= sites:
            raise InvalidParameter("threshold", self.threshold, f"more than half of {sites} sites")
        checks.text("context", self.context)
        for name, key in self.roster.items():
            checks.text("name of a site", name)
            raw(f"the identity of {name!r}", key, KEY)
        if len(set(self.roster.values())) < sites:
            raise InvalidParameter("identities of the roster", list(self.roster.values()), "distinct")

    @cached_property
    def digest(self) -> str:
        """Hash of threshold and roster."""
        return digest([self.threshold, list(self.roster.items())])

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each site's shares, from 1."""
        return {name: place for place, name in enumerate(self.roster, start=1)}

    def said(self, purpose: str, *facts: Any) -> bytes:
        """Return bytes that mean these facts, for this purpose and in this group, and nothing else."""
        return plain([PROTOCOL, VERSION, purpose, self.context, self.digest, *facts])

    def check_names(self, stage: str, names: Iterable[str]) -> list[str]:
        """Return the names in order, if all are on the roster, none stands twice, and they are at least t."""
        found = list(names)
        wrong = [name for name in found if not isinstance(name, str) or name not in self.roster]
        if wrong or len(set(found)) < len(found):
            raise InvalidMessage(f"{stage}: a name is not on the roster, or stands twice: {wrong or found}")
        if len(found) < self.threshold:
            raise TooFewMembers(stage, len(found), self.threshold)
        return sorted(found)

    def check_signature(self, name: str, signature: str, text: bytes) -> None:
        raw(f"the signature of {name!r}", signature, SIGNATURE)
        if not verify(self.roster[name], signature, text):
            raise NotAuthentic(f"the signature of {name!r} is not valid")

    def check_advert(self, advert: Advert, labels: Labels) -> None:
        if advert.labels != labels:
            raise InvalidMessage(f"the advert of {advert.name!r} is for other labels")
        if advert.name not in self.roster:
            raise InvalidMessage(f"{advert.name!r} is not on the roster")
        self.check_signature(advert.name, advert.signature, self.advert_text(advert))
        for key in (advert.channel, *advert.keys):
            exchange(_PROBE, key, advert.name)  # refuses points of small order, whatever the secret

    def check_keys(self, adverts: Iterable[Advert]) -> None:
        keys = [key for advert in adverts for key in (advert.channel, *advert.keys)]
        if len(set(keys)) < len(keys):
            raise NotAuthentic("a key occurs twice in the list of adverts")

    def advert_text(self, advert: Advert) -> bytes:
        return self.said("advert", advert.name, advert.labels, advert.channel, advert.keys, advert.commitments)

    def survivors_text(self, label: str, survivors: Sequence[str], asked: str) -> bytes:
        check_asked(asked)
        return self.said("survivors", label, sorted(survivors), asked)

    def shares_text(self, labels: Labels, sender: str, receiver: str) -> bytes:
        return self.said("shares", digest(labels), sender, receiver)

    # The key schedule. A secret is used for one purpose, or stretched by HKDF for several.

    def channel_key(self, shared: bytes, labels: Labels, sender: str, receiver: str) -> bytes:
        return derive(shared, self.said("channel", digest(labels), sender, receiver))

    def mask_key(self, seed: str, label: str, name: str) -> X25519PrivateKey:
        """Return the key behind the masks with all peers. It follows from a seed, since a share is below the prime."""
        return X25519PrivateKey.from_private_bytes(derive(bytes.fromhex(seed), self.said("mask key", label, name)))

    def commitment(self, seed: str, label: str, name: str) -> str:
        return derive(bytes.fromhex(seed), self.said("commitment", label, name)).hex()

    def self_mask(self, seed: str, label: str, name: str, size: int) -> Words:
        return keystream(derive(bytes.fromhex(seed), self.said("self mask", label, name)), size)

    def pair_mask(self, secret: bytes, label: str, own: str, peer: str, size: int, asked: str) -> Words:
        """Return what `own` adds for `peer`: the first of two names adds the mask, the second takes it off.

        `secret` is the `exchange` of their keys. Masks of two sites that were asked for different things (`asked`) do
        not cancel.
        """
        check_asked(asked)
        mask = keystream(derive(secret, self.said("pair mask", label, sorted((own, peer)), asked)), size)
        return mask if own < peer else np.negative(mask, out=mask)
