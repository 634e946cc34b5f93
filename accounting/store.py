"""The ledger's file: SQLite, append-only, with a hash chain."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from accounting.errors import AccountingError, LedgerCorrupted, LedgerError
from accounting.events import Event, from_json

FORMAT = 1
GENESIS = "0" * 64
MEMORY = ":memory:"
_WAIT = 60  # seconds to wait for another writer

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
class LedgerRow:
    """One event as stored."""

    sequence: int
    time: str
    body: str
    hash: str
    event: Event


Append = Callable[[Sequence[Event]], list[LedgerRow]]


class LedgerFile:
    """Rows on disk. `count` and `head` describe the rows that this object has read."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self.path = connection, path
        try:
            with self._named_errors():
                row = connection.execute("SELECT format, budget, created FROM ledger").fetchone()
                # A transaction ends when it is flushed to disk; EXTRA covers files without a log, after `fold`.
                connection.execute("PRAGMA synchronous = EXTRA")
            if row is None or row[0] != FORMAT:
                raise LedgerCorrupted(f"{path}: not a ledger of format {FORMAT}")
        except LedgerError:
            connection.close()
            raise
        self.budget: str | None = row[1]
        self._created: str = row[2]
        self.count, self.head = 0, self._genesis

    @classmethod
    def create_or_open(cls, path: str | Path | None, budget: str | None) -> Self:
        """Open for writing; create the file, with its budget, if there is none."""
        if path is None:
            connection = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
            cls._fill(connection, budget)
            return cls(connection, MEMORY)
        path = Path(path)
        try:
            if not path.exists():
                cls._create(path, budget)
            if not path.is_file():
                raise LedgerError(f"{path}: not a file")
            if path.stat().st_size == 0:
                raise LedgerCorrupted(f"{path}: the file is empty; a ledger never is")
            store = cls(_connect(path, "mode=rw"), str(path))
            # A folded file gets a log again, unless somebody is reading it.
            with suppress(sqlite3.OperationalError):
                store._connection.execute("PRAGMA journal_mode = WAL")
            return store
        except (OSError, ValueError, sqlite3.Error) as error:  # ValueError: of a name that no file can have
            raise LedgerError(f"{path}: cannot be opened for writing ({error})") from error

    @classmethod
    def open_read_only(cls, path: str | Path) -> Self:
        """Open an existing file without the right to write."""
        path = Path(path)
        try:
            if not path.is_file():
                raise LedgerError(f"{path}: there is no ledger")
            connection = _connect(path, "mode=ro")
            try:
                connection.execute("SELECT 1 FROM sqlite_master").fetchone()
            except sqlite3.OperationalError:
                # In a read-only folder SQLite cannot make the log's shared memory, and nobody can write.
                connection.close()
                for log in (path.with_name(path.name + end) for end in ("-wal", "-journal")):
                    if log.exists() and log.stat().st_size > 0:
                        words = f"{log.name} holds unmerged events; open the ledger for writing once to merge them"
                        raise LedgerError(f"{path}: {words}") from None
                connection = _connect(path, "mode=ro&immutable=1")
            except sqlite3.DatabaseError:
                connection.close()
                raise
            return cls(connection, str(path))
        except sqlite3.DatabaseError as error:
            raise LedgerCorrupted(f"{path}: not a readable SQLite file ({error})") from error
        except (OSError, ValueError) as error:
            raise LedgerError(f"{path}: cannot be read ({error})") from error

    @classmethod
    def _create(cls, path: Path, budget: str | None) -> None:
        """Write the file under another name, then link it, so that nobody ever sees half of it."""
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
            draft = Path(folder) / "draft"
            connection = sqlite3.connect(draft, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                cls._fill(connection, budget)
            finally:
                connection.close()
            with suppress(FileExistsError):  # another process was faster
                os.link(draft, path)
        parent = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)

    @staticmethod
    def _fill(connection: sqlite3.Connection, budget: str | None) -> None:
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
    def appending(self) -> Iterator[tuple[list[LedgerRow], Append]]:
        """Open a write transaction; yield the rows that others wrote since, and a function that appends rows.

        The rows are on disk when the block ends. After an error inside it none are.
        """
        with self._named_errors(), self._transaction("IMMEDIATE"):
            missed = self._verified_after(self.count, self.head)
            self._seen(missed)  # they are on disk, even if this transaction fails
            written: list[LedgerRow] = []

            def append(events: Sequence[Event]) -> list[LedgerRow]:
                sequence, previous = (written[-1].sequence, written[-1].hash) if written else (self.count, self.head)
                for event in events:
                    sequence, time, body = sequence + 1, _now(), event.to_json()
                    previous = _digest(previous, str(sequence), time, body)
                    written.append(LedgerRow(sequence, time, body, previous, event))
                    self._insert(written[-1])
                return written

            yield missed, append
            if written:
                self._connection.execute(
                    "UPDATE ledger SET count = ?, head = ?", (written[-1].sequence, written[-1].hash)
                )
        self._seen(written)

    def _insert(self, row: LedgerRow) -> None:
        self._connection.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (row.sequence, row.time, *_facts(row.event), row.body, row.hash),
        )

    def rows(self, after: int = 0) -> Iterator[LedgerRow]:
        """Iterate over the rows in their order."""
        with self._named_errors():
            for sequence, time, *facts, body, digest in self._connection.execute(
                "SELECT seq, time, client, round, stage, what, kind, body, hash FROM events WHERE seq > ? ORDER BY seq",
                (after,),
            ):
                try:
                    event = from_json(body)
                except (AccountingError, TypeError, ValueError) as error:
                    raise LedgerCorrupted(f"{self.path}: event {sequence} cannot be read ({error})") from error
                if tuple(facts) != _facts(event):
                    raise LedgerCorrupted(f"{self.path}: the columns of event {sequence} differ from its body")
                yield LedgerRow(sequence, time, body, digest, event)

    def verify(self) -> list[LedgerRow]:
        """Read the whole file and check the chain; return the rows that were not read before.

        Raises
        ------
        LedgerCorrupted
            With the first row that is wrong.
        """
        # One transaction, so that rows and head belong together while others write.
        with self._named_errors(), self._transaction("DEFERRED"):
            problem = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                raise LedgerCorrupted(f"{self.path}: {problem}")
            rows = self._verified_after(0, self._genesis)
        if len(rows) < self.count or (self.count and rows[self.count - 1].hash != self.head):
            raise LedgerCorrupted(f"{self.path}: event {self.count}, which was read before, is missing")
        new = rows[self.count :]
        self._seen(new)
        return new

    def new_rows(self) -> list[LedgerRow]:
        """Return the rows that others wrote since the last reading, checked against the chain."""
        with self._named_errors():
            written = self._connection.execute("SELECT count FROM ledger").fetchone()
            if written == (self.count,):
                return []
            with self._transaction("DEFERRED"):
                new = self._verified_after(self.count, self.head)
        self._seen(new)
        return new

    def _seen(self, rows: Sequence[LedgerRow]) -> None:
        if rows:
            self.count, self.head = rows[-1].sequence, rows[-1].hash

    def _verified_after(self, count: int, head: str) -> list[LedgerRow]:
        rows = []
        for row in self.rows(after=count):
            count += 1
            head = _digest(head, str(count), row.time, row.body)
            if (row.sequence, row.hash) != (count, head):
                raise LedgerCorrupted(
                    f"{self.path}: event {count}{' or the budget' * (count == 1)} is missing or was changed "
                    f"(row {row.sequence})"
                )
            rows.append(row)
        expected = self._connection.execute("SELECT count, head FROM ledger").fetchone()
        if expected is None or expected[0] != count:
            written = 0 if expected is None else expected[0]
            raise LedgerCorrupted(f"{self.path}: it holds {count} events, but {written} were written")
        if expected[1] != head:
            raise LedgerCorrupted(f"{self.path}: the head of the chain or the budget was changed ({count} events)")
        return rows

    def fold(self) -> None:
        """Merge the log into the file; does nothing while another process has it open."""
        self._connection.execute("PRAGMA busy_timeout = 0")
        with suppress(sqlite3.OperationalError):
            self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.execute(f"PRAGMA busy_timeout = {_WAIT * 1000}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self._connection.execute(f"BEGIN {kind}")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
            raise LedgerError(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise LedgerCorrupted(f"{self.path}: {error}") from error


def _connect(path: Path, options: str) -> sqlite3.Connection:
    # As a URI: its modes never create a file.
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?{options}", uri=True, isolation_level=None, check_same_thread=False, timeout=_WAIT
    )


def _facts(event: Event) -> tuple[str, int | None, str, str, str]:
    """Return the columns that repeat parts of the body, for readers who use SQL only."""
    return event.client, event.round, event.stage, event.what, event.kind


def _digest(*parts: str) -> str:
    # With lengths, so that different parts never give the same text.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
