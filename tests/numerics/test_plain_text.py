"""Text from outside does nothing: not on a terminal, not in Markdown, not in a spreadsheet."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedvis.numerics.plain_text import from_spreadsheet, in_markdown, in_spreadsheet, visible, without_elements


@given(st.text())
def test_what_is_visible_moves_no_cursor_and_turns_no_text(text: str) -> None:
    shown = visible(text)
    for each in set(shown) - {"\n", "\t"}:
        assert unicodedata.category(each) != "Cc"
        assert unicodedata.bidirectional(each) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert visible(shown) == shown
    if text.isprintable():
        assert shown == text


def test_names_stay_readable() -> None:
    assert visible("Zürich שלום 漢 a\tb") == "Zürich שלום 漢 a\tb"
    assert visible("a\x1b[2Jb\u202etxt.exe") == r"a\u001b[2Jb\u202etxt.exe"


@given(st.text())
def test_a_cell_never_begins_a_formula_and_comes_back(text: str) -> None:
    cell = in_spreadsheet(text)
    assert from_spreadsheet(cell) == text.replace("\r", " ")
    if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        float(cell)  # a number


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"), ("-2+3", "'-2+3"), ("@SUM(1)", "'@SUM(1)"), ("+1", "+1"),
        ("-3.5e2", "-3.5e2"), ("-", "'-"), ("a=1", "a=1"), ("'quoted", "''quoted"), ("", ""),
        ("-inf", "'-inf"), ("\t=1", "'\t=1"), (" =1", "' =1"),
    ],
)  # fmt: skip
def test_cells_by_hand(text: str, cell: str) -> None:
    assert in_spreadsheet(text) == cell


def test_markdown_shows_names_as_they_are() -> None:
    assert in_markdown("a|b *c* [d](e) <f> `g` _h_ i_j") == r"a\|b \*c\* \[d\](e) \<f\> \`g\` \_h\_ i_j"
    assert in_markdown("two\nlines\x07") == r"two lines\u0007"
    assert without_elements("# <b>x</b> `<y>` 1 < 2\n```\n<z>\n```\n") == "# \\<b>x\\</b> `<y>` 1 < 2\n```\n<z>\n```\n"
    assert without_elements(r"\<b>") == r"\<b>"
