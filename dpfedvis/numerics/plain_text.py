"""Text from outside, made harmless for whatever reads it: a terminal, Markdown, a spreadsheet.

Names of files, sites, columns and classes come from strangers. On a page the templates escape them; here is the rest.
"""

from __future__ import annotations

import re

from accounting.plain_text import HIDDEN

_MARKUP = re.compile(r"[\\`*\[\]<>|]|(?<!\w)_|_(?!\w)")
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
_ELEMENT = re.compile(r"(?<!\\)<(?=[A-Za-z/!?])")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_FORMULA = ("=", "+", "-", "@", "\t", "\n", "'")


def visible(text: str) -> str:
    r"""Return text with control characters and marks of direction written out, such as ``\u202e``; lines stay."""
    return HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def in_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line: no emphasis, no link, no element."""
    return visible(_MARKUP.sub(r"\\\g<0>", " ".join(text.split())))


def without_elements(markdown: str) -> str:
    """Return Markdown in which nothing is an element of HTML, wherever it came from; code stays as it is."""
    parts = _CODE.split(visible(markdown))
    parts[::2] = [_ELEMENT.sub(r"\\<", part) for part in parts[::2]]
    return "".join(parts)


def in_spreadsheet(text: str) -> str:
    """Return text as a cell that no spreadsheet runs: an apostrophe tells it that what looks like a formula is text.

    Numbers stay as they are, also negative ones. `from_spreadsheet` is the inverse, but for carriage returns, which
    would begin a line and become spaces.
    """
    text = text.replace("\r", " ")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


def from_spreadsheet(cell: str) -> str:
    """Return the text that `in_spreadsheet` made a cell of."""
    return cell[1:] if cell.startswith("'") else cell
