"""report.html in a real browser: it loads, its buttons work, and it suits the reader's screen and theme.

Needs chromium and its driver; without them these tests are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from accounting import Ledger
from dpfedvis.experiments.sweeps.store import CellRow
from dpfedvis.reporting import rendering
from dpfedvis.reporting.interactive_maps import points
from dpfedvis.reporting.run_facts import Cloud, Grouping
from dpfedvis.reporting.run_report import write_report
from tests.makers import HOSTILE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="chromium and chromedriver are not installed (Debian: chromium-driver)"
)
# A fresh profile, and no network of the browser's own.
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1200,900",
)  # fmt: skip
Browser = Any
SEEDED_RUNS = ("exact", "private", "simulated")  # their pages must say "simulation" before they say ε


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    # Both paths are given, so that nothing is looked for on the network.
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def dense(private: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run whose density has two groups that stand out of the noise, in classes 3 and 7."""
    folder = Path(shutil.copytree(private, tmp_path_factory.mktemp("dense") / "run"))
    with np.load(folder / "density.npz") as stored:
        arrays = {name: stored[name].copy() for name in stored.files}
    arrays["shares"] = np.random.default_rng(0).normal(0, 1e-3, arrays["shares"].shape)
    arrays["shares"][3, 1:3, 1:3] += 0.1
    arrays["shares"][7, 5:7, 5:7] += 0.1
    np.savez(folder / "density.npz", **{**arrays, "noise": np.array(1e-3)})
    verdict = {**json.loads((folder / "verdict.json").read_text()), "signal": "partly", "sentence": "In part."}
    (folder / "verdict.json").write_text(json.dumps(verdict))
    write_report(folder)
    return folder


@pytest.fixture
def opened(browser: Browser) -> Callable[..., Browser]:
    def opened(path: Path, *, theme: str = "light", width: int = 1200, height: int = 900) -> Browser:
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        emulate(browser, theme)
        browser.get_log("browser")  # what an earlier page said
        browser.get(path.as_uri())
        drawn = "document.documentElement.dataset.drawn === 'true' || !document.getElementById('figures')"
        until(browser, f"return document.readyState === 'complete' && ({drawn})")
        return browser

    return opened


def emulate(browser: Browser, theme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def until(browser: Browser, script: str, *arguments: object) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 60).until(lambda each: each.execute_script(script, *arguments))


SERIES = """
const chart = document.getElementById(arguments[0]).chart;
return chart.layers.filter((layer) => layer.series).flatMap((layer) => layer.series.map((each) => ({
  layer: layer.name, name: each.name, colour: scheme.matches ? each.look.dark : each.look.light,
  points: each.part.length, visible: !layer.hidden && !each.hidden, which: Array.from(each.part),
})))
"""


def traces(browser: Browser, key: str, layer: str = "points") -> list[dict[str, Any]]:
    """Name, colour, visibility and size of what is drawn in a layer of points."""
    found: list[dict[str, Any]] = browser.execute_script(SERIES, f"plot-{key}")
    return [each for each in found if each["layer"] == layer]


def inked(browser: Browser, key: str) -> float:
    """Share of the pixels of a map that something is drawn on."""
    share: float = browser.execute_script(
        "const canvas = document.getElementById(arguments[0]).querySelector('canvas');"
        "const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
        "let inked = 0; for (let i = 3; i < data.length; i += 4) inked += data[i] > 0; return 4 * inked / data.length",
        f"plot-{key}",
    )
    return share


def page_of(folder: Path, spec: dict[str, Any]) -> Path:
    """Write a page with this map alone."""
    template = (
        '{% extends page %}{% import parts as p %}{% set title, contents = "one", [] %}'
        '{% block main %}{{ p.map("places", "one map", "one map") }}{% endblock %}'
    )
    text = rendering._environment("html").from_string(template).render(figures={"places": spec})
    path = folder / "one.html"
    path.write_text(text, encoding="utf-8")
    return path


def settled(browser: Browser) -> None:
    """Wait until what was asked for is drawn."""
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")


