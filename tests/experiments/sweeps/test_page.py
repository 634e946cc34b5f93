"""The page of a sweep: every word escaped, every number in a table, one look a series."""

from __future__ import annotations

import base64
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dpfedvis.experiments.sweeps.figures import Axis, Curves, draw, sentence
from dpfedvis.experiments.sweeps.report import write_report
from dpfedvis.experiments.sweeps.store import CellRow
from dpfedvis.experiments.sweeps.summary import contexts, latest_version
from dpfedvis.runs.code_version import CodeVersion
from tests.makers import HERE
from tests.reporting.test_page import Outline


def test_what_comes_from_outside_is_escaped(sweep_rows: list[CellRow], tmp_path: Path) -> None:
    write_report(sweep_rows, tmp_path, "dpfedvis <command>", HERE)
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in page
    assert "dpfedvis &lt;command&gt;" in page
    assert page.count("<h2") == 3


def test_the_page_is_whole_and_can_be_read_by_anyone(sweep_rows: list[CellRow], tmp_path: Path) -> None:
    failed = replace(sweep_rows[-1], status="failed", error="<b>it broke</b>")
    write_report([*sweep_rows, failed], tmp_path, "x", HERE)
    outline = Outline((tmp_path / "report.html").read_text())
    assert outline.open == []
    tags = [tag for tag, _ in outline.elements]
    for landmark in ("header", "nav", "main", "footer", "h1", "title"):
        assert tags.count(landmark) == 1, landmark
    assert "b" not in tags
    assert tags.count("table") == tags.count("caption") == 6
    levels = [int(tag[1]) for tag in tags if tag in ("h1", "h2", "h3")]
    assert (levels[0], max(after - before for before, after in pairwise(levels))) == (1, 1)
    names = [each["id"] for _, each in outline.elements if "id" in each]
    assert len(names) == len(set(names))
    assert (
        {each["href"] for each in outline.of("a")}
        == {"#content", "#part-1", "#tuning", "#reading"}
        <= {f"#{n}" for n in names}
    )
    assert all(each["alt"] for each in outline.of("img"))


def test_the_page_carries_the_drawing_that_markdown_links(sweep_rows: list[CellRow], tmp_path: Path) -> None:
    paths = write_report(sweep_rows, tmp_path, "x", HERE)
    assert sorted(path.name for path in paths) == ["curves-1.svg", "points.csv", "report.html", "report.md"]
    assert sorted(paths) == sorted(tmp_path.iterdir())
    drawing = (tmp_path / "curves-1.svg").read_bytes()
    page = (tmp_path / "report.html").read_text()
    assert page.count("<img") == page.count(base64.b64encode(drawing).decode()) == 1
    assert "](curves-1.svg)" in (tmp_path / "report.md").read_text()
    # matplotlib draws text as shapes, and names it in a comment.
    for text in ("NMI", "CA, 10-NN", "k-means", "gradient", "data-free"):
        assert f"<!-- {text} -->" in drawing.decode(), text


def test_curves_carry_the_means_in_the_order_of_epsilon(sweep_rows: list[CellRow]) -> None:
    (context,) = contexts(sweep_rows, HERE)
    curves = Curves(context)
    assert list(curves.looks) == ["k-means", "gradient", "data-free"]
    (nmi,) = (metric for metric in context.metrics() if metric.key == "nmi")
    own = curves.series(nmi)["k-means"]
    assert [score.mean for _, score in own] == pytest.approx([0.335, 0.56])
    assert own[0][0] < own[1][0]


def test_no_tick_is_smaller_than_its_epsilon() -> None:
    axis = Axis.over([0.0, 0.50001, 1 - 1e-12, 2.00049, math.inf])
    assert list(axis.ticks.values()) == ["no data", "0.501", "1", "2.01", "∞"]


def test_series_that_differ_in_trust_share_a_colour(sweep_rows: list[CellRow]) -> None:
    (context,) = contexts(sweep_rows, HERE)
    renamed = [
        replace(point, series={"k-means": "gradient, local", "gradient": "gradient, aggregate"}.get(point.series, "x"))
        for point in context.points
    ]
    looks = Curves(replace(context, points=tuple(renamed))).looks
    local, summed = looks["gradient, local"], looks["gradient, aggregate"]
    assert (local.light, local.symbol) == (summed.light, "circle")
    assert (summed.symbol, looks["data-free"].light != local.light) == ("square", True)


def test_the_picture_comes_before_the_words(sweep_rows: list[CellRow], tmp_path: Path) -> None:
    write_report(sweep_rows, tmp_path, "x", HERE)
    page = (tmp_path / "report.md").read_text()
    picture = page.index("](curves-1.svg)")
    assert page.index("Every run is a simulation (seeded noise) on one machine") < picture < 1000
    assert picture < page.index("### Best mechanism") < page.index("## How to read this") < page.index("Made by `x`")


def test_a_sentence_says_what_a_picture_shows(sweep_rows: list[CellRow], tmp_path: Path) -> None:
    (context,) = contexts(sweep_rows, HERE)
    (nmi,) = (metric for metric in context.metrics() if metric.key == "nmi")
    said = sentence(Curves(context), nmi)
    assert said == (
        "By NMI, the best is k-means: 0.56 at ε = 10, beside 0.90 of a central map, 0.20 without data and "
        "0.06 by chance. At no ε here is a setting clearly better than no data."
    )
    free = [row for row in sweep_rows if row.kind == "data-free"]
    seeds = [replace(row, settings={**row.settings, "seed": seed}) for row in free for seed in range(1, 3)]
    (context,) = contexts([*sweep_rows, *seeds], HERE)
    assert sentence(Curves(context), nmi).endswith(
        "The least ε at which a setting is clearly better than no data is 1."
    )
    write_report(sweep_rows, tmp_path, "x", HERE)
    (context,) = contexts(sweep_rows, HERE)
    assert sentence(Curves(context), context.metrics()[0]) in (tmp_path / "report.md").read_text()


