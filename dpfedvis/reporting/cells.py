"""Cells of a report: single results that a script keeps one by one, and the tables that are made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfedvis.numerics.files import write_text

Cell = dict[str, Any]


def keep(path: Path, cell: Cell) -> None:
    """Write a cell; one that is there is whole."""
    path.parent.mkdir(exist_ok=True)
    write_text(path, json.dumps(cell, indent=1) + "\n")


def kept(folder: Path) -> dict[str, Cell]:
    """Return all finished cells of a folder, by the names of their files."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def codes(cells: Iterable[Cell], unknown: str = "unknown") -> str:
    """Which code made these cells."""
    return ", ".join(sorted({each.get("code", unknown) for each in cells}))


def spread(values: Sequence[float]) -> str:
    """Mean over seeds, and the standard deviation of one where there are several."""
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def markdown(columns: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of a table."""
    return ["| " + " | ".join(map(str, row)) + " |" for row in [columns, ["---"] * len(columns), *rows]]
