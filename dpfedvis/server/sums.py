"""Sums over sites, as the server gets them: secure ones between processes, plain ones inside a simulation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from accounting import Event
from accounting.events import from_dict
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.files import read_arrays, write_arrays, write_text
from dpfedvis.protocol.ask import Ask, Reply, Request
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import Receipt, Refused, Send, Sent
from dpfedvis.protocol.secure_sum import Advert, Collector, SecureSumError, Shares
from dpfedvis.protocol.sum_messages import (
    Advertise,
    Advertised,
    Confirm,
    Confirmed,
    Masked,
    SendMasked,
    Shared,
    ShareKeys,
    Unmask,
    Unmasked,
    release_of,
)
from dpfedvis.protocol.uploads import too_large
from dpfedvis.protocol.wire import label_of

AHEAD = 64  # sums whose keys are agreed at a time
_BATCHES, _OPEN = "keys.json", "open_sum.npz"
_Reply = TypeVar("_Reply", Advertised, Shared, Masked, Confirmed, Unmasked)


class SumIncomplete(DpfedvisError):
    """A sum that lacks sites. What was published stays; the run can be resumed when they are back."""


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum of sites' uploads: all that a server sees under trust `aggregate`.

    Parameters
    ----------
    values : array of int64, of the shape of an upload
    events : tuple of Event
        Of the sites in it.
    receipts : tuple of Receipt
    masked : tuple of arrays, or None
        What the receipts are for; None in a simulation.
    absent : mapping of str to str
        Sites that are not in it, and why.
    """

    values: Integers
    events: tuple[Event, ...]
    receipts: tuple[Receipt, ...]
    masked: tuple[Integers, ...] | None
    absent: Mapping[str, str]


class Sums(Protocol):
    """Protocol: a way to get sums."""

    def total(self, request: Send, shape: tuple[int, ...]) -> Sum:
        """Ask the sites for an upload of this shape; return the sum."""


@dataclass(frozen=True)
class PlainSums:
    """Sums of what all sites of one process send: equal to secure ones, bit for bit, since integers add up exactly."""

    ask: Ask

    def total(self, request: Send, shape: tuple[int, ...]) -> Sum:
        """Add up; a site that gives nothing that can be added stops it."""
        sent, wrong = [], {}
        for name, reply in zip(self.ask.sites, self.ask.each(request), strict=True):
            words = _unfit(reply, name, shape, len(self.ask.sites))
            if words:
                wrong[name] = words
            elif isinstance(reply, Sent):
                sent.append(reply)
        if wrong:
            raise SumIncomplete(
                "; ".join(f"{name} failed in round {request.round}: {why}" for name, why in wrong.items())
            )
        total: Integers = np.sum([each.values for each in sent], axis=0, dtype=np.int64)
        return Sum(total, tuple(each.event for each in sent), tuple(each.receipt for each in sent), None, {})


@dataclass(frozen=True)
class Batch:
    """Keys that sites agreed on, for the sums of some labels.

    Parameters
    ----------
    labels : tuple of str
    adverts : tuple of Advert
    shares : mapping of str to Shares
        By sender.
    """

    labels: tuple[str, ...]
    adverts: tuple[Advert, ...]
    shares: Mapping[str, Shares]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Batch:
        """Inverse of `dataclasses.asdict`, from JSON."""
        shares = {name: Shares(tuple(each["labels"]), each["to"]) for name, each in values["shares"].items()}
        return cls(tuple(values["labels"]), tuple(Advert(**each) for each in values["adverts"]), shares)

    def label_of(self, release: str) -> str | None:
        """Return the label of a release in this batch."""
        return next((label for label in self.labels if label.rpartition("|")[0] == release), None)


