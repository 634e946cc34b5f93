"""All reports: their pages as their stores give them, and a small cell of each. A new one is one entry of `REPORTS`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

from reports import remade
from reports.remade import AUDIT, Cell, script


def _no_pages(folder: Path) -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class Report:
    """A page, or several that one script makes.

    Parameters
    ----------
    name : str
    folder : str
        Below `reports/`.
    shows : tuple of str
        Its pages, below the folder.
    store : str
        Of its cells, below the folder.
    cell : callable
        From the folder to the cell that is made again; None for pages that are made of other pages' numbers.
    pages : callable
        From the folder to pages as the script makes them from the store; none of a page that names the code it is by.
    tolerance : float
        Of numbers, relative. Layouts are chaotic: another processor's last bits may move a score.
    dear : str
        What to do instead where the cell is too dear.
    other : str
        Why nothing is made again at all.
    """

    name: str
    folder: str
    shows: tuple[str, ...]
    store: str = ""
    cell: Callable[[Path], Cell] | None = None
    pages: Callable[[Path], dict[str, str]] = _no_pages
    tolerance: float = 1e-3
    dear: str = ""
    other: str = ""


def paper_pages(folder: Path) -> dict[str, str]:
    """Return the two pages that are made of all numbers of a folder."""
    from dpfedvis.experiments.paper.pages import write_index

    with tempfile.TemporaryDirectory() as temporary:
        for path in folder.iterdir():
            if path.suffix in (".csv", ".md"):  # it says which other pages lie beside it
                shutil.copy(path, temporary)
        return {path.name: path.read_text() for path in write_index(Path(temporary))}


def written(page: str, text: Callable[[ModuleType], str], file: str = "make.py") -> Callable[[Path], dict[str, str]]:
    """Return a page as a script makes it."""
    return lambda folder: {page: text(script(folder / file))}


def _of_json(make: ModuleType, name: str) -> str:
    return str(make.table(json.loads((make.HERE / f"{name}.json").read_text())))


def _of_grid(folder: Path, name: str) -> Cell:
    return remade.swept(folder / f"{name}.sqlite", lambda row: bool(row.kind == "run"))


_RESULTS = ("results.md",)
_PAPER = [f"table{number}" for number in range(1, 6)] + ["figure-convergence", "figure-ny", "figure-beta"]
_SWEEP = "its own command makes all of it, and goes on where it stopped"
REPORTS: tuple[Report, ...] = (
    Report(
        "end-to-end",
        "end-to-end",
        _RESULTS,
        "cells",
        remade.end_to_end,
        written("results.md", lambda make: make.table()),
        tolerance=5e-3,
    ),
    Report(
        "budget",
        "end-to-end",
        ("budget.md",),
        "budget.json",
        remade.budget,
        written("budget.md", lambda make: make.table(json.loads(make.STORE.read_text())), "budget.py"),
        tolerance=5e-3,
    ),
    Report(
        "audits",
        "end-to-end",
        tuple(
            f"audits/{trust}-{epsilon}/{AUDIT}{end}.md"
            for trust in ("aggregate", "local")
            for epsilon in (1, 3)
            for end in ("", "-statement")
        ),
        "audits",
        remade.audit,
    ),
    Report("ideas", "end-to-end", ("ideas.md",), other="by a script that commit 30560cc has, and is history"),
    Report(
        "few-records",
        "few-records",
        _RESULTS,
        "cells.jsonl",
        remade.few_records,
        written("results.md", lambda make: make.page(make.stored())),
        tolerance=5e-3,
    ),
    Report(
        "clusters",
        "clusters",
        _RESULTS,
        "cells",
        remade.clusters,
        written("results.md", lambda make: make.table()),
        tolerance=5e-3,
    ),
    Report(
        "verdict", "verdict", _RESULTS, "cells.jsonl", remade.verdict, written("results.md", lambda make: make.page())
    ),
    Report(
        "gradient",
        "gradient",
        _RESULTS,
        "cells.jsonl",
        remade.gradient,
        written("results.md", lambda make: make.page()),
    ),
    *(
        Report(
            f"mechanisms-{data}",
            "mechanisms",
            (f"{data}.md",),
            f"{data}.json",
            partial(remade.mechanisms, data=data, seconds=seconds),
            written(f"{data}.md", partial(_of_json, name=data)),
        )
        for data, seconds in (("digits", 4.0), ("mnist", 60.0))
    ),
    Report(
        "attacks",
        "attacks",
        ("mnist.md",),
        "cells",
        remade.attacks,
        written("mnist.md", lambda make: make.page(make.parsed([]))),
        tolerance=2e-2,
    ),
    Report(
        "scaling",
        "scaling",
        _RESULTS,
        "cells",
        remade.scaling,
        written("results.md", lambda make: make.page(*make.cells())),
        tolerance=5e-3,
    ),
    Report(
        "bounds",
        "theory",
        ("bounds.md", "digits.md"),
        "digits.json",
        partial(remade.bounds, name="digits", landmarks=20, seconds=10),
        written("bounds.md", lambda make: make.page()),
    ),
    Report(
        "bounds-mnist",
        "theory",
        ("mnist.md",),
        "mnist.json",
        partial(remade.bounds, name="mnist", landmarks=50, seconds=30),
    ),
    Report("errata", "theory", ("errata.md",), other="its counterexamples are tests: tests/evaluation/theory"),
    *(
        Report(
            f"privacy-utility-{data}",
            "privacy-utility",
            (f"{data}/report.md",),
            f"{data}.sqlite",
            partial(_of_grid, name=data),
            tolerance=2e-2,
            dear=_SWEEP,
        )
        for data in ("digits", "mnist", "hospitals")
    ),
    Report(
        "npa",
        "paper",
        ("npa.md",),
        "npa.csv",
        remade.npa,
        written("npa.md", lambda make: make.page(), "npa.py"),
        tolerance=5e-3,
    ),
    Report("central", "paper", ("central.md",), other="a search over settings: its command says how to make it again"),
    Report("paper", "paper", ("index.md", "what-reproduces.md"), "", pages=paper_pages),
    *(
        Report(
            name,
            "paper",
            (f"{name}.md",),
            "paper.sqlite",
            partial(remade.table, name=name),
            tolerance=2e-2,
            dear=_SWEEP,
        )
        for name in _PAPER
    ),
)
