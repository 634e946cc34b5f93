"""statement.json is what its JSON Schema says, for every kind of ledger."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from accounting import Ledger
from accounting.audit_summary import Audited, Rate
from accounting.risk_lines import risk_of
from accounting.statement import VERSION, AllRuns, state
from tests.accounting.test_statement import LEDGERS, gaussian, ledger_of, shared

SCHEMA = json.loads((files("accounting") / "schemas" / "statement.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
AUDIT = Audited(
    "consistent", 1.0, 1e-5, {"gdp": 0.2}, 0.95, 100, "No lower bound is above the claim.", {"gradient": 0.5},
    "local", "seeded", (Rate("right guesses", 0.62, 0.52, 0.71, 0.599),), 0.37, "dpfedvis audit",
)  # fmt: skip


def test_the_schema_is_one() -> None:
    VALIDATOR.check_schema(SCHEMA)
    assert SCHEMA["properties"]["version"]["const"] == VERSION
    assert set(SCHEMA["required"]) == set(SCHEMA["properties"])


@pytest.mark.parametrize("name", LEDGERS)
def test_every_statement_follows_it(name: str) -> None:
    ledger = LEDGERS[name]()
    VALIDATOR.validate(json.loads(state(ledger).to_json()))


def test_with_an_audit_other_runs_and_shared_noise() -> None:
    ledger = ledger_of(*shared(10, 9, 1))
    all_runs = AllRuns(1.5, 2, risk=risk_of(ledger.events()))
    found = replace(state(ledger), all_runs=all_runs).with_audit(AUDIT)
    told = json.loads(found.to_json())
    VALIDATOR.validate(told)
    assert [line["key"] for line in told["risk"]] == ["unit", "server alone", "rows", "all runs"]
    assert AllRuns.from_dict(told["all_runs"]).to_dict() == all_runs.to_dict()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("epsilon_end_to_end",), "∞"),
        (("risk", 0, "advantage"), 1.5),
        (("releases", 0, "sigma"), 3.0),
        (("ledger",), {"entries": 1, "head": "abc"}),
        (("unexpected",), 1),
    ],
)
def test_it_refuses_what_is_no_statement(path: tuple[str | int, ...], value: object) -> None:
    told = json.loads(state(ledger_of(gaussian("a"))).to_json())
    *most, last = path
    place = told
    for step in most:
        place = place[step]
    place[last] = value
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(told)


def test_a_missing_part_is_refused() -> None:
    told = json.loads(state(ledger_of(gaussian("a"))).to_json())
    for name in list(told):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate({key: value for key, value in told.items() if key != name})


# The first page


def test_the_guarantee_is_one_sentence_with_the_number_of_right_guesses() -> None:
    ledger = ledger_of(gaussian("a", sensitivity=0.268, noise="system"))
    sentence = state(ledger).words["guarantee"]
    assert "knows all other records, guesses right in at most 55.4 of 100 cases" in sentence
    assert sentence in str(state(ledger)).split("# Technical annex")[0]
    assert 100 * 0.5 * (1 + math.erf(0.134 / math.sqrt(2))) == pytest.approx(55.33, abs=0.01)
    seeded = state(ledger_of(gaussian("a"))).words
    assert seeded["guarantee"].startswith("With real noise, whoever sees")
    assert seeded["simulation_of_risk"] is not None
    assert "no guarantee" in state(LEDGERS["unprotected"]()).words["guarantee"]
    assert "distance rows left without protection" in state(LEDGERS["unprotected"]()).words["guarantee"]
    assert state(LEDGERS["empty"]()).words["guarantee"] == "Nothing left any client."


def test_fewer_colluders_leave_more_noise() -> None:
    """Of 9 sites in a sum the noise of 8 is counted; against the server alone it is that of 9."""
    lines = {line.key: line.risk for line in state(ledger_of(*shared(10, 9, 1))).risks}
    assert lines["unit"].mu == pytest.approx(0.1)
    assert lines["server alone"].mu == pytest.approx(0.1 * math.sqrt(8 / 9))
    assert "another client" not in lines
    none = {line.key: line.risk for line in state(ledger_of(*shared(10, 10, 0))).risks}
    assert none["another client"].mu == pytest.approx(0.1 * math.sqrt(10 / 9))
    assert "server alone" not in none


def test_sampled_releases_have_a_risk_and_none_for_groups() -> None:
    (only,) = state(LEDGERS["sampled"]()).risks
    assert only.risk.mu is None
    assert 0 < only.risk.advantage < 0.2


def test_who_signs_and_what_they_sign_is_on_the_first_page(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.record(gaussian("a", noise="system"), gaussian("b", noise="system"))
    assert ledger.head is not None
    heads = {"a": [3, "ab" * 32], "b": [4, "cd" * 32]}
    facts = {"heads": heads, "columns": ["age", "crp"], "started": "2026-01-02", "data": "files", "landmarks": 3}
    page, annex = str(state(ledger, facts=facts | {"estimator": "FedTSNE"})).split("# Technical annex")
    for said in (
        f"- a: 3 entries, head `{'ab' * 32}`",
        f"2 entries, head `{ledger.head[1]}`",
        "age, crp",
        "2026-01-02",
    ):
        assert said in page
        assert said not in annex
    assert "- landmarks: 3" in annex
    VALIDATOR.validate(json.loads(state(ledger).to_json()))
    ledger.close()


def test_a_simulation_has_nothing_to_sign(tmp_path: Path) -> None:
    """The chain has the time of each entry, and the same simulation gives the same statement."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.record(gaussian("a"))
        assert state(ledger).head is None
        assert "there is no ledger to sign for" in str(state(ledger))


