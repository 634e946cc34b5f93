"""The noise plan: what is not in it has no noise and no event, and what cannot be planned is named."""

from __future__ import annotations

import pytest

from accounting import Budget, InvalidParameter
from dpfedvis.mechanisms import GradientPerturbation, InputPerturbation, NoPerturbation
from dpfedvis.protocol.noise_plan import Extra, SitePlan, plan_run

BUDGET = Budget(2.0, 1e-5)


def planned(mechanism=None, budget=BUDGET, rounds=3, sampling_rate=None, extras=None):
    return plan_run(budget, mechanism or GradientPerturbation(), rounds, sampling_rate, "seeded", extras or {}, 12)


def test_a_site_without_a_plan_has_no_event():
    site = SitePlan(0, "client-0", 10.0, 0.25, 4)
    for ask in (site.event, site.sigma, site.bits_dropped):
        with pytest.raises(RuntimeError, match="the noise plan has no release for client-0"):
            ask(1.0)


def test_nothing_protected_has_no_plan():
    assert planned(NoPerturbation(), budget=None) is None


def test_all_releases_together_spend_the_budget():
    plan = planned(extras={"moments": Extra(0.1, "scale", 5), "second moments": Extra(0.2, "subspace", 10)})
    names = [(each.planned.what, each.planned.count) for each in plan.multipliers.releases]
    assert names == [("moments", 1), ("second moments", 1), ("gradient", 3)]
    assert plan.multipliers.epsilon <= 2.0
    assert plan.multipliers.epsilon == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("stage", {"extras": {"rows": Extra(0.2, "relese", 8)}}),
        ("the shares of a, b", {"extras": {"a": Extra(0.5, "scale", 1), "b": Extra(0.5, "scale", 1)}}),
        ("mechanism", {"mechanism": NoPerturbation(), "extras": {"a": Extra(0.5, "scale", 1)}}),
        ("budget", {"budget": None}),
        ("unit of the budget", {"budget": Budget(2.0, 1e-5, unit="client"), "sampling_rate": 0.5}),
        ("unit of the budget", {"budget": Budget(2.0, 1e-5, unit="client"), "mechanism": InputPerturbation()}),
    ],
)
def test_what_cannot_be_planned_is_named(name, settings):
    with pytest.raises(InvalidParameter) as caught:
        planned(**settings)
    assert caught.value.name == name
