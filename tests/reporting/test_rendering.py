"""Templates: what is escaped, what must be given, and that one template makes HTML and Markdown."""

from __future__ import annotations

import base64
import re

import pytest
from jinja2 import ChoiceLoader, DictLoader, UndefinedError
from matplotlib.figure import Figure

from dpfedvis.reporting import rendering
from dpfedvis.reporting.drawing import svg
from dpfedvis.reporting.rendering import render_html, render_markdown, shown
from tests.reporting.test_page import policy_of

TEMPLATE = """\
{% extends page %}
{% import parts as p %}
{% set contents = [("numbers", "Numbers")] %}
{% block header %}
{{ p.title(title) }}
{% call p.paragraph() %}
Made by
{{ p.code(command) }}.
{% endcall %}
{% endblock %}
{% block main %}
{% call p.section("numbers", "Numbers") %}
{{ p.table("All", ["name", "ε"], rows) }}
{{ p.folded("More", ["name"], rows) }}
{{ p.drawing(svg, "curve.svg", "A curve") }}
{{ p.bullets(["first", p.link("a.md", "second")]) }}
{% endcall %}
{% endblock %}
"""
FACTS = {"title": "A page", "command": "dpfedvis <x>", "rows": [["a|b", "1.5"], ["c", "∞"]], "svg": "<svg/>"}


@pytest.fixture(autouse=True)
def template(monkeypatch: pytest.MonkeyPatch) -> None:
    for environment in (rendering._environment("html"), rendering._environment("md")):
        assert environment.loader is not None
        both = ChoiceLoader([DictLoader({"tried.page": TEMPLATE}), environment.loader])
        monkeypatch.setattr(environment, "loader", both)


def test_one_template_is_html_and_markdown() -> None:
    assert render_markdown("tried.page", **FACTS) == (
        "# A page\n\nMade by `dpfedvis <x>`.\n\n## Numbers\n\n| name | ε |\n|---|---|\n| a\\|b | 1.5 |\n| c | ∞ |\n\n"
        "![A curve](curve.svg)\n\n- first\n- [second](a.md)\n"
    )
    page = render_html("tried.page", **FACTS)
    assert page.startswith("<!DOCTYPE html>")
    assert "<h1>A page</h1>" in page
    assert "<p>Made by <code>dpfedvis &lt;x&gt;</code>.</p>" in page
    assert '<a href="#numbers">Numbers</a>' in page
    assert '<th scope="row">a|b</th><td class="number">1.5</td>' in re.sub(r">\s+<", "><", page)
    assert f'src="data:image/svg+xml;base64,{base64.b64encode(b"<svg/>").decode()}"' in page
    assert '<li><a href="a.md">second</a></li>' in page


def test_facts_from_outside_are_escaped() -> None:
    text = '"></title><script>alert(1)</script>'
    page = render_html("tried.page", title=text, command=text, rows=[[text, text]], svg="")
    assert "<script" not in page
    assert page.count("&#34;&gt;&lt;/title&gt;") >= 4


def test_a_fact_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="command"):
        render_html("tried.page", **{name: value for name, value in FACTS.items() if name != "command"})


def test_only_a_page_with_maps_may_run_scripts() -> None:
    without, with_maps = render_html("tried.page", **FACTS), render_html("tried.page", **FACTS, figures={"map": {}})
    assert "<script" not in without
    assert "script-src" not in without
    assert "script-src" in with_maps
    assert '<script type="application/json" id="figures">{"map":{}}</script>' in with_maps
    policy_of(without)
    policy_of(with_maps)


def test_a_changed_script_is_not_allowed() -> None:
    page = render_html("tried.page", **FACTS, figures={"map": {}})
    with pytest.raises(AssertionError):
        policy_of(page.replace('"use strict";', '"use strict"; alert(1);'))


def test_marks_that_turn_or_hide_text_are_written_out() -> None:
    name = "a\u202eb\u200fc\x1b[31md"
    for page in (
        render_html("tried.page", **{**FACTS, "title": name}),
        render_markdown("tried.page", **{**FACTS, "title": name}),
    ):
        assert "a\\u202eb\\u200fc\\u001b[31md" in page
        assert not {"\u202e", "\u200f", "\x1b"} & set(page)


def test_markdown_holds_no_elements_and_no_links_from_outside() -> None:
    name = "<img src=x> [click](javascript:1) *bold* a|b"
    text = render_markdown("tried.page", **{**FACTS, "title": name, "command": "dpfedvis <x>", "rows": [[name, "1"]]})
    assert "# \\<img src=x>" in text
    assert r"| \<img src=x\> \[click\](javascript:1) \*bold\* a\|b | 1 |" in text
    assert "`dpfedvis <x>`" in text  # code is shown as it is


def test_a_drawing_is_the_same_whenever_it_is_drawn() -> None:
    def drawn() -> str:
        figure = Figure()
        figure.add_subplot().fill_between([0, 1], [0, 1], [1, 2])
        return svg(figure)

    assert drawn() == drawn()
    assert drawn().startswith("<?xml")


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (float("nan"), "–"), (float("inf"), "∞"), (-0.125, "−0.125"), (1 / 3, "0.3333")]
)
def test_numbers_for_people(value: float | None, text: str) -> None:
    assert shown(value) == text