def moved(browser: Browser, key: str, *places: tuple[float, float], pressed: bool = False) -> None:
    """Move the pointer over places of a map, with its button pressed or not."""
    browser.execute_script(
        "document.getElementById(arguments[0]).scrollIntoView({block: 'center', behavior: 'instant'})", f"plot-{key}"
    )
    pixels = browser.execute_script(
        "const plot = document.getElementById(arguments[0]), {left, top} = plot.getBoundingClientRect();"
        "return arguments[1].map(([x, y]) => plot.chart.pixel(x, y)).map(([x, y]) => [left + x, top + y])",
        f"plot-{key}", [list(each) for each in places],
    )  # fmt: skip
    held = {"button": "left", "buttons": 1, "clickCount": 1} if pressed else {}
    steps = [("mouseMoved", pixels[0], {}), *[("mousePressed", pixels[0], held)] * pressed]
    steps += [("mouseMoved", each, held) for each in pixels] + [("mouseReleased", pixels[-1], held)] * pressed
    for kind, (x, y), buttons in steps:
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **buttons})
    settled(browser)


def said(browser: Browser, key: str) -> str:
    from selenium.webdriver.common.by import By

    text: str = browser.find_element(By.ID, f"said-{key}").text
    return text


def tip(browser: Browser, key: str) -> str:
    from selenium.webdriver.common.by import By

    text: str = browser.find_element(By.CSS_SELECTOR, f"#plot-{key} .tip").text
    return text


def click(browser: Browser, place: str, text: str) -> Any:
    """Click the button with this text, as a reader would."""
    from selenium.webdriver.common.by import By

    buttons = browser.find_element(By.ID, place).find_elements(By.TAG_NAME, "button")
    (button,) = [each for each in buttons if each.text.strip().split(" ")[-1] == text]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    return button


def window(browser: Browser, key: str) -> list[list[float]]:
    found: list[list[float]] = browser.execute_script(
        "const [l, r, b, t] = document.getElementById(arguments[0]).chart.window; return [[l, r], [b, t]]",
        f"plot-{key}",
    )
    return found


@pytest.mark.parametrize("run", [*SEEDED_RUNS, "open_run", "clustered", "real"])
def test_the_page_loads_without_errors_and_shows_the_ledgers_epsilon(
    run: str, request: pytest.FixtureRequest, opened: Callable[..., Browser]
) -> None:
    from selenium.webdriver.common.by import By

    folder: Path = request.getfixturevalue(run)
    browser = opened(folder / "report.html")
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    headline = browser.find_element(By.CSS_SELECTOR, "[data-epsilon]")
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        epsilon = ledger.spent(float(headline.get_attribute("data-delta")), end_to_end=True)
    assert float(headline.get_attribute("data-epsilon")) == epsilon
    shown = "ε = ∞" if epsilon == float("inf") else f"ε = {epsilon:.4g}"
    before = "Simulation (seeded noise); with real noise this would be\n" if run in SEEDED_RUNS else ""
    assert headline.text.startswith(f"{before}{shown}\n")
    # Every figure is there, and has a size.
    heights = browser.execute_script(
        "return [...document.querySelectorAll('.plot canvas')].map((each) => each.getBoundingClientRect().height)"
    )
    assert heights
    assert min(heights) > 100
    drawn = browser.execute_script("return [...document.querySelectorAll('img')].map((each) => each.naturalHeight)")
    assert drawn
    assert min(drawn) > 100


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_map_is_drawn_and_seen_without_scrolling(
    width: int, height: int, theme: str, dense: Path, opened: Callable[..., Browser]
) -> None:
    browser = opened(dense / "report.html", width=width, height=height, theme=theme)
    box = browser.execute_script(
        "const r = document.getElementById('plot-map').getBoundingClientRect(); return [r.top, r.bottom]"
    )
    assert 0 < box[0] < 0.3 * height
    assert box[1] < height
    assert inked(browser, "map") > 0.02
    assert browser.execute_script("return scrollY") == 0
    tools = browser.execute_script("return document.getElementById('tools-map').getBoundingClientRect().top")
    assert (tools >= box[1]) == (width < 600)  # on a phone they would cover the map


def test_every_record_is_drawn(exact: Path, opened: Callable[..., Browser]) -> None:
    browser = opened(exact / "report.html")
    assert sum(trace["points"] for trace in traces(browser, "places")) == 100
    before = inked(browser, "places")
    click(browser, "legend-places", "3")
    settled(browser)
    assert 0 < inked(browser, "places") < before


