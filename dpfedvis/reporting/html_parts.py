"""Small parts of a page as HTML. Whatever comes from outside is escaped here, and nowhere else."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.reporting.palette import Look
from dpfedvis.reporting.rendering import script_json as script_json
from dpfedvis.reporting.rendering import shown as shown


@dataclass(frozen=True)
class Html:
    """Text that is HTML already."""

    text: str


Content = Html | str | float | None


def escape(value: object) -> str:
    """Return text for an element or a quoted attribute."""
    return html.escape(str(value), quote=True)


def inner(content: Content) -> str:
    """Return the HTML of a piece of content."""
    if isinstance(content, Html):
        return content.text
    return shown(content) if content is None or isinstance(content, float) else escape(content)


def element(name: str, *contents: Content, **attributes: object) -> Html:
    """Return an element. An underscore in an attribute's name stands for a hyphen; a last one is dropped."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{''.join(map(inner, contents))}</{name}>")


def together(*parts: Content) -> Html:
    """Return parts one after the other."""
    return Html("\n".join(inner(part) for part in parts if part is not None))


def paragraphs(*sentences: Content) -> Html:
    """Return a paragraph for each."""
    return together(*(element("p", each) for each in sentences))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Content]], *, headed: bool = True) -> Html:
    """Return a table that scrolls in a box of its own where it is too wide.

    Parameters
    ----------
    caption : str
    head : sequence of str
        Names of the columns; empty for a table of names and values.
    rows : iterable of sequences
        Numbers are aligned to the right.
    headed : bool
        Whether the first cell of a row is its heading.
    """
    lines = []
    for row in rows:
        cells = []
        for place, cell in enumerate(row):
            if place == 0 and headed:
                cells.append(element("th", cell, scope="row").text)
            else:
                number = isinstance(cell, float) or (isinstance(cell, str) and _numeric(cell))
                cells.append(element("td", cell, class_="number" if number else None).text)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    top = element("thead", element("tr", *(element("th", each, scope="col") for each in head))).text if head else ""
    # The span stays in sight while the table is scrolled.
    body = f"<table><caption><span>{escape(caption)}</span></caption>{top}<tbody>{''.join(lines)}</tbody></table>"
    # A box that scrolls must be reachable with the keyboard.
    return Html(f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">{body}</div>')


def section(key: str, title: str, *contents: Content, kind: str | None = None) -> Html:
    """Return a section with a heading of the second level, to which a link can lead."""
    heading = element("h2", title, id=f"{key}-title")
    return element("section", heading, together(*contents), id=key, aria_labelledby=f"{key}-title", class_=kind)


def details(summary: str, *contents: Content) -> Html:
    """Return something that opens on demand."""
    return element("details", element("summary", summary), together(*contents))


def link(target: str, text: str) -> Html:
    """Return a link."""
    return element("a", text, href=target)


def image(png: bytes, alternative: str) -> Html:
    """Return a picture that is part of the page."""
    data = base64.b64encode(png).decode("ascii")
    return Html(f'<img src="data:image/png;base64,{data}" alt="{escape(alternative)}">')


@dataclass(eq=False)
class Page:
    """A page in the making: figures are collected while parts are written.

    Parameters
    ----------
    title : str
    figures : dict of str to mapping
        What page.js draws, by the name of its place.
    """

    title: str
    figures: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def figure(self, key: str, spec: Mapping[str, Any], *, label: str, caption: Content, tall: bool = False) -> Html:
        """Return the place of a figure.

        Parameters
        ----------
        key : str
            Unique on the page.
        spec : mapping
            From `dpfedvis.reporting.page_figures`.
        label : str
            What it shows, for those who do not see it.
        caption : str or Html
        tall : bool
            Whether it is a map.
        """
        self.figures[key] = spec
        plot = element("div", id=f"plot-{key}", class_="plot tall" if tall else "plot", role="img", aria_label=label)
        parts: list[Content] = [plot, element("figcaption", caption)]
        if spec["kind"] != "plot" and not spec.get("compact"):
            # Filled by page.js; outside of what is announced as one picture.
            parts.insert(0, element("div", id=f"controls-{key}", class_="controls"))
            parts.insert(
                2, element("div", id=f"legend-{key}", class_="legend", role="group", aria_label="Show or hide")
            )
        return element("figure", *parts)

    def legend(self, key: str, series: Mapping[str, Look]) -> Html:
        """Return the place of buttons that show or hide a series in all figures of a family.

        Parameters
        ----------
        key : str
            The figures' "family"; the number of a series is the "legendgroup" of its traces.
        series : mapping of str to Look
        """
        shown_as = [{"name": name, "light": each.light, "dark": each.dark, "glyph": each.glyph}
                    for name, each in series.items()]  # fmt: skip
        self.figures[key] = {"kind": "legend", "series": shown_as}
        return element("div", id=f"legend-{key}", class_="legend", role="group", aria_label="Show or hide")

    def document(self, header: Content, sections: Sequence[tuple[str, str, Html]], footer: Content) -> str:
        """Return the whole page.

        Parameters
        ----------
        header : Html
        sections : sequence of (str, str, Html)
            Key, name in the list of contents, and the section.
        footer : Html
        """
        from plotly.offline import get_plotlyjs

        contents = element("ul", *(element("li", link(f"#{key}", name)) for key, name, _ in sections))
        body = together(
            element("a", "Skip to the content", href="#content", class_="skip"),
            element("header", element("div", header, class_="column")),
            element("nav", contents, aria_label="Contents", class_="column"),
            element("main", *(part for _, _, part in sections), id="content", class_="column", tabindex="-1"),
            element("footer", element("div", footer, class_="column")),
        )
        plotly = f"<script>{get_plotlyjs()}</script>" if self.figures else ""
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(self.title)}</title>
<link rel="icon" href="data:,">
<style>
{_asset("page.css")}</style>
</head>
<body>
{body.text}
<noscript><p class="column">{_NO_SCRIPT}</p></noscript>
<script type="application/json" id="figures">{script_json(self.figures)}</script>
{plotly}
<script>
{_asset("page.js")}</script>
</body>
</html>
"""


# Nothing is loaded from anywhere and nothing is sent. WebGL figures of plotly compile their own functions.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data: blob:"

_NO_SCRIPT = "The figures need JavaScript. Their numbers stand in tables, and the page's folder has them as pictures."


def packed(values: NDArray[Any]) -> dict[str, str]:
    """Return an array as plotly takes it, base64 of little-endian numbers: a third of its size as text."""
    small = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    names = {"f4": "f4", "u1": "u1", "u2": "u2", "u4": "u4"}
    name = names[f"{small.dtype.kind}{small.dtype.itemsize}"]
    return {"dtype": name, "bdata": base64.b64encode(small.tobytes()).decode("ascii")}


def _asset(name: str) -> str:
    return (files("dpfedvis.reporting") / "assets" / name).read_text(encoding="utf-8")


def _numeric(text: str) -> bool:
    return text.strip("−-+.,0123456789e∞– %≥<>") == "" and text != ""
