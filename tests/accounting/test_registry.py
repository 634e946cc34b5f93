"""The draft for the registry of deployments is YAML with the ledger's numbers, whatever names are in it."""

from __future__ import annotations

import math

import pytest
import yaml

from accounting.registry import registry
from accounting.statement import state
from tests.accounting.test_statement import LEDGERS, gaussian, ledger_of

PARTS = {
    "basic", "dp_variant", "privacy_loss", "deployment_model", "accounting", "implementation", "administrative",
}  # fmt: skip


@pytest.mark.parametrize("name", LEDGERS)
def test_every_ledger_has_an_entry(name: str) -> None:
    found = state(LEDGERS[name]())
    entry = yaml.safe_load(registry(found))["deployment"]
    assert entry.keys() == PARTS
    parameters = entry["privacy_loss"]["privacy_parameters"]
    assert parameters == {"epsilon": found.end_to_end, "delta": found.delta}
    assert entry["privacy_loss"]["privacy_unit"] == found.unit
    assert entry["deployment_model"]["model_name"] == "Federated"
    assert entry["administrative"]["status"] == "Draft"


def test_what_was_released_and_how_is_in_it() -> None:
    entry = yaml.safe_load(registry(state(LEDGERS["landmarks"]())))["deployment"]
    assert entry["privacy_loss"]["privacy_parameters"]["epsilon"] == math.inf
    assert "rows are records" in entry["dp_variant"]["unprotected_quantities"]
    assert "- gradient: 1 a client, gaussian (seeded noise), trust local" in entry["implementation"]["mechanisms"]


def test_both_facts_stand_beside_epsilon() -> None:
    details = yaml.safe_load(registry(state(ledger_of(gaussian("a")))))["deployment"]["privacy_loss"]
    assert "Simulation (seeded noise)" in details["privacy_parameters_details"]
    assert "on one machine" in details["privacy_parameters_details"]


def test_no_name_can_end_a_value() -> None:
    name = 'a: "b"\n#c — & é'
    entry = yaml.safe_load(registry(state(ledger_of(gaussian("a")), facts={"estimator": name, "data": "x"})))
    assert entry["deployment"]["basic"]["name"] == f"{name} of x"