def test_buttons_change_colours_and_groups(exact: Path, opened: Callable[..., Browser]) -> None:
    browser = opened(exact / "report.html")
    by_class = traces(browser, "places")
    assert [trace["name"] for trace in by_class] == [str(digit) for digit in range(10)]
    assert len({trace["colour"] for trace in by_class}) == 10
    button = click(browser, "controls-places", "client")
    assert button.get_attribute("aria-pressed") == "true"
    by_client = traces(browser, "places")
    assert [trace["name"] for trace in by_client] == ["client-0", "client-1", "client-2"]
    assert [trace["colour"] for trace in by_client] != [trace["colour"] for trace in by_class[:3]]
    assert len(traces(browser, "map")) == 3  # the other map is left alone
    hide = click(browser, "legend-places", "client-1")
    assert hide.get_attribute("aria-pressed") == "false"
    assert [trace["visible"] for trace in traces(browser, "places")] == [True, False, True]
    click(browser, "legend-places", "client-1")
    assert [trace["visible"] for trace in traces(browser, "places")] == [True, True, True]
    click(browser, "controls-places", "none")
    assert [trace["points"] for trace in traces(browser, "places")] == [100]


def test_zooming_by_button_and_by_key(exact: Path, opened: Callable[..., Browser]) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser = opened(exact / "report.html")
    (low, high), _ = window(browser, "places")
    click(browser, "tools-places", "+")
    (nearer_low, nearer_high), _ = window(browser, "places")
    assert nearer_high - nearer_low == pytest.approx(0.7 * (high - low))
    browser.find_element(By.ID, "plot-places").send_keys(Keys.ARROW_RIGHT)
    (moved_low, _), _ = window(browser, "places")
    assert moved_low > nearer_low
    # What a reader has chosen to look at stays when the colours change.
    click(browser, "controls-places", "client")
    assert window(browser, "places")[0][0] == pytest.approx(moved_low)
    click(browser, "tools-places", "all")
    assert window(browser, "places")[0] == pytest.approx([low, high])


def test_the_wheel_zooms_only_where_the_reader_has_clicked(exact: Path, opened: Callable[..., Browser]) -> None:
    browser = opened(exact / "report.html")

    def wheel() -> float:
        moved(browser, "places", (0, 0))
        at = browser.execute_script(
            "const r = document.getElementById('plot-places').getBoundingClientRect(); return [r.left + 50, r.top + 90]"
        )
        event = {"type": "mouseWheel", "x": at[0], "y": at[1], "deltaX": 0, "deltaY": -120}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)
        settled(browser)
        zoom: float = browser.execute_script("return document.getElementById('plot-places').chart.zoom")
        return zoom

    assert wheel() == 1
    browser.execute_script("document.getElementById('plot-places').focus({preventScroll: true})")
    assert wheel() == pytest.approx(np.exp(0.24))


def test_hovering_tells_whose_record_a_point_is(simulated: Path, opened: Callable[..., Browser]) -> None:
    """Names that come from the data are shown as text, and make no elements."""
    browser = opened(simulated / "report.html")
    place = browser.execute_script("const {layers} = document.getElementById('plot-places').chart;"
                                   "const {x, y} = layers.find((each) => each.words); return [x[0], y[0]]")  # fmt: skip
    moved(browser, "places", tuple(place))
    assert any(name in tip(browser, "places") for name in HOSTILE)  # of whichever record lies on top there
    assert browser.execute_script("return document.querySelectorAll('figure script, .legend b, .tip b').length") == 0


def test_a_lasso_counts_and_says_how_sure_it_is(dense: Path, opened: Callable[..., Browser]) -> None:
    """Of a density with the noise of the cells in it, of records exactly."""
    browser = opened(dense / "report.html")
    with np.load(dense / "density.npz") as stored:
        shares, half, noise = stored["shares"], float(stored["half"]), float(stored["noise"])
    click(browser, "tools-map", "lasso")
    corner = 1.05 * half
    moved(browser, "map", (-corner, -corner), (corner, -corner), (corner, corner), (-corner, corner), pressed=True)
    told = said(browser, "map")
    assert told.startswith("In the lasso: about ")
    records, two = (float(each) for each in re.findall(r"about ([\d.]+) ± ([\d.]+) records", told)[0])
    assert records == pytest.approx(100 * shares.sum(), abs=0.51)
    assert two == pytest.approx(100 * 2 * noise * np.sqrt(shares.size), rel=0.06)
    # One class alone has less noise, as fewer cells are added up.
    click(browser, "controls-map", "3")
    records, two = (float(each) for each in re.findall(r"about ([\d.]+) ± ([\d.]+) records", said(browser, "map"))[0])
    assert two == pytest.approx(100 * 2 * noise * np.sqrt(shares[3].size), rel=0.06)
    click(browser, "tools-places", "lasso")
    x, y = browser.execute_script(
        "const {x, y} = document.getElementById('plot-places').chart.layers.find((each) => each.words);"
        "return [Array.from(x), Array.from(y)]"
    )
    (_, right), (low, high) = window(browser, "places")
    middle = float(np.median(x))
    corners = [(middle, 0.99 * low + 0.01 * high), (right - 0.01, low), (right - 0.01, high), (middle, high)]
    moved(browser, "places", *corners, pressed=True)
    assert said(browser, "places") == f"In the lasso: {sum(each > middle for each in x)} records on the map."
    assert len(y) == 100


