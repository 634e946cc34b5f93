"""Sums by the protocol of `dpfedvis.protocol.secure_sum`, from the server's side, and what outlives it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from accounting import Event
from accounting.events import from_dict
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.files import read_arrays, write_arrays, write_text
from dpfedvis.protocol.ask import Ask, Request
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import Receipt, Refused, Send
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
from dpfedvis.protocol.views import View
from dpfedvis.protocol.wire import asked_for, digest, label_of
from dpfedvis.server.sums import Sum, SumIncomplete

AHEAD = 64  # sums whose keys are agreed at a time
_STATE, _OPEN = "keys.json", "open_sum.npz"
_Reply = TypeVar("_Reply", Advertised, Shared, Masked, Confirmed, Unmasked)


@dataclass(frozen=True)
class Batch:
    """Keys that sites agreed on, for the sums of some labels.

    Parameters
    ----------
    labels : tuple of str
    adverts : tuple of Advert
    shares : mapping of str to Shares
        By sender: the sites that can be in these sums.
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


@dataclass
class _Charged:
    """Events and receipts of the sites whose masked values came, by name."""

    events: dict[str, Event] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> _Charged:
        events = {name: from_dict(values) for name, values in facts["events"].items()}
        return cls(events, {name: Receipt(**values) for name, values in facts["receipts"].items()})

    def facts(self) -> dict[str, Any]:
        return {
            "events": {name: event.to_dict() for name, event in self.events.items()},
            "receipts": {name: asdict(receipt) for name, receipt in self.receipts.items()},
        }


