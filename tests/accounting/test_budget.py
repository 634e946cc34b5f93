"""Budgets: what they accept, what they buy, what they cover."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from accounting import Budget, InvalidParameter, gaussian_mu
from accounting.events import STAGES


def test_defaults_are_the_strictest_reading() -> None:
    budget = Budget(2, 1e-5)
    assert (budget.adjacency, budget.unit, budget.scope) == ("replace-one", "record", "end-to-end")
    assert isinstance(budget.epsilon, float)


def test_mu_is_what_the_closed_form_buys() -> None:
    assert Budget(1.0, 1e-5).mu == gaussian_mu(1.0, 1e-5)


@pytest.mark.parametrize("stage", STAGES)
def test_only_the_landmark_scope_leaves_the_release_out(stage: str) -> None:
    assert Budget(1.0, 1e-5).covers(stage)
    assert Budget(1.0, 1e-5, scope="landmarks").covers(stage) == (stage != "release")


def test_a_budget_is_frozen_and_its_fields_survive_json() -> None:
    budget = Budget(1 / 3, 1e-7, adjacency="add-remove", unit="client", scope="landmarks")
    assert Budget(**json.loads(json.dumps(budget.to_dict()))) == budget
    with pytest.raises(dataclasses.FrozenInstanceError):
        budget.epsilon = 5.0


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, -math.inf, "1", None, True, [1.0]])
def test_epsilon_that_is_no_finite_positive_number_is_a_named_error(epsilon: object) -> None:
    with pytest.raises(InvalidParameter, match="epsilon must be a finite number above 0") as caught:
        Budget(epsilon, 1e-5)
    assert caught.value.name == "epsilon"
    assert caught.value.value is epsilon
    assert repr(epsilon) in str(caught.value)


@pytest.mark.parametrize("delta", [0, 1, -1e-5, 1.1, math.nan, math.inf, "1e-5", None, False])
def test_delta_outside_the_open_unit_interval_is_a_named_error(delta: object) -> None:
    with pytest.raises(InvalidParameter, match="delta must be strictly between 0 and 1") as caught:
        Budget(1.0, delta)
    assert caught.value.value is delta


@pytest.mark.parametrize("field", ["adjacency", "unit", "scope"])
@pytest.mark.parametrize("value", ["", "replace", "Record", None, 1, ["record"]])
def test_unknown_words_are_named_errors_that_list_the_choices(field: str, value: object) -> None:
    with pytest.raises(InvalidParameter, match=f"{field} must be one of ") as caught:
        Budget(1.0, 1e-5, **{field: value})
    assert caught.value.name == field
    assert repr(value) in str(caught.value)