def test_keys_go_from_point_to_point_and_count_what_is_in_view(exact: Path, opened: Callable[..., Browser]) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser = opened(exact / "report.html")
    plot = browser.find_element(By.ID, "plot-places")
    plot.send_keys("n")
    first = said(browser, "places")
    assert re.fullmatch(r"record \d+, class: 0, client: client-\d", first)
    assert tip(browser, "places").split("\n") == first.split(", ")
    plot.send_keys("n")
    assert said(browser, "places") != first
    plot.send_keys("p")
    assert said(browser, "places") == first
    plot.send_keys("+++")
    assert re.fullmatch(r"In view: \d+ records? on the map\.", said(browser, "places"))
    plot.send_keys("0", Keys.ESCAPE)
    assert said(browser, "places") == ""


def test_maps_can_be_saved_as_pictures_that_say_what_they_are(dense: Path, opened: Callable[..., Browser]) -> None:
    browser = opened(dense / "report.html")
    svg = browser.execute_script("return svgOf(document.getElementById('plot-map').chart)")
    root = ElementTree.fromstring(svg)
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    headline = json.loads((dense / "statement.json").read_text())["headline"]
    assert " ".join(texts).endswith(f"In part. {headline}")
    assert headline.startswith("Simulation (seeded noise); with real noise this would be ε = 4")
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 1
    png = browser.execute_async_script(
        "const done = arguments[0]; pngOf(document.getElementById('plot-map').chart).then(async (blob) =>"
        " done([blob.type, Array.from(new Uint8Array(await blob.arrayBuffer()).slice(0, 4)), blob.size]))"
    )
    assert png[:2] == ["image/png", [137, 80, 78, 71]]
    assert png[2] > 10_000
    for name in ("PNG", "SVG"):
        click(browser, "tools-map", name)
    settled(browser)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_map_of_noise_is_an_empty_frame_until_it_is_asked_for(private: Path, opened: Callable[..., Browser]) -> None:
    from selenium.webdriver.common.by import By

    browser = opened(private / "report.html")
    sentence = json.loads((private / "verdict.json").read_text())["sentence"]
    assert browser.find_element(By.CSS_SELECTOR, "#plot-map .verdict").text == sentence
    assert not any(trace["visible"] for trace in traces(browser, "map"))
    before = inked(browser, "map")
    assert "faded" not in browser.find_element(By.ID, "legend-map").text
    button = click(browser, "controls-map", "noise")
    settled(browser)
    assert button.get_attribute("aria-pressed") == "true"
    assert inked(browser, "map") > before
    assert "faded: not above the noise" in browser.find_element(By.ID, "legend-map").text


def test_a_finger_points_where_it_lifts(simulated: Path, opened: Callable[..., Browser]) -> None:
    browser = opened(simulated / "report.html", width=390, height=844)
    x, y = browser.execute_script(
        "const plot = document.getElementById('plot-places'), {x, y} = plot.chart.layers.find((each) => each.words);"
        "plot.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const {left, top} = plot.getBoundingClientRect(), [a, b] = plot.chart.pixel(x[0], y[0]);"
        "return [left + a, top + b]"
    )
    for kind, points_at in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points_at})
    settled(browser)
    assert tip(browser, "places").startswith("record ")


def test_classes_and_layers_of_the_density_can_be_shown(dense: Path, opened: Callable[..., Browser]) -> None:
    browser = opened(dense / "report.html")
    fills = "return document.getElementById('plot-map').chart.layers.find((each) => each.fills)"
    names = "return document.getElementById('plot-map').chart.layers.find((each) => each.names).hidden"
    assert len(browser.execute_script(fills)["fills"]) > 0
    before = inked(browser, "map")
    click(browser, "controls-map", "5")  # of which there are none: noise, so nothing is coloured
    settled(browser)
    assert browser.execute_script(fills)["fills"] == []
    assert inked(browser, "map") < before
    assert "no cell stands out of the noise, so none is coloured" in browser.page_source
    click(browser, "controls-map", "records")
    assert len(browser.execute_script(fills)["fills"]) > 0
    click(browser, "controls-map", "density")
    assert browser.execute_script(fills)["hidden"] is True
    assert browser.execute_script(names) is True
    click(browser, "controls-map", "anchors")
    settled(browser)
    assert inked(browser, "map") == 0


