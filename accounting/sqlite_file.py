"""One SQLite file: opened and never created, with locks that are waited for, and errors of one sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from accounting.errors import LedgerCorrupted, LedgerError

WAIT = 60.0  # seconds to wait for a lock that another process holds
BESIDE = ("-journal", "-wal")  # ends of the names under which SQLite keeps a part of a file beside it

_UNWRITABLE = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def connect(path: Path, mode: Literal["ro", "rw"]) -> sqlite3.Connection:
    """Open an existing file; refuse one of which a part may lie beside it.

    Raises
    ------
    LedgerError
        If the file is in WAL mode.
    """
    _refuse_log(path)
    return _opened(path, f"mode={mode}")


@contextmanager
def named_errors(path: str | Path, *, writing: bool = False) -> Iterator[None]:
    """Turn errors of SQLite into a `LedgerError` with the file's name and, where there is one, the way on."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _named(path, error, writing) from error


def no_space(path: str | Path) -> LedgerError:
    """Return the error of a full disk."""
    return LedgerError(
        f"no space left on the disk of {path}: nothing was recorded or released; free some space, then run again or "
        "resume"
    )


def busy(path: str | Path, doing: str) -> LedgerError:
    """Return the error of a lock that another process holds for too long."""
    return LedgerError(f"another process is {doing} {path}; waited {WAIT:g} s")


def primary_code(error: sqlite3.Error) -> int | None:
    """Return SQLite's code of an error without its details; None for errors of Python's module."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _named(path: str | Path, error: sqlite3.DatabaseError, writing: bool) -> LedgerError:
    code = primary_code(error)
    if code == sqlite3.SQLITE_BUSY:
        return busy(path, "writing to")
    if code == sqlite3.SQLITE_FULL:
        return no_space(path)
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_ROLLBACK:
        return LedgerError(
            f"{path}: a write was cut off, and {Path(path).name}-journal holds what it changed; open the ledger once "
            "for writing, or resume its run, which undoes that write"
        )
    if writing and code in _UNWRITABLE:
        return LedgerError(f"{path} cannot be written ({error}): nothing was released; mend this, then resume")
    if isinstance(error, sqlite3.OperationalError | sqlite3.ProgrammingError):
        return LedgerError(f"{path}: {error}")
    return LedgerCorrupted(f"{path}: {error}")


def _refuse_log(path: Path) -> None:
    """Raise if the file is in WAL mode, where events may lie in a log beside it; make no log either.

    Asked of SQLite, which cannot open such a file without locks: to read and close the file here would end the locks
    that other connections of this process have on it.
    """
    connection = _opened(path, "mode=ro&nolock=1")
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        if primary_code(error) == sqlite3.SQLITE_CANTOPEN:
            raise LedgerError(
                f"{path}: in SQLite's WAL mode, as ledgers of format 1 are, in which events may lie beside the file; "
                "only ledgers of one file are read"
            ) from None
        # All else is named where the file is opened with locks.
    finally:
        connection.close()


def _opened(path: Path, options: str) -> sqlite3.Connection:
    # As a URI: its modes never create a file.
    return sqlite3.connect(
        f"{path.resolve().as_uri()}?{options}", uri=True, isolation_level=None, check_same_thread=False, timeout=WAIT
    )
