"""The ledger's file: SQLite, append-only, with a hash chain, and one file at every moment.

SQLite's rollback journal, and not its write-ahead log, because the log keeps the newest events beside the file, and a
copy without it looks like a whole ledger that is shorter. With a journal events are in the file when they are recorded,
and what lies beside it during a write is what the write replaces. The journal is deleted after each write (`DELETE`),
not emptied, so that there is nothing else to copy. A copy taken during a write is complete or is refused: its rows must
be those that the table `ledger` counts, and end in its head.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from accounting.chain import COLUMNS, Chain, Reader, Repeated, digest, facts_of, genesis
from accounting.errors import LedgerCorrupted, LedgerError
from accounting.events import Event
from accounting.sqlite_file import BESIDE, busy, connect, named_errors, no_space, primary_code

FORMAT = 2
MEMORY = ":memory:"
_BATCH = 1000  # rows that are read under one lock
_PAGE = 2**14  # bytes; a ledger of pages of SQLite's 4096 takes a tenth longer to open, and is not written faster

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

Written = tuple[int, str]  # a row's place and hash
Append = Callable[[Sequence[Event]], list[Written]]
Take = Callable[[Iterable[Repeated]], None]


class LedgerFile:
    """Rows on disk. `count` and `head` describe the rows that this object has read."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self.path = connection, path
        try:
            with named_errors(path):
                row = connection.execute("SELECT format, budget, created FROM ledger").fetchone()
                # A write ends when file and folder are flushed to disk, without the journal.
                connection.execute("PRAGMA journal_mode = DELETE")
                connection.execute("PRAGMA synchronous = EXTRA")
            if row is not None and row[0] == 1:
                raise LedgerError(f"{path}: a ledger of format 1; only those of format {FORMAT} are read")
            if row is None or row[0] != FORMAT:
                raise LedgerCorrupted(f"{path}: not a ledger of format {FORMAT}")
        except LedgerError:
            connection.close()
            raise
        self.budget: str | None = row[1]
        self._genesis = genesis(row[2], self.budget)
        self.count, self.head = 0, self._genesis
        self._reader = Reader(path)

    @classmethod
    def create_or_open(cls, path: str | Path | None, budget: str | None, *, create: bool = True) -> Self:
        """Open for writing; create the file, with its budget, if there is none and `create` is set."""
        if path is None:
            connection = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
            cls._fill(connection, budget)
            return cls(connection, MEMORY)
        path = Path(path)
        try:
            if not path.exists():
                cls._refuse_lost(path, create)
                cls._create(path, budget)
            if not path.is_file():
                raise LedgerError(f"{path}: not a file")
            if path.stat().st_size == 0:
                raise LedgerCorrupted(f"{path}: the file is empty; a ledger never is")
            return cls(connect(path, "rw"), str(path))
        except (OSError, ValueError, sqlite3.Error) as error:  # ValueError: of a name that no file can have
            if isinstance(error, sqlite3.Error):
                full = primary_code(error) == sqlite3.SQLITE_FULL
            else:
                full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise (
                no_space(path) if full else LedgerError(f"{path}: cannot be opened for writing ({error})")
            ) from error

    @classmethod
    def open_read_only(cls, path: str | Path) -> Self:
        """Open an existing file without the right to write."""
        path = Path(path)
        try:
            if not path.is_file():
                raise LedgerError(f"{path}: there is no ledger")
            with named_errors(path):
                return cls(connect(path, "ro"), str(path))
        except (OSError, ValueError) as error:
            raise LedgerError(f"{path}: cannot be read ({error})") from error

    @staticmethod
    def _refuse_lost(path: Path, create: bool) -> None:
        """Raise if a file that is missing was there before."""
        left = [path.name + end for end in BESIDE if path.with_name(path.name + end).exists()]
        if left or not create:
            words = f", and {' and '.join(left)} is left of it" if left else ""
            raise LedgerError(
                f"{path}: the ledger is lost{words}; put it back, for without it nobody knows what was spent"
            )

    @classmethod
    def _create(cls, path: Path, budget: str | None) -> None:
        """Write the file under another name, then link it, so that nobody ever sees half of it."""
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
            draft = Path(folder) / "draft"
            connection = sqlite3.connect(draft, isolation_level=None)
            try:
                connection.execute(f"PRAGMA page_size = {_PAGE}")
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
            "INSERT INTO ledger VALUES (1, ?, ?, ?, 0, ?)", (FORMAT, created, budget, genesis(created, budget))
        )
        connection.execute("COMMIT")

    @contextmanager
    def appending(self) -> Iterator[tuple[list[Repeated], Append]]:
        """Open a write transaction; yield what others wrote since, and a function that appends events.

        The rows are on disk when the block ends. After an error inside it none are.
        """
        with named_errors(self.path, writing=True), self._transaction("IMMEDIATE"):
            missed = self._new_rows()  # they are on disk, even if this transaction fails
            written: list[Written] = [(self.count, self.head)]

            def append(events: Sequence[Event]) -> list[Written]:
                for event in events:
                    sequence, head = written[-1]
                    time, body = _now(), event.to_json()
                    written.append((sequence + 1, digest(head, time, body)))
                    self._connection.execute(
                        f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (sequence + 1, event.round, time, body, written[-1][1], *facts_of(event)),
                    )
                return written[1:]

            yield missed, append
            if len(written) > 1:
                self._connection.execute("UPDATE ledger SET count = ?, head = ?", written[-1])
        self.count, self.head = written[-1]

    def events(self, last: int) -> Iterator[list[Event]]:
        """Iterate over the events up to a place, in batches: between them nothing is locked."""
        for after in range(0, last, _BATCH):
            with named_errors(self.path):
                rows = self._rows("seq > ? AND seq <= ?", after, min(after + _BATCH, last)).fetchall()
            yield [
                self._reader.find(sequence, facts, round, body).at(round)
                for sequence, round, _, body, _, *facts in rows
            ]

    def hash_at(self, sequence: int) -> str | None:
        """Return the hash of the chain up to a place; None if there is no such place."""
        with named_errors(self.path):
            row = self._connection.execute("SELECT hash FROM events WHERE seq = ?", (sequence,)).fetchone()
        return None if row is None else str(row[0])

    def verify(self, take: Take) -> None:
        """Read the whole file and check the chain; give what the rows that were not read before are of to `take`.

        Raises
        ------
        LedgerCorrupted
            With the first row that is wrong; `take` may have had those before it.
        """
        # One transaction, so that rows and head belong together while others write.
        with named_errors(self.path), self._transaction("DEFERRED"):
            problem = self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                raise LedgerCorrupted(f"{self.path}: {problem}")
            before = Chain(self._reader, 0, self._genesis)
            deque(before.follow(self._rows("seq <= ?", self.count)), maxlen=0)
            if (before.count, before.head) != (self.count, self.head):
                raise LedgerCorrupted(f"{self.path}: event {self.count}, which was read before, is missing")
            self._verify_new(take)

    def new_rows(self) -> list[Repeated]:
        """Return what others wrote since the last reading, checked against the chain."""
        with named_errors(self.path):
            written = self._connection.execute("SELECT count FROM ledger").fetchone()
            if written == (self.count,):
                return []
            with self._transaction("DEFERRED"):
                return self._new_rows()

    def _new_rows(self) -> list[Repeated]:
        found: list[Repeated] = []
        self._verify_new(found.extend)
        return found

    def _rows(self, condition: str, *values: int) -> sqlite3.Cursor:
        return self._connection.execute(f"SELECT {COLUMNS} FROM events WHERE {condition} ORDER BY seq", values)

    def _verify_new(self, take: Take) -> None:
        """Check the rows after the last reading, and that they are all; in the end they count as read."""
        chain = Chain(self._reader, self.count, self.head)
        take(chain.follow(self._rows("seq > ?", self.count)))
        expected = self._connection.execute("SELECT count, head FROM ledger").fetchone()
        if expected is None or expected[0] != chain.count:
            written = 0 if expected is None else expected[0]
            raise LedgerCorrupted(f"{self.path}: it holds {chain.count} events, but {written} were written")
        if expected[1] != chain.head:
            raise LedgerCorrupted(
                f"{self.path}: the head of the chain or the budget was changed ({chain.count} events)"
            )
        self.count, self.head = chain.count, chain.head

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self._connection.execute(f"BEGIN {kind}")
        try:
            yield
            self._commit()
        except BaseException:
            # A journal that cannot be played back now is played back by the next who opens the file.
            with suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            raise

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if primary_code(error) == sqlite3.SQLITE_BUSY:  # writers have been waited for before
                raise busy(self.path, "reading") from error
            raise


def _now() -> str:
    # Whole seconds: finer ones would show how long a site computed, and so how many records it has.
    return datetime.now(UTC).isoformat(timespec="seconds")
