"""The file of a site's ledger: where it is, its lock, and its tables beside those of the accounting."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from accounting.errors import LedgerError
from accounting.sqlite_file import connect, named_errors
from dpfedvis.errors import DpfedvisError


class LedgerBusy(DpfedvisError):
    """Another run on the same records is going on."""


def ledger_folder() -> Path:
    """Return the folder of the ledgers that have no other place."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification says to ignore a relative path.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "dpfedvis" / "ledgers"


def ledger_path(data: Path) -> Path:
    """Return where the ledger of a data file is by default, by the file's path."""
    whole = data.expanduser().resolve()
    return ledger_folder() / f"{whole.stem}-{hashlib.sha256(os.fsencode(whole)).hexdigest()[:16]}.sqlite"


def is_lifetime(path: Path) -> bool:
    """Whether a ledger is that of some records, and not that of a run."""
    with tables(path, "ro") as file:
        return file.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone() is not None


def knows(path: Path, run: str) -> bool:
    """Whether a file is the ledger of some records, and the run of this id is in it."""
    try:
        with tables(path, "ro") as file:
            return file.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone() is not None
    except LedgerError:
        return False


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def holder(path: Path) -> str:
    """Return who has a ledger open, in words."""
    try:
        number = _lock_of(path).read_text().strip()
    except OSError:
        number = ""
    return f"process {number}" if number.isdigit() else "another process"


def locked(path: Path) -> IO[str] | None:
    """Return the lock of a ledger, held; None if somebody else has it."""
    lock = _lock_of(path)
    held = lock.open("a+")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another run may have removed the file between the two lines above, with the lock on it.
        if lock.exists() and os.path.samestat(os.fstat(held.fileno()), lock.stat()):
            held.truncate(0)
            held.write(str(os.getpid()))
            held.flush()
            return held
    except BlockingIOError:
        pass
    held.close()
    return None


@contextmanager
def tables(path: Path, mode: Literal["ro", "rw"]) -> Iterator[sqlite3.Connection]:
    """Open the tables beside those of the ledger; what is written is on disk in the end."""
    with named_errors(path, writing=mode == "rw"):
        connection = connect(path, mode)
        try:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("BEGIN IMMEDIATE" if mode == "rw" else "BEGIN")
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()
