"""A site's own private view: the table, the picture and the page say what the site's file says, and nothing runs."""

from __future__ import annotations

import base64
import csv
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from accounting.errors import InvalidParameter
from dpfedvis.numerics.plain_text import from_spreadsheet
from dpfedvis.protocol.density import Density, DensityGrid
from dpfedvis.reporting import interactive_maps
from dpfedvis.reporting.interactive_maps import COLOURED, FEW, GROUPS, HOVERED, column, own
from dpfedvis.reporting.palette import looks
from dpfedvis.reporting.private_views import OwnRecords, stems_of, write_view
from tests.makers import HOSTILE
from tests.reporting import test_page_in_browser as pages
from tests.reporting.test_page import policy_of

SITE, CAPTION = "Hôpital & Söhne <Nord>", "ε = 1 at δ = 1e-05;\ngrey dots: anchors"
ANCHORS = np.random.default_rng(1).normal(size=(30, 2))
IDS = ("007", "a,b", 'say "x"', "Müller", "=1+1", " padded ", "two\nlines", "@me", "", "-3")
Chromium = Any


def records(count: int = 60, **changed: Any) -> OwnRecords:
    rng = np.random.default_rng(0)
    kinds = rng.integers(3, size=count)
    age = rng.integers(18, 95, size=count).astype(np.float64)
    age[::7] = np.nan
    columns = {
        "patient": np.array([f"P-{each:03d}" for each in range(count)], dtype=np.str_),
        "ward": np.array(["east", "west", "north"])[kinds],
        "age": age,
        HOSTILE[0]: rng.normal(size=count),
    }
    facts = {"name": SITE, "places": rng.normal(size=(count, 2)), "ids": columns["patient"], "labels": columns["ward"]}
    return OwnRecords(**{**facts, "columns": columns, **changed})


def view(folder: Path, shown: OwnRecords, stem: str = "own", **changed: Any) -> tuple[list[list[str]], str]:
    """Write a view; return the lines of its table, and its page without the code that draws maps."""
    given = {"anchors": ANCHORS, "density": None, "title": f"private view of {shown.name}", "caption": CAPTION}
    table, picture, page = write_view(folder, stem, shown, **{**given, **changed})
    assert [each.name for each in (table, picture, page)] == [f"{stem}.csv", f"{stem}.png", f"{stem}.html"]
    assert {each.name for each in folder.iterdir()} >= {table.name, picture.name, page.name}
    assert not list(folder.glob("*.tmp"))
    assert min(imread(picture).shape[:2]) > 300
    with table.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines)), own_text(page)


def own_text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)


def figure(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, flags=re.DOTALL)
    assert found
    spec: dict[str, Any] = json.loads(found[1])["map"]
    return spec


def unpacked(array: Mapping[str, str]) -> list[Any]:
    found: list[Any] = np.frombuffer(base64.b64decode(array["bdata"]), "<" + array["dtype"]).tolist()
    return found


# The table


def test_the_table_keeps_ids_places_and_order(tmp_path: Path) -> None:
    places = np.random.default_rng(0).normal(size=(len(IDS), 2))
    places[4] = [np.nan, 1.0]
    shown = OwnRecords(SITE, places, np.array(IDS), None, {}, np.arange(len(IDS)) % 3)
    (head, *lines), text = view(tmp_path, shown)
    assert head == ["id", "x", "y", "cluster"]
    assert [from_spreadsheet(line[0]) for line in lines] == list(IDS)
    assert [line[0] for line in lines if line[0].startswith(("=", "@", "'"))] == ["'=1+1", "'@me"]
    assert lines[-1][0] == "-3"  # a number, and no formula
    assert [line[3] for line in lines] == [str(each % 3) for each in range(len(IDS))]
    for number, (line, place) in enumerate(zip(lines, places.tolist(), strict=True)):
        assert line[1:3] == ["", ""] if number == 4 else [float(each) for each in line[1:3]] == place
    assert "1 record could not be placed and is not shown." in text
    spec = figure(text)
    assert spec["ids"] == [each for number, each in enumerate(IDS) if number != 4]
    np.testing.assert_array_equal(unpacked(spec["x"]), np.delete(places, 4, axis=0)[:, 0].astype(np.float32))


