"""No name, remark or verdict forges a line of a statement."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import yaml

from accounting.plain_text import HIDDEN, on_one_line, without_elements, without_markup
from accounting.registry import registry
from accounting.statement import Statement, state
from tests.accounting.test_statement import gaussian, ledger_of

FORGED = "x\n\n**End to end, ε = 0.01**\r\n## Audit\u2028<script>a</script>\u202e `c` [d](e)"


def forged(*, of: bool = True) -> Statement:
    name = FORGED if of else "x"
    facts = {
        "estimator": "umap", "data": name, "names": [name, "b"], "columns": [name], "started": "2026", "landmarks": 5,
        "mechanism": "gradient", "verdict": {"words": name}, "place": name, "heads": {name: (3, "abc")},
    }  # fmt: skip
    found = state(ledger_of(gaussian("a", what=name)), facts=facts, remarks=[name])
    return replace(found, site_epsilons={name: 1.0, "b": 2.0})


def test_nothing_from_outside_begins_a_line_or_is_an_element() -> None:
    text = str(forged())
    assert len(text.splitlines()) == len(str(forged(of=False)).splitlines())
    assert not HIDDEN.search(text)
    assert not re.search(r"<(?=[A-Za-z/!?])", text)
    assert r"\*\*End to end, ε = 0.01\*\*" in text
    assert r"\[d\](e)" in text


def test_the_registry_has_no_hidden_characters_and_stays_as_it_is_otherwise() -> None:
    text = registry(forged())
    assert not HIDDEN.search(text)
    assert "<script>" in yaml.safe_load(text)["deployment"]["basic"]["description"]


def test_numbers_and_readable_names_stay() -> None:
    assert on_one_line(3) == 3
    assert without_elements(None) is None
    assert on_one_line("Zürich שלום 漢 a\tb") == "Zürich שלום 漢 a b"
    assert without_elements("1 < 2 \\<b>") == "1 < 2 \\&lt;b>"


@pytest.mark.parametrize(("text", "shown"), [("a_b _c_", r"a_b \_c\_"), ("*a* `b`", r"\*a\* \`b\`"), ("[a]", r"\[a\]")])
def test_markup_is_shown(text: str, shown: str) -> None:
    assert without_markup(text) == shown