@pytest.mark.parametrize("run", ["exact", "private", "simulated"])
def test_nothing_runs_over_the_edge_of_a_phone(
    run: str, request: pytest.FixtureRequest, opened: Callable[..., Browser]
) -> None:
    browser = opened(request.getfixturevalue(run) / "report.html", width=360)
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert browser.execute_script("return innerWidth") == 360
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360


def test_dark_readers_get_dark_ground_and_figures(exact: Path, opened: Callable[..., Browser]) -> None:
    looked = (
        "const style = getComputedStyle(document.body);"
        "return [style.backgroundColor, style.color, getComputedStyle(document.querySelector('img.drawing')).filter]"
    )
    browser = opened(exact / "report.html")
    (ground, ink, filtered), colours = (
        browser.execute_script(looked),
        [each["colour"] for each in traces(browser, "places")],
    )
    pixels = "return document.getElementById('plot-places').querySelector('canvas').toDataURL()"
    drawn = browser.execute_script(pixels)
    emulate(browser, "dark")  # while the page is open
    until(browser, "return getComputedStyle(document.body).color !== arguments[0]", ink)
    settled(browser)
    dark_ground, dark_ink, dark_filtered = browser.execute_script(looked)
    assert luminance(ground) > 200 > 60 > luminance(dark_ground)
    assert luminance(dark_ink) > 150 > luminance(ink)
    assert [each["colour"] for each in traces(browser, "places")] != colours
    assert browser.execute_script(pixels) != drawn
    assert ("invert" in filtered, "invert" in dark_filtered) == (False, True)


def luminance(colour: str) -> float:
    values = [float(part) for part in colour.split("(")[1].rstrip(")").split(",")[:3]]
    return 0.2126 * values[0] + 0.7152 * values[1] + 0.0722 * values[2]


# Contrast of every text with what it stands on, by WCAG 2; what nobody sees is left out.
CONTRAST = """
const rgb = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
  if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
document.querySelectorAll('details').forEach((each) => { each.open = true; });
const least = [99, ''], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const e = node.parentElement;
  if (!node.data.trim() || !e.getClientRects().length || e.closest('script, style, .mark')) continue;
  let opacity = 1; for (let up = e; up; up = up.parentElement) opacity *= Number(getComputedStyle(up).opacity);
  const under = ground(e);
  const ink = rgb(getComputedStyle(e).color).map((v, i) => (i < 3 ? opacity * v + (1 - opacity) * under[i] : v));
  const [a, b] = [light(ink), light(under)], ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < least[0]) least.splice(0, 2, ratio, e.outerHTML.slice(0, 120));
}
return least;
"""


PAGES = {
    "private": "report.html", "exact": "report.html", "open_run": "statement.html", "real": "statement.html",
    "demo": "index.html", "demo view": "hospital-views/aachen.html", "sweep": "report.html",
}  # fmt: skip


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """One of all kinds of pages."""
    run = request.param
    if run == "sweep":
        from dpfedvis.experiments.sweeps.report import write_report as write_sweep

        write_sweep(request.getfixturevalue("sweep_rows"), tmp_path, "dpfedvis")
        return tmp_path / PAGES[run]
    folder: Path = request.getfixturevalue(run.split()[0])
    return folder / PAGES[run]


@pytest.mark.parametrize("page", PAGES, indirect=True)
def test_every_page_fits_a_phone_and_its_drawings_can_be_read(page: Path, opened: Callable[..., Browser]) -> None:
    browser = opened(page, width=390, height=844)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('img.drawing')]"
        ".map((each) => [each.width, each.naturalWidth, each.naturalHeight])"
    )
    # A wide one is moved sideways.
    assert all(width >= min(natural, 540) for width, natural, height in drawn if natural > min(1.81 * height, 940))
    assert all(width <= 390 for width, natural, height in drawn if natural < min(1.79 * height, 920))
    assert drawn or not page.name.startswith("report")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES, indirect=True)