def test_without_ids_a_record_has_its_number_and_without_clusters_none(tmp_path: Path) -> None:
    (_, *lines), text = view(tmp_path / "new" / "folder", records(5, ids=None))
    assert [line[0] for line in lines] == ["0", "1", "2", "3", "4"]
    assert {line[3] for line in lines} == {""}
    assert "number (from 0), place and cluster" in text
    assert "spreadsheet" not in text  # there is no text in the table
    assert figure(text)["noun"] == "record"


@pytest.mark.parametrize("anchors", [None, ANCHORS])
@pytest.mark.parametrize("labels", [None, np.empty(0, dtype="U3")])
def test_a_site_without_records_has_its_files(
    anchors: np.ndarray | None, labels: np.ndarray | None, tmp_path: Path
) -> None:
    shown = OwnRecords(SITE, np.empty((0, 2)), None, labels, {"age": np.empty(0)})
    lines, text = view(tmp_path, shown, anchors=anchors)
    assert lines == [["id", "x", "y", "cluster"]]
    assert f"{escape(SITE)} has no records." in text
    assert "<script" not in text


def test_records_that_have_no_place_are_counted(tmp_path: Path) -> None:
    lost = np.full((3, 2), np.nan)
    for anchors in (None, ANCHORS):
        (_, *lines), text = view(tmp_path, records(3, places=lost), anchors=anchors)
        assert [line[1:3] for line in lines] == [["", ""]] * 3
        assert f"None of the 3 records of {escape(SITE)} could be placed on the map." in text


def test_columns_of_another_length_are_refused() -> None:
    for changed in ({"ids": np.array(["a"])}, {"columns": {"ids": np.zeros(4)}}, {"places": np.zeros((5, 3))}):
        with pytest.raises(InvalidParameter):
            records(5, **changed)


# Names of files


def test_stems_are_the_sites_names() -> None:
    assert stems_of(["north", "Zürich 2", "a/b", "été.v1-x"]) == ["north", "Zürich_2", "a_b", "été.v1-x"]
    assert stems_of(["e\u0301te\u0301"]) == ["été"]
    assert stems_of(["a/b", "a b", "A?B", "a_b-2"]) == ["a_b", "a_b-2", "A_B-3", "a_b-2-2"]
    assert stems_of(["", "..", "/", ".hidden", "../up"]) == ["site", "site-2", "_", "hidden", "_up"]
    assert stems_of([]) == []


def test_long_stems_are_cut_between_letters_and_stay_distinct() -> None:
    stems = stems_of(["ü" * 300, "ü" * 301, "x" + "漢" * 99, *["y" * 200] * 12])
    assert len(set(stems)) == len(stems)
    assert all(0 < len(stem.encode()) <= 100 for stem in stems)
    assert stems[:2] == ["ü" * 50, "ü" * 49 + "-2"]


# The page


def test_the_page_says_whose_records_it_shows_and_what_the_map_costs(tmp_path: Path) -> None:
    _, text = view(tmp_path, records())
    top = text[: text.index("</header>")]
    assert text.index("</header>") < text.index('id="plot-map"') < text.index(escape(CAPTION))
    sentence = f"This page shows the records of {escape(SITE)}, for this site alone."
    assert f"{sentence} It is covered by no ε. Nothing of it was sent.</p>" in top
    assert f"<h1>Private view of {escape(SITE)}</h1>" in top
    assert f"60 records of {escape(SITE)} over 30 anchors" in text
    policy_of((tmp_path / "own.html").read_text())
    assert "http" not in re.sub(r'http-equiv="[^"]*"', "", text)


def test_the_page_has_every_column_and_nothing_from_the_file_is_markup(tmp_path: Path) -> None:
    count, quoted = 12, '"><script>alert("id")</script>'
    columns = {name: np.arange(count, dtype=np.float64) for name in HOSTILE}
    columns |= {"<script>": np.array([quoted, "b"] * 6), "</script><b>": np.array([f"<i>{i}" for i in range(count)])}
    ids = np.array([f"{quoted}{number}" for number in range(count)])
    shown = records(count, name=quoted, ids=ids, labels=ids, columns=columns)
    _, text = view(tmp_path, shown, caption=quoted, title="$\\frac{$ " + quoted)  # nor a formula
    for name in (*columns, *ids.tolist(), "<i>0"):
        if name != "<script>":  # as which the page's own begins
            assert name not in text
    assert text.count("<script") == 1  # the figures, beside the page's own
    spec = figure(text)
    assert [each["key"] for each in spec["columns"]] == ["class", *columns]
    assert spec["ids"] == ids.tolist()
    assert spec["distinct"] == ["class", "</script><b>"]
    assert "because each record has another value:\nclass, &lt;/script&gt;&lt;b&gt;.".replace("\n", " ") in text


