"""The site's side of a secure sum. Secrecy rests on it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256

from accounting import checks
from dpfedvis.protocol import shamir
from dpfedvis.protocol.signatures import Identity
from dpfedvis.protocol.sum_facts import (
    KEY,
    Advert,
    AlreadyAnswered,
    Integers,
    InvalidMessage,
    Labels,
    NotAuthentic,
    Opened,
    OutOfOrder,
    SecureSumError,
    Shares,
    check_asked,
    raw,
)
from dpfedvis.protocol.sum_group import (
    NONCE,
    VERSION,
    Group,
    as_text,
    check_share,
    exchange,
    public_of,
)


@dataclass
class _Batch:
    """What a member keeps of a batch: `channel` until it has shared, keys in `inbox` until a ciphertext is read."""

    advert: Advert
    channel: str
    adverts: dict[str, Advert] = field(default_factory=dict)
    sent: dict[str, str] = field(default_factory=dict)
    inbox: dict[str, str] = field(default_factory=dict)


@dataclass
class _Sum:
    """What a member keeps of a label: `seeds` (mask, key) until masked, `shares` by owner (alike) until opened."""

    batch: Labels
    seeds: Sequence[str]
    shares: dict[str, Sequence[str]] = field(default_factory=dict)
    members: Sequence[str] = ()
    masked: bytes = b""
    asked: str = ""
    survivors: Sequence[str] = ()
    signature: str = ""
    opened: Opened | None = None


class Member:
    """A site. Each step is answered once; asked again alike, it gives the same answer. A refusal changes nothing.

    The caller writes `to_bytes` to disk, readable by its owner only, before an answer leaves. An older copy must never
    be restored: it would mask other values with the same masks.

    Parameters
    ----------
    name : str
    identity : Identity
        Its key pair; the public key is the one on the roster.
    roster : mapping of str to str
        The pinned public key (Ed25519, in hexadecimal digits) of every site, by name.
    threshold : int
        t, with 2t > P; the caller checks 2t > P + c.
    context : str
        Hash of the run's contract.
    entropy : callable
        Gives so many random bytes.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        roster: Mapping[str, str],
        threshold: int,
        context: str,
        entropy: shamir.Entropy = os.urandom,
    ) -> None:
        self._group = Group(roster, threshold, context)
        if self._group.roster.get(name) != identity.public:
            raise InvalidMessage(f"the roster has another key for {name!r}, or none")
        self.name, self._identity, self._entropy = name, identity, entropy
        self._batches: dict[Labels, _Batch] = {}
        self._sums: dict[str, _Sum] = {}
        self._closed: set[str] = set()
        # With peers, by label, ahead of the sum. They follow from the key seed, so that the state has none of them.
        self._secrets: dict[str, dict[str, bytes]] = {}

    @property
    def group(self) -> Group:
        """Roster, threshold and context."""
        return self._group

    def advertise(self, labels: Sequence[str]) -> Advert:
        """Return signed keys for a batch of labels, none of which was ever used."""
        labels = tuple(checks.text("label", label) for label in labels)
        if labels in self._batches:
            return self._batches[labels].advert
        if not labels or len(set(labels)) < len(labels):
            raise InvalidMessage(f"labels of a batch are at least one, and distinct: {labels}")
        if used := [label for label in labels if label in self._sums or label in self._closed]:
            raise AlreadyAnswered(f"a label is used once, and these were: {used}")
        channel = X25519PrivateKey.from_private_bytes(self._entropy(KEY))
        seeds = {label: (as_text(shamir.draw(self._entropy)), as_text(shamir.draw(self._entropy))) for label in labels}
        keys = [public_of(self._group.mask_key(key, label, self.name)) for label, (_, key) in seeds.items()]
        commitments = [self._group.commitment(mask, label, self.name) for label, (mask, _) in seeds.items()]
        advert = Advert(self.name, labels, public_of(channel), tuple(keys), tuple(commitments))
        advert = replace(advert, signature=self._identity.sign(self._group.advert_text(advert)))
        self._batches[labels] = _Batch(advert, channel.private_bytes_raw().hex())
        self._sums.update({label: _Sum(labels, pair) for label, pair in seeds.items()})
        return advert

    def share(self, adverts: Sequence[Advert]) -> Shares:
        """Return encrypted shares of this site's secrets for the others in the list, which has at least t adverts."""
        if not all(isinstance(advert, Advert) for advert in adverts):
            raise InvalidMessage("adverts were expected")
        shown = {advert.name: advert for advert in adverts}
        own = shown.get(self.name)
        if own is None or own.labels not in self._batches or own != self._batches[own.labels].advert:
            raise InvalidMessage(f"the advert of {self.name!r} is missing, or not the one that it made")
        labels, batch = own.labels, self._batches[own.labels]
        names = self._group.check_names("share", [advert.name for advert in adverts])
        if batch.adverts:
            if shown != batch.adverts:
                raise AlreadyAnswered("shares were made for another list of adverts")
            return Shares(labels, dict(batch.sent))
        for advert in adverts:
            self._group.check_advert(advert, labels)
        self._group.check_keys(adverts)
        if not all(label in self._sums for label in labels):
            raise OutOfOrder("a label of the batch is closed")
        group, t, sites = self._group, self._group.threshold, len(self._group.roster)
        seeds = [seed for label in labels for seed in self._sums[label].seeds]
        dealt = [shamir.split(int(seed, 16), t, sites, self._entropy) for seed in seeds]
        channel = X25519PrivateKey.from_private_bytes(bytes.fromhex(batch.channel))
        for name in names:
            texts = [as_text(shares[group.places[name] - 1]) for shares in dealt]
            if name == self.name:
                self._keep(name, labels, texts)
                continue
            shared, text = exchange(channel, shown[name].channel, name), group.shares_text(labels, self.name, name)
            cipher = ChaCha20Poly1305(group.channel_key(shared, labels, self.name, name))
            batch.sent[name] = cipher.encrypt(NONCE, bytes.fromhex("".join(texts)), text).hex()
            batch.inbox[name] = group.channel_key(shared, labels, name, self.name).hex()
        # Without the channel's key this site cannot read what it sent, and reads each other ciphertext once.
        batch.adverts, batch.channel = shown, ""
        self._secrets.update({label: self._exchanged(label, names) for label in labels})
        return Shares(labels, dict(batch.sent))

    def check_shares(self, label: str, shares: Mapping[str, str]) -> None:
        """Raise as `masked` would for these shares; for a caller that must know it before its values exist."""
        found = self._sum(label)
        if not found.masked:
            self._members(found, shares)

    def _members(self, found: _Sum, shares: Mapping[str, str]) -> list[str]:
        """Return the sites to mask with, whose shares were read."""
        batch, members = self._batches[found.batch], self._group.check_names("masked", [*shares, self.name])
        if not set(members) <= batch.adverts.keys():
            raise OutOfOrder("this site has not yet shared with all of these members")
        self._read(batch, shares)
        return members

    def answered(self, label: str) -> Integers | None:
        """Return the masked values that were given for a label; None if none were."""
        found = self._sum(label)
        return np.frombuffer(found.masked, dtype="<i8") if found.masked else None

    def masked(self, label: str, values: Integers, shares: Mapping[str, str], asked: str) -> Integers:
        """Return the values behind masks, modulo 2⁶⁴: the same at every call, whatever is passed later.

        Parameters
        ----------
        label : str
        values : array of int64 of shape (n,)
        shares : mapping of str to str
            Ciphertexts for this site, by sender: at least t − 1, and only these sites are masked with. One is read at
            the first sum of the batch that shows it; later its sender's name is enough.
        asked : str
            Hash of what the values are an answer to, never empty. It is in the masks and in the list of survivors, so
            that only sites that were asked for the same are in one sum.
        """
        found = self._sum(label)
        if not found.masked:
            group = self._group
            if not (isinstance(values, np.ndarray) and values.dtype == np.int64 and values.ndim == 1 and values.size):
                raise InvalidMessage("values are a vector of int64, at least one")
            check_asked(asked)
            members = self._members(found, shares)
            (mask_seed, _), size = found.seeds, values.size
            total = values.astype("<i8").view("<u8")
            total += group.self_mask(mask_seed, label, self.name, size)
            for peer, secret in (self._secrets.pop(label, None) or self._exchanged(label, members)).items():
                if peer in members:
                    total += group.pair_mask(secret, label, self.name, peer, size, asked)
            found.members, found.masked, found.seeds, found.asked = members, total.tobytes(), (), asked
        return np.frombuffer(found.masked, dtype="<i8")

    def confirm(self, label: str, survivors: Sequence[str]) -> str:
        """Return a signature of the list of survivors: one list a label, of at least t, with this site among them."""
        found, names = self._sum(label), self._group.check_names("confirm", survivors)
        if not found.masked:
            raise OutOfOrder("this site has not yet given its masked values")
        if self.name not in names or not set(names) <= set(found.members):
            raise InvalidMessage(f"survivors must be {self.name!r} and sites that it masked with, but are {names}")
        if found.survivors and list(found.survivors) != names:
            raise AlreadyAnswered("another list of survivors was signed for this label")
        if not found.survivors:
            found.signature = self._identity.sign(self._group.survivors_text(label, names, found.asked))
            found.survivors = names
        return found.signature

    def unmask(self, label: str, signatures: Mapping[str, str]) -> Opened:
        """Return shares that open the sum, for t or more survivors' signatures of the list that this site signed."""
        found = self._sum(label)
        if not found.survivors:
            raise OutOfOrder("this site has not yet signed a list of survivors")
        if found.opened is None:
            names = self._group.check_names("unmask", signatures)
            if not set(names) <= set(found.survivors):
                raise InvalidMessage(f"signatures must be of survivors, but are of {names}")
            text = self._group.survivors_text(label, found.survivors, found.asked)
            for name in names:
                self._group.check_signature(name, signatures[name], text)
            gone = [name for name in found.members if name not in found.survivors]
            masks = {name: found.shares[name][0] for name in found.survivors}
            found.opened = Opened(masks, {name: found.shares[name][1] for name in gone})
            found.shares = {}
        return found.opened

    def close(self, label: str) -> None:
        """Forget all that is kept of a label. Whatever is asked about it later is refused."""
        found = self._sums.pop(label, None)
        self._secrets.pop(label, None)
        self._closed.add(label)
        if found is not None and not any(other in self._sums for other in found.batch):
            del self._batches[found.batch]

    def to_bytes(self) -> bytes:
        """Return all that a member must not lose, secrets included: what `of_bytes` goes on from."""
        group = self._group
        state = {
            "version": VERSION,
            "group": [self.name, dict(group.roster), group.threshold, group.context],
            "batches": [asdict(batch) for batch in self._batches.values()],
            "sums": {label: asdict(found) for label, found in self._sums.items()},
            "closed": sorted(self._closed),
        }
        body = json.dumps(state, default=lambda masked: base64.b64encode(masked).decode()).encode()
        return hashlib.sha256(body).digest() + body

    @classmethod
    def of_bytes(cls, data: bytes, identity: Identity, entropy: shamir.Entropy = os.urandom) -> Member:
        """Return the member that `to_bytes` was called of."""
        body = data[SHA256.digest_size :]
        if hashlib.sha256(body).digest() != data[: SHA256.digest_size]:
            raise InvalidMessage("the kept state of the secure sum is damaged")
        state = json.loads(body)
        if state["version"] != VERSION:
            raise InvalidMessage(f"the kept state is of version {state['version']}, and this code speaks {VERSION}")
        name, roster, threshold, context = state["group"]
        member = cls(name, identity, roster, threshold, context, entropy)
        for each in state["batches"]:
            advert = Advert(**each.pop("advert"))
            adverts = {name: Advert(**shown) for name, shown in each.pop("adverts").items()}
            member._batches[advert.labels] = _Batch(advert, adverts=adverts, **each)
        for label, each in state["sums"].items():
            each["batch"], each["masked"] = tuple(each["batch"]), base64.b64decode(each["masked"])
            each["opened"] = each["opened"] and Opened(**each["opened"])
            member._sums[label] = _Sum(**each)
        member._closed = set(state["closed"])
        return member

    def _exchanged(self, label: str, names: Sequence[str]) -> dict[str, bytes]:
        """Return the secrets of this site's key for a label with those of its peers."""
        found = self._sums[label]
        adverts, place = self._batches[found.batch].adverts, found.batch.index(label)
        key = self._group.mask_key(found.seeds[1], label, self.name)
        return {peer: exchange(key, adverts[peer].keys[place], peer) for peer in names if peer != self.name}

    def _sum(self, label: str) -> _Sum:
        if label in self._sums:
            return self._sums[label]
        raise OutOfOrder(f"the label is {'closed' if label in self._closed else 'unknown'}: {label!r}")

    def _read(self, batch: _Batch, shares: Mapping[str, str]) -> None:
        """Decrypt what was not read before, all or nothing, and keep it."""
        labels, read = batch.advert.labels, {}
        for name in sorted(shares.keys() & batch.inbox.keys()):
            try:
                read[name] = self._decrypted(batch, name, shares[name])
            except SecureSumError as error:
                error.sender = name
                raise
        for name, texts in read.items():
            del batch.inbox[name]
            self._keep(name, labels, texts)

    def _decrypted(self, batch: _Batch, name: str, sealed: str) -> list[str]:
        """Return the shares that a site sent to this one, two a label."""
        labels, cipher = batch.advert.labels, ChaCha20Poly1305(bytes.fromhex(batch.inbox[name]))
        data = raw(f"the ciphertext of {name!r}", sealed)
        try:
            plain = cipher.decrypt(NONCE, data, self._group.shares_text(labels, name, self.name)).hex()
        except InvalidTag:
            raise NotAuthentic(f"the shares from {name!r} are not for this site and batch") from None
        texts = [plain[start : start + 2 * KEY] for start in range(0, len(plain), 2 * KEY)]
        for share in texts:
            check_share(name, share)
        if len(texts) != 2 * len(labels):
            raise InvalidMessage(f"the shares from {name!r} are not two a label")
        return texts

    def _keep(self, owner: str, labels: Labels, texts: Sequence[str]) -> None:
        """Keep two shares a label, of the mask seed and of the key seed, for labels that have a use for them."""
        for label, *pair in zip(labels, texts[::2], texts[1::2], strict=True):
            if label in self._sums and not self._sums[label].masked:
                self._sums[label].shares[owner] = pair
