"""The figure of what an adversary can do, statement.html, and the answers to NIST SP 800-226."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accounting import risk
from accounting.statement import Statement, state
from dpfedvis.evaluation.by_group import placed_by_group
from dpfedvis.reporting.drawing import svg
from dpfedvis.reporting.risk_figures import draw_trade_off, nist_page, statement_page
from dpfedvis.runs.results import BY_GROUP, SIMULATION
from tests.accounting.test_statement import LEDGERS, gaussian, ledger_of
from tests.accounting.test_statement_schema import AUDIT


def told(statement: Statement) -> dict[str, object]:
    found: dict[str, object] = json.loads(statement.to_json())
    return found


@pytest.mark.parametrize("name", LEDGERS)
def test_every_ledger_has_its_pages(name: str) -> None:
    found = state(LEDGERS[name]())
    figure = draw_trade_off(told(found))
    assert (figure is None) == (name in ("empty", "empty with a budget") or found.end_to_end == float("inf"))
    page = statement_page(told(found), None if figure is None else svg(figure))
    assert found.words["guarantee"] in page
    for sentence in found.to_dict()["not_covered"]:
        assert sentence.replace("'", "&#39;") in page
    for html in (True, False):
        answers = nist_page(told(found), None, html=html)
        assert "What is the unit" in answers
        assert "None" not in answers


def test_the_curve_is_the_largest_rate_and_the_audit_lies_on_it() -> None:
    rates = (replace(AUDIT.membership[0], name="TPR", found=0.2, low=0.1, high=0.4, at=0.02), AUDIT.membership[0])
    found = state(ledger_of(gaussian("a", sensitivity=0.5))).with_audit(replace(AUDIT, membership=rates))
    figure = draw_trade_off(told(found))
    assert figure is not None
    (axes,) = figure.axes
    line = axes.lines[0]
    expected = [risk.true_positive_rate(0.5, float(alpha)) for alpha in line.get_xdata()]
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-9)
    (points,) = axes.containers
    assert (points.lines[0].get_xdata()[0], points.lines[0].get_ydata()[0]) == (0.02, 0.2)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[0] == "one record, at most"
    assert "a person with 2 rows" in labels
    assert figure.get_supxlabel() == "simulation (seeded noise), on one machine"


def test_text_of_a_run_cannot_end_the_page() -> None:
    found = state(ledger_of(gaussian("a")), facts={"data": "<script>x</script>", "estimator": "E", "names": ["<b>"]})
    page = statement_page(told(found), None)
    assert "<script>x" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;" in page


def test_who_is_placed_worse_is_found() -> None:
    """Ten records of one class are thrown about; the other class keeps its places."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 1, (60, 2)), rng.normal(9, 1, (20, 2))]).astype(np.float32)
    places = X.copy()
    places[60:] = rng.normal(0, 9, (20, 2))
    classes = np.array(["kept"] * 60 + ["thrown"] * 20)
    found = placed_by_group(X, places, {"class": classes, "site": np.arange(80) % 2})
    worst, best = found["class"]
    assert (worst.group, worst.asked, best.group) == ("thrown", 20, "kept")
    assert worst.kept < 0.4 < 0.7 < best.kept
    assert worst.among_own < worst.among_own_before == 1.0
    assert abs(found["site"][0].kept - found["site"][1].kept) < 0.15


def test_utility_by_group_is_answered_in_simulations_alone(tmp_path: Path) -> None:
    (tmp_path / SIMULATION).mkdir()
    rows = {"class": [{"group": "rare", "asked": 3, "kept": 0.25, "among_own": 0.5, "among_own_before": 1.0}]}
    (tmp_path / SIMULATION / BY_GROUP).write_text(json.dumps(rows))
    simulated = nist_page(told(state(ledger_of(gaussian("a")))), tmp_path, html=False)
    assert "| rare | 0.250 | 0.500 | 1.000 |" in simulated
    real = nist_page(told(state(ledger_of(gaussian("a", noise="system")))), tmp_path, html=False)
    assert "rare" not in real
    assert "Not measured" in real


def test_no_name_forges_a_line_of_the_answers() -> None:
    """Names stand in lists of what was computed, and of what left."""
    pages = []
    for name in ("x", "x\n\n## Forged\r- line"):
        facts = {"estimator": "umap", "data": name, "names": [name], "mechanism": "gradient", "columns": [name]}
        found = state(ledger_of(gaussian("a", what=name)), facts=facts)
        pages.append(nist_page(told(found), None, html=False))
    assert len(pages[0].splitlines()) == len(pages[1].splitlines())


def test_the_page_says_who_has_not_signed() -> None:
    for unsigned in ({}, {"unsigned": ["b"]}):
        page = statement_page(told(state(ledger_of(gaussian("a"), gaussian("b")), facts=dict(unsigned))), None)
        assert ("No signed receipt: b." in page) == bool(unsigned)
