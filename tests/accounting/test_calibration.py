"""Calibration: a budget and a plan in, noise out, and the accountants agree that it fits."""

from __future__ import annotations

import math

import pytest

from accounting import (
    ACCOUNTANTS,
    Budget,
    CalibratedPlan,
    Composition,
    GaussianRelease,
    InvalidParameter,
    PlannedRelease,
    SampledGaussianRelease,
    calibrate,
    gaussian_mu,
    sensitivity,
)
from accounting.exactness import charged_epsilon, inner_delta

BUDGET = Budget(1.0, 1e-5)
SAMPLING = Budget(0.8, 1e-5, adjacency="add-remove")


def three_uploads() -> list[PlannedRelease]:
    return [
        PlannedRelease("second moments", sensitivity.second_moment(clip=3.0), share=0.3, stage="subspace"),
        PlannedRelease("mean embedding", sensitivity.mean_embedding(records=4000), share=0.6, count=4),
        PlannedRelease("histogram", sensitivity.histogram(), share=0.1, stage="density"),
    ]


def assert_used_up(plan: CalibratedPlan, within: float) -> None:
    assert plan.epsilon <= plan.budget.epsilon
    assert plan.epsilon == pytest.approx(plan.budget.epsilon, rel=within)


def test_one_release_gets_the_closed_form_noise() -> None:
    plan = calibrate(BUDGET, PlannedRelease("gradient", 0.5, count=50))
    assert plan["gradient"].sigma == pytest.approx(0.5 * math.sqrt(50) / gaussian_mu(1.0, 1e-5), rel=1e-8)
    assert plan["gradient"].noise_multiplier == pytest.approx(plan["gradient"].sigma / 0.5)
    assert plan["gradient"].mu == pytest.approx(BUDGET.mu, rel=1e-8)
    assert plan.accountant.name == "gdp"
    assert_used_up(plan, 1e-6)


def test_the_example_of_the_package_has_its_golden_noise() -> None:
    delta = sensitivity.gradient(gamma=0.005, records=4000, landmarks=500)
    assert delta == pytest.approx(8 * math.sqrt(0.005 / (2 * math.e)) / (4000 * math.sqrt(500)), rel=1e-14)
    assert calibrate(BUDGET, PlannedRelease("g", delta, count=50))["g"].sigma == pytest.approx(7.15542e-5, rel=1e-6)
    assert calibrate(BUDGET, PlannedRelease("g", 1.0, count=50))["g"].sigma == pytest.approx(26.3795, abs=5e-5)


def test_shares_are_shares_of_mu_squared() -> None:
    plan = calibrate(BUDGET, three_uploads())
    parts = {release.planned.what: release.mu**2 / BUDGET.mu**2 for release in plan.releases}
    assert parts == pytest.approx({"second moments": 0.3, "mean embedding": 0.6, "histogram": 0.1}, rel=1e-8)
    for release in plan.releases:
        planned = release.planned
        by_hand = planned.sensitivity * math.sqrt(planned.count / planned.share) / BUDGET.mu
        assert release.sigma == pytest.approx(by_hand, rel=1e-8)
    assert_used_up(plan, 1e-6)


def test_the_noise_composed_by_hand_fits_the_budget() -> None:
    plan = calibrate(BUDGET, three_uploads())
    events = [
        plan[planned.what].event("client", round=index) for planned in three_uploads() for index in range(planned.count)
    ]
    assert len(events) == 6
    assert all(event.count == 1 for event in events)
    epsilon = ACCOUNTANTS["gdp"].epsilon(events, BUDGET.delta)
    assert BUDGET.epsilon * (1 - 1e-6) <= epsilon <= BUDGET.epsilon


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 10.0, 1e3, 1e5])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-300])
def test_calibrate_then_account_is_the_identity_over_the_whole_range(epsilon: float, delta: float) -> None:
    plan = calibrate(Budget(epsilon, delta), PlannedRelease("gradient", 1e-4, count=7))
    assert_used_up(plan, 1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (2.0, 1e-5), (2.0, 1e-10), (50.0, 1e-5), (0.05, 0.3)])