class SecureSums:
    """Secure sums of one run.

    Keys are agreed ahead for many sums. A site that was away when they were agreed joins with the next batch of keys,
    which is made as soon as it is back.

    Parameters
    ----------
    ask : Ask
    contract : Contract
    folder : Path, optional
        Where to keep what a resumed run needs: keys, a sum whose sites are named and not opened yet, and every sum that
        was formed, since sites forget it with the next.
    """

    def __init__(self, ask: Ask, contract: Contract, folder: Path | None = None) -> None:
        self._ask, self._contract, self._label, self._folder = ask, contract, label_of(contract), folder
        roster = {member.name: member.key for member in contract.members}
        self._collector = Collector(roster, contract.threshold or len(roster), self._label)
        self._batches: list[Batch] = []
        self._tried = 0  # batches, also of those that failed: a label is used once
        self._bound: dict[str, str] = {}  # the label under which each release was asked for
        self._views: dict[str, str] = {}
        self._why: dict[str, str] = {}  # why a site is not in the sum that is being formed
        self._charged = _Charged()
        if folder is not None and (folder / _STATE).exists():
            state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
            self._tried, self._bound = state["tried"], state["bound"]
            for values in state["batches"]:
                self._take(Batch.of(values))

    def prepared(self, view: View) -> None:
        """Remember a view that sites compute uploads from: it is part of what they are asked for."""
        self._views[view.name] = digest(view)

    def total(self, request: Send, shape: tuple[int, ...]) -> Sum:
        """Form one sum, of at least t sites, or find the one that was formed; with fewer raise `SumIncomplete`."""
        self._why, self._charged = {}, _Charged()
        what, round = request.mechanism.what, request.round
        question = asked_for(request, self._views.get(request.view, ""))
        if (kept := self._kept(release_of(what, round), question)) is not None:
            return kept
        try:
            return self._summed(request, shape, question, *self._keys_for(release_of(what, round)))
        except SecureSumError as error:
            away = "; ".join(f"{name}: {why}" for name, why in self._why.items())
            later = ". What was published stays; resume the run when more sites are there"
            raise SumIncomplete(
                f"the sum of {what} in round {round} is not complete: {error}{f' ({away})' if away else ''}{later}",
                list(self._charged.events.values()),
                list(self._charged.receipts.values()),
            ) from error

    # Keys, ahead

    def _keys_for(self, release: str) -> tuple[str, Batch]:
        """Return the label of a release and its keys, agreed on now if there are none, or if a site has come back."""
        newest = self._newest(release)
        if release in self._bound or (newest is not None and self._complete(newest[1])):
            assert newest is not None
            return next(each for each in self._known(release) if each[0] == self._bound.get(release, newest[0]))
        try:
            away = () if newest is None else [name for name in self._ask.sites if name not in newest[1].shares]
            self._agree(release, away)
        except SecureSumError:
            if newest is None:
                raise
        found = self._newest(release)
        assert found is not None
        return found

    def _complete(self, batch: Batch) -> bool:
        return all(name in batch.shares for name in self._ask.sites)

    def _known(self, release: str) -> list[tuple[str, Batch]]:
        return [(label, batch) for batch in self._batches if (label := batch.label_of(release)) is not None]

    def _newest(self, release: str) -> tuple[str, Batch] | None:
        known = self._known(release)
        return known[-1] if known else None

    def _agree(self, release: str, first: Sequence[str]) -> None:
        """Agree on keys for a release and those after it; not if none of the sites that are asked first is there."""
        labels = self._next_labels(release)
        self._tried += 1
        self._keep_state()
        adverts = self._asked({name: Advertise(self._label, labels) for name in first}, Advertised)
        if first and not adverts:
            return
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
        self._keep_state()

    def _next_labels(self, release: str) -> tuple[str, ...]:
        """Labels of a new batch: of this release, and of those that are planned and were not asked for."""
        contract = self._contract
        rounds = contract.counts[contract.mechanism.what]
        planned = [release_of(what, 0) for what in contract.extras]
        planned += [release_of(contract.mechanism.what, round) for round in range(1, rounds + 1)]
        left = [each for each in planned if each not in self._bound]
        chosen = dict.fromkeys([release, *left])
        return tuple(f"{each}|{self._tried}" for each in list(chosen)[:AHEAD])

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

    def _summed(self, request: Send, shape: tuple[int, ...], question: str, label: str, batch: Batch) -> Sum:
        collector, replies, asked = self._collector, dict[str, Masked](), self._asked
        if not self._restored(label):
            release = label.rpartition("|")[0]
            self._bound[release] = label
            self._keep_state()
            messages = {name: SendMasked(request, label, collector.shares(batch.labels, name)) for name in batch.shares}
            replies = asked(messages, Masked)
            for name, masked in replies.items():
                if masked.asked != question:  # it answers something else: its masks would not come off
                    self._why[name] = "answers another question, of which it may have an older view"
                    continue
                collector.add_masked(label, name, masked.values, math.prod(shape), question)
                self._charged.events[name], self._charged.receipts[name] = masked.event, masked.receipt
            self._keep_open(label, collector.survivors(label), question)
        survivors = collector.survivors(label)
        for name, confirmed in asked(_each(survivors, Confirm(self._label, label, survivors)), Confirmed).items():
            try:
                collector.add_signature(label, name, confirmed.signature)
            except SecureSumError as error:  # t others are enough
                self._why[name] = str(error)
        unmask = Unmask(self._label, label, collector.signatures(label))
        for name, unmasked in asked(_each(survivors, unmask), Unmasked).items():
            collector.add_opened(label, name, unmasked.opened)
        values = collector.total(label).values.reshape(shape)
        collector.close(label)
        absent = {name: self._why.get(name, "away") for name in self._ask.sites if name not in survivors}
        self._keep_formed(label.rpartition("|")[0], question, values, survivors, absent)
        own = tuple(replies[name].values for name in survivors) if replies else None
        return self._sum(values, survivors, own, absent)

    def _sum(
        self,
        values: Integers,
        survivors: Sequence[str],
        masked: tuple[Integers, ...] | None,
        absent: Mapping[str, str],
    ) -> Sum:
        events, receipts = self._charged.events, self._charged.receipts
        return Sum(values, tuple(events[n] for n in survivors), tuple(receipts[n] for n in survivors), masked, absent)

    def _asked(self, requests: Mapping[str, Request], kind: type[_Reply]) -> dict[str, _Reply]:
        """Ask some sites; return the replies of this kind, and remember why others gave none."""
        found: dict[str, _Reply] = {}
        for name, reply in self._ask.some(requests).items():
            if isinstance(reply, kind) and reply.site == name:
                found[name] = reply
            else:
                words = reply.words if isinstance(reply, Refused) else "gave another reply than it was asked for"
                self._why[name] = words
        return found

    # What outlives the server

    def _keep_state(self) -> None:
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            batches = [asdict(each) for each in self._batches]
            state = {"tried": self._tried, "bound": self._bound, "batches": batches}
            write_text(self._folder / _STATE, json.dumps(state))

    def _keep_open(self, label: str, survivors: Sequence[str], question: str) -> None:
        """Keep a sum whose sites are known: they sign this list, and another would be refused."""
        if self._folder is not None:
            facts = {"label": label, "survivors": list(survivors), "question": question, **self._charged.facts()}
            masked = self._collector.masked_sum(label)
            write_arrays(self._folder / _OPEN, {"facts": np.array(json.dumps(facts)), "values": masked})

    def _restored(self, label: str) -> bool:
        """Whether a sum goes on that was open when the run was interrupted."""
        found = self._read(_OPEN)
        if found is None or found[0]["label"] != label:
            return False
        facts, masked = found
        self._collector.restore(label, facts["survivors"], masked, facts["question"])
        self._charged = _Charged.of(facts)
        return True

    def _keep_formed(
        self, release: str, question: str, values: Integers, survivors: Sequence[str], absent: Mapping[str, str]
    ) -> None:
        if self._folder is not None:
            facts = {"question": question, "survivors": list(survivors), "absent": dict(absent)}
            facts |= self._charged.facts()
            write_arrays(self._folder / _file(release), {"facts": np.array(json.dumps(facts)), "values": values})

    def _kept(self, release: str, question: str) -> Sum | None:
        """Return a sum that was formed before an interruption; one of another question is spent."""
        found = self._read(_file(release))
        if found is None:
            return None
        facts, values = found
        if facts["question"] != question:
            raise SumIncomplete(f"the sum of {release} was formed before, and answers another question", [], [])
        self._charged = _Charged.of(facts)
        return self._sum(values, facts["survivors"], None, facts["absent"])

    def _read(self, name: str) -> tuple[dict[str, Any], Integers] | None:
        if self._folder is None or not (self._folder / name).exists():
            return None
        stored = read_arrays(self._folder / name)
        return json.loads(str(stored["facts"])), stored["values"]


def _file(release: str) -> str:
    return f"sum-{release.replace(' ', '-').replace('|', '-')}.npz"


def _each(names: Sequence[str], request: Request) -> dict[str, Request]:
    return dict.fromkeys(names, request)
