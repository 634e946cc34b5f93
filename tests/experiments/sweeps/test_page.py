"""The page of a sweep: every word escaped, every number in a table, one look a series."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpfedvis.experiments.sweeps.figures import Axis, Curves
from dpfedvis.experiments.sweeps.report import write_report
from dpfedvis.experiments.sweeps.store import Row
from dpfedvis.experiments.sweeps.summary import contexts, latest_version
from dpfedvis.reporting.blocks import Heading, Paragraph, Table, html_page, markdown
from dpfedvis.runs.code_version import CodeVersion
from tests.run_fixtures import HERE


def figures(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1])
    return found


def test_what_comes_from_outside_is_escaped(sweep_rows: list[Row], tmp_path: Path) -> None:
    write_report(sweep_rows, tmp_path, "dpfedvis <command>", HERE)
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in page
    assert "dpfedvis &lt;command&gt;" in page
    assert page.count("<h2") == 2


def test_figures_carry_the_means_and_one_look_a_series(sweep_rows: list[Row], tmp_path: Path) -> None:
    write_report(sweep_rows, tmp_path, "x", HERE)
    made = figures((tmp_path / "report.html").read_text())
    assert set(made) == {"curves-1", "curves-1-nmi", "curves-1-ca_10"}
    names = [each["name"] for each in made["curves-1"]["series"]]
    assert names == ["k-means", "gradient", "data-free"]
    lines = {each["name"]: each for each in made["curves-1-nmi"]["data"] if each["mode"] == "lines+markers"}
    assert lines["k-means"]["y"] == pytest.approx([0.335, 0.56])
    for number, name in enumerate(names):
        look = made["curves-1"]["series"][number]
        assert lines[name]["legendgroup"] == str(number)
        assert lines[name]["marker"]["color"] == {"light": look["light"], "dark": look["dark"]}


def test_no_epsilon_is_shown_smaller_than_it_is() -> None:
    values = [0.0, 0.50001, 1 - 1e-12, 2.00049, math.inf]
    axis = Axis.over(values)
    assert [axis.shown(axis.place(each)) for each in values] == ["0", "0.5001", "1", "2.001", "∞"]
    assert list(axis.ticks.values()) == ["0", "0.501", "1", "2.01", "∞"]


def test_series_that_differ_in_trust_share_a_colour(sweep_rows: list[Row]) -> None:
    (context,) = contexts(sweep_rows, HERE)
    renamed = [
        replace(point, series={"k-means": "gradient, local", "gradient": "gradient, aggregate"}.get(point.series, "x"))
        for point in context.points
    ]
    looks = Curves(replace(context, points=tuple(renamed))).looks
    local, summed = looks["gradient, local"], looks["gradient, aggregate"]
    assert (local.light, local.symbol) == (summed.light, "circle")
    assert (summed.symbol, looks["data-free"].light != local.light) == ("square", True)


def test_every_number_that_is_drawn_is_in_a_table(sweep_rows: list[Row], tmp_path: Path) -> None:
    write_report(sweep_rows, tmp_path, "x", HERE)
    page = (tmp_path / "report.html").read_text()
    own = page[page.index("All numbers as a table") :]
    own = own[: own.index("</details>")]
    (context,) = contexts(sweep_rows, HERE)
    for point in context.points:
        for score in point.scores.values():
            assert str(score) in own
    assert len(Curves(context).points) == 4


def test_rows_are_held_against_the_code_of_the_last(sweep_rows: list[Row], tmp_path: Path) -> None:
    assert latest_version([]) is None
    old, new = CodeVersion("1.0", "b" * 40), CodeVersion("1.0", "c" * 40)
    times = [f"2026-01-01T00:00:{number:02d}+00:00" for number in range(len(sweep_rows))]
    rows = [replace(row, version=old, finished=time) for row, time in zip(sweep_rows, times, strict=True)]
    write_report(rows, tmp_path, "x", HERE)
    page = (tmp_path / "report.md").read_text()
    assert f"Made by code {old}; this page by {HERE}." in page
    assert "*" not in (tmp_path / "points.csv").read_text()
    rows[-1] = replace(rows[-1], version=new)
    write_report(rows, tmp_path, "x", HERE)
    assert f"Made by code {new}; this page by {HERE}." in (tmp_path / "report.md").read_text()
    assert f"marked with * below: {old} ({len(rows) - 1} cells)" in (tmp_path / "report.md").read_text()


def test_a_report_says_what_its_picture_does_not(sweep_rows: list[Row], tmp_path: Path) -> None:
    shared = [
        replace(row, settings={**row.settings, "clients": 10, "trust": "aggregate" if number % 2 else "local"})
        for number, row in enumerate(sweep_rows)
    ]
    write_report(shared, tmp_path, "x", HERE)
    page = (tmp_path / "report.md").read_text()
    for words in ("*aggregate*: the server is trusted", "against 9 together", "not tell from the data-free map"):
        assert words in page.replace("cannot", "not"), words


@pytest.mark.parametrize(
    ("name", "values", "summed"),
    [
        ("delta", (1e-6, 1e-5), True),
        ("partition", ("iid", "by-class"), True),
        ("unit", ("record", "client"), False),
        ("adjacency", ("replace-one", "add-remove"), False),
    ],
)
def test_only_what_has_one_meaning_is_summed_up(
    name: str, values: tuple[Any, Any], summed: bool, sweep_rows: list[Row], tmp_path: Path
) -> None:
    """μ² of neighbours of different kinds is the ε of nobody."""
    rows = [replace(row, settings={**row.settings, name: value}) for row in sweep_rows for value in values]
    write_report(rows, tmp_path, "x", HERE)
    assert ("| all of these |" in (tmp_path / "report.md").read_text()) == summed


def test_blocks_are_the_same_page_twice() -> None:
    blocks = [Heading("Title", 1), Paragraph("By `a <b>`, *well*."), Heading("Part"), Table(["x"], [["1|2"]], "One")]
    text = html_page(blocks, "end")
    assert "<code>a &lt;b&gt;</code>, <em>well</em>" in text
    assert "<caption><span>One</span></caption>" in text
    assert '<section id="part-1"' in text
    assert markdown(blocks).endswith("## Part\n\n| x |\n|---|\n| 1\\|2 |\n")
    folded = Table(["x"], [["1"]], "Long", folded=True)
    assert "Long" not in markdown([*blocks, folded])
    assert "<details><summary>Long</summary>" in html_page([*blocks, folded], "end")