def test_sites_with_budgets_of_their_own_are_listed() -> None:
    found = state(ledger_of(gaussian("a"), gaussian("b", sigma=2.0)))
    assert [line.split(":")[0] for line in found.words["sites"]] == ["a", "b"]
    assert "- b: ε = " in str(found)
    assert found.site_epsilons["b"] < found.site_epsilons["a"] == found.end_to_end
    assert state(ledger_of(gaussian("a"), gaussian("b"))).words["sites"] == []
    whole = state(ledger_of(gaussian("a", unit="client"), gaussian("b", unit="client", sigma=2.0)))
    assert whole.site_epsilons == {}


def test_a_site_without_a_signed_receipt_is_warned_of_and_signs_nothing() -> None:
    facts = {"receipts": "signed by sites a", "heads": {"a": (3, "abc")}}
    signed = state(ledger_of(gaussian("a"), gaussian("b")), facts=facts)
    assert not signed.warnings
    assert "no signed receipt" not in str(signed)
    found = state(ledger_of(gaussian("a"), gaussian("b")), facts={**facts, "unsigned": ["b", "*c*"]})
    (warning,) = found.warnings
    assert warning == "no signed receipt of b, *c*: their own ledgers may have more than is stated here"
    page, signatures = str(found).split("## Signatures\n")
    assert r"**Warning: no signed receipt of b, \*c\*: their own ledgers" in page
    lines = signatures.split("Purpose")[0].split("\n")
    assert [each for each in lines if each][:3] == [
        "- b: no signed receipt", r"- \*c\*: no signed receipt", "- a: 3 entries, head `abc`"
    ]  # fmt: skip


# What an audit found


@pytest.mark.parametrize(
    ("found", "excess", "begins", "says"),
    [
        (0.55, 0.9, "**Within what the guarantee allows**", "between 52.0% and 71.0%"),
        (0.62, 0.37, "**No contradiction to the guarantee**", "37 of 100 audits find as much or more"),
        (0.70, 1e-6, "**More often right than the guarantee allows**", "the guarantee does not hold"),
    ],
)
def test_an_audit_says_its_interval_and_what_it_means(found: float, excess: float, begins: str, says: str) -> None:
    rate = Rate("right guesses", found, 0.52, 0.71, 0.599)
    sentence = replace(AUDIT, membership=(rate,), excess=excess).words["membership"]
    assert sentence.startswith(begins)
    assert says in sentence
    assert f"{found:.1%} of 100 guesses were right" in sentence
    assert "the guarantee allows 59.9% on average" in sentence


def test_what_an_audit_allows_is_rounded_up() -> None:
    """What is shown as the most must not be less than the most."""
    rate = Rate("right guesses", 0.55, 0.52, 0.71, 0.599111)
    audit = replace(AUDIT, membership=(rate,))
    assert "the guarantee allows 60% on average" in audit.words["membership"]
    text = str(state(ledger_of(gaussian("a"))).with_audit(audit))
    assert "| right guesses | 0.55 (0.52 to 0.71) | 0.5992 |" in text
