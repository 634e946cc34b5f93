"""No page under reports/ can go stale unseen: every one is registered, and a number that changed is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dpfedvis.runs.code_version import code_version
from reports.check import check, main
from reports.registry import REPORTS, Report
from reports.remade import Cell, Missing, script

ROOT = Path(__file__).parents[2] / "reports"
CHEAPEST = next(each for each in REPORTS if each.name == "gradient")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the cheapest report that may be changed."""
    shutil.copytree(ROOT / CHEAPEST.folder, tmp_path / CHEAPEST.folder)
    return tmp_path


def planted(root: Path, code: str | None, score: float = 0.05) -> float:
    """Add something to the score of the cell that is made again, and write the page; return the planted number."""
    store = root / "gradient" / "cells.jsonl"
    lines, found = [], 0.0
    for line in store.read_text().splitlines():
        cell = json.loads(line)
        settings = cell["settings"]
        asked = (settings["part"], settings["trust"], settings["epsilon"], settings["rounds"])
        if asked == ("rounds", "aggregate", 1.0, 4):
            cell["scores"]["mmd"] = found = cell["scores"]["mmd"] + score
            if code:
                cell["code"] = code
        lines.append(json.dumps(cell))
    store.write_text("\n".join(lines) + "\n")
    (root / "gradient" / "results.md").write_text(script(root / "gradient" / "make.py").page())
    return found


def test_every_page_is_registered_and_there() -> None:
    known = {f"{each.folder}/{page}": each.name for each in REPORTS for page in each.shows}
    pages = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.md")} - {"README.md"}
    assert pages <= known.keys(), f"not in reports/registry.py: {sorted(pages - known.keys())}"
    made = {f"{each.folder}/{page}" for each in REPORTS for page in each.shows if not each.other}
    gone = {page for page in made if not (ROOT / page).exists()}
    assert not gone, f"registered, and not there: {sorted(gone)}"


def test_every_report_has_a_cell_or_pages_or_says_why_not() -> None:
    for each in REPORTS:
        assert each.cell is not None or each.other or each.name == "paper", each.name
        assert not each.store or (ROOT / each.folder / each.store).exists(), each.name
    names = [each.name for each in REPORTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("report", [each for each in REPORTS if each.cell], ids=lambda each: each.name)
def test_a_cell_is_found_in_every_store(report: Report) -> None:
    """Nothing is made: the cell has numbers, a cost, and the code that made it."""
    assert report.cell is not None
    try:
        cell = report.cell(ROOT / report.folder)
    except Missing:  # a store that today's settings are not in yet: the check calls it stale
        if report.folder != "paper":
            raise
        return
    assert cell.published
    assert cell.seconds > 0
    assert cell.code


def test_the_cheapest_report_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", CHEAPEST.name, "--json"]) == 0
    (outcome,) = json.loads(capsys.readouterr().out)
    assert outcome["status"] == "fresh", outcome
    assert outcome["compared"] == 3


def test_a_number_that_other_code_published_is_stale(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = planted(copied, "0.0.1 abcdef")
    assert main(["--only", CHEAPEST.name], root=copied) == 1
    said = capsys.readouterr().out
    assert "gradient: stale" in said
    assert f"mmd: {number:.6g} published, {number - 0.05:.6g} now" in said
    assert f"published by 0.0.1 abcdef, now {code_version()}" in said


def test_a_number_that_the_same_code_published_is_changed(copied: Path) -> None:
    planted(copied, str(code_version()))
    outcome = check(CHEAPEST, copied)
    assert outcome.status == "changed"
    assert [each.what for each in outcome.differences] == ["mmd"]


def test_what_is_below_the_tolerance_is_no_difference(copied: Path) -> None:
    planted(copied, "0.0.1 abcdef", CHEAPEST.tolerance / 4)
    assert check(CHEAPEST, copied).status == "fresh"


@pytest.mark.parametrize(("now", "status"), [(0.0160, "fresh"), (0.0300, "stale")])
def test_a_small_number_is_compared_by_its_size(tmp_path: Path, now: float, status: str) -> None:
    cell = Cell("a certificate", "0.0.1 abcdef", 1, {"mmd": 0.0155}, lambda: {"mmd": now})
    assert check(Report("small", ".", (), cell=lambda folder: cell, tolerance=2e-2), tmp_path).status == status


def test_a_page_that_says_something_else_than_its_store_is_changed(copied: Path) -> None:
    page = copied / "gradient" / "results.md"
    assert "0.547" in page.read_text()
    page.write_text(page.read_text().replace("0.547", "0.447", 1))
    outcome = check(CHEAPEST, copied)
    assert outcome.status == "changed"
    assert "results.md" in outcome.why
    assert "0.447" in outcome.why


def test_a_cell_that_is_too_dear_is_left_out_and_said() -> None:
    outcome = check(CHEAPEST, most=0.01)
    assert (outcome.status, outcome.compared) == ("too dear", 0)
    assert " s" in outcome.why


def test_a_report_that_cannot_be_made_is_broken_and_the_rest_is_checked(copied: Path) -> None:
    (copied / "gradient" / "cells.jsonl").unlink()
    assert check(CHEAPEST, copied).status in ("changed", "broken")
    assert main(["--only", CHEAPEST.name], root=copied) == 1
