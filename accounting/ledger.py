"""The ledger: an append-only SQLite file that records every release and refuses one that exceeds the budget.

One row is one event. Each row's hash covers the row and the hash before it, and the table `ledger` holds the last hash.
So opening the file finds damage, edited rows and missing rows. The chain has no key: it shows accidents and careless
edits, not a forger who recomputes all hashes. Any SQLite program can read the file:

    SELECT client, round, what, kind, body FROM events ORDER BY seq;
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from accounting.accountants import Reading, compare, google, tightest
from accounting.budget import Budget
from accounting.chain import Repeated
from accounting.composition import Composition, group_of
from accounting.errors import (
    BudgetExceeded,
    CannotAccount,
    InvalidParameter,
    LedgerCorrupted,
    LedgerError,
    UnprotectedReleaseError,
)
from accounting.events import KINDS, Event, PostProcessing, Unprotected
from accounting.gate import Gate
from accounting.gdp import gaussian_epsilon
from accounting.store import MEMORY, LedgerFile
from accounting.totals import Totals

_AT = 1e-5  # δ at which clients are compared where only one can be taken
Mirror = Callable[[Sequence[Event]], None]


@dataclass(frozen=True)
class Receipt:
    """Proof that an event is on disk: its place in the ledger and the hash of the chain up to it."""

    sequence: int
    hash: str


class Ledger:
    """What was released, by whom, and what is left of the budget.

    Parameters
    ----------
    path : path-like, optional
        File to create or to continue; None keeps the ledger in memory, for tests and simulations.
    budget : Budget, optional
        Without one, everything is recorded and nothing refused. An existing ledger keeps the budget that it was created
        with; any other is an error.
    mirror : callable, optional
        Called with events that fit, before they are written here: a ledger that outlives this one writes them first, so
        that a crash between the two forgets nothing. If it raises, nothing is written here.
    create : bool
        Whether to create a file that is not there; else that is an error, as where a run goes on that has released.

    Notes
    -----
    `record` returns when the event is on disk (SQLite, synchronous): record first, then release. It is safe to call
    from several threads, and from several processes on one file. Do not read the file by other means than SQLite in a
    process that has it open: closing it would end the locks of that process, as POSIX has it.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        budget: Budget | None = None,
        *,
        mirror: Mirror | None = None,
        create: bool = True,
    ) -> None:
        stored = None if budget is None else json.dumps(budget.to_dict(), sort_keys=True)
        self._setup(LedgerFile.create_or_open(path, stored, create=create), mirror=mirror)
        if budget is not None and budget != self.budget:
            self.close()
            raise LedgerError(f"{path} was created with {self.budget}, not with {budget}")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Open an existing ledger for reading only; writers are not disturbed."""
        ledger = cls.__new__(cls)
        ledger._setup(LedgerFile.open_read_only(path), read_only=True)
        return ledger

    def _setup(self, store: LedgerFile, *, read_only: bool = False, mirror: Mirror | None = None) -> None:
        self._store, self._read_only, self._mirror = store, read_only, mirror
        self._lock = threading.RLock()
        try:
            self.budget = _read_budget(store)
            self._totals = Totals(self.budget)
            store.verify(self._totals.add_rows)
        except BaseException:
            store.close()
            raise
        self._gate = Gate(self.budget) if self.budget is not None else None

    def record(self, *events: Event) -> list[Receipt]:
        """Write events, all or none. Call it before the release.

        Raises
        ------
        BudgetExceeded
            If any client would overspend; nothing is written.
        UnprotectedReleaseError
            If an unprotected event is inside the budget's scope; nothing is written.
        """
        if self._read_only:
            raise LedgerError(f"{self._store.path} was opened for reading only")
        # One lock for check and write: another thread must not check against outdated totals.
        with self._lock:
            with self._store.appending() as (missed, append):
                self._totals.add_rows(missed)
                self._check(events)
                if self._mirror is not None:
                    self._mirror(events)
                written = append(events)
            for event in events:
                self._totals.add(event)
        return [Receipt(sequence, digest) for sequence, digest in written]

    def check(self, *events: Event) -> None:
        """Raise as `record` would if these events have no room; nothing is written."""
        with self._lock:
            self._refresh()
            self._check(events)

    def events(
        self, *, client: str | None = None, round: int | None = None, what: str | None = None
    ) -> Iterator[Event]:
        """Iterate over the events that are recorded now, in their order: all or those that match."""
        batches = self._store.events(len(self))
        while True:
            with self._lock:
                recorded = next(batches, None)
            if recorded is None:
                return
            for event in recorded:
                if (
                    (client is None or event.client == client)
                    and (round is None or event.round == round)
                    and (what is None or event.what == what)
                ):
                    yield event

    @property
    def in_memory(self) -> bool:
        """Whether the ledger is only in memory."""
        return self._store.path == MEMORY

    @property
    def clients(self) -> list[str]:
        """Names of the clients that released anything."""
        with self._lock:
            self._refresh()
            return list(self._totals.all)

    def composition(self, client: str, *, end_to_end: bool = False) -> Composition:
        """Return what one client released inside the budget's scope, or end to end; empty for an unknown name."""
        with self._lock:
            self._refresh()
            found = self._totals.all if end_to_end else self._totals.covered
            return found.get(client, Composition()).copy()

    def spent(self, delta: float | None = None, *, client: str | None = None, end_to_end: bool = False) -> float:
        """ε spent at `delta` (by default the budget's): of one client, or the largest over all.

        Clients hold disjoint records, so ε does not add up over clients. With ``end_to_end=True`` releases outside the
        budget's scope count too. A client that released nothing has spent 0.
        """
        delta = self._delta(delta)
        compositions = self._compositions(client, end_to_end)
        return max((tightest(each).epsilon(each, delta) for each in compositions), default=0.0)

    def remaining(self, client: str | None = None) -> float:
        """ε, at the budget's δ, of the largest Gaussian release that still fits: for one client, or for all."""
        if self._gate is None or self.budget is None:
            raise LedgerError("this ledger has no budget, so nothing can remain of it")
        compositions = self._compositions(client, end_to_end=False)
        room = min((self._gate.room(each) for each in compositions), default=self.budget.mu)
        return min(gaussian_epsilon(room, self.budget.delta), self.budget.epsilon)

    def compare(self, delta: float | None = None, *, end_to_end: bool = False) -> dict[str, Reading]:
        """Return ε by every accountant, or the reason why it has none."""
        compositions = self._compositions(None, end_to_end)
        return compare(compositions, self._delta(delta))

    def to_dp_accounting(self, client: str | None = None, *, end_to_end: bool = True) -> Any:
        """Return what one client released as one event of dp-accounting, for accountants of its users' own.

        Give the event to an accountant with neighbours ADD_OR_REMOVE_ONE, whatever the adjacency here: noise
        multipliers are those of our sensitivities, which say already what a neighbour is. What integers on a grid are
        charged (`accounting.exactness`; some 1e-9 of ε) is not in it.

        Parameters
        ----------
        client : str, optional
            By default the one that has spent most.
        end_to_end : bool
            Everything, or what the budget's scope covers.

        Returns
        -------
        dp_accounting.DpEvent
            A composition; a `NonPrivateDpEvent` in it for unprotected releases, a `NoOpDpEvent` for none.
        """
        if client is not None:
            return google.dp_event(self.composition(client, end_to_end=end_to_end))
        every = self._compositions(None, end_to_end)
        most = max(every, key=lambda each: (each.unprotected, tightest(each).epsilon(each, _AT)), default=Composition())
        return google.dp_event(most)

    def verify(self) -> int:
        """Check the whole chain on disk; return the number of events, or raise `LedgerCorrupted`."""
        with self._lock:
            new: list[Repeated] = []
            self._store.verify(new.extend)  # not at once into the totals: all or none count
            self._totals.add_rows(new)
            return len(self)

    def __len__(self) -> int:
        with self._lock:
            self._refresh()
            return self._store.count

    @property
    def head(self) -> tuple[int, str] | None:
        """Place of the last event, and the hash of the chain up to it; None for an empty ledger."""
        with self._lock:
            self._refresh()
            return (self._store.count, self._store.head) if self._store.count else None

    def holds(self, sequence: int, hash: str) -> bool:
        """Whether the chain has this hash at this place; an older copy of the ledger does not."""
        with self._lock:
            return self._store.hash_at(sequence) == hash

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a copy in memory: a file stays where it is."""
        return _copied, (self.budget, tuple(self.events()))

    def close(self) -> None:
        """Close the file; all events are on disk already."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refresh(self) -> None:
        """Read what other processes have written since."""
        self._totals.add_rows(self._store.new_rows())

    def _compositions(self, client: str | None, end_to_end: bool) -> list[Composition]:
        """Return the releases of one client, or of each; all must have one adjacency and unit."""
        names = self.clients if client is None else [client]
        compositions = [self.composition(name, end_to_end=end_to_end) for name in names]
        meanings = {each.meaning for each in compositions if each.meaning is not None}
        if len(meanings) > 1:
            raise CannotAccount(f"clients released under different adjacencies or units: {sorted(meanings)}")
        return compositions

    def _delta(self, delta: float | None) -> float:
        if delta is not None:
            return delta
        if self.budget is None:
            raise InvalidParameter("delta", None, "given for a ledger without a budget")
        return self.budget.delta

    def _check(self, events: tuple[Event, ...]) -> None:
        by_client: dict[str, list[Event]] = {}
        for place, event in enumerate(events):
            if type(event) not in KINDS.values():
                raise InvalidParameter("event", event, "one of the accounting events: " + ", ".join(KINDS))
            if self.budget is not None:
                self._check_meaning(event, self.budget)
            if event.client in self._totals.all:
                self._totals.all[event.client].check(event)
            mine = by_client.setdefault(event.client, [])
            Composition(mine[:1]).check(event)
            mine.append(event)
            if isinstance(event, PostProcessing):
                self._check_source(event, events[:place])
        if self.budget is None or self._gate is None:
            return
        for client, mine in by_client.items():
            self._check_fit(client, [event for event in mine if self._totals.covers(event)], self._gate)

    def _check_fit(self, client: str, events: list[Event], gate: Gate) -> None:
        budget = gate.budget
        before, after = self._totals.covered.get(client, Composition()), self.composition(client)
        for event in events:
            if isinstance(event, Unprotected):
                raise UnprotectedReleaseError(
                    what=event.what,
                    why=event.why,
                    spent=tightest(before).epsilon(before, budget.delta),
                    budget=budget,
                    client=client,
                )
            after.add(event)
        groups = [group for group in map(group_of, events) if group is not None]
        if not gate.fits(after, groups[-1] if groups else None):
            spent, requested, total = (
                tightest(each).epsilon(each, budget.delta) for each in (before, Composition(events), after)
            )
            raise BudgetExceeded(spent=spent, requested=requested, total=total, budget=budget, client=client)

    def _check_source(self, event: PostProcessing, before: tuple[Event, ...]) -> None:
        """Raise unless the source was released already, inside the budget's scope if this event is."""
        together = {(other.client, other.what, self._totals.covers(other)) for other in before}
        sources = self._totals.released | together
        covered = self._totals.covers(event)
        if (event.client, event.of, True) in sources or (not covered and (event.client, event.of, False) in sources):
            return
        scope = " inside the budget's scope" if covered and self.budget is not None else ""
        raise InvalidParameter(
            f"source of {event.what} of {event.client}", event.of, f"a release that the client has made{scope}"
        )

    @staticmethod
    def _check_meaning(event: Event, budget: Budget) -> None:
        if (event.adjacency, event.unit) != (budget.adjacency, budget.unit):
            raise InvalidParameter(
                f"adjacency and unit of {event.what}",
                (event.adjacency, event.unit),
                f"the budget's, {(budget.adjacency, budget.unit)}",
            )


def _copied(budget: Budget | None, events: tuple[Event, ...]) -> Ledger:
    ledger = Ledger(budget=budget)
    ledger.record(*events)
    return ledger


def _read_budget(store: LedgerFile) -> Budget | None:
    try:
        return Budget(**json.loads(store.budget)) if store.budget is not None else None
    except (TypeError, ValueError) as error:
        store.verify(Totals().add_rows)  # it was most likely edited, which the chain shows
        raise LedgerCorrupted(f"{store.path}: its budget cannot be read ({error})") from error
