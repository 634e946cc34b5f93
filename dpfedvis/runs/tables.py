"""Tables of a run's folder as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dpfedvis.numerics.files import write_text
from dpfedvis.numerics.plain_text import in_spreadsheet


def write_table(path: Path, columns: list[str], rows: Iterable[list[Any]]) -> None:
    """Write a table; texts that a spreadsheet would run are made harmless."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(each) for each in columns])
    writer.writerows([_cell(each) for each in row] for row in rows)
    write_text(path, text.getvalue())


def _cell(value: Any) -> Any:
    return in_spreadsheet(value) if isinstance(value, str) else value