def test_every_text_stands_out_of_its_ground(page: Path, theme: str, opened: Callable[..., Browser]) -> None:
    browser = opened(page, theme=theme)
    if browser.find_elements("id", "legend-places"):
        click(browser, "legend-places", "3")  # a group that is hidden has a name all the same
    ratio, where = browser.execute_script(CONTRAST)
    assert ratio >= 4.5, where
    browser.execute_script("document.querySelector('p').style.opacity = 0.3")  # a fault is found
    assert browser.execute_script(CONTRAST)[0] < 4.5


def test_every_control_can_be_reached_with_the_keyboard(private: Path, opened: Callable[..., Browser]) -> None:
    from selenium.webdriver.common.keys import Keys

    browser = opened(private / "report.html")
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the content"
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('button, a, summary, [tabindex=\"0\"]')].filter((each) =>"
        " !(each.textContent.trim() || each.getAttribute('aria-label')) || each.tabIndex < 0).length"
    )
    assert unnamed == 0


def test_forty_thousand_points_are_drawn(tmp_path: Path, opened: Callable[..., Browser]) -> None:
    rng = np.random.default_rng(0)
    groups = {"class": Grouping.of(rng.integers(10, size=40_000))}
    spec = points(Cloud(rng.normal(size=(40_000, 2)), "record", groups))
    browser = opened(page_of(tmp_path, spec))
    assert sum(trace["points"] for trace in traces(browser, "places")) == 40_000
    click(browser, "controls-places", "none")
    assert [trace["points"] for trace in traces(browser, "places")] == [40_000]
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_names_that_turn_or_hide_text_are_written_out(tmp_path: Path, opened: Callable[..., Browser]) -> None:
    """In buttons, and in what is told of a point."""
    names = np.array(["a\u202egnp.exe", "\u2066b\u200f\x07", "</script><script>alert(1)</script>"])
    cloud = Cloud(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]), "record", {"class": Grouping.of(names)})
    browser = opened(page_of(tmp_path, points(cloud)))
    shown = [each.text.split(" ", 1)[1] for each in browser.find_elements("css selector", "#legend-places button")]
    written = [r"a\u202egnp.exe", r"\u2066b\u200f\u0007", names[2]]
    assert shown == written
    moved(browser, "places", (0.0, 0.0))
    assert tip(browser, "places") == f"record 0\nclass: {written[0]}"
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_page_of_the_demo_works_too(demo: Path, opened: Callable[..., Browser]) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser = opened(demo / "index.html", width=360)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    assert sum(trace["points"] for trace in traces(browser, "map-central")) == 200
    assert [trace["name"] for trace in traces(browser, "map-private-high")] == [str(digit) for digit in range(10)]
    assert min(inked(browser, f"map-{key}") for key in ("central", "exact", "plus", "private-low")) > 0.005

    def chosen() -> tuple[list[str], list[str]]:
        slides = [
            each
            for each in browser.find_elements(By.CSS_SELECTOR, "[data-slide]")
            if "away" not in each.get_attribute("class")
        ]
        shown = [
            each.text
            for each in browser.find_elements(By.CSS_SELECTOR, "div.told [data-epsilon] .value")
            if each.is_displayed()
        ]
        return [each.find_element(By.TAG_NAME, "h3").text for each in slides[:1]], shown

    assert chosen() == (["Private end to end, ε = 10"], ["ε = 10"])
    slider = browser.find_element(By.ID, "epsilon")
    slider.send_keys(Keys.ARROW_LEFT)
    assert chosen() == (["Private end to end, ε = 3"], ["ε = 3"])
    slider.send_keys(Keys.HOME)
    assert chosen() == (["Private end to end, ε = 1"], ["ε = 1"])
    # All six are on one screen of a desk.
    browser = opened(demo / "index.html", width=1280)
    bottoms = "return [...document.querySelectorAll('.plot')].map((each) => each.getBoundingClientRect().bottom)"
    assert max(browser.execute_script(bottoms)) < 900


def test_the_page_of_a_sweep_works_without_scripts(
    tmp_path: Path, sweep_rows: list[CellRow], opened: Callable[..., Browser]
) -> None:
    from dpfedvis.experiments.sweeps.report import write_report

    write_report(sweep_rows, tmp_path, "dpfedvis")
    browser = opened(tmp_path / "report.html", width=360)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    drawn = browser.execute_script("return [...document.querySelectorAll('img')].map((each) => each.naturalHeight)")
    assert drawn
    assert min(drawn) > 100
