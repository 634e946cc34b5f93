"""Keys of secure sums, agreed on ahead for many of them: who has them, and which release is bound to which."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from dpfedvis.numerics.files import make_folder, write_text
from dpfedvis.protocol.ask import Ask, Request
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import Refused
from dpfedvis.protocol.secure_sum import Advert, Collector, InvalidMessage, SecureSumError, Shares
from dpfedvis.protocol.sum_messages import (
    Advertise,
    Advertised,
    Confirmed,
    Masked,
    Shared,
    ShareKeys,
    Unmasked,
    release_of,
    unreadable,
)
from dpfedvis.protocol.wire import label_of

AHEAD = 64  # sums whose keys are agreed at a time
_STATE = "keys.json"
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


class Asking:
    """Questions to some sites. It remembers why a site gave no answer that can be used.

    Parameters
    ----------
    ask : Ask
    """

    def __init__(self, ask: Ask) -> None:
        self._ask, self.why = ask, dict[str, str]()

    @property
    def sites(self) -> Sequence[str]:
        """Names of the sites."""
        return self._ask.sites

    def __call__(self, requests: Mapping[str, Request], kind: type[_Reply]) -> dict[str, _Reply]:
        """Ask some sites; return the replies of this kind."""
        found: dict[str, _Reply] = {}
        for name, reply in self._ask.some(requests).items():
            if isinstance(reply, kind) and reply.site == name:
                found[name] = reply
            else:
                words = reply.words if isinstance(reply, Refused) else "gave another reply than it was asked for"
                self.why[name] = words
        return found


class SumKeys:
    """Keys of the secure sums of one run.

    A site that was away when keys were agreed on joins with the next batch, which is made as soon as it is back. One
    whose shares others cannot read is left out of the next, until the server is started again.

    Parameters
    ----------
    asking : Asking
    contract : Contract
    collector : Collector
    folder : Path, optional
        Where keys are kept for a resumed run.
    """

    def __init__(self, asking: Asking, contract: Contract, collector: Collector, folder: Path | None = None) -> None:
        self._asking, self._contract, self._collector, self._folder = asking, contract, collector, folder
        self._label = label_of(contract)
        self._batches: list[Batch] = []
        self._tried = 0  # batches, also of those that failed: a label is used once
        self._bound: dict[str, str] = {}  # the label under which each release was asked for
        self._spoiled: list[str] = []  # first labels of batches with shares that cannot be read
        self.left_out: dict[str, str] = {}  # sites, and why
        if folder is not None and (folder / _STATE).exists():
            state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
            self._tried, self._bound, self._spoiled = state["tried"], state["bound"], state.get("spoiled", [])
            for values in state["batches"]:
                self._take(Batch.of(values))

    def find(self, release: str) -> tuple[str, Batch]:
        """Return the label of a release and its keys, agreed on now if there are none, or if a site has come back."""
        bound, newest = self._bound.get(release), self._newest(release)
        if bound is not None:
            return next(each for each in self._known(release) if each[0] == bound)
        if newest is not None and all(name in newest[1].shares for name in self._sites):
            return newest
        try:
            away = () if newest is None else [name for name in self._sites if name not in newest[1].shares]
            self._agree(release, away)
        except SecureSumError:
            if newest is None:
                raise
        found = self._newest(release)
        assert found is not None
        return found

    def bind(self, label: str) -> None:
        """Bind a release to a label, before it is asked for under it."""
        self._bound[label.rpartition("|")[0]] = label
        self._keep()

    def given_up(self, label: str, batch: Batch, masked: Collection[str]) -> bool:
        """Whether a release is free for other keys: shares cannot be read, and only their senders have masked it.

        Believed is what more sites say than work together: not all of these lie. Keys with such shares are used no
        more. The senders are left out of the next, if there are enough others.

        Parameters
        ----------
        label : str
        batch : Batch
        masked : collection of str
            The sites of the batch that gave masked values; why the others did not, they have said.
        """
        said = [self._asking.why.get(name) for name in batch.shares if name not in masked]
        counts = {sender: said.count(unreadable(sender)) for sender in self._sites}
        senders = [name for name, count in counts.items() if count > (self._contract.colluders or 0)]
        if not senders:
            return False
        self._spoiled.append(batch.labels[0])
        free = len(self._sites) - len(senders) >= (self._contract.threshold or 0)
        if free:
            self.left_out |= {name: f"{counts[name]} sites cannot read its shares" for name in senders}
            free = set(masked) <= set(senders)
        if free:
            del self._bound[label.rpartition("|")[0]]
            self._asking.why.clear()
        self._keep()
        return free

    @property
    def _sites(self) -> list[str]:
        return [name for name in self._asking.sites if name not in self.left_out]

    def _known(self, release: str) -> list[tuple[str, Batch]]:
        return [(label, batch) for batch in self._batches if (label := batch.label_of(release)) is not None]

    def _newest(self, release: str) -> tuple[str, Batch] | None:
        """Return the newest keys whose shares can be read, and without those of a site that is left out."""
        known = [
            (label, batch)
            for label, batch in self._known(release)
            if batch.labels[0] not in self._spoiled and not batch.shares.keys() & self.left_out.keys()
        ]
        return known[-1] if known else None

    def _agree(self, release: str, first: Sequence[str]) -> None:
        """Agree on keys for a release and those after it; not if none of the sites that are asked first is there."""
        labels, asking, collector = self._next_labels(release), self._asking, self._collector
        self._tried += 1
        self._keep()
        adverts = asking({name: Advertise(self._label, labels) for name in first}, Advertised)
        if first and not adverts:
            return
        rest = [name for name in self._sites if name not in first]
        adverts |= asking({name: Advertise(self._label, labels) for name in rest}, Advertised)
        collector.begin(labels)
        for name, advertised in adverts.items():
            try:
                if advertised.advert.name != name:
                    raise InvalidMessage(f"the advert of {name!r} is of another name")
                collector.add_advert(advertised.advert)
            except SecureSumError as error:  # t others are enough
                asking.why[name] = str(error)
        shown, shared = collector.adverts(labels), dict[str, Shares]()
        for name, reply in asking({each.name: ShareKeys(self._label, shown) for each in shown}, Shared).items():
            try:
                collector.add_shares(name, reply.shares)
                shared[name] = reply.shares
            except SecureSumError as error:
                asking.why[name] = str(error)
        collector.route(labels)
        self._batches.append(Batch(labels, shown, shared))
        self._keep()

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

    def _keep(self) -> None:
        if self._folder is not None:
            make_folder(self._folder)
            batches = [asdict(each) for each in self._batches]
            state = {"tried": self._tried, "bound": self._bound, "spoiled": self._spoiled, "batches": batches}
            write_text(self._folder / _STATE, json.dumps(state))
