"""The mirror: the server's copy of all sites' ledgers, made of their receipts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from accounting import BudgetExceeded, Event, Ledger
from accounting.accountants import tightest
from accounting.errors import AccountingError
from dpfedvis.numerics.files import make_folder, write_text
from dpfedvis.protocol.ask import Ask
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import Events, Receipt, ShowEvents, digest_of_events
from dpfedvis.protocol.uploads import BadUpload
from dpfedvis.server.replies import Replies


class Mirror:
    """The server's copy of all sites' ledgers, made of their receipts.

    Parameters
    ----------
    ledger : Ledger
    receipts : sequence of Receipt
        Of earlier runs, to be shown to the sites: one whose ledger is older finds it.
    folder : Path, optional
        Of a run that can be interrupted, whose ledger is that of this run alone. A site may then send what the ledger
        knows a second time; it is not written again. The last receipts are kept there.
    """

    def __init__(self, ledger: Ledger, folder: Path | None = None, receipts: Sequence[Receipt] = ()) -> None:
        self.ledger, self._own = ledger, folder is not None
        self._known = {_place(event): event.to_json() for event in ledger.events()} if self._own else {}
        self._written = set(self._known)  # of this run
        self._kept = None if folder is None else folder / "receipts.json"
        self.receipts = {each.site: each for each in receipts}
        if self._kept is not None and self._kept.exists():
            found = [Receipt(**each) for each in json.loads(self._kept.read_text(encoding="utf-8"))]
            self.receipts.update({each.site: each for each in found})

    def refuse_above(self, contract: Contract) -> None:
        """Raise `BudgetExceeded` if an earlier run of these sites leaves no room for the whole plan."""
        plan, budget = contract.plan, self.ledger.budget
        if self._own or plan is None or budget is None:
            return
        for name in set(contract.names) & set(self.ledger.clients):
            before, asked = self.ledger.composition(name), plan.multipliers.composition
            total = before.plus(asked)
            spent, requested, whole = (tightest(each).epsilon(each, budget.delta) for each in (before, asked, total))
            if whole > budget.epsilon:
                raise BudgetExceeded(spent=spent, requested=requested, total=whole, budget=budget, client=name)

    def write(self, events: Sequence[Event], receipts: Sequence[Receipt]) -> None:
        """Write events that sites have accounted for."""
        new = []
        for event in events:
            known = self._known.get(_place(event))
            if known is None:
                new.append(event)
            elif known != event.to_json():
                raise BadUpload(event.client, event.what, event.round, "was accounted for otherwise before")
        if new:
            self.ledger.record(*new)
            if self._own:
                self._known.update({_place(event): event.to_json() for event in new})
        self._written |= {_place(event) for event in events}
        self.receipts.update({each.site: each for each in receipts})
        if self._kept is not None and receipts:
            make_folder(self._kept.parent)
            write_text(self._kept, json.dumps([asdict(each) for each in self.receipts.values()]))

    def catch_up(self, ask: Ask, replies: Replies) -> dict[str, str]:
        """Write what sites were charged for, by their own ledgers; return those that do not fit, and why.

        A site that died between its charge and its reply has one release more than the server saw. What a site states
        beyond the contract is left out: it could only make its own ε look larger.
        """
        wrong: dict[str, str] = {}
        for name, reply in zip(ask.sites, ask.each(ShowEvents(replies.label)), strict=True):
            if not isinstance(reply, Events) or reply.site != name or reply.receipt is None or not reply.events:
                continue
            try:
                replies.check_receipt(reply.receipt, name, reply.events[-1])
                if reply.receipt.values != digest_of_events(reply.events):
                    raise BadUpload(name, "the ledger", None, "has a receipt for other events")
                new = [
                    each for each in reply.events if replies.planned(each, name) and _place(each) not in self._written
                ]
                self.write(new, [reply.receipt])
            except (BadUpload, AccountingError) as error:
                wrong[name] = f"its ledger does not fit the mirror: {error}"
        return wrong


def _place(event: Event) -> tuple[str, str, int | None]:
    return event.client, event.what, event.round
