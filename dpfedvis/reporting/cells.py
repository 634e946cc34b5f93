"""Cells of a report: single results that a script keeps one by one, and the tables that are made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfedvis.data import FederatedData
from dpfedvis.evaluation import METRICS, Evaluated
from dpfedvis.numerics.files import write_text
from dpfedvis.numerics.kernels import Array

Cell = dict[str, Any]
# The first has none where no two sites share a class.
MAP_SCORES = ("ca_cross_10", "ca_shared_10", "purity_10", "ca_10", "npa_home_10")


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


def spread(values: Sequence[float | None]) -> str:
    """Mean over seeds, and the standard deviation of one where there are several; "-" where a score has no meaning."""
    known = [each for each in values if each is not None]
    if not known:
        return "-"
    return f"{np.mean(known):.3f}" + (f" ± {np.std(known, ddof=1):.3f}" if len(known) > 1 else "")


def span(values: Sequence[int]) -> str:
    """From the least to the greatest, or the one that all are."""
    least, most = min(values), max(values)
    return str(least) if least == most else f"{least}–{most}"


def map_scores(fed: FederatedData, places: Array) -> dict[str, float | None]:
    """Scores of a map of all clients' records, which in a real federation nobody has; None where one has no meaning."""
    evaluated = Evaluated(fed, places)
    return {key: METRICS[key].function(evaluated) for key in MAP_SCORES}


def markdown(columns: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of a table."""
    return ["| " + " | ".join(map(str, row)) + " |" for row in [columns, ["---"] * len(columns), *rows]]
