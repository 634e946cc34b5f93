"""Sites and a server of a secure sum, for its tests."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from dpfedvis.protocol.secure_sum import Advert, Collector, Member, TooFewMembers, Total
from dpfedvis.protocol.signatures import Identity

STAGES = ("advertise", "share", "masked", "confirm", "unmask")
NAMES = ("a", "b", "c", "d")
CONTEXT = "c0ffee"
LABEL = "run/round 1"
ASKED = hashlib.sha256(b"a question").hexdigest()


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


def slow_sum(values: Mapping[str, Any], names: Collection[str]) -> list[int]:
    """With Python's integers, wrapped into 64 bits at the end."""
    totals = [sum(int(values[name][place]) for name in names) for place in range(len(next(iter(values.values()))))]
    return [(total + 2**63) % 2**64 - 2**63 for total in totals]


def some_values(names: Collection[str], size: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-(2**62), 2**62, size=size) for name in names}


VALUES = some_values(NAMES, 3)


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


def exchanged(secret: bytes, public: str) -> bytes:
    peer = X25519PublicKey.from_public_bytes(bytes.fromhex(public))
    return X25519PrivateKey.from_private_bytes(secret).exchange(peer)