def test_anchors_are_on_the_page_where_there_are_some(tmp_path: Path) -> None:
    x, y = figure(view(tmp_path, records())[1])["anchors"]
    np.testing.assert_array_equal([unpacked(x), unpacked(y)], ANCHORS.astype(np.float32).T)
    _, text = view(tmp_path, records(clusters=np.arange(60) % 4), anchors=None)
    assert figure(text)["anchors"] is None
    assert "anchors, which" not in text
    assert [each["key"] for each in figure(text)["columns"]][:2] == ["ward", "cluster"]


def test_the_picture_is_that_of_the_private_view(tmp_path: Path) -> None:
    from dpfedvis.reporting.density_figures import draw_private_view

    shown, shares = records(), np.full((1, 8, 8), 1 / 64)
    density = Density(DensityGrid(4.0, 8), shares, 1e-3)
    view(tmp_path, shown, density=density, title="a title")
    draw_private_view(
        ANCHORS, density, shown.places, shown.labels, tmp_path / "same.png", title="a title", caption=CAPTION
    )
    assert (tmp_path / "own.png").read_bytes() == (tmp_path / "same.png").read_bytes()


# Colours


def groups_by_hand(values: list[str]) -> tuple[list[str], list[str]]:
    """Names in the legend, and the one of each record; slow and plain."""
    counts = Counter(each for each in values if each)
    if len(counts) <= GROUPS:
        legend = sorted(counts)
    else:
        named = sorted(counts, key=lambda name: (-counts[name], name))[: GROUPS - 1]
        legend = [*named, f"other ({len(counts) - len(named)} values)"]
    return legend, ["missing" if not each else each if each in legend else legend[-1] for each in values]


