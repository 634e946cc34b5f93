"""Tables of a run's folder as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpfedvis.numerics.files import write_text

_RUN = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet takes a text that begins so for a formula


def write_table(path: Path, columns: list[str], rows: Iterable[list[Any]]) -> None:
    """Write a table; texts that a spreadsheet would run are made harmless."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([harmless(each) for each in columns])
    writer.writerows([harmless(each) for each in row] for row in rows)
    write_text(path, text.getvalue())


def harmless(cell: Any) -> Any:
    """Return a cell with an apostrophe before a text that a spreadsheet would run; numbers are left as they are."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_RUN) else cell
