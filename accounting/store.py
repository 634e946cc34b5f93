"""The ledger's file: SQLite, append-only, with a hash chain."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from accounting.errors import AccountingError, LedgerCorrupted, LedgerError
from accounting.events import Event, from_json

FORMAT = 1
GENESIS = "0" * 64

_SCHEMA = """
CREATE TABLE ledger (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    format INTEGER NOT NULL,
    created TEXT NOT NULL,
    budget TEXT,
    count INTEGER NOT NULL,
    head TEXT NOT NULL
);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    client TEXT NOT NULL,
    round INTEGER,
    stage TEXT NOT NULL,
    what TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE TRIGGER no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""


@dataclass(frozen=True)
class Row:
    """One event as it stands in the file."""

    sequence: int
    time: str
    body: str
    hash: str
    event: Event


Append = Callable[[Sequence[Event]], list[Row]]


class Store:
    """Rows on disk. `count` and `head` are those that this object has seen."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._path = connection, path
        with self._named_errors():
            row = connection.execute("SELECT format, budget, created FROM ledger").fetchone()
            if row is None or row[0] != FORMAT:
                raise LedgerCorrupted(f"{path}: not a ledger of format {FORMAT}")
        self.budget: str | None = row[1]
        self._created: str = row[2]
        self.count, self.head = 0, self._genesis

    @classmethod
    def create_or_open(cls, path: str | Path | None, budget: str | None) -> Self:
        """Open for writing; create the file, with its budget, if there is none."""
        name = ":memory:" if path is None else str(path)
        try:
            connection = sqlite3.connect(name, isolation_level=None, check_same_thread=False, timeout=60)
        except sqlite3.OperationalError as error:
            raise LedgerError(f"{name}: cannot be opened for writing ({error})") from error
        try:
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                cls._create(connection, budget)
            # A write-ahead log with full synchronisation: one flush to disk for each transaction.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.OperationalError as error:
            connection.close()
            raise LedgerError(f"{name}: cannot be written ({error})") from error
        except sqlite3.DatabaseError as error:
            connection.close()
            raise LedgerCorrupted(f"{name}: not a readable SQLite file ({error})") from error
        return cls(connection, name)

    @classmethod
    def open_read_only(cls, path: str | Path) -> Self:
        """Open an existing file without the right to write."""
        if not Path(path).is_file():
            raise LedgerError(f"{path}: there is no ledger")
        uri = Path(path).resolve().as_uri()
        try:
            connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)
            connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            # In a folder that may not be written there is no shared memory for the log; nobody writes there either.
            connection = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        except sqlite3.DatabaseError as error:
            raise LedgerCorrupted(f"{path}: not a readable SQLite file ({error})") from error
        return cls(connection, str(path))

    @staticmethod
    def _create(connection: sqlite3.Connection, budget: str | None) -> None:
        created = _now()
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.split(";\nCREATE"):
            statement = statement if statement.lstrip().startswith("CREATE") else "CREATE" + statement
            connection.execute(statement)
        connection.execute(
            "INSERT INTO ledger VALUES (1, ?, ?, ?, 0, ?)",
            (FORMAT, created, budget, _digest(GENESIS, created, budget or "")),
        )
        connection.execute("COMMIT")

    @property
    def _genesis(self) -> str:
        return _digest(GENESIS, self._created, self.budget or "")

    @contextmanager
    def appending(self) -> Iterator[tuple[list[Row], Append]]:
        """One write transaction: gives the rows that others wrote meanwhile and a function that appends rows.

        The rows are on disk when the block is left; on an error inside it nothing is.
        """
        with self._named_errors():
            self._connection.execute("BEGIN IMMEDIATE")
        count, head = self.count, self.head
        try:
            with self._named_errors():
                missed = self._verified_after(count, head)
            if missed:
                count, head = missed[-1].sequence, missed[-1].hash
            written: list[Row] = []

            def append(events: Sequence[Event]) -> list[Row]:
                sequence, previous = (written[-1].sequence, written[-1].hash) if written else (count, head)
                for event in events:
                    sequence, time, body = sequence + 1, _now(), event.to_json()
                    previous = _digest(previous, str(sequence), time, body)
                    written.append(Row(sequence, time, body, previous, event))
                    self._insert(written[-1])
                return written

            yield missed, append
            if written:
                self._connection.execute(
                    "UPDATE ledger SET count = ?, head = ?", (written[-1].sequence, written[-1].hash)
                )
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self.count, self.head = (written[-1].sequence, written[-1].hash) if written else (count, head)

    def _insert(self, row: Row) -> None:
        event = row.event
        facts = (event.client, event.round, event.stage, event.what, event.kind)
        self._connection.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (row.sequence, row.time, *facts, row.body, row.hash),
        )

    def rows(self, after: int = 0) -> Iterator[Row]:
        """Iterate over the rows in their order."""
        with self._named_errors():
            for sequence, time, body, digest in self._connection.execute(
                "SELECT seq, time, body, hash FROM events WHERE seq > ? ORDER BY seq", (after,)
            ):
                try:
                    event = from_json(body)
                except AccountingError as error:
                    raise LedgerCorrupted(f"{self._path}: event {sequence} cannot be read ({error})") from error
                yield Row(sequence, time, body, digest, event)

    def verify(self) -> list[Row]:
        """Read the whole file and check the chain; returns all rows.

        Raises
        ------
        LedgerCorrupted
            With the first place that does not agree.
        """
        with self._named_errors():
            problem = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                raise LedgerCorrupted(f"{self._path}: {problem}")
            rows = self._verified_after(0, self._genesis)
        self.count, self.head = (rows[-1].sequence, rows[-1].hash) if rows else (0, self._genesis)
        return rows

    def _verified_after(self, count: int, head: str) -> list[Row]:
        rows = []
        for row in self.rows(after=count):
            count += 1
            head = _digest(head, str(count), row.time, row.body)
            if (row.sequence, row.hash) != (count, head):
                raise LedgerCorrupted(f"{self._path}: event {count} is missing or was changed (row {row.sequence})")
            rows.append(row)
        expected = self._connection.execute("SELECT count, head FROM ledger").fetchone()
        if expected != (count, head):
            raise LedgerCorrupted(f"{self._path}: {count} events are there, but {expected[0]} were written")
        return rows

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise LedgerError(f"{self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise LedgerCorrupted(f"{self._path}: {error}") from error


def _digest(*parts: str) -> str:
    # Lengths go in as well, so that no two lists of parts give the same text.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
