"""report.html in a real browser: it loads, its buttons work, and it suits the reader's screen and theme.

Needs chromium and its driver; without them these tests are skipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Ledger
from dpfedvis.experiments.sweeps.store import CellRow
from dpfedvis.reporting import rendering
from dpfedvis.reporting.interactive_maps import points
from dpfedvis.reporting.run_facts import Cloud, Grouping
from tests.makers import HOSTILE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="chromium and chromedriver are not installed (Debian: chromium-driver)"
)
# A fresh profile, no network of the browser's own, and WebGL in software.
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--use-gl=angle", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--window-size=1200,900",
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


@pytest.fixture
def opened(browser: Browser) -> Callable[..., Browser]:
    def opened(path: Path, *, theme: str = "light", width: int = 1200) -> Browser:
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
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


def traces(browser: Browser, key: str) -> list[dict[str, Any]]:
    """Name, type, colour, visibility and size of what plotly has drawn."""
    found: list[dict[str, Any]] = browser.execute_script(
        "return document.getElementById(arguments[0]).data.map((t) =>"
        " ({name: t.name, type: t.type, colour: t.marker?.color, visible: t.visible, points: t.x.length}))",
        f"plot-{key}",
    )
    return found


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
        "const {xaxis, yaxis} = document.getElementById(arguments[0]).layout; return [xaxis.range, yaxis.range]",
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
        "return [...document.querySelectorAll('.plot')].map((p) =>"
        " p.querySelector('.main-svg')?.getBoundingClientRect().height ?? 0)"
    )
    assert heights
    assert min(heights) > 100
    drawn = browser.execute_script("return [...document.querySelectorAll('img')].map((each) => each.naturalHeight)")
    assert drawn
    assert min(drawn) > 100


def test_points_are_drawn_with_webgl(exact: Path, opened: Callable[..., Browser]) -> None:
    browser = opened(exact / "report.html")
    assert {trace["type"] for trace in traces(browser, "places")} == {"scattergl"}
    assert sum(trace["points"] for trace in traces(browser, "places")) == 100


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
    click(browser, "controls-places", "+")
    (nearer_low, nearer_high), _ = window(browser, "places")
    assert nearer_high - nearer_low == pytest.approx(0.7 * (high - low))
    browser.find_element(By.ID, "plot-places").send_keys(Keys.ARROW_RIGHT)
    (moved_low, _), _ = window(browser, "places")
    assert moved_low > nearer_low
    # What a reader has chosen to look at stays when the colours change.
    click(browser, "controls-places", "client")
    assert window(browser, "places")[0][0] == pytest.approx(moved_low)
    click(browser, "controls-places", "all")
    assert window(browser, "places")[0] == pytest.approx([low, high])


def test_hovering_tells_whose_record_a_point_is(simulated: Path, opened: Callable[..., Browser]) -> None:
    """Names that come from the data are shown as text, and make no elements."""
    browser = opened(simulated / "report.html")
    x, y = browser.execute_script(
        "const plot = document.getElementById('plot-places');"
        "plot.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const {left, top} = plot.getBoundingClientRect(), {xaxis, yaxis} = plot._fullLayout, first = plot.data[0];"
        "return [left + xaxis._offset + xaxis.l2p(first.x[0]), top + yaxis._offset + yaxis.l2p(first.y[0])]"
    )
    for way in (-3, 0):
        move = {"type": "mouseMoved", "x": x + way, "y": y}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", move)
    until(browser, "return document.querySelectorAll('#plot-places .hoverlayer text').length > 0")
    said = browser.execute_script("return document.querySelector('#plot-places .hoverlayer').textContent")
    assert any(name in said for name in HOSTILE), said  # of whichever record lies on top there
    assert browser.execute_script("return document.querySelectorAll('figure script, .legend b').length") == 0


def test_a_class_of_the_density_can_be_shown(private: Path, opened: Callable[..., Browser]) -> None:
    browser = opened(private / "report.html")
    before = browser.execute_script("return document.getElementById('plot-map').data[0].z.flat()")
    click(browser, "controls-map", "3")
    after = browser.execute_script("return document.getElementById('plot-map').data[0].z.flat()")
    assert np.sum(after) < np.sum(before)
    click(browser, "controls-map", "anchors")
    assert browser.execute_script("return document.getElementById('plot-map').data[1].visible") is False


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
        "return [getComputedStyle(document.body).backgroundColor,"
        " document.getElementById('plot-map').layout.font.color,"
        " document.getElementById('plot-places').data.map((t) => t.marker.color),"
        " getComputedStyle(document.querySelector('img.drawing')).filter.includes('invert')]"
    )
    browser = opened(exact / "report.html")
    ground, ink, colours, inverted = browser.execute_script(looked)
    emulate(browser, "dark")  # while the page is open
    until(browser, "return document.getElementById('plot-map').layout.font.color !== arguments[0]", ink)
    until(browser, "return document.getElementById('plot-places').data[0].marker.color !== arguments[0]", colours[0])
    dark_ground, dark_ink, dark_colours, dark_inverted = browser.execute_script(looked)
    assert luminance(ground) > 200 > 60 > luminance(dark_ground)
    assert luminance_of_hex(dark_ink) > 150 > luminance_of_hex(ink)
    assert dark_colours != colours
    assert (inverted, dark_inverted) == (False, True)


def luminance(colour: str) -> float:
    values = [float(part) for part in colour.split("(")[1].rstrip(")").split(",")[:3]]
    return 0.2126 * values[0] + 0.7152 * values[1] + 0.0722 * values[2]


def luminance_of_hex(colour: str) -> float:
    return luminance("(" + ",".join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5)) + ")")


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
    template = (
        '{% extends page %}{% import parts as p %}{% set title, contents = "many", [] %}'
        '{% block main %}{{ p.map("places", "many", "many") }}{% endblock %}'
    )
    spec = points(Cloud(rng.normal(size=(40_000, 2)), "record", groups))
    text = rendering._environment("html").from_string(template).render(figures={"places": spec})
    path = tmp_path / "many.html"
    path.write_text(text, encoding="utf-8")
    browser = opened(path)
    assert sum(trace["points"] for trace in traces(browser, "places")) == 40_000
    click(browser, "controls-places", "none")
    assert [trace["points"] for trace in traces(browser, "places")] == [40_000]
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_the_page_of_the_demo_works_too(demo: Path, opened: Callable[..., Browser]) -> None:
    browser = opened(demo / "index.html", width=360)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    assert sum(trace["points"] for trace in traces(browser, "map-central")) == 200
    assert [trace["name"] for trace in traces(browser, "map-private-high")] == [str(digit) for digit in range(10)]


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