def groups_of(spec: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The same, as page.js takes it from a column."""
    legend, codes = [each["name"] for each in spec["groups"]], unpacked(spec["codes"])
    found = ["missing" if code == len(spec["names"]) else legend[min(code, len(legend) - 1)] for code in codes]
    return legend, found


@pytest.mark.parametrize("kinds", [1, 2, GROUPS, GROUPS + 1, 90, 300])
def test_text_is_shown_in_groups(kinds: int) -> None:
    rng = np.random.default_rng(kinds)
    values = [f"v{each}" if each else "" for each in (kinds * rng.random(1000) ** 2).astype(int)] + ["v0", "v0"]
    spec = column("ward", np.array(values))
    assert groups_of(spec) == groups_by_hand(values)
    # What is told of a record is its own value, also where it has no colour of its own.
    names = [*spec["names"], ""]
    assert [names[code] for code in unpacked(spec["codes"])] == values
    for each, look in zip(spec["groups"], looks(min(len(spec["names"]), GROUPS - 1)), strict=False):
        assert (each["light"], each["symbol"]) == (look.light, look.symbol)


def test_names_that_are_integers_are_sorted_as_numbers() -> None:
    spec = column("cluster", np.array(["10", "9", "-1", "9"]))
    assert [each["name"] for each in spec["groups"]] == ["-1", "9", "10"]


def test_text_that_differs_for_every_record_is_no_colour() -> None:
    for values in (["a", "b", "c"], ["a", "", ""], ["", ""]):
        spec = column("id", np.array(values))
        assert "groups" not in spec
        assert [[*spec["names"], ""][code] for code in unpacked(spec["codes"])] == values
    assert "groups" in column("id", np.array(["a", "b", "a"]))
    columns = [("id", np.array(["a", "b"])), ("empty", np.array(["", ""])), ("none", np.full(2, np.nan))]
    spec = own(np.zeros((2, 2)), None, columns, None)
    assert (spec["distinct"], spec["offered"], len(spec["columns"])) == (["id"], 0, 3)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_a_few_different_numbers_are_groups(kind: type[Any]) -> None:
    values = np.array([10, 9, 10, 0, -1], dtype=kind)
    assert groups_of(column("grade", values)) == (["-1", "0", "9", "10"], ["10", "9", "10", "0", "-1"])
    assert "groups" in column("grade", np.arange(FEW, dtype=kind))
    assert "low" in column("grade", np.arange(FEW + 1, dtype=kind))


def test_missing_numbers_are_a_group_of_their_own_and_close_ones_are_told_apart() -> None:
    assert groups_of(column("x", np.array([0.5, np.nan, 0.25]))) == (["0.25", "0.5"], ["0.5", "missing", "0.25"])
    assert groups_of(column("x", np.array([1.0000001, 1.0000002])))[0] == ["1.0000001", "1.0000002"]
    assert groups_of(column("date", np.array([20240131.0, 20240201.0])))[0] == ["20240131", "20240201"]


def test_numbers_have_a_scale_that_one_wrong_value_does_not_stretch() -> None:
    values = np.random.default_rng(0).normal(50, 10, size=500)
    values[[3, 5]] = [np.nan, 9999]
    spec = column("age", values)
    np.testing.assert_array_equal(unpacked(spec["values"]), values.astype(np.float32))
    ordered = sorted(each for each in values.tolist() if not math.isnan(each))
    assert [spec["low"], spec["high"]] == [ordered[round(0.01 * 498)], ordered[round(0.99 * 498)]]
    assert spec["high"] < 100


def test_a_scale_has_two_ends() -> None:
    values = np.zeros(5000)
    values[:20] = np.arange(20)
    spec = column("mostly zero", values)
    assert (spec["low"], spec["high"]) == (0, 19)
    assert column("nothing", np.full(3, np.nan)).keys() == {"key", "values"}


@pytest.mark.parametrize("factor", [1.0, 1e300, 1e-300, 20240131.0])
def test_numbers_of_any_size_keep_six_digits(factor: float) -> None:
    values = factor * np.arange(20.0)
    found = unpacked(column("x", values)["values"])
    assert found == pytest.approx(values.tolist(), rel=1e-7)
    assert all(one == other for one, other in zip(found, values.tolist(), strict=True) if other.is_integer())


def test_columns_that_are_offered_and_told_are_limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    many = {"id": np.array(["a", "b", "c"]), **{f"gene {number}": np.arange(3.0) for number in range(COLOURED + 50)}}
    shown = records(3, columns=many, ids=many["id"], labels=np.array(["x", "x", "y"]))
    _, text = view(tmp_path, shown)
    spec = figure(text)
    offered = [each["key"] for each in spec["columns"] if "groups" in each or "low" in each]
    assert offered == ["class", *(f"gene {number}" for number in range(COLOURED - 1))]
    told = [each["key"] for each in spec["columns"] if each["listed"]]
    assert told == ["class", *(f"gene {number}" for number in range(HOVERED - 1))]  # and the id, as a heading
    assert spec["noun"] == "id"
    assert f"The file has {COLOURED + 51} columns. The first {COLOURED} that can be colours are offered" in text
    # Of very many records fewer columns fit into a page.
    monkeypatch.setattr(interactive_maps, "VALUES", 60)
    few = own(np.zeros((3, 2)), None, list(many.items()), None)
    assert (few["offered"], few["left_off"]) == (20, len(many) - 21)


def test_the_column_of_classes_is_shown_once_and_first(tmp_path: Path) -> None:
    spec = figure(view(tmp_path, records())[1])
    assert [each["key"] for each in spec["columns"]] == ["ward", "age", HOSTILE[0]]
    other = records(labels=np.array(["a", "b"] * 30))
    spec = figure(view(tmp_path, other)[1])
    assert [each["key"] for each in spec["columns"]] == ["class", "ward", "age", HOSTILE[0]]


# In a browser


browser, opened = pages.browser, pages.opened
in_browser = pages.pytestmark


def drawn(chromium: Chromium, layer: str = "points") -> list[dict[str, Any]]:
    """Name, points, colours and visibility of what is drawn in a layer."""
    return pages.traces(chromium, "map", layer)


def words(chromium: Chromium, record: int) -> list[str]:
    """What is told of a record."""
    script = "return document.getElementById('plot-map').chart.layers.find((each) => each.words).words(arguments[0])"
    found: list[str] = chromium.execute_script(script, record)
    return found


def complaints(chromium: Chromium) -> list[Any]:
    return [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"]


@in_browser
def test_columns_change_the_colours(tmp_path: Path, opened: Callable[..., Chromium]) -> None:
    shown = records()
    view(tmp_path, shown)
    chromium = opened(tmp_path / "own.html")
    (anchors,), groups = drawn(chromium, "anchors"), drawn(chromium)
    assert (anchors["points"], anchors["visible"]) == (len(ANCHORS), True)
    assert [each["name"] for each in groups] == ["east", "north", "west"]
    assert [each["which"] for each in groups] == [
        np.flatnonzero(shown.labels == each["name"]).tolist() for each in groups
    ]
    assert [each["colour"] for each in groups] == [look.light for look in looks(3)]
    pages.click(chromium, "legend-map", "north")
    assert [each["visible"] for each in drawn(chromium)] == [True, False, True]
    pages.click(chromium, "controls-map", "age")
    scaled, missing = drawn(chromium)
    age = shown.columns["age"]
    assert (missing["name"], missing["which"]) == ("missing", np.flatnonzero(np.isnan(age)).tolist())
    assert scaled["which"] == np.flatnonzero(~np.isnan(age)).tolist()
    shades = np.array(chromium.execute_script(
        "return Array.from(document.getElementById('plot-map').chart.layers.find((each) => each.words).series[0].shade)"
    ))[~np.isnan(age)]  # fmt: skip
    assert (np.diff(shades[np.argsort(age[~np.isnan(age)])]) >= 0).all()  # the larger, the further on the scale
    assert (shades.min(), shades.max()) == (0, 7)
    scale = chromium.find_element("css selector", "#legend-map .scale").text.split()
    assert scale == ["age:", f"{np.nanmin(age):.0f}", f"{np.nanmax(age):.0f}"]
    pages.click(chromium, "controls-map", "anchors")
    assert [each["visible"] for each in drawn(chromium, "anchors")] == [False]
    pages.click(chromium, "controls-map", "none")
    assert [each["points"] for each in drawn(chromium)] == [60]
    assert complaints(chromium) == []


@in_browser
def test_pointing_at_a_record_tells_its_id_and_columns(tmp_path: Path, opened: Callable[..., Chromium]) -> None:
    places = np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]])
    ids = np.array(['"><script>', "<b>2</b>", "%{x}"])
    columns = {"<i>": np.array(["&lt;", "&lt;", ""]), **{f"n{each}": np.arange(3.0) for each in range(20)}}
    columns["n0"] = np.array([1234567.0, np.nan, 0.1])
    view(tmp_path, OwnRecords(SITE, places, ids, None, columns))
    chromium = opened(tmp_path / "own.html")
    choose(chromium, "n17")
    assert words(chromium, 1)[0] == "record <b>2</b>"
    assert words(chromium, 2)[:3] == ["record %{x}", "<i>: missing", "n0: 0.1"]
    assert [line.split(":")[0] for line in words(chromium, 0)[2:]] == [*(f"n{each}" for each in range(11)), "n17"]
    pages.moved(chromium, "map", (0.0, 0.0))
    told = pages.tip(chromium, "map").split("\n")
    assert told == words(chromium, 0)
    assert told[:4] == ['record "><script>', "<i>: &lt;", "n0: 1234567", "n1: 0"]
    assert chromium.execute_script("return document.querySelectorAll('figure script, figure i').length") == 0
    assert complaints(chromium) == []


@in_browser
def test_a_record_is_found_by_its_id(tmp_path: Path, opened: Callable[..., Chromium]) -> None:
    shown = records(ids=np.array([str(number) for number in range(60)]))
    view(tmp_path, shown)
    chromium = opened(tmp_path / "own.html", width=360)
    assert chromium.execute_script("return document.documentElement.scrollWidth") <= 360
    box = chromium.find_element("css selector", "#controls-map input")
    box.send_keys("5")  # that id, and not the others with a 5 in it
    assert [each["which"] for each in drawn(chromium, "found")] == [[5]]
    box.send_keys("99")
    assert chromium.find_element("css selector", "#controls-map [role=status]").text == "0 found"
    assert drawn(chromium, "found") == []
    assert complaints(chromium) == []


def choose(chromium: Chromium, name: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(chromium.find_element("css selector", "#controls-map select")).select_by_visible_text(name)
