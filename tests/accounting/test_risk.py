"""What μ and δ(ε) mean for a person: rates, groups, runs, the trade-off curve, and calibration to a risk."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from accounting import (
    Budget,
    CannotAccount,
    Composition,
    GaussianRelease,
    InvalidParameter,
    PlannedRelease,
    SampledGaussianRelease,
    Unprotected,
    calibrate,
    calibrate_to_risk,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    risk,
)
from accounting.risk import CURVE, FALSE_POSITIVES, Goal, Risk, TradeOff

MU = st.floats(1e-6, 30)
RATE = st.floats(0, 1)


def gaussian(mu: float, **options: object) -> Composition:
    return Composition([GaussianRelease(what="x", client="a", sensitivity=mu, sigma=1.0, **options)])  # type: ignore[arg-type]


def sampled(sigma: float, rate: float, count: int, **options: object) -> Composition:
    event = SampledGaussianRelease(
        what="x", client="a", sensitivity=1.0, sigma=sigma, count=count, sampling_rate=rate, adjacency="add-remove",
        **options,  # type: ignore[arg-type]
    )  # fmt: skip
    return Composition([event])


def test_the_numbers_of_one_epsilon() -> None:
    """ε = 1, δ = 1e-5, checked by hand: not what (ε, δ) alone would let a reader assume."""
    mu = gaussian_mu(1.0, 1e-5)
    assert mu == pytest.approx(0.2681, abs=5e-5)
    assert risk.advantage(mu) == pytest.approx(0.1066, abs=5e-5)
    assert risk.right_guesses(mu) == pytest.approx(55.33, abs=5e-3)
    assert risk.true_positive_rate(mu, 0.01) == pytest.approx(0.01978, abs=5e-6)
    assert gaussian_epsilon(risk.group(mu, 2), 1e-5) == pytest.approx(2.155, abs=5e-4)
    assert gaussian_epsilon(risk.group(mu, 5), 1e-5) == pytest.approx(6.167, abs=5e-4)
    assert gaussian_epsilon(risk.repeated(mu, 10), 1e-5) == pytest.approx(3.619, abs=5e-4)


@given(mu=MU)
def test_the_advantage_is_delta_at_epsilon_zero_and_twice_the_guesses(mu: float) -> None:
    assert risk.advantage(mu) == pytest.approx(gaussian_delta(mu, 0.0), rel=1e-9)
    assert risk.right_guesses(mu) == pytest.approx(50 * (1 + risk.advantage(mu)), rel=1e-12)


@given(mu=MU, alpha=st.floats(1e-12, 1 - 1e-12))
def test_the_curve_is_that_of_the_best_test_of_two_normals(mu: float, alpha: float) -> None:
    threshold = norm.isf(alpha)
    assert risk.true_positive_rate(mu, alpha) == pytest.approx(norm.sf(threshold - mu), rel=1e-6)


@given(mu=MU, alpha=RATE, epsilon=st.floats(0, 20))
def test_no_rate_is_above_what_any_epsilon_and_delta_of_it_allow(mu: float, alpha: float, epsilon: float) -> None:
    """Both directions of (ε, δ)-DP, at every point of δ(ε)."""
    rate, delta = risk.true_positive_rate(mu, alpha), gaussian_delta(mu, epsilon)
    assert rate <= (delta + math.exp(epsilon) * alpha) * (1 + 1e-9) + 1e-12
    assert 1 - rate >= math.exp(-epsilon) * (1 - alpha - delta) - 1e-9
    assert alpha <= rate <= 1 or rate == pytest.approx(alpha)


@given(mu=st.floats(1e-3, 10))
def test_the_largest_gap_of_the_curve_is_the_advantage(mu: float) -> None:
    alphas = norm.sf(np.linspace(-10, 20, 6001))
    gap = max(risk.true_positive_rate(mu, float(alpha)) - float(alpha) for alpha in alphas[::10])
    assert gap <= risk.advantage(mu) + 1e-12
    assert gap == pytest.approx(risk.advantage(mu), rel=1e-2, abs=1e-4)


def test_ends_of_the_curve() -> None:
    assert risk.true_positive_rate(2.0, 0.0) == 0.0
    assert risk.true_positive_rate(2.0, 1.0) == 1.0
    assert risk.true_positive_rate(math.inf, 0.0) == 1.0
    assert risk.true_positive_rate(0.0, 0.3) == pytest.approx(0.3)
    assert (risk.advantage(0.0), risk.advantage(math.inf)) == (0.0, 1.0)
    assert risk.right_guesses(0.0) == 50.0
    curve = risk.trade_off(1.0)
    assert [alpha for alpha, _ in curve] == list(CURVE)
    assert list(curve) == sorted(curve)


@given(mu=st.floats(1e-3, 3), k=st.integers(1, 20))
def test_groups_and_runs(mu: float, k: int) -> None:
    """k records move a sum k times as far; k runs are k releases."""
    further = GaussianRelease(what="x", client="a", sensitivity=k * mu, sigma=1.0)
    often = GaussianRelease(what="x", client="a", sensitivity=mu, sigma=1.0, count=k)
    assert risk.group(mu, k) == pytest.approx(further.mu)
    assert risk.repeated(mu, k) == pytest.approx(often.mu)


@given(mu=st.floats(1e-3, 10), alpha=st.floats(1e-6, 0.5))
def test_a_mu_for_a_risk_has_it(mu: float, alpha: float) -> None:
    assert risk.mu_for(advantage=risk.advantage(mu)) == pytest.approx(mu, rel=1e-4)
    rate = risk.true_positive_rate(mu, alpha)
    if rate < 1 - 1e-9:
        assert risk.mu_for(true_positive_rate=rate, false_positive_rate=alpha) == pytest.approx(mu, rel=1e-4)


@pytest.mark.parametrize(
    "call",
    [
        lambda: risk.advantage(-1.0),
        lambda: risk.advantage(math.nan),
        lambda: risk.true_positive_rate(1.0, 1.1),
        lambda: risk.group(1.0, 0),
        lambda: risk.repeated(1.0, 2.5),  # type: ignore[arg-type]
        lambda: risk.mu_for(),
        lambda: risk.mu_for(advantage=1.0),
        lambda: risk.mu_for(advantage=0.1, true_positive_rate=0.2, false_positive_rate=0.1),
        lambda: risk.mu_for(true_positive_rate=0.2),
        lambda: risk.mu_for(true_positive_rate=0.01, false_positive_rate=0.01),
    ],
)
def test_bad_numbers_have_a_named_error(call: object) -> None:
    with pytest.raises(InvalidParameter):
        call()  # type: ignore[operator]


# Compositions


def test_a_composition_has_the_risk_of_its_mu() -> None:
    found = Risk.of([gaussian(0.3, count=4), gaussian(0.2)])
    assert found.mu == pytest.approx(0.6)
    assert found.advantage == pytest.approx(risk.advantage(0.6))
    assert dict(found.true_positives) == pytest.approx({a: risk.true_positive_rate(0.6, a) for a in FALSE_POSITIVES})


def test_the_largest_of_risks_is_the_largest_at_each_rate() -> None:
    """Curves cross: neither of the two is the larger everywhere."""
    low, high = Risk(None, 0.1, ((0.001, 0.5), (0.05, 0.6))), Risk(2.0, 0.3, ((0.001, 0.2), (0.05, 0.9)))
    both = ((0.001, 0.5), (0.05, 0.9))
    assert Risk.largest([low, high]) == Risk.largest([high, low]) == Risk(None, 0.3, both)
    one, two = Risk.of([gaussian(0.3)]), Risk.of([gaussian(0.2)])
    assert Risk.largest([two, one]) == one
    with pytest.raises(InvalidParameter, match="risks"):
        Risk.largest([])


def test_nothing_and_everything() -> None:
    assert (Risk.of([]).mu, Risk.of([]).advantage) == (0.0, 0.0)
    assert Risk.of([]).curve == tuple((a, pytest.approx(a)) for a in CURVE)
    bare = Composition([Unprotected(what="rows", client="a", why="exact")])
    found = Risk.of([gaussian(0.1), bare])
    assert (found.mu, found.advantage, found.right_guesses) == (math.inf, 1.0, 100.0)
    assert found.to_dict()["mu"] == "inf"


def test_integers_are_charged() -> None:
    """Against a plain Gaussian release the real one may be further apart, and never nearer."""
    plain, real = gaussian(0.3), gaussian(0.3, grid=0.01, values=2**40, noise="discrete")
    assert TradeOff.of(real).advantage > TradeOff.of(plain).advantage
    assert TradeOff.of(real).advantage == pytest.approx(TradeOff.of(plain).advantage, abs=0.02)
    for alpha in FALSE_POSITIVES:
        assert TradeOff.of(real).true_positive_rate(alpha) > TradeOff.of(plain).true_positive_rate(alpha)


def test_sampling_at_rate_one_is_no_sampling() -> None:
    read, exact = TradeOff.of(sampled(2.0, 1.0, 4)), TradeOff.of(gaussian(1.0))
    assert read.mu is None
    assert read.advantage == pytest.approx(exact.advantage, rel=1e-5)
    for alpha in (*FALSE_POSITIVES, 0.3, 0.7, 0.95):
        assert exact.true_positive_rate(alpha) <= read.true_positive_rate(alpha) * (1 + 1e-9)
        assert read.true_positive_rate(alpha) == pytest.approx(exact.true_positive_rate(alpha), rel=1e-3)


def test_one_sampled_release_has_the_curve_of_a_mixture() -> None:
    """Of one release both directions are known exactly: N(0, σ²) against (1 − q) N(0, σ²) + q N(1, σ²)."""
    sigma, q = 0.7, 0.3
    read = TradeOff.of(sampled(sigma, q, 1))
    x = np.linspace(-8, 9, 200_001)
    without = norm.sf(x, scale=sigma)
    mixed = (1 - q) * without + q * norm.sf(x, loc=1.0, scale=sigma)
    assert read.advantage == pytest.approx(float(np.max(mixed - without)), abs=1e-4)
    for alpha in (0.01, 0.05, 0.3):
        removed = float(np.interp(alpha, without[::-1], mixed[::-1]))
        added = float(np.interp(alpha, 1 - mixed, 1 - without))
        assert max(removed, added) <= read.true_positive_rate(alpha) + 1e-6
        # The two directions cross, and one line under both is above either.
        assert read.true_positive_rate(alpha) == pytest.approx(max(removed, added), rel=0.1)


def test_an_independent_library_agrees() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dp_accounting.pld import privacy_loss_distribution as distributions
        from riskcal.analysis import conversions
    for mu in (0.05, 0.268, 1.0, 4.0):
        assert risk.advantage(mu) == pytest.approx(float(conversions.get_advantage_from_gdp(mu)), rel=1e-9)
        for alpha in (*FALSE_POSITIVES, 0.5):
            missed = float(conversions.get_beta_from_gdp(mu, alpha))
            assert risk.true_positive_rate(mu, alpha) == pytest.approx(1 - missed, rel=1e-9)
    pld = distributions.from_gaussian_mechanism(2.0, sampling_prob=0.1, value_discretization_interval=1e-3)
    pld = pld.self_compose(10)
    read = TradeOff.of(sampled(2.0, 0.1, 10))
    assert read.advantage == pytest.approx(float(conversions.get_advantage_from_pld(pld)), rel=0.02)
    for alpha in FALSE_POSITIVES:
        missed = float(conversions.get_beta_from_pld(pld, alpha=alpha))
        assert read.true_positive_rate(alpha) == pytest.approx(1 - missed, rel=0.02)
        assert read.true_positive_rate(alpha) >= (1 - missed) * (1 - 0.005)


# Calibration to a risk

GOALS = [Goal(advantage=0.1), Goal(true_positive_rate=0.02, false_positive_rate=0.01)]


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("values", [0, 400_000])
def test_calibrated_releases_have_the_risk_and_no_more(goal: Goal, values: int) -> None:
    plan = calibrate_to_risk(goal, 1e-5, PlannedRelease("x", 0.5, count=50, values=values))
    found = goal.excess(TradeOff.of(plan.composition))
    assert -1e-6 < found <= 0
    assert plan.epsilon == plan.budget.epsilon
    # The same as calibrating to the ε that this is.
    same = calibrate(plan.budget, PlannedRelease("x", 0.5, count=50, values=values))
    assert same["x"].sigma == pytest.approx(plan["x"].sigma, rel=1e-6)


@settings(max_examples=settings.default.max_examples // 2)
@given(wanted=st.floats(1e-4, 0.99), values=st.sampled_from([0, 1000, 10**6]))
def test_any_advantage_can_be_calibrated_to(wanted: float, values: int) -> None:
    goal = Goal(advantage=wanted)
    plan = calibrate_to_risk(goal, 1e-6, PlannedRelease("x", 1.0, values=values))
    assert TradeOff.of(plan.composition).advantage <= wanted
    assert TradeOff.of(plan.composition).advantage == pytest.approx(wanted, rel=1e-4)
    assert risk.budget(1e-6, advantage=wanted).epsilon == pytest.approx(plan.budget.epsilon, rel=1e-3)


def test_sampling_lowers_the_noise_for_a_risk() -> None:
    goal = Goal(advantage=0.1)
    plan = calibrate_to_risk(goal, 1e-5, PlannedRelease("x", 1.0, 3, sampling_rate=0.2), adjacency="add-remove")
    assert plan["x"].sigma < 0.5 * calibrate_to_risk(goal, 1e-5, PlannedRelease("x", 1.0, 3))["x"].sigma
    assert TradeOff.of(plan.composition).advantage <= 0.1
    assert TradeOff.of(plan.composition).advantage == pytest.approx(0.1, rel=1e-4)


def test_a_budget_for_a_risk_can_be_used_anywhere() -> None:
    budget = risk.budget(1e-5, advantage=0.1, unit="client")
    assert isinstance(budget, Budget)
    assert (budget.delta, budget.unit) == (1e-5, "client")
    assert risk.advantage(budget.mu) == pytest.approx(0.1)


def test_a_risk_below_what_the_integers_alone_are_charged_is_refused() -> None:
    with pytest.raises((CannotAccount, InvalidParameter)):
        calibrate_to_risk(Goal(advantage=1e-9), 1e-5, PlannedRelease("x", 1.0, values=2**45))
