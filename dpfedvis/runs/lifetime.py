"""The ledger of some records: what all runs with real noise on them have released.

It outlives the runs and is the owner's: by default it lies in ``$XDG_STATE_HOME/dpfedvis/ledgers`` (else
``~/.local/state``), one for each data file by its path. It is a ledger like that of a run (`accounting.Ledger`), with
two more tables: `runs`, and `lifetime` with the budget for all of them. In it a client is called RUN/CLIENT.

Another run may deal the records to other clients. So each run counts by its client that spent most, all those events
are composed, and ε is read off at one δ: that of the run that asks, or that of the lifetime budget. δ is not added up.

A release is written here first and then in the run's ledger, and leaves after both. A crash between the two forgets
nothing, and the run's id keeps a resumed run from being charged twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from accounting import Budget, BudgetExceeded, Composition, Event, Ledger, gaussian_epsilon, gaussian_mu
from accounting.assumptions import composed, without_own_share
from accounting.errors import CannotAccount, InvalidParameter, LedgerError
from accounting.rounding import rounded_up
from accounting.statement import DEFAULT_DELTA, AllRuns, Statement, state
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.files import write_text

_TABLES = (
    "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, started TEXT, data TEXT, sha256 TEXT, delta REAL)",
    "CREATE TABLE IF NOT EXISTS lifetime (id INTEGER PRIMARY KEY CHECK (id = 1), epsilon REAL, delta REAL)",
    "CREATE TABLE IF NOT EXISTS generations (run TEXT PRIMARY KEY, token TEXT)",
)
_EVERY = "every record"  # whose spending a composition over runs is


class LifetimeExceeded(DpfedvisError):
    """A run for which the lifetime budget of its records has no room."""


class LedgerBusy(DpfedvisError):
    """Another run on the same records is going on."""


class RunCopied(DpfedvisError):
    """A copy of an interrupted run whose original went on: both would draw noise, and one would be charged."""


@dataclass(frozen=True)
class RunMark:
    """What the ledger of some records keeps of a run.

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
    """

    id: str
    started: str
    data: str
    sha256: str
    delta: float


def ledger_path(data: Path) -> Path:
    """Return where the ledger of a data file is, by the file's path."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification says to ignore a relative path.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    whole = data.expanduser().resolve()
    return root / "dpfedvis" / "ledgers" / f"{whole.stem}-{hashlib.sha256(os.fsencode(whole)).hexdigest()[:16]}.sqlite"


