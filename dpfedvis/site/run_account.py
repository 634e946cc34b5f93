"""What one site has released in one run, within the run's budget and that of all runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from accounting import Budget, Event, Ledger

if TYPE_CHECKING:
    from dpfedvis.site.ledger import SiteLedger


class RunAccount:
    """What one site has released in one run; it refuses what would exceed the run's budget or the lifetime budget.

    Parameters
    ----------
    ledger : SiteLedger
    run, site : str
    budget : Budget, optional
        Of the run.
    contract : str
        Hash of the contract.
    """

    def __init__(self, ledger: SiteLedger, run: str, site: str, budget: Budget | None, contract: str = "") -> None:
        self._whole, self.run, self.site, self.contract, self.budget = ledger, run, site, contract, budget
        self.lock = threading.RLock()  # from looking whether a release was made until it is written
        self._place: tuple[int, str] | None = None
        earlier = ledger.events(run, site)
        self._written = Counter(event.to_json() for event in earlier)
        self._own = Ledger(budget=budget, mirror=self._write if ledger.on_disk else None)
        self._by_place = {(event.what, event.round): event for event in earlier}
        if earlier:
            self._own.record(*earlier)

    def check(self, event: Event) -> None:
        """Raise as `record` would; nothing is written."""
        self._own.check(event)
        self._whole.check(self.site, event)

    def record(self, event: Event) -> tuple[int, str]:
        """Write an event: it is on disk when this returns. Return its place, and the hash of the chain up to it."""
        (receipt,) = self._own.record(event)
        self._by_place[event.what, event.round] = event
        if self._place is None or not self._whole.on_disk:
            self._place = (receipt.sequence, receipt.hash)
        return self._place

    def find(self, what: str, round: int | None) -> Event | None:
        """Return the event of this release and round, or None."""
        return self._by_place.get((what, round))

    def events(self) -> list[Event]:
        """Return all events of the run, in order."""
        return list(self._own.events())

    @property
    def head(self) -> tuple[int, str] | None:
        """Place and hash of the last event."""
        return self._whole.head if self._whole.on_disk else self._place

    def _write(self, events: Sequence[Event]) -> None:
        for event in events:
            line = event.to_json()
            if self._written[line] > 0:
                self._written[line] -= 1  # it is there from before an interruption
            else:
                self._place = self._whole.write(self.run, self.site, event, self.contract)
