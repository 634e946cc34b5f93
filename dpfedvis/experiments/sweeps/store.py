"""The store of a sweep: one SQLite file, one row a cell, under the cell's address.

Several processes may write. A row with status done is never replaced; a failed or refused one may be.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from dpfedvis.errors import DpfedvisError
from dpfedvis.experiments.sweeps.cells import Kind
from dpfedvis.runs.code_version import CodeVersion

Status = Literal["done", "refused", "failed"]
_APPLICATION = 0x64705357  # marks the file as a store of sweeps
_FORMAT = 1
_WAIT = 60  # seconds for another process to finish writing
_SCHEMA = """
CREATE TABLE IF NOT EXISTS cells (
    address TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    settings TEXT NOT NULL,
    data_sha256 TEXT NOT NULL,
    scores TEXT NOT NULL,
    epsilon_end_to_end REAL,
    epsilon_in_scope REAL,
    epsilon_nominal REAL,
    delta REAL NOT NULL,
    seconds REAL NOT NULL,
    package TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    dirty INTEGER NOT NULL,
    error TEXT NOT NULL,
    finished TEXT NOT NULL
)
"""


class StoreUnusable(DpfedvisError):
    """The file is no store, or cannot be read or written."""


@dataclass(frozen=True)
class CellRow:
    """The result of a cell.

    Parameters
    ----------
    address : str
    kind : {"run", "central", "data-free", "chance"}
    status : {"done", "refused", "failed"}
        Refused by the library, for a reason that it names; failed for any other.
    settings : dict
        Those that are not at their defaults.
    data_sha256 : str
    scores : dict of str to float
        See `dpfedvis.evaluation.scores`.
    epsilon_end_to_end : float, optional
        Of all uploads, by the ledger; infinite if one was unprotected.
    epsilon_in_scope : float, optional
        Of what the budget covers; None without a budget.
    epsilon_nominal : float, optional
        What noise of a data-dependent scale would have been worth, had its scale been public. No guarantee.
    delta : float
    seconds : float
    version : CodeVersion
    error : str
    finished : str
        When, in UTC.
    """

    address: str
    kind: Kind
    status: Status
    settings: dict[str, Any]
    data_sha256: str
    scores: dict[str, float]
    epsilon_end_to_end: float | None
    epsilon_in_scope: float | None
    epsilon_nominal: float | None
    delta: float
    seconds: float
    version: CodeVersion
    error: str
    finished: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON; infinity becomes the string "inf"."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "version"}
        plain = {name: "inf" if value == float("inf") else value for name, value in values.items()}
        return {**plain, "version": str(self.version)}


class SweepStore:
    """Rows of a sweep on disk.

    Parameters
    ----------
    path : path-like
    create : bool
        Create the file if it is missing.
    """

    def __init__(self, path: str | Path, *, create: bool = False) -> None:
        self.path = Path(path)
        if not create and not self.path.is_file():
            raise StoreUnusable(f"{self.path}: there is no store of a sweep")
        with self._named():
            if create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)
        try:
            with self._named():
                self._open(create)
        except StoreUnusable:
            self._connection.close()
            raise

    def _open(self, create: bool) -> None:
        connection = self._connection
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        empty = not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if mark != _APPLICATION and not (empty and create):
            raise StoreUnusable(f"{self.path}: not a store of a sweep")
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if not empty and found != _FORMAT:
            raise StoreUnusable(f"{self.path}: a store of format {found}; this version reads format {_FORMAT}")
        if empty:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
            connection.execute("COMMIT")

    def put(self, row: CellRow) -> bool:
        """Write a row; return False, and change nothing, if the cell is already done."""
        values = {
            **{field.name: getattr(row, field.name) for field in fields(row) if field.name != "version"},
            "settings": json.dumps(row.settings, sort_keys=True, ensure_ascii=False, allow_nan=False),
            "scores": json.dumps(row.scores, sort_keys=True, allow_nan=False),
            "package": row.version.package,
            "commit_id": row.version.commit,
            "dirty": int(row.version.dirty),
        }
        names = ", ".join(values)
        marks = ", ".join(f":{name}" for name in values)
        update = ", ".join(f"{name} = excluded.{name}" for name in values if name != "address")
        with self._named():
            done = self._connection.execute(
                f"INSERT INTO cells ({names}) VALUES ({marks}) "
                f"ON CONFLICT (address) DO UPDATE SET {update} WHERE cells.status != 'done'",
                values,
            )
        return done.rowcount > 0

    def rows(self) -> list[CellRow]:
        """Return all rows, in the order in which they were first written."""
        with self._named():
            cursor = self._connection.execute("SELECT * FROM cells ORDER BY rowid")
            names = [column[0] for column in cursor.description]
            return [self._read(dict(zip(names, values, strict=True))) for values in cursor]

    def _read(self, values: dict[str, Any]) -> CellRow:
        address = str(values.get("address"))
        try:
            return _row(values)
        except (ValueError, TypeError, KeyError) as error:
            raise StoreUnusable(f"{self.path}: the row {address[:8]} is damaged ({error})") from error

    def statuses(self) -> dict[str, Status]:
        """Return the status of every cell, by address."""
        with self._named():
            return dict(self._connection.execute("SELECT address, status FROM cells"))

    @property
    def cache(self) -> Path:
        """Folder beside the store for what cells share; it may be deleted at any time."""
        return self.path.with_name(self.path.name + ".cache")

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreUnusable(f"{self.path}: cannot be used as the store of a sweep ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _row(values: dict[str, Any]) -> CellRow:
    version = CodeVersion(values.pop("package"), values.pop("commit_id"), bool(values.pop("dirty")))
    settings, scores = json.loads(values.pop("settings")), json.loads(values.pop("scores"))
    return CellRow(**values, settings=settings, scores=scores, version=version)
