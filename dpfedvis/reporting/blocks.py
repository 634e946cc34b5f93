"""Headings, paragraphs, tables and pictures, as Markdown and as one HTML file that opens offline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dpfedvis.reporting.html_parts import Html, Page, details, element, escape, section, table, together


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
    """Cells of text.

    Parameters
    ----------
    header : sequence of str
    rows : sequence of sequences of str
    caption : str
        What it shows, for the page.
    folded : bool
        Whether it is long: the page opens it on demand, and Markdown is left without it.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure: a file for Markdown, panels for the page.

    Parameters
    ----------
    file : str
        Name of the PNG beside the page.
    caption : str
    panels : callable
        From the page to the figure on it.
    """

    file: str
    caption: str
    panels: Callable[[Page], Html] = field(compare=False)


Block = Heading | Paragraph | Table | Picture


def markdown(blocks: Sequence[Block]) -> str:
    """Return the page as Markdown."""
    return "\n\n".join(text for text in map(_markdown, blocks) if text) + "\n"


def html_page(blocks: Sequence[Block], footer: str) -> str:
    """Return the page as HTML: the first heading is its title, and each of the second level begins a section."""
    title, *rest = blocks
    if not isinstance(title, Heading):
        raise TypeError("a page begins with its title")
    page = Page(title.text)
    parts = list(_parts(rest))
    opening = parts.pop(0)[1] if parts and parts[0][0] == "" else []
    header = together(element("h1", title.text), *(_html(page, block, "") for block in opening))
    sections = []
    for number, (name, own) in enumerate(parts, 1):
        key = f"part-{number}"
        contents = [_html(page, block, name) for block in own]
        sections.append((key, name, section(key, name, *contents)))
    return page.document(header, sections, element("p", _text(footer)))


def _parts(blocks: Sequence[Block]) -> Iterator[tuple[str, list[Block]]]:
    """Blocks under each heading of the second level; those before the first are under an empty one."""
    name = ""
    own: list[Block] = []
    for block in blocks:
        if isinstance(block, Heading) and block.level == 2:
            if own or name:
                yield name, own
            name, own = block.text, []
        else:
            own.append(block)
    yield name, own


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {block.text}"
    if isinstance(block, Paragraph):
        return block.text
    if isinstance(block, Picture):
        return f"![{block.caption}]({block.file})"
    if block.folded:
        return ""
    lines = [_line(block.header), "|" + "---|" * len(block.header), *map(_line, block.rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def _html(page: Page, block: Block, under: str) -> Html:
    if isinstance(block, Heading):
        return element(f"h{block.level}", _text(block.text))
    if isinstance(block, Paragraph):
        return element("p", _text(block.text))
    if isinstance(block, Picture):
        return block.panels(page)
    shown = table(block.caption or under, block.header, block.rows)
    return details(block.caption, shown) if block.folded else shown


def _text(text: str) -> Html:
    """Escape, then mark what stands between backticks or stars."""
    escaped = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
    return Html(re.sub(r"(?<![\w*])\*(\w[^*]*)\*(?!\w)", r"<em>\1</em>", escaped))