class LifetimeLedger:
    """All runs on some records, open for one of them. Made by `opened` or `read`.

    Parameters
    ----------
    path : Path
    ledger : Ledger
    run : RunMark, optional
        The run that is charged.
    budget : Budget, optional
        Of that run.
    limit : float, optional
        ε of the lifetime budget, to be kept from now on.
    """

    def __init__(
        self,
        path: Path,
        ledger: Ledger,
        run: RunMark | None = None,
        budget: Budget | None = None,
        limit: float | None = None,
    ) -> None:
        self._path, self._ledger, self._run = path, ledger, run
        with _tables(path, "ro") as file:
            self._marks = [RunMark(*row) for row in file.execute("SELECT * FROM runs ORDER BY rowid")]
            self._limit: tuple[float, float] | None = file.execute("SELECT epsilon, delta FROM lifetime").fetchone()
        events = _by_run(ledger.events())
        own = events.pop(run.id, []) if run is not None else []
        self._charged, self._seen = Counter(event.to_json() for event in own), Counter[str]()
        self._before = _merged(events)
        self._room: Ledger | None = None
        self._kept = False
        if run is not None:
            self._admit(run, budget, limit)
            self._refuse_above(own)

    def charge(self, events: Sequence[Event]) -> None:
        """Write events of the run, except those that are here already: before they leave, and before its own ledger."""
        assert self._run is not None
        new = []
        for event in events:
            line = event.to_json()
            self._seen[line] += 1
            if self._seen[line] > self._charged[line]:
                new.append(event)
        if not new:
            return
        self._refuse_above(new)
        self._keep_mark()
        self._ledger.record(*(replace(each, client=f"{self._run.id}/{each.client}") for each in new))
        self._charged.update(each.to_json() for each in new)

    def all_runs(self, delta: float) -> AllRuns:
        """Return what all runs cost together, at `delta`."""
        events = _by_run(self._ledger.events())
        hashes = {mark.sha256 for mark in self._marks if mark.id in events}
        return AllRuns(composed(_merged(events), delta), len(events), len(hashes) > 1)

    def statement(self) -> Statement:
        """Return what may be said of all runs together, at the δ of the lifetime budget or of the last run."""
        events = _by_run(self._ledger.events())
        last = self._marks[-1].delta if self._marks else DEFAULT_DELTA
        delta = last if self._limit is None else self._limit[1]
        facts = {
            "data": ", ".join(dict.fromkeys(mark.data for mark in self._marks)),
            "runs": len(events),
        }
        with Ledger() as merged:
            merged.record(*_merged(events))
            found = replace(state(merged, delta=delta, facts=facts), all_runs=self.all_runs(delta))
        if self._limit is not None:
            limit = {"adjacency": found.adjacency, "unit": found.unit, "scope": "end-to-end"}
            found = replace(found, budget={"epsilon": self._limit[0], "delta": delta, **limit})
        faced = {run: without_own_share(own) for run, own in events.items()}
        if all(each is None for each in faced.values()):
            return found
        seen = _merged({run: faced[run] or own for run, own in events.items()})
        return replace(found, against_a_client=composed(seen, delta))

    def _admit(self, run: RunMark, budget: Budget | None, limit: float | None) -> None:
        """Refuse a run that cannot be counted with the others, or that has no room in the lifetime budget."""
        meaning = ("replace-one", "record") if budget is None else (budget.adjacency, budget.unit)
        known = {(event.adjacency, event.unit) for event in self._before}
        if known - {meaning}:
            raise CannotAccount(
                f"{self._path}: earlier runs on these records count {sorted(known)}, this one {meaning}; they have no "
                "ε together. Choose the same adjacency and unit"
            )
        if limit is not None and self._limit is not None and limit != self._limit[0]:
            raise InvalidParameter(
                "lifetime_epsilon", limit, f"{self._limit[0]:g}, as it was set for these records, or left out"
            )
        if limit is not None and self._limit is None:
            self._limit = (limit, run.delta)
        if self._limit is None:
            return
        epsilon, delta = self._limit
        spent, total = _forecast(composed(self._before, delta), budget, delta)
        if total > epsilon * (1 + 1e-9):
            raise LifetimeExceeded(
                f"no room in the lifetime budget of ε = {epsilon:g} at δ = {delta:g}: earlier runs on these records "
                f"spent ε = {rounded_up(spent)}, and with this one it would be ε = {rounded_up(total)}; nothing was "
                "released"
            )
        whole = Budget(epsilon, delta) if budget is None else replace(budget, epsilon=epsilon, delta=delta)
        self._room = Ledger(budget=replace(whole, scope="end-to-end"))

    def _refuse_above(self, events: Sequence[Event]) -> None:
        """Raise if events would spend more than the lifetime budget; each client stands for the records it may hold."""
        if self._room is None or not events:
            return
        try:
            for client in {event.client for event in events} - set(self._room.clients):
                self._room.record(*(replace(event, client=client) for event in self._before))
            self._room.record(*events)
        except BudgetExceeded as error:
            raise LifetimeExceeded(f"{error} (the lifetime budget of these records)") from error

    def _keep_mark(self) -> None:
        """Write down the run and the lifetime budget, once: with the first release that is charged."""
        if self._kept or self._run is None:
            return
        with _tables(self._path, "rw") as file:
            file.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?)", tuple(vars(self._run).values()))
            if self._limit is not None:
                file.execute("INSERT OR IGNORE INTO lifetime VALUES (1, ?, ?)", self._limit)
        self._marks += [self._run] * (self._run.id not in {mark.id for mark in self._marks})
        self._kept = True