class SecureSums:
    """Sums by the protocol of `dpfedvis.protocol.secure_sum`: the server sees masked uploads, and the sum.

    Keys are agreed ahead for many sums. A site that was away when they were agreed joins with the next batch of keys,
    which is made as soon as it is back.

    Parameters
    ----------
    ask : Ask
    contract : Contract
    folder : Path, optional
        Where to keep what a resumed run needs: the batches of keys, and a sum whose sites are named and not opened yet.
    """

    def __init__(self, ask: Ask, contract: Contract, folder: Path | None = None) -> None:
        self._ask, self._contract, self._label, self._folder = ask, contract, label_of(contract), folder
        roster = {member.name: member.key for member in contract.members}
        self._collector = Collector(roster, contract.threshold or len(roster), self._label)
        self._batches: list[Batch] = []
        self._formed: set[str] = set()  # releases
        self._why: dict[str, str] = {}  # why a site is not in the sum that is being formed
        if folder is not None and (folder / _BATCHES).exists():
            for values in json.loads((folder / _BATCHES).read_text(encoding="utf-8")):
                self._take(Batch.of(values))

    def total(self, request: Send, shape: tuple[int, ...]) -> Sum:
        """Form one sum, of at least t sites; with fewer raise `SumIncomplete`."""
        self._why = {}
        what, round = request.mechanism.what, request.round
        try:
            return self._summed(request, shape, *self._keys_for(release_of(what, round)))
        except SecureSumError as error:
            away = "; ".join(f"{name}: {why}" for name, why in self._why.items())
            later = ". What was published stays; resume the run when more sites are there"
            raise SumIncomplete(
                f"the sum of {what} in round {round} is not complete: {error}{f' ({away})' if away else ''}{later}"
            ) from error

    # Keys, ahead

    def _keys_for(self, release: str) -> tuple[str, Batch]:
        """Return the label of a release and its keys, agreed on now if there are none, or if a site has come back."""
        newest = self._newest(release)
        if newest is not None:
            label, batch = newest
            missing = [name for name in self._ask.sites if name not in batch.shares]
            if not missing or self._is_open(label) or not self._agreed(release, missing):
                return newest
        else:
            self._agreed(release, ())
        found = self._newest(release)
        assert found is not None
        return found

    def _newest(self, release: str) -> tuple[str, Batch] | None:
        found = [(label, batch) for batch in self._batches if (label := batch.label_of(release)) is not None]
        return found[-1] if found else None

    def _agreed(self, release: str, first: Sequence[str]) -> bool:
        """Agree on keys for a release and those after it; not if none of the sites that are asked first is there."""
        labels = self._next_labels(release)
        adverts = self._asked({name: Advertise(self._label, labels) for name in first}, Advertised)
        if first and not adverts:
            return False
        rest = [name for name in self._ask.sites if name not in first]
        adverts |= self._asked({name: Advertise(self._label, labels) for name in rest}, Advertised)
        self._collector.begin(labels)
        for advertised in adverts.values():
            self._collector.add_advert(advertised.advert)
        shown = self._collector.adverts(labels)
        shared = self._asked({each.name: ShareKeys(self._label, shown) for each in shown}, Shared)
        for name, reply in shared.items():
            self._collector.add_shares(name, reply.shares)
        self._collector.route(labels)
        self._batches.append(Batch(labels, shown, {name: reply.shares for name, reply in shared.items()}))
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_text(self._folder / _BATCHES, json.dumps([asdict(each) for each in self._batches]))
        return True

    def _next_labels(self, release: str) -> tuple[str, ...]:
        """Labels of a new batch: of this release, and of those that are planned and not formed."""
        contract, number = self._contract, len(self._batches)
        rounds = contract.counts[contract.mechanism.what]
        planned = [release_of(what, 0) for what in contract.extras]
        planned += [release_of(contract.mechanism.what, round) for round in range(1, rounds + 1)]
        left = [each for each in planned if each not in self._formed]
        place = left.index(release)
        # The rounds before this one are over; the single releases may still come.
        chosen = dict.fromkeys([release, *(each for each in left if each.endswith("|0")), *left[place:]])
        return tuple(f"{each}|{number}" for each in list(chosen)[:AHEAD])

    def _take(self, batch: Batch) -> None:
        """Go on with keys that were agreed before an interruption."""
        self._collector.begin(batch.labels)
        for advert in batch.adverts:
            self._collector.add_advert(advert)
        self._collector.adverts(batch.labels)
        for name, shares in batch.shares.items():
            self._collector.add_shares(name, shares)
        self._collector.route(batch.labels)
        self._batches.append(batch)

    # One sum

    def _summed(self, request: Send, shape: tuple[int, ...], label: str, batch: Batch) -> Sum:
        collector, replies = self._collector, dict[str, Masked]()
        if not self._restored(label):
            size = math.prod(shape)
            asked = {name: SendMasked(request, label, collector.shares(batch.labels, name)) for name in batch.shares}
            replies = self._asked(asked, Masked)
            for name, masked in replies.items():
                collector.add_masked(label, name, masked.values, size)
            self._keep(label, replies)
        survivors = collector.survivors(label)
        events, receipts = self._events, self._receipts
        for name, confirmed in self._asked(_each(survivors, Confirm(self._label, label, survivors)), Confirmed).items():
            collector.add_signature(label, name, confirmed.signature)
        unmask = Unmask(self._label, label, collector.signatures(label))
        for name, unmasked in self._asked(_each(survivors, unmask), Unmasked).items():
            collector.add_opened(label, name, unmasked.opened)
        total = collector.total(label)
        collector.close(label)
        self._formed.add(label.rpartition("|")[0])
        return Sum(
            total.values.reshape(shape),
            tuple(events[name] for name in survivors),
            tuple(receipts[name] for name in survivors),
            tuple(replies[name].values for name in survivors) if replies else None,
            {name: self._why.get(name, "away") for name in self._ask.sites if name not in survivors},
        )

    def _keep(self, label: str, replies: Mapping[str, Masked]) -> None:
        """Keep a sum whose sites are known: they sign this list, and another would be refused."""
        self._events = {name: reply.event for name, reply in replies.items()}
        self._receipts = {name: reply.receipt for name, reply in replies.items()}
        survivors, masked = self._collector.survivors(label), self._collector.masked_sum(label)
        if self._folder is None:
            return
        facts = {
            "label": label,
            "survivors": survivors,
            "events": {name: event.to_dict() for name, event in self._events.items()},
            "receipts": {name: asdict(receipt) for name, receipt in self._receipts.items()},
        }
        write_arrays(self._folder / _OPEN, {"facts": np.array(json.dumps(facts)), "masked": masked})

    def _open_sum(self) -> tuple[dict[str, Any], Integers] | None:
        if self._folder is None or not (self._folder / _OPEN).exists():
            return None
        stored = read_arrays(self._folder / _OPEN)
        return json.loads(str(stored["facts"])), stored["masked"]

    def _is_open(self, label: str) -> bool:
        found = self._open_sum()
        return found is not None and found[0]["label"] == label

    def _restored(self, label: str) -> bool:
        """Whether a sum goes on that was open when the run was interrupted."""
        found = self._open_sum()
        if found is None or found[0]["label"] != label:
            return False
        facts, masked = found
        self._collector.restore(label, facts["survivors"], masked)
        self._events = {name: from_dict(values) for name, values in facts["events"].items()}
        self._receipts = {name: Receipt(**values) for name, values in facts["receipts"].items()}
        return True

    def _asked(self, requests: Mapping[str, Request], kind: type[_Reply]) -> dict[str, _Reply]:
        """Ask some sites; return the replies of this kind, and remember why others gave none."""
        found: dict[str, _Reply] = {}
        for name, reply in self._ask.some(requests).items():
            if isinstance(reply, kind) and reply.site == name:
                found[name] = reply
            else:
                self._why[name] = (
                    reply.words if isinstance(reply, Refused) else "gave another reply than it was asked for"
                )
        return found


def _each(names: Sequence[str], request: Request) -> dict[str, Request]:
    return dict.fromkeys(names, request)


def _unfit(reply: Reply, name: str, shape: tuple[int, ...], sites: int) -> str:
    """Say why a reply cannot be added to a sum; empty if it can."""
    if isinstance(reply, Refused):
        return reply.words
    if not isinstance(reply, Sent) or reply.site != name:
        return "gave another reply than it was asked for"
    if not isinstance(reply.values, np.ndarray) or reply.values.dtype != np.int64:
        return "gave an upload that is not of integers"
    if reply.values.shape != shape:
        return f"gave an upload of shape {reply.values.shape}"
    return "gave values beyond what can be added up" if too_large(reply.values, sites) else ""
