"""A page of headings, paragraphs, tables and pictures, as Markdown and as one HTML file that opens offline."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --ground: #fff; --ink: #1a1a1a; }
@media (prefers-color-scheme: dark) { :root { --ground: #16181c; --ink: #e8e8e8; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 0 auto; padding: 1rem;
       background: var(--ground); color: var(--ink); }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; }
th, td { border: 1px solid var(--line); padding: 0.25rem 0.6rem; text-align: left; vertical-align: top; }
.wide { overflow-x: auto; }
figure { margin: 1rem 0; background: #fff; }
figcaption { background: var(--ground); padding-top: 0.3rem; }
code { font-size: 0.9em; }
"""


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is the page's."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Plain words; `code` between backticks, *weight* between stars."""

    text: str


@dataclass(frozen=True)
class Table:
    """Cells of text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """A figure: a file for Markdown, plotly for HTML.

    Parameters
    ----------
    file : str
        Name of the PNG beside the page.
    caption : str
    figure : plotly figure
    """

    file: str
    caption: str
    figure: Any = field(compare=False)


Block = Heading | Paragraph | Table | Picture


def markdown(blocks: Sequence[Block]) -> str:
    """Return the page as Markdown."""
    return "\n\n".join(map(_markdown, blocks)) + "\n"


def html_page(title: str, blocks: Sequence[Block]) -> str:
    """Return the page as HTML; plotly's code is in it once."""
    from plotly.offline import get_plotlyjs

    drawn = any(isinstance(block, Picture) for block in blocks)
    script = f"<script>{get_plotlyjs()}</script>" if drawn else ""
    body = "\n".join(_html(number, block) for number, block in enumerate(blocks))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n{script}\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Paragraph):
        return block.text
    if isinstance(block, Picture):
        return f"![{block.caption}]({block.file})"
    lines = [_line(block.header), "|" + "---|" * len(block.header), *map(_line, block.rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html(number: int, block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{_text(block.text)}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p>{_text(block.text)}</p>"
    if isinstance(block, Picture):
        # A name of its own, so that the same report is the same file.
        plain = {"full_html": False, "include_plotlyjs": False, "config": {"displayModeBar": False, "responsive": True}}
        drawn = block.figure.to_html(**plain, div_id=f"figure-{number}")
        return f"<figure>{drawn}<figcaption>{_text(block.caption)}</figcaption></figure>"
    head = "".join(f'<th scope="col">{_text(cell)}</th>' for cell in block.header)
    rows = "\n".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in block.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>'


def _text(text: str) -> str:
    escaped = re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))
    return re.sub(r"(?<![\w*])\*(\w[^*]*)\*(?!\w)", r"<em>\1</em>", escaped)
