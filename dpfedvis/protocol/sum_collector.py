"""The server's side of a secure sum. It is trusted with nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

import numpy as np

from dpfedvis.protocol import shamir
from dpfedvis.protocol.sum_facts import (
    Advert,
    AlreadyAnswered,
    CannotOpen,
    Integers,
    InvalidMessage,
    Labels,
    Opened,
    Shares,
    TooFewMembers,
    Total,
    check_asked,
)
from dpfedvis.protocol.sum_group import (
    Group,
    Words,
    as_text,
    check_share,
    exchange,
    expected,
    in_order,
    public_of,
)

MOST_TRIES = 1000  # sets of shares that the collector tries for one secret, if some are wrong


@dataclass
class _Gathered:
    """What the collector has of a batch; `listed` and `routed` are set once and then stand."""

    adverts: dict[str, Advert] = field(default_factory=dict)
    listed: bool = False
    shares: dict[str, Mapping[str, str]] = field(default_factory=dict)
    routed: list[str] = field(default_factory=list)


@dataclass
class _Tally:
    """What the collector has of a label; `survivors` is set once and then stands."""

    batch: Labels
    total: Words | None = None
    asked: str = ""
    came: set[str] = field(default_factory=set)
    survivors: list[str] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)
    opened: dict[str, Opened] = field(default_factory=dict)
    fitting: tuple[int, ...] = ()  # places whose shares gave the last secret


class Collector:
    """The server. Replies are added as they come, in any order within a stage; the first of a site counts.

    What goes out closes its stage: after `adverts`, `route` or `survivors` gave a list of at least t, late replies are
    refused. With fewer they raise `TooFewMembers`, and work when more replies were added. Names of senders are the
    link's word, which knows who is speaking.

    Parameters
    ----------
    roster, threshold, context
        As for `Member`.
    """

    def __init__(self, roster: Mapping[str, str], threshold: int, context: str) -> None:
        self._group = Group(roster, threshold, context)
        self._batches: dict[Labels, _Gathered] = {}
        self._sums: dict[str, _Tally] = {}

    def begin(self, labels: Sequence[str]) -> None:
        """Open a batch of labels."""
        labels = tuple(labels)
        if not labels or len(set(labels)) < len(labels) or any(label in self._sums for label in labels):
            raise AlreadyAnswered(f"labels of a batch are at least one, distinct, and in no other batch: {labels}")
        self._batches[labels] = _Gathered()
        self._sums.update({label: _Tally(labels) for label in labels})

    def add_advert(self, advert: Advert) -> None:
        """Take a site's advert."""
        batch = self._batch(advert.labels)
        self._group.check_advert(advert, advert.labels)
        if advert.name not in batch.adverts:
            in_order(not batch.listed, f"the advert of {advert.name!r} came too late")
            self._group.check_keys([*batch.adverts.values(), advert])  # else every site would refuse the list
            batch.adverts[advert.name] = advert

    def adverts(self, labels: Labels) -> tuple[Advert, ...]:
        """Return the adverts of a batch, for every site that made one."""
        batch = self._batch(labels)
        names = self._group.check_names("share", batch.adverts)
        batch.listed = True
        return tuple(batch.adverts[name] for name in names)

    def add_shares(self, name: str, shares: Shares) -> None:
        """Take the ciphertexts of a site's shares."""
        batch = self._batch(shares.labels)
        if not batch.listed or shares.to.keys() != batch.adverts.keys() - {name} or name not in batch.adverts:
            raise InvalidMessage(f"the shares of {name!r} are not for all that advertised")
        if name not in batch.shares:
            in_order(not batch.routed, f"the shares of {name!r} came too late")
            batch.shares[name] = dict(shares.to)

    def route(self, labels: Labels) -> tuple[str, ...]:
        """Return the sites that shared: these and no others can be in the sums of the batch."""
        batch = self._batch(labels)
        batch.routed = batch.routed or self._group.check_names("masked", batch.shares)
        return tuple(batch.routed)

    def shares(self, labels: Labels, name: str) -> dict[str, str]:
        """Return the ciphertexts for a site that shared, by sender."""
        names, shares = self.route(labels), self._batch(labels).shares
        expected(name, names)
        return {peer: shares[peer][name] for peer in names if peer != name}

    def add_masked(self, label: str, name: str, values: Integers, size: int, asked: str) -> None:
        """Take a site's masked values, int64 of shape (size,); `asked` is the hash of what sites were asked for."""
        tally = self._sum(label)
        check_asked(asked)
        if tally.asked not in ("", asked):
            raise InvalidMessage(f"the masked values of {name!r} answer {asked}, those before them {tally.asked}")
        expected(name, self._batches[tally.batch].routed)
        shape = (size,) if tally.total is None else tally.total.shape
        if not isinstance(values, np.ndarray) or values.dtype != np.int64 or not values.shape == shape == (size,):
            raise InvalidMessage(f"the masked values of {name!r} are not {size} integers of 64 bits")
        if name not in tally.came:
            in_order(not tally.survivors, f"the masked values of {name!r} came too late")
            words = values.astype("<i8").view("<u8")
            tally.total = words if tally.total is None else tally.total + words
            tally.came.add(name)
            tally.asked = asked

    def survivors(self, label: str) -> tuple[str, ...]:
        """Return the sites whose masked values came: these and no others are in the sum."""
        tally = self._sum(label)
        tally.survivors = tally.survivors or self._group.check_names("confirm", tally.came)
        return tuple(tally.survivors)

    def masked_sum(self, label: str) -> Integers:
        """Return the sum of the masked values that came, shape (n,). It says nothing before it is opened."""
        tally = self._sum(label)
        in_order(tally.total is not None, "no masked values came")
        assert tally.total is not None
        return tally.total.view("<i8")

    def restore(self, label: str, survivors: Sequence[str], masked: Integers, asked: str) -> None:
        """Go on from a list of survivors and `masked_sum`, which were kept before the list went out."""
        tally, names = self._sum(label), self._group.check_names("confirm", survivors)
        check_asked(asked)
        in_order(not tally.came, "masked values came already")
        for name in names:
            expected(name, self._batches[tally.batch].routed)
        tally.total, tally.came, tally.survivors = masked.astype("<i8").view("<u8"), set(names), names
        tally.asked = asked

    def add_signature(self, label: str, name: str, signature: str) -> None:
        """Take a survivor's signature of the list of survivors."""
        tally = self._sum(label)
        expected(name, tally.survivors)
        self._group.check_signature(name, signature, self._group.survivors_text(label, tally.survivors, tally.asked))
        tally.signatures[name] = signature

    def signatures(self, label: str) -> dict[str, str]:
        """Return the signatures that came, for every survivor."""
        found = self._sum(label).signatures
        self._group.check_names("unmask", found)
        return dict(found)

    def add_opened(self, label: str, name: str, opened: Opened) -> None:
        """Take the shares that a survivor opened."""
        tally = self._sum(label)
        expected(name, tally.survivors)
        gone = set(self._batches[tally.batch].routed) - set(tally.survivors)
        if opened.masks.keys() != set(tally.survivors) or opened.keys.keys() != gone:
            raise InvalidMessage(f"the shares opened by {name!r} are not of all that shared")
        for share in (*opened.masks.values(), *opened.keys.values()):
            check_share(name, share)
        tally.opened.setdefault(name, opened)

    def total(self, label: str) -> Total:
        """Return the sum of the survivors: masks come off with the seeds that t of them opened."""
        tally, group = self._sum(label), self._group
        if len(tally.opened) < group.threshold:
            raise TooFewMembers("total", len(tally.opened), group.threshold)
        batch, place = self._batches[tally.batch], tally.batch.index(label)
        total = self.masked_sum(label).view("<u8").copy()

        def mask_fits(seed: str, owner: str) -> bool:
            return group.commitment(seed, label, owner) == batch.adverts[owner].commitments[place]

        def key_fits(seed: str, owner: str) -> bool:
            return public_of(group.mask_key(seed, label, owner)) == batch.adverts[owner].keys[place]

        masks = {name: self._open(tally, name, "masks", mask_fits) for name in tally.survivors}
        gone = [name for name in batch.routed if name not in masks]
        keys = {name: self._open(tally, name, "keys", key_fits) for name in gone}
        for name, seed in masks.items():
            total -= group.self_mask(seed, label, name, total.size)
        for name, seed in keys.items():
            key = group.mask_key(seed, label, name)
            for peer in tally.survivors:  # what it would have added itself is what its peer's mask lacks
                secret = exchange(key, batch.adverts[peer].keys[place], peer)
                total += group.pair_mask(secret, label, name, peer, total.size, tally.asked)
        return Total(total.view("<i8"), tuple(tally.survivors))

    def close(self, label: str) -> None:
        """Forget a label; the batch goes with its last one."""
        tally = self._sums.pop(label, None)
        if tally is not None and not any(other in self._sums for other in tally.batch):
            del self._batches[tally.batch]

    def _open(self, tally: _Tally, owner: str, kind: str, fits: Callable[[str, str], bool]) -> str:
        """Return the secret of a site that fits its advert, from any t of the shares."""
        shares = {
            self._group.places[name]: int(getattr(opened, kind)[owner], 16) for name, opened in tally.opened.items()
        }
        # Those whose shares fitted before come first: whoever lies does it for several owners.
        order = sorted(shares, key=lambda place: (place not in tally.fitting, place))
        for places in islice(_sets(order, self._group.threshold), MOST_TRIES):
            seed = as_text(shamir.combine({place: shares[place] for place in places}))
            if fits(seed, owner):
                tally.fitting = places
                return seed
        what = {"masks": "self mask", "keys": "mask key"}[kind]
        raise CannotOpen(f"the {what} of {owner!r} does not follow from the shares of {sorted(tally.opened)}")

    def _batch(self, labels: Labels) -> _Gathered:
        in_order(labels in self._batches, f"no such batch, or it is closed: {labels}")
        return self._batches[labels]

    def _sum(self, label: str) -> _Tally:
        in_order(label in self._sums, f"no such label, or it is closed: {label!r}")
        return self._sums[label]


def _sets(places: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Return all sets of this size, each once: first without each one place, then without each two, and so on.

    In the order of `combinations` the first thousands of sets may all have the first place in them.
    """
    seen = set()
    for without in range(len(places) - size + 1):
        for out in combinations(places, without):
            found = tuple([place for place in places if place not in out][:size])
            if found not in seen:
                seen.add(found)
                yield found