def test_few_seeds_are_points_and_many_a_band(sweep_rows: list[CellRow]) -> None:
    (few,) = contexts(sweep_rows, HERE)
    more = [
        replace(
            row,
            settings={**row.settings, "seed": seed},
            scores={key: each + seed / 1e3 for key, each in row.scores.items()},
        )
        for row in sweep_rows
        for seed in (10, 11, 12, 13)
    ]
    (many,) = contexts([*sweep_rows, *more], HERE)
    # matplotlib calls a band a FillBetweenPolyCollection.
    assert "FillBetweenPolyCollection" not in draw(Curves(few), "few")
    assert "FillBetweenPolyCollection" in draw(Curves(many), "many")
    (nmi,) = (metric for metric in few.metrics() if metric.key == "nmi")
    values = [score.values for _, score in Curves(few).series(nmi)["k-means"]]
    assert [sorted(each) for each in values] == [
        pytest.approx([0.325, 0.335, 0.345]), pytest.approx([0.55, 0.56, 0.57]),
    ]  # fmt: skip


def test_trust_is_told_by_line_and_by_colour(sweep_rows: list[CellRow]) -> None:
    from dpfedvis.experiments.sweeps.figures import _line, _paler

    assert len({_line(f"k-means, {trust}") for trust in ("local", "aggregate", "central")}) == 3
    assert len({_line(f"k-means, {trust}")[0] for trust in ("local", "aggregate", "central")}) == 3
    assert (_paler("#332288", 1.0), _paler("#332288", 0.0)) == ("#332288", "#ffffff")


def test_titles_are_words(sweep_rows: list[CellRow]) -> None:
    (context,) = contexts(sweep_rows, HERE)
    named = replace(
        context, facts={**context.facts, "data": "digits", "clients": 10, "partition": "dirichlet:0.5", "records": 500}
    )
    assert named.heading == "t-SNE maps of digits, 500 records, 10 clients, classes spread unevenly (Dirichlet 0.5)"


def test_every_table_of_the_best_ends_with_its_yardsticks(sweep_rows: list[CellRow], tmp_path: Path) -> None:
    write_report(sweep_rows, tmp_path, "x", HERE)
    page = (tmp_path / "report.md").read_text()
    assert "no such yardstick" not in page
    assert "the private map by the default recipe at ε = 0.001" in page
    assert (
        "| chance | 0.030 | 0.060 |\n| no data, ε = 0.001 | 0.100 | 0.200 |\n| central, no privacy | 0.450 | 0.900 |"
        in page
    )


def test_pictures_come_before_words(sweep_rows: list[CellRow], tmp_path: Path) -> None:
    write_report(sweep_rows, tmp_path, "x", HERE)
    for page in ("report.md", "report.html"):
        text = (tmp_path / page).read_text()
        picture = text.index("curves-1.svg") if page == "report.md" else text.index('<img class="drawing')
        assert picture < text.index("By CA, 10-NN, the best is") < text.index("Best mechanism at a given ε")


def test_a_page_says_which_yardsticks_it_lacks(sweep_rows: list[CellRow], tmp_path: Path) -> None:
    write_report([row for row in sweep_rows if row.kind not in ("central", "chance")], tmp_path, "x", HERE)
    assert (
        "Not run here, so that scores have no such yardstick: chance, central;" in (tmp_path / "report.md").read_text()
    )


def test_every_number_that_is_drawn_is_in_a_table(sweep_rows: list[CellRow], tmp_path: Path) -> None:
    write_report(sweep_rows, tmp_path, "x", HERE)
    page = (tmp_path / "report.html").read_text()
    own = page[page.index("All numbers as a table") :]
    own = own[: own.index("</details>")]
    (context,) = contexts(sweep_rows, HERE)
    for point in context.points:
        for score in point.scores.values():
            assert str(score) in own
    assert len(Curves(context).points) == 4


def test_rows_are_held_against_the_code_of_the_last(sweep_rows: list[CellRow], tmp_path: Path) -> None:
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


def test_a_report_says_what_its_picture_does_not(sweep_rows: list[CellRow], tmp_path: Path) -> None:
    shared = [
        replace(row, settings={**row.settings, "clients": 10, "trust": "aggregate" if number % 2 else "local"})
        for number, row in enumerate(sweep_rows)
    ]
    write_report(shared, tmp_path, "x", HERE)
    page = (tmp_path / "report.md").read_text()
    for words in (
        "*aggregate*: only sums over clients are seen",
        "ε holds against the server and as many clients together",
        "not tell from the data-free map",
    ):
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
    name: str, values: tuple[Any, Any], summed: bool, sweep_rows: list[CellRow], tmp_path: Path
) -> None:
    """μ² of neighbours of different kinds is the ε of nobody."""
    rows = [replace(row, settings={**row.settings, name: value}) for row in sweep_rows for value in values]
    write_report(rows, tmp_path, "x", HERE)
    assert ("| all of these |" in (tmp_path / "report.md").read_text()) == summed
