"""Names and sentences from outside, made harmless for a statement: they forge no line, no element and no emphasis."""

from __future__ import annotations

import re
from typing import Any

# Control characters move a cursor or hide a line; marks of direction turn the text that follows them.
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LINE = re.compile(rf"{HIDDEN.pattern}|[\t\n]")
_ELEMENT = re.compile(r"<(?=[A-Za-z/!?])")
_MARKUP = re.compile(r"[\\`*\[\]]|(?<!\w)_|_(?!\w)")


def on_one_line(value: Any) -> Any:
    """Return plain text with a space for each end of line, control character and mark of direction."""
    return _LINE.sub(" ", value) if type(value) is str else value


def without_elements(value: Any) -> Any:
    """Return plain text on one line in which nothing is an element of HTML.

    A character reference, and no backslash: a backslash of the text before it would undo that.
    """
    return _ELEMENT.sub("&lt;", on_one_line(value)) if type(value) is str else value


def without_markup(text: str) -> str:
    """Return text that Markdown shows as it is: no emphasis, no code, no link."""
    return _MARKUP.sub(r"\\\g<0>", text)
