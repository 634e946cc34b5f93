"""Sums by the protocol of `dpfedvis.protocol.secure_sum`, from the server's side, and what outlives it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Event, GaussianRelease
from accounting.events import from_dict
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.files import read_arrays, write_arrays
from dpfedvis.protocol.ask import Ask, Request
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import Receipt, Send
from dpfedvis.protocol.secure_sum import Collector, InvalidMessage, SecureSumError
from dpfedvis.protocol.sum_messages import Confirm, Confirmed, Masked, SendMasked, Unmask, Unmasked, release_of
from dpfedvis.protocol.uploads import BadUpload
from dpfedvis.protocol.views import View
from dpfedvis.protocol.wire import asked_for, digest, label_of
from dpfedvis.server.replies import Kind, Replies
from dpfedvis.server.sum_keys import Asking, Batch, SumKeys
from dpfedvis.server.sums import Sum, SumIncomplete

_OPEN = "open_sum.npz"


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

    A site whose reply cannot be used, at any stage, is left out: t others are enough.

    Parameters
    ----------
    ask : Ask
    contract : Contract
    replies : Replies
        What events and receipts are held against.
    folder : Path, optional
        Where to keep what a resumed run needs: keys, a sum whose sites are named and not opened yet, and every sum that
        was formed, since sites forget it with the next.
    """

    def __init__(self, ask: Ask, contract: Contract, replies: Replies, folder: Path | None = None) -> None:
        self._label, self._replies, self._folder = label_of(contract), replies, folder
        roster = {member.name: member.key for member in contract.members}
        self._collector = Collector(roster, contract.threshold or len(roster), self._label)
        self._asking = Asking(ask)
        self._keys = SumKeys(self._asking, contract, self._collector, folder)
        self._views: dict[str, str] = {}
        self._charged = _Charged()

    def prepared(self, view: View) -> None:
        """Remember a view that sites compute uploads from: it is part of what they are asked for."""
        self._views[view.name] = digest(view)

    def total(self, request: Send, shape: tuple[int, ...]) -> Sum:
        """Form one sum, of at least t sites, or find the one that was formed; with fewer raise `SumIncomplete`."""
        self._asking.why.clear()
        self._charged = _Charged()
        what, round = request.mechanism.what, request.round
        release, question = release_of(what, round), asked_for(request, self._views.get(request.view, ""))
        if (kept := self._kept(release, question)) is not None:
            return kept
        try:
            masked = None
            while masked is None:  # each time with a sender fewer
                label, batch = self._keys.find(release)
                masked = self._masked(request, shape, question, label, batch)
            return self._opened(label, shape, question, masked)
        except SecureSumError as error:
            away = "; ".join(f"{name}: {why}" for name, why in (self._asking.why | self._keys.left_out).items())
            later = ". What was published stays; resume the run when more sites are there"
            raise SumIncomplete(
                f"the sum of {what} in round {round} is not complete: {error}{f' ({away})' if away else ''}{later}",
                list(self._charged.events.values()),
                list(self._charged.receipts.values()),
            ) from error

    # One sum

    def _masked(
        self, request: Send, shape: tuple[int, ...], question: str, label: str, batch: Batch
    ) -> dict[str, Masked] | None:
        """Ask for masked values; return the replies, none if the sum goes on from before an interruption.

        None if other keys must be agreed on: shares of some senders cannot be read, and only these senders have masked
        the release.
        """
        if self._restored(label):
            return {}
        self._keys.bind(label)
        shares = {name: self._collector.shares(batch.labels, name) for name in batch.shares}
        replies = self._asking({name: SendMasked(request, label, own) for name, own in shares.items()}, Masked)
        if self._keys.given_up(label, batch, replies):
            return None
        expected = dict(zip(self._replies.contract.names, self._replies.expected(request), strict=True))
        for name, masked in replies.items():
            try:
                # First: who is in the sum stands when it is kept, and each resumed run would find the same.
                self._check(name, masked, question, request.round, expected[name])
                self._collector.add_masked(label, name, masked.values, math.prod(shape), question)
            except SecureSumError as error:
                self._asking.why[name] = str(error)
            except BadUpload as error:
                self._asking.why[name] = error.reason
            else:
                self._charged.events[name], self._charged.receipts[name] = masked.event, masked.receipt
        self._keep_open(label, self._collector.survivors(label), question)
        return replies

    def _check(self, name: str, masked: Masked, question: str, round: int, expected: GaussianRelease | Kind) -> None:
        """Raise unless a reply answers the question, with the event of the contract and a receipt for it."""
        if masked.asked != question:  # its masks would not come off
            raise InvalidMessage("answers another question, of which it may have an older view")
        if not isinstance(masked.values, np.ndarray):
            raise InvalidMessage(f"the masked values of {name!r} are no array")
        self._replies.check_event(masked.event, name, round, expected)
        self._replies.check_receipt(masked.receipt, name, masked.event, masked.values)

    def _opened(self, label: str, shape: tuple[int, ...], question: str, replies: Mapping[str, Masked]) -> Sum:
        """Open a sum whose sites are known, and keep it."""
        collector, asking = self._collector, self._asking
        survivors = collector.survivors(label)
        for name, confirmed in asking(_each(survivors, Confirm(self._label, label, survivors)), Confirmed).items():
            try:
                collector.add_signature(label, name, confirmed.signature)
            except SecureSumError as error:
                asking.why[name] = str(error)
        unmask = Unmask(self._label, label, collector.signatures(label))
        for name, unmasked in asking(_each(survivors, unmask), Unmasked).items():
            try:
                collector.add_opened(label, name, unmasked.opened)
            except SecureSumError as error:
                asking.why[name] = str(error)
        values = collector.total(label).values.reshape(shape)
        collector.close(label)
        why = asking.why | self._keys.left_out
        absent = {name: why.get(name, "away") for name in asking.sites if name not in survivors}
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

    # What outlives the server

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