@pytest.mark.parametrize("values", [1, 392_000, 2**40])
def test_noise_on_a_grid_is_calibrated_by_what_the_charge_leaves(epsilon: float, delta: float, values: int) -> None:
    plan = calibrate(Budget(epsilon, delta), PlannedRelease("counts", 1.0, count=3, values=values))
    assert plan.accountant.name == "gdp"
    mu = gaussian_mu(epsilon - charged_epsilon(3 * values), inner_delta(3 * values, delta))
    assert plan["counts"].sigma == pytest.approx(math.sqrt(3) / mu, rel=1e-8)
    assert plan["counts"].sigma == pytest.approx(math.sqrt(3) / gaussian_mu(epsilon, delta), rel=0.5)
    event = plan["counts"].event("a", grid=0.01)
    assert isinstance(event, GaussianRelease)
    assert (event.kind, event.grid, event.values, event.noise) == ("gaussian", 0.01, values, "seeded")
    assert_used_up(plan, 1e-6)


def test_noise_with_and_without_a_grid_shares_one_budget() -> None:
    plan = calibrate(
        BUDGET, [PlannedRelease("plain", 1.0, share=0.3), PlannedRelease("grid", 2.0, share=0.7, values=9)]
    )
    assert plan.accountant.name == "gdp"
    assert plan["plain"].mu ** 2 / plan["grid"].mu ** 2 == pytest.approx(3 / 7, rel=1e-9)
    assert_used_up(plan, 1e-6)


def test_a_grid_costs_almost_nothing() -> None:
    with_grid = calibrate(BUDGET, PlannedRelease("g", 1.0, count=50, values=392_000))["g"].sigma
    without = calibrate(BUDGET, PlannedRelease("g", 1.0, count=50))["g"].sigma
    assert 1 < with_grid / without < 1 + 1e-6


def test_a_budget_that_integers_cannot_meet_is_a_named_error() -> None:
    planned = PlannedRelease("g", 1.0, values=2**47)
    with pytest.raises(InvalidParameter, match="epsilon must be at most 500 for noise on a grid"):
        calibrate(Budget(500.1, 1e-5), planned)
    with pytest.raises(InvalidParameter, match="epsilon must be above the charge of 1 for the grid"):
        calibrate(Budget(1.0, 1e-5), planned)
    with pytest.raises(InvalidParameter, match="delta must be larger"):
        calibrate(Budget(2.0, 1e-60), planned)
    calibrate(Budget(500.0, 1e-5), planned)


def test_the_grid_is_given_where_integers_are_planned_and_nowhere_else() -> None:
    plan = calibrate(
        BUDGET, [PlannedRelease("plain", 1.0, share=0.5), PlannedRelease("grid", 1.0, share=0.5, values=3)]
    )
    with pytest.raises(InvalidParameter, match="grid must be given for grid"):
        plan["grid"].event("a")
    with pytest.raises(InvalidParameter, match="grid must be None for plain"):
        plan["plain"].event("a", grid=0.1)


def test_one_sampled_release_gets_the_exact_amplified_noise() -> None:
    """One Poisson-sampled release has δ(ε) = q δ_Gauss(log(1 + (e^ε − 1)/q)), which gives its noise by hand."""
    rate, budget = 0.3, Budget(0.3, 1e-5, adjacency="add-remove")
    plan = calibrate(budget, PlannedRelease("batch", 3.0, sampling_rate=rate))
    inner = math.log1p(math.expm1(budget.epsilon) / rate)
    assert plan["batch"].sigma == pytest.approx(3.0 / gaussian_mu(inner, budget.delta / rate), rel=1e-4)
    assert plan.accountant.name == "pld"
    assert isinstance(plan["batch"].event("a"), SampledGaussianRelease)
    assert_used_up(plan, 1e-3)


def test_many_sampled_releases_need_less_noise_than_unsampled_ones() -> None:
    budget = Budget(0.3, 1e-5, adjacency="add-remove")
    plan = calibrate(budget, PlannedRelease("batch", 1.0, count=50, sampling_rate=0.1))
    without = calibrate(budget, PlannedRelease("batch", 1.0, count=50))
    assert 0.1 < plan["batch"].sigma / without["batch"].sigma < 0.15
    assert_used_up(plan, 1e-3)


