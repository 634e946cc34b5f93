"""Make one small cell of each report again, and compare it with the published one, so that no page goes stale unseen.

    make reports-check
    DPFEDVIS_DATA=... python -m reports.check --only gradient verdict
    DPFEDVIS_DATA=... python -m reports.check --seconds 600      # cells that take longer are left out, and said (120)

A report is *fresh* if its page is what its store gives, and its cell has the published numbers. It is *stale* if other
code made the cell and today's gives another number, and *changed* if the same code does, or if the page says something
else than the store. *too dear*, *no data* and *other* were not made again, and *broken* could not be. The exit code
is 1 if anything is changed, stale or broken.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dpfedvis.data.errors import DataUnavailable, UnknownDataset
from dpfedvis.numerics import progress
from dpfedvis.runs.code_version import code_version
from reports.registry import REPORTS, Report
from reports.remade import Cell, Missing

ROOT = Path(__file__).parent
SECONDS = 120.0  # a cell may take by default
BAD = ("changed", "stale", "broken")
UNSEEN = ("too dear", "no data")
SMALL = 0.05  # a score of less hangs on few records


@dataclass(frozen=True)
class Difference:
    """A published number that is another one now."""

    what: str
    published: float | None
    now: float | None

    def __str__(self) -> str:
        return f"{self.what}: {_number(self.published)} published, {_number(self.now)} now"


@dataclass(frozen=True)
class Outcome:
    """What became of a report.

    Parameters
    ----------
    name : str
    status : {"fresh", "changed", "stale", "broken", "too dear", "no data", "other"}
    cell : str
        Which was made again.
    compared : int
        Numbers of it.
    differences : list of Difference
    published_by, code : str
        Code that made the published cell, and today's.
    seconds : float
        It took.
    why : str
        In words, where numbers do not say it.
    """

    name: str
    status: str
    cell: str = ""
    compared: int = 0
    differences: list[Difference] = field(default_factory=list)
    published_by: str = ""
    code: str = ""
    seconds: float = 0.0
    why: str = ""

    def __str__(self) -> str:
        words = [f"{self.name}: {self.status}"]
        if self.why:
            words.append(self.why)
        if self.cell:
            words.append(f"{self.cell}, {self.compared} numbers, {self.seconds:.0f} s")
        head = "; ".join(words)
        lines = [f"  {each}" for each in self.differences]
        if lines:
            lines.append(f"  published by {self.published_by}, now {self.code}")
        return "\n".join([head, *lines])


def check(report: Report, root: Path = ROOT, most: float = SECONDS) -> Outcome:
    """Compare a report with what its script makes now.

    Parameters
    ----------
    report : Report
    root : Path
        The folder that holds its folder.
    most : float
        Seconds that a cell may take.
    """
    folder = root / report.folder
    if report.other:
        return Outcome(report.name, "other", why=report.other)
    try:
        for name, text in report.pages(folder).items():
            if (line := _differs((folder / name).read_text(), text)) is not None:
                return Outcome(report.name, "changed", why=f"{name} is not what its store gives: {line}")
        if report.cell is None:
            return Outcome(report.name, "fresh", why="its pages are what its numbers give")
        cell = report.cell(folder)
        if cell.seconds > most:
            why = f"{cell.what} takes {cell.seconds:.0f} s"
            return Outcome(report.name, "too dear", why=f"{why}; {report.dear}" if report.dear else why)
        return _compared(report, cell)
    except Missing as missing:
        return Outcome(report.name, "stale", why=str(missing))
    except (DataUnavailable, UnknownDataset) as absent:
        return Outcome(report.name, "no data", why=str(absent))
    except Exception as error:  # of whatever part of the report: the others are to be checked, too
        return Outcome(report.name, "broken", why=f"{type(error).__name__}: {error}")


def _compared(report: Report, cell: Cell) -> Outcome:
    started, code = time.perf_counter(), str(code_version())
    now = cell.make()
    seconds = time.perf_counter() - started
    differences = [
        Difference(key, cell.published.get(key), now.get(key))
        for key in cell.published  # a score that is new since then is no difference
        if not _same(cell.published[key], now.get(key), report.tolerance)
    ]
    status = "fresh" if not differences else "changed" if cell.code == code else "stale"
    return Outcome(report.name, status, cell.what, len(cell.published), differences, cell.code, code, seconds)


def _same(published: float | None, now: float | None, tolerance: float) -> bool:
    """Whether two numbers agree; the tolerance is of their size, and absolute where that is below `SMALL`."""
    if published is None or now is None:
        return published is now
    return abs(published - now) <= tolerance * max(SMALL, abs(published))


def _differs(published: str, now: str) -> str | None:
    """Return the first line that differs; None if none does."""
    old, new = published.splitlines(), now.splitlines()
    for number in range(max(len(old), len(new))):
        one, other = (lines[number] if number < len(lines) else "nothing" for lines in (old, new))
        if one != other:
            return f'line {number + 1} is "{one[:200]}", and would be "{other[:200]}"'
    return None


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.6g}"


def checked(names: list[str], most: float, root: Path = ROOT) -> Iterator[Outcome]:
    """Check some reports, or all."""
    chosen = [each for each in REPORTS if not names or each.name in names]
    with progress.bar(len(chosen), "report", "reports-check") as bar:
        for each in chosen:
            bar.set_postfix_str(each.name)
            yield check(each, root, most)
            bar.update()


def main(words: list[str] | None = None, root: Path = ROOT) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [each.name for each in REPORTS]
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", choices=names, help=", ".join(names))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a cell may take (%(default)g)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(words)
    outcomes = []
    for outcome in checked(arguments.only, arguments.seconds, root):
        outcomes.append(outcome)
        if not arguments.json:
            print(outcome, flush=True)
    bad = [each.name for each in outcomes if each.status in BAD]
    if arguments.json:
        print(json.dumps([asdict(each) for each in outcomes], indent=1, ensure_ascii=False))
    else:
        unseen = sum(each.status in UNSEEN for each in outcomes)
        print(f"{len(outcomes)} reports, {len(bad)} to be made again" + (f": {', '.join(bad)}" if bad else ""))
        if unseen:
            print(f"{unseen} not checked: too dear (--seconds), or without data at hand")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