@contextmanager
def opened(
    path: Path, run: RunMark, budget: Budget | None, limit: float | None, kept: Path | None = None
) -> Iterator[LifetimeLedger]:
    """Open the ledger of some records for a run, and keep other runs on them away until it is done.

    Parameters
    ----------
    path : Path
        Made if it is not there.
    run : RunMark
    budget : Budget, optional
        Of the run.
    limit : float, optional
        ε of a lifetime budget at the run's δ; it stays with the ledger.
    kept : Path, optional
        File beside a run that can be interrupted, with the token of its generation.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LedgerBusy(f"another run on these records is going on ({path}); wait for it") from None
        with Ledger(path) as ledger:
            if (len(ledger) > 0 or ledger.budget is not None) and not is_lifetime(path):
                raise LedgerError(f"{path} is the ledger of one run; choose another for all runs on these records")
            with _tables(path, "rw") as file:
                for table in _TABLES:
                    file.execute(table)
            lifetime = LifetimeLedger(path, ledger, run, budget, limit)
            if kept is not None:
                _renew(path, run.id, kept)
            yield lifetime
            ledger.fold()


def _renew(path: Path, run: str, kept: Path) -> None:
    """Give a run that begins or goes on a new token, here and beside it; refuse one whose token is not the last.

    A copy that was made before has an old token. The file has the last token, too, so that a crash between the two
    writes shuts nobody out.
    """
    tokens = json.loads(kept.read_text()) if kept.exists() else []
    with _tables(path, "rw") as file:
        last = file.execute("SELECT token FROM generations WHERE run = ?", (run,)).fetchone()
        if last is not None and last[0] not in tokens:
            raise RunCopied(
                f"{kept.parent} is a copy of an interrupted run that went on elsewhere; what that released is charged "
                "once, so that the copy cannot go on. Start a new run"
            )
        token = uuid.uuid4().hex
        write_text(kept, json.dumps([token] if last is None else [last[0], token]))
        file.execute("INSERT OR REPLACE INTO generations VALUES (?, ?)", (run, token))


@contextmanager
def read(path: Path) -> Iterator[LifetimeLedger]:
    """Open the ledger of some records for reading only."""
    with Ledger.read(path) as ledger:
        yield LifetimeLedger(path, ledger)


def is_lifetime(path: Path) -> bool:
    """Whether a ledger is that of some records, and not that of a run."""
    with _tables(path, "ro") as file:
        return file.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone() is not None


def _forecast(spent: float, budget: Budget | None, delta: float) -> tuple[float, float]:
    """Return what was spent, and what it would be with a run of this budget; exact for Gaussian noise.

    It keeps a run without room from beginning. What holds is that each event is checked when it is charged.
    """
    if budget is None or budget.scope == "landmarks" or math.isinf(spent):
        return spent, math.inf
    before = gaussian_mu(spent, delta) if spent > 0 else 0.0
    return spent, gaussian_epsilon(math.hypot(before, budget.mu), delta)


def _by_run(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Return the events of each run, with the clients' own names."""
    found: dict[str, list[Event]] = {}
    for event in events:
        run, _, client = event.client.partition("/")
        found.setdefault(run, []).append(replace(event, client=client))
    return found


def _merged(events: Mapping[str, Sequence[Event]]) -> list[Event]:
    """Return the most that a record can have been in: of each run the events of the client that spent most."""
    found: list[Event] = []
    for own in events.values():
        by_client: dict[str, list[Event]] = {}
        for event in own:
            by_client.setdefault(event.client, []).append(event)
        found += [replace(event, client=_EVERY) for event in max(by_client.values(), key=_cost)]
    return found


def _cost(events: Sequence[Event]) -> tuple[int, float]:
    composition = Composition(events)
    return composition.unprotected, composition.total_mu


@contextmanager
def _tables(path: Path, mode: Literal["ro", "rw"]) -> Iterator[sqlite3.Connection]:
    """Open the tables beside those of the ledger; what is written is on disk in the end."""
    try:
        # As a URI: its modes never create a file.
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", uri=True)
        try:
            connection.execute("PRAGMA synchronous = EXTRA")
            with connection:
                yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise LedgerError(f"{path}: {error}") from error
