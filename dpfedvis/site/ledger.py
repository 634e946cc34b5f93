"""The ledger of a site: what all runs have released of its records.

It outlives the runs and is the owner's. It is a ledger like that of a run (`accounting.Ledger`), with two more tables:
`runs`, and `lifetime` with the budget for all of them. In it a site is called RUN/SITE.

One file may hold several sites: those that a simulation made of one table. Another run may deal the records to other
sites. So each run counts by its site that spent most, all those events are composed, and ε is read off at one δ: that
of the run that asks, or that of the lifetime budget. δ is not added up.

Without a file the ledger is in memory, for simulations.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Self

from accounting import Budget, BudgetExceeded, Event, Ledger
from accounting.assumptions import composed
from accounting.errors import CannotAccount, InvalidParameter, LedgerError
from accounting.risk_lines import risk_of
from accounting.rounding import rounded_up
from accounting.statement import DEFAULT_DELTA, AllRuns, Statement
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.files import make_folder
from dpfedvis.site.all_runs import by_run, forecast, merged, state_of
from dpfedvis.site.ledger_file import LedgerBusy, holder, is_lifetime, locked, tables
from dpfedvis.site.run_account import RunAccount

_log = logging.getLogger(__name__)
_TABLES = (
    "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, started TEXT, data TEXT, sha256 TEXT, delta REAL)",
    "CREATE TABLE IF NOT EXISTS lifetime (id INTEGER PRIMARY KEY CHECK (id = 1), epsilon REAL, delta REAL)",
    "CREATE TABLE IF NOT EXISTS deals (run TEXT PRIMARY KEY, deal TEXT)",
    "CREATE TABLE IF NOT EXISTS contracts (run TEXT, site TEXT, contract TEXT, PRIMARY KEY (run, site))",
)


class OtherContract(CannotAccount):
    """A run that has released something under another contract."""


class LifetimeExceeded(DpfedvisError):
    """A run for which the lifetime budget of its records has no room."""


@dataclass(frozen=True)
class RunMark:
    """What the ledger keeps of a run.

    Parameters
    ----------
    id : str
        Random; a resumed run has that of its beginning.
    started : str
    data : str
        Path of the data.
    sha256 : str
        Of the data. It stays with their owner: whoever knows all records but one could try out the last.
    delta : float
    deal : str
        What made the sites. Where a site is the unit, it must be the same site in every run.
    """

    id: str
    started: str
    data: str
    sha256: str
    delta: float
    deal: str = ""


class SiteLedger:
    """The ledger of a site, open for one run at a time.

    Parameters
    ----------
    path : Path, optional
        Made if it is not there; None keeps it in memory.
    limit : (float, float), optional
        (ε, δ) of the lifetime budget, to be kept from now on.
    source, sha256, deal : str
        Path and hash of the data, and what made sites of them.
    wait : float
        Seconds to wait for a process that has it open.
    create : bool
        Whether to make the file if it is not there; not for a run that was charged to it before.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        limit: tuple[float, float] | None = None,
        source: str = "",
        sha256: str = "",
        deal: str = "",
        wait: float = 0.0,
        create: bool = True,
    ) -> None:
        self._together = threading.RLock()  # several sites of a simulation may share it
        self._path, self._asked, self._made = path, limit, False
        self._source, self._sha256, self._deal = source, sha256, deal
        self._ledger: Ledger | None = None
        self._lock: IO[str] | None = None
        self._marks: list[RunMark] = []
        self._limit: tuple[float, float] | None = limit
        self._admitted: tuple[str, Budget | None] | None = None
        self._begun: dict[str, RunMark] = {}  # admitted, and not written down yet
        self._noted: set[tuple[str, str]] = set()  # sites whose contract is written down
        self._accounts: dict[tuple[str, str, str], RunAccount] = {}  # by run, site and contract
        self._meaning: tuple[str, str] | None = None  # adjacency and unit of all events
        self._room: Ledger | None = None
        self._before: list[Event] = []
        if path is not None:
            self._open(path, wait, create)
        elif limit is not None:
            raise InvalidParameter("ledger", "in memory", "a file, which can outlive a run, for a lifetime budget")

    def _open(self, path: Path, wait: float, create: bool) -> None:
        make_folder(path.parent)
        until, told = time.monotonic() + wait, False
        while (lock := locked(path)) is None:
            if time.monotonic() >= until:
                raise LedgerBusy(f"another run on these records is going on: {holder(path)} has {path} open")
            if not told:
                _log.warning("waiting for %s, which has %s open", holder(path), path)
                told = True
            time.sleep(0.05)
        self._lock = lock
        try:
            self._made = not path.exists()
            self._ledger = Ledger(path, create=create)
            if (len(self._ledger) > 0 or self._ledger.budget is not None) and not is_lifetime(path):
                raise LedgerError(f"{path} is the ledger of one run; choose another for all runs on these records")
            with tables(path, "rw") as file:
                for table in _TABLES:
                    file.execute(table)
            self._read_tables(path)
        except BaseException:
            self.close()
            raise

    def _read_tables(self, path: Path) -> None:
        with tables(path, "ro") as file:
            self._marks = [RunMark(*row) for row in file.execute("SELECT * FROM runs ORDER BY rowid")]
            kept: tuple[float, float] | None = file.execute("SELECT epsilon, delta FROM lifetime").fetchone()
        if kept is not None and self._asked is not None and self._asked[0] != kept[0]:
            raise InvalidParameter(
                "lifetime_epsilon", self._asked[0], f"{kept[0]:g}, as it was set for these records, or left out"
            )
        self._limit = kept or self._asked

    @classmethod
    @contextmanager
    def read(cls, path: Path) -> Iterator[Self]:
        """Open an existing ledger for reading only."""
        found = cls()
        with Ledger.read(path) as found._ledger:
            found._path = path
            found._read_tables(path)
            yield found

    @classmethod
    def make(cls, path: Path) -> None:
        """Make an empty ledger, for a site that has never released anything."""
        Ledger(path).close()
        with tables(path, "rw") as file:
            for table in _TABLES:
                file.execute(table)

    def limit_to(self, epsilon: float, delta: float) -> None:
        """Keep all runs within a lifetime budget from now on; what was set before stays."""
        if self._ledger is None:
            raise InvalidParameter("ledger", "in memory", "a file, which can outlive a run, for a lifetime budget")
        if self._limit is not None and self._limit != (epsilon, delta):
            raise InvalidParameter("lifetime budget", (epsilon, delta), f"{self._limit}, as it was set before")
        self._limit = (epsilon, delta)

    @property
    def on_disk(self) -> bool:
        """Whether it is a file."""
        return self._ledger is not None

    @property
    def limit(self) -> tuple[float, float] | None:
        """(ε, δ) of the lifetime budget; None if there is none."""
        return self._limit

    @property
    def head(self) -> tuple[int, str] | None:
        """Place and hash of the last event; None for an empty ledger."""
        return None if self._ledger is None else self._ledger.head

    def holds(self, sequence: int, head: str) -> bool:
        """Whether the chain has this hash at this place: false for a copy that is older."""
        return self._ledger is None or self._ledger.holds(sequence, head)

    def events(self, run: str, site: str) -> list[Event]:
        """Return what a site has released in a run."""
        if self._ledger is None:
            known = self._spent_in(run, site)
            return [] if known is None else known.events()
        return [replace(each, client=site) for each in self._ledger.events(client=f"{run}/{site}")]

    def begin(self, run: str, site: str, budget: Budget | None, contract: str = "") -> RunAccount:
        """Open the account of a site in a run, or refuse a run that has no room in the lifetime budget.

        A run has one contract at a site, once it has released anything under it.
        """
        with self._together:
            if self._contract_of(run, site) not in ("", contract):
                raise OtherContract(f"run {run} of {site} has released under another contract")
            if self._ledger is not None and self._admitted != (run, budget):
                self._admit(self._ledger, run, budget)
            place = (run, site, contract)
            if place not in self._accounts or self._accounts[place].budget != budget:
                self._accounts[place] = RunAccount(self, run, site, budget, contract)
            return self._accounts[place]

    def _contract_of(self, run: str, site: str) -> str:
        """Return the contract under which a site has released in a run; empty if it has not."""
        if self._path is None:
            known = self._spent_in(run, site)
            return "" if known is None else known.contract
        with tables(self._path, "ro") as file:
            found = file.execute("SELECT contract FROM contracts WHERE run = ? AND site = ?", (run, site)).fetchone()
        return "" if found is None else str(found[0])

    def _spent_in(self, run: str, site: str) -> RunAccount | None:
        """Return the account of a site's run that has released something."""
        found = (each for (name, own, _), each in self._accounts.items() if (name, own) == (run, site))
        return next((each for each in found if each.events()), None)

    def check(self, site: str, event: Event) -> None:
        """Raise if an event cannot be counted with the others, or has no room in the lifetime budget."""
        with self._together:
            if self._meaning not in (None, (event.adjacency, event.unit)):
                raise CannotAccount("another run on these records has released for another unit or other neighbours")
            _charge(self._room, self._before, [replace(event, client=site)], write=False)

    def write(self, run: str, site: str, event: Event, contract: str = "") -> tuple[int, str]:
        """Write an event of a run, before it leaves."""
        assert self._ledger is not None
        with self._together:
            _charge(self._room, self._before, [event], write=False)
            self._keep_mark(run, site, contract)
            (receipt,) = self._ledger.record(replace(event, client=f"{run}/{site}"))
            self._meaning = (event.adjacency, event.unit)
            _charge(self._room, self._before, [event])  # last: a write that failed has spent nothing
        return receipt.sequence, receipt.hash

    def all_runs(self, delta: float) -> AllRuns:
        """Return what all runs cost together, at `delta`."""
        events = by_run(self._events())
        hashes = {mark.sha256 for mark in self._marks if mark.id in events}
        together = merged(events)
        changed = len(hashes) > 1
        return AllRuns(composed(together, delta), len(events), changed, risk=risk_of(together))

    def statement(self) -> Statement:
        """Return what may be said of all runs together, at the δ of the lifetime budget or of the last run."""
        events = by_run(self._events())
        last = self._marks[-1].delta if self._marks else DEFAULT_DELTA
        delta = last if self._limit is None else self._limit[1]
        data = ", ".join(dict.fromkeys(mark.data for mark in self._marks))
        found = replace(state_of(events, data, delta), all_runs=replace(self.all_runs(delta), current=True))
        if self._limit is None:
            return found
        limit = {"adjacency": found.adjacency, "unit": found.unit, "scope": "end-to-end"}
        return replace(found, budget={"epsilon": self._limit[0], "delta": delta, **limit})

    def close(self) -> None:
        """Close the file, and let other runs have it. One that was made now, and that nothing is in, is removed."""
        if self._lock is None or self._lock.closed or self._path is None:
            return
        if self._ledger is not None:
            empty = len(self._ledger) == 0
            self._ledger.close()
            if empty and self._made:
                self._path.unlink(missing_ok=True)
                Path(self._lock.name).unlink(missing_ok=True)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _events(self) -> Iterable[Event]:
        return () if self._ledger is None else self._ledger.events()

    def _admit(self, ledger: Ledger, run: str, budget: Budget | None) -> None:
        """Refuse a run that cannot be counted with the others, or that has no room in the lifetime budget.

        A run that is refused changes nothing for those that were admitted before.
        """
        events = by_run(ledger.events())
        own = events.pop(run, [])
        before = merged(events)
        for event in (*before, *own):
            self._meaning = (event.adjacency, event.unit)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        delta = DEFAULT_DELTA if budget is None else budget.delta
        mark = RunMark(run, started, self._source, self._sha256, delta, self._deal)
        _refuse_other_meaning(before, budget)
        self._refuse_other_sites(mark, budget)
        room = self._room_after(before, budget)
        _charge(room, before, own)
        self._before, self._room, self._admitted = before, room, (run, budget)
        self._begun[run] = mark

    def _refuse_other_sites(self, run: RunMark, budget: Budget | None) -> None:
        """Refuse, where a site or person is the unit, what makes them otherwise: one could be several there."""
        if budget is None or budget.unit == "record" or self._path is None:
            return
        with tables(self._path, "ro") as file:
            deals: dict[str, str] = dict(file.execute("SELECT run, deal FROM deals"))
        for mark in self._marks:
            if mark.id != run.id and (deal := deals.get(mark.id, "what is not known")) != run.deal:
                raise CannotAccount(
                    f"earlier runs on these records made {budget.unit}s by {deal}, and this one by {run.deal}, so that "
                    f"no {budget.unit} has an ε over all of them; choose the same partition, client and person column"
                )

    def _room_after(self, before: Sequence[Event], budget: Budget | None) -> Ledger | None:
        """Return what holds the lifetime budget, or raise if a run of this budget has no room in it."""
        if self._limit is None:
            return None
        epsilon, delta = self._limit
        spent, total = forecast(composed(before, delta), budget, delta)
        if total > epsilon * (1 + 1e-9):
            raise LifetimeExceeded(
                f"no room in the lifetime budget of ε = {epsilon:g} at δ = {delta:g}: earlier runs on these records "
                f"spent ε = {rounded_up(spent)}, and with this one it would be ε = {rounded_up(total)}; nothing was "
                "released"
            )
        whole = Budget(epsilon, delta) if budget is None else replace(budget, epsilon=epsilon, delta=delta)
        return Ledger(budget=replace(whole, scope="end-to-end"))

    def _keep_mark(self, run: str, site: str, contract: str) -> None:
        """Write down a run, its contract and the lifetime budget, once: with the first release that is charged."""
        mark = self._begun.get(run)
        if self._path is None or (mark is None and (run, site) in self._noted):
            return
        with tables(self._path, "rw") as file:
            if contract:
                file.execute("INSERT OR REPLACE INTO contracts VALUES (?, ?, ?)", (run, site, contract))
            self._noted.add((run, site))
            if mark is None:
                return
            *own, deal = vars(mark).values()
            file.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?)", own)
            file.execute("INSERT OR IGNORE INTO deals VALUES (?, ?)", (mark.id, deal))
            if self._limit is not None:
                file.execute("INSERT OR IGNORE INTO lifetime VALUES (1, ?, ?)", self._limit)
        self._marks += [mark] * (run not in {each.id for each in self._marks})
        del self._begun[run]


def _charge(room: Ledger | None, before: Sequence[Event], events: Sequence[Event], *, write: bool = True) -> None:
    """Raise if events would spend more than the lifetime budget; each site stands for the records it may hold."""
    if room is None or not events:
        return
    try:
        for client in {event.client for event in events} - set(room.clients):
            room.record(*(replace(event, client=client) for event in before))
        (room.record if write else room.check)(*events)
    except BudgetExceeded as error:
        raise LifetimeExceeded(f"{error} (the lifetime budget of these records)") from error


def _refuse_other_meaning(before: Sequence[Event], budget: Budget | None) -> None:
    adjacency, unit = ("replace-one", "record") if budget is None else (budget.adjacency, budget.unit)
    for event in before:
        if (event.adjacency, event.unit) != (adjacency, unit):
            raise CannotAccount(
                f"earlier runs on these records are accounted for one {event.unit} under {event.adjacency}, and "
                f"this one for one {unit} under {adjacency}, so that they have no ε together; choose a budget with "
                f"unit={event.unit!r} and adjacency={event.adjacency!r}"
            )