def test_plain_and_sampled_noise_share_one_budget() -> None:
    plan = calibrate(
        SAMPLING,
        [PlannedRelease("batch", 1.0, count=20, share=0.7, sampling_rate=0.2), PlannedRelease("plain", 1.0, share=0.3)],
    )
    assert plan.accountant.name == "pld"
    assert plan["plain"].mu ** 2 / plan["batch"].mu ** 2 == pytest.approx(3 / 7, rel=1e-9)
    assert_used_up(plan, 1e-3)
    # The plain part alone must stay well inside, and together they must cost more than it.
    alone = Composition([plan["plain"].event("a")])
    assert ACCOUNTANTS["gdp"].epsilon(alone, SAMPLING.delta) < plan.epsilon


def test_sampled_releases_on_a_grid_share_a_budget_with_others() -> None:
    plan = calibrate(
        SAMPLING,
        [
            PlannedRelease("batch", 1.0, count=20, share=0.5, sampling_rate=0.2, values=10**5),
            PlannedRelease("plain", 1.0, share=0.3),
            PlannedRelease("grid", 1.0, share=0.2, values=10**6),
        ],
    )
    assert plan.accountant.name == "pld"
    event = plan["batch"].event("a", grid=0.01, noise="discrete")
    assert isinstance(event, SampledGaussianRelease)
    assert (event.values, event.grid) == (10**5, 0.01)
    assert plan.composition.values == 20 * 10**5 + 10**6
    assert_used_up(plan, 1e-3)


def test_an_event_says_what_the_plan_and_the_budget_say() -> None:
    budget = Budget(1.0, 1e-5, adjacency="add-remove", unit="client")
    plan = calibrate(budget, PlannedRelease("density", 2.0, count=3, stage="density"))
    event = plan["density"].event("client-1", round=2, trust="aggregate", noise="system")
    assert (event.what, event.client, event.round, event.stage) == ("density", "client-1", 2, "density")
    assert (event.adjacency, event.unit, event.trust, event.noise) == ("add-remove", "client", "aggregate", "system")
    assert (event.sensitivity, event.sigma, event.count) == (2.0, plan["density"].sigma, 1)


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="gradient"):
        calibrate(BUDGET, three_uploads())["gradient"]


def test_an_empty_plan_is_a_named_error() -> None:
    with pytest.raises(InvalidParameter, match=r"plan must be at least one PlannedRelease, but is \(\)"):
        calibrate(BUDGET, [])


@pytest.mark.parametrize("shares", [(0.5, 0.4), (0.6, 0.5), (1.0, 1.0), (0.5, 0.5 + 1e-8)])
def test_shares_that_do_not_sum_to_one_are_a_named_error(shares: tuple[float, float]) -> None:
    plan = [PlannedRelease(str(index), 1.0, share=share) for index, share in enumerate(shares)]
    with pytest.raises(InvalidParameter, match="the sum of the plan's shares must be 1") as caught:
        calibrate(BUDGET, plan)
    assert caught.value.value == math.fsum(shares)


def test_shares_may_sum_to_one_up_to_rounding() -> None:
    plan = [PlannedRelease(str(index), 1.0, share=0.1) for index in range(10)]
    assert_used_up(calibrate(BUDGET, plan), 1e-6)


def test_two_releases_of_one_name_are_a_named_error() -> None:
    plan = [PlannedRelease("gradient", 1.0, share=0.5), PlannedRelease("gradient", 2.0, share=0.5)]
    with pytest.raises(InvalidParameter, match="different names"):
        calibrate(BUDGET, plan)


def test_sampling_under_replace_one_is_a_named_error() -> None:
    with pytest.raises(InvalidParameter, match="adjacency must be add-remove under Poisson sampling"):
        calibrate(BUDGET, PlannedRelease("batch", 1.0, sampling_rate=0.1))


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *[("sensitivity", value) for value in (0, -1.0, math.nan, math.inf, "1", None)],
        *[("count", value) for value in (0, -1, 2.5, math.inf, math.nan, "3")],
        *[("share", value) for value in (0.0, -0.1, 1.01, math.nan, "1")],
        *[("sampling_rate", value) for value in (0.0, 1.5, -1, math.nan, "0.1")],
        *[("values", value) for value in (-1, 2.5, math.inf, math.nan, "1", None)],
    ],
)
def test_bad_numbers_in_a_plan_are_named_errors(field: str, bad: object) -> None:
    with pytest.raises(InvalidParameter, match=f"{field} of gradient must be") as caught:
        PlannedRelease(**{"what": "gradient", "sensitivity": 1.0, field: bad})
    assert repr(bad) in str(caught.value)
