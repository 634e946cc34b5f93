"""Pages for people from the templates in `templates/`: facts come from Python, words and markup from the template.

A page that exists as HTML and as Markdown is one template. It extends `page`, imports its macros from `parts`, and is
rendered twice: once with page.html and parts.html, once with page.md and parts.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from accounting.rounding import rounded_down, rounded_up
from accounting.trust_wording import TRUST
from dpfedvis.numerics.plain_text import in_markdown, visible, without_elements

if TYPE_CHECKING:
    from jinja2 import Environment

Form = Literal["html", "md"]
SCRIPTS = ("shapes.js", "chart.js", "pictures.js", "page.js")  # of a page with maps, in this order


def render_html(template: str, **facts: Any) -> str:
    """Return a page as HTML. Every fact is escaped by the template engine.

    Parameters
    ----------
    template : str
        Name of a file in `templates/`.
    **facts
        Variables of the template.
    """
    return _environment("html").get_template(template).render(facts)


def render_markdown(template: str, **facts: Any) -> str:
    """Return a page as Markdown, with one empty line between blocks however many the template leaves.

    Templates hold no HTML, so that whatever looks like it came from outside, and is shown as text.
    """
    text = without_elements(_environment("md").get_template(template).render(facts))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip("\n") + "\n"


def shown(value: float | None, digits: int = 4) -> str:
    """Return a number for people: ∞ for infinity, a dash for none."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.{digits}g}".replace("-", "−")


def span(values: Sequence[float] | None) -> str:
    """Return the smallest and the largest of some values; one number where both look the same."""
    low, high = (shown(None),) * 2 if values is None else map(shown, values)
    return low if low == high else f"{low} to {high}"


def script_json(value: Any) -> str:
    """Return JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _environment(form: Form) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("dpfedvis.reporting"),
        autoescape=form == "html",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalized,
    )
    made.filters |= {
        "shown": shown,
        "span": span,
        "rounded_up": rounded_up,
        "rounded_down": rounded_down,
        "json": script_json,
        "data_uri": _data_uri,
        "hash": _hash,
        "one_line": _one_line,
        "cell": _markdown_cell,
    }
    made.tests |= {"numeric": _is_numeric, "infinite": math.isinf, "wide": _is_wide}
    made.globals |= {
        "page": f"page.{form}",
        "parts": f"parts.{form}",
        "style": _asset("page.css"),
        "script": "".join(_asset(name) for name in SCRIPTS),
        "repr": repr,
        "TRUST": TRUST,
    }
    return made


def _finalized(value: Any) -> Any:
    """Write out hidden characters of names; what a macro has made is marked as HTML and was seen already."""
    return visible(value) if type(value) is str else value


def _one_line(text: str) -> str:
    """Join wrapped lines; HTML stays marked as HTML."""
    return type(text)(" ".join(text.split()))


def _markdown_cell(value: object) -> str:
    return in_markdown(str(value))


def _is_numeric(value: object) -> bool:
    """Whether a table aligns it to the right."""
    if isinstance(value, str):
        return value != "" and value.strip("−-+.,0123456789e∞– %≥<>") == ""
    return isinstance(value, float)


def _is_wide(svg: str) -> bool:
    """Whether a drawing's words are too small to read where it is as wide as a phone."""
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    return box is not None and float(box[1]) > min(1.8 * float(box[2]), 700.0)


def _data_uri(content: bytes | str, kind: str) -> str:
    data = content.encode() if isinstance(content, str) else content
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def _asset(name: str) -> str:
    return (files("dpfedvis.reporting") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return what a content policy calls an element with this text by: nothing else may run, or be a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
