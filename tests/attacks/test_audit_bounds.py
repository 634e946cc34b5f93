"""Lower bounds from counts: against slow references, and by exact enumeration of how often they are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm

from accounting import InvalidParameter, gaussian_delta, gaussian_epsilon
from attacks.auditing.bounds import (
    epsilon_from_gdp,
    epsilon_from_one_run,
    epsilon_from_rates,
    mu_from_errors,
    mu_from_gdp,
    one_run_p_value,
    planned_guesses,
    rate_above,
)

CONFIDENCE = st.floats(0.5, 0.999)
DELTA = st.floats(-12, -1).map(lambda exponent: 10.0**exponent)


@st.composite
def counts(draw: st.DrawFn, most: int = 60) -> tuple[int, int]:
    games = draw(st.integers(1, most))
    return draw(st.integers(0, games)), games


@given(counts(), CONFIDENCE)
def test_the_rate_is_that_of_clopper_and_pearson(drawn: tuple[int, int], confidence: float) -> None:
    errors, games = drawn
    exact = binomtest(errors, games, alternative="less").proportion_ci(confidence, method="exact")
    assert rate_above(errors, games, confidence) == pytest.approx(exact.high, rel=1e-9)


@given(st.integers(1, 60), st.floats(0, 1), CONFIDENCE)
def test_the_rate_is_exceeded_no_more_often_than_stated(games: int, rate: float, confidence: float) -> None:
    """All outcomes of the games, weighed by their probability."""
    wrong = sum(binom.pmf(k, games, rate) for k in range(games + 1) if rate_above(k, games, confidence) < rate)
    assert wrong <= 1 - confidence + 1e-9


@given(st.floats(0.01, 8), st.floats(-4, 4))
def test_a_gaussian_mechanism_has_its_own_mu_at_every_threshold(mu: float, threshold: float) -> None:
    """Scores N(0, 1) and N(μ, 1): whatever the threshold, the rates lie on the trade-off curve of μ."""
    positive, negative = norm.sf(threshold), norm.cdf(threshold - mu)
    assert mu_from_gdp(positive, negative) == pytest.approx(mu, rel=1e-6, abs=1e-6)
    assert mu_from_errors((positive + negative) / 2) <= mu + 1e-6
    assert mu_from_errors(norm.cdf(-mu / 2)) == pytest.approx(mu, rel=1e-9)


@given(st.integers(2, 9), st.floats(0, 3), st.floats(-2, 2), CONFIDENCE)
def test_the_gdp_bound_is_above_the_truth_no_more_often_than_stated(
    games: int, mu: float, threshold: float, confidence: float
) -> None:
    """All outcomes of the coins and of the games on either side, for Gaussian noise and any threshold."""
    epsilon, wrong = gaussian_epsilon(mu, 1e-5), 0.0
    outside, inside = norm.sf(threshold), norm.cdf(threshold - mu)
    for games_in in range(1, games):
        games_out = games - games_in
        masses_out = binom.pmf(np.arange(games_out + 1), games_out, outside)
        masses_in = binom.pmf(np.arange(games_in + 1), games_in, inside)
        for fp, fn in np.ndindex(games_out + 1, games_in + 1):
            if epsilon_from_gdp(fp, games_out, fn, games_in, 1e-5, confidence) > epsilon + 1e-9:
                wrong += float(binom.pmf(games_in, games, 0.5) * masses_out[fp] * masses_in[fn])
    assert wrong <= 1 - confidence + 1e-9


def test_one_interval_for_all_errors_is_sharper_than_two() -> None:
    """3,085 errors in 10,000 games, as μ = 1 gives: both rates alone would certify 4.01."""
    both = [rate_above(errors, 5000, 0.975) for errors in (1542, 1543)]
    assert gaussian_epsilon(mu_from_gdp(*both), 1e-5) == pytest.approx(4.01, abs=0.005)
    assert epsilon_from_gdp(1542, 5000, 1543, 5000, 1e-5, 0.95) == pytest.approx(4.12, abs=0.02)
    # A threshold far off to one side: the rates differ, and the two of them say more.
    assert epsilon_from_gdp(0, 5000, 4000, 5000, 1e-5, 0.95) > 5
    assert mu_from_errors(rate_above(4000, 10_000, 0.975)) < 0.6


@given(st.floats(0, 1), st.floats(0, 1))
def test_no_bound_for_a_test_that_is_no_better_than_chance(positive: float, rest: float) -> None:
    negative = 1 - positive + rest * positive
    assert epsilon_from_rates(positive, negative, 1e-5) == 0
    assert mu_from_errors((positive + negative) / 2) <= 1e-9
    if 0 < positive < 1 and negative < 1:
        assert mu_from_gdp(positive, negative) <= 1e-9


@given(st.floats(0.01, 10), DELTA)
def test_randomised_response_has_its_own_epsilon(epsilon: float, delta: float) -> None:
    """Right with probability δ + (1 − δ)e^ε/(e^ε + 1), it is (ε, δ)-DP and no better."""
    wrong = (1 - delta) / (1 + math.exp(epsilon))
    assert epsilon_from_rates(wrong, wrong, delta) == pytest.approx(epsilon, rel=1e-6)


@given(st.floats(0.05, 4), st.floats(-3, 3), DELTA)
def test_rates_of_gaussian_noise_never_exceed_its_epsilon(mu: float, threshold: float, delta: float) -> None:
    bound = epsilon_from_rates(norm.sf(threshold), norm.cdf(threshold - mu), delta)
    assert bound == 0 or gaussian_delta(mu, bound) >= delta * (1 - 1e-6)


def slow_p_value(games: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Thm 5.2 of Steinke, Nasr & Jagielski (2023), term by term."""
    if correct == 0:
        return 1.0
    guess = binom(guesses, math.exp(epsilon) / (math.exp(epsilon) + 1))
    alpha = max((2 / i) * sum(guess.pmf(k) for k in range(correct - i, correct)) for i in range(1, correct + 1))
    return min(1.0, guess.sf(correct - 1) + games * delta * alpha)


@given(counts(40), st.integers(0, 1000), st.floats(0, 6), DELTA)
def test_the_one_run_p_value_is_that_of_the_theorem(
    drawn: tuple[int, int], abstained: int, epsilon: float, delta: float
) -> None:
    correct, guesses = drawn
    found = one_run_p_value(guesses + abstained, guesses, correct, epsilon, delta)
    assert found == pytest.approx(slow_p_value(guesses + abstained, guesses, correct, epsilon, delta), rel=1e-9)


@given(st.integers(1, 40), st.floats(0, 5), CONFIDENCE)
def test_the_one_run_bound_is_above_the_truth_no_more_often_than_stated(
    games: int, epsilon: float, confidence: float
) -> None:
    """Randomised response on every game is ε-DP and the worst of all: the number guessed right is binomial."""
    right = binom(games, 1 / (1 + math.exp(-epsilon)))
    bounds = [epsilon_from_one_run(games, games, k, 1e-12, confidence) for k in range(games + 1)]
    wrong = sum(right.pmf(k) for k, bound in enumerate(bounds) if bound > epsilon + 1e-9)
    assert wrong <= 1 - confidence + 1e-9
    assert bounds == sorted(bounds)


@given(counts(200), DELTA, CONFIDENCE)
def test_the_one_run_bound_is_where_the_p_value_meets_the_level(
    drawn: tuple[int, int], delta: float, confidence: float
) -> None:
    correct, guesses = drawn
    bound = epsilon_from_one_run(2 * guesses, guesses, correct, delta, confidence)
    level = 1 - confidence
    if bound == 0:
        assert one_run_p_value(2 * guesses, guesses, correct, 0.0, delta) >= level * (1 - 1e-9)
    else:
        assert one_run_p_value(2 * guesses, guesses, correct, bound, delta) == pytest.approx(level, rel=1e-6)


def test_delta_costs_what_the_theorem_says() -> None:
    """1,000 games, all guessed right: an honest δ of 10⁻³ explains one of them on average, and the bound falls."""
    bounds = [epsilon_from_one_run(1000, 1000, 1000, delta, 0.95) for delta in (1e-12, 1e-5, 1e-4, 1e-3)]
    assert bounds[0] == pytest.approx(-math.log(0.05 ** (-1 / 1000) - 1), rel=1e-6)  # q^1000 = 0.05
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < 0.9 * bounds[0]


@pytest.mark.parametrize(("mu", "games"), [(0.5, 5000), (1.0, 10_000), (3.0, 1000), (8.0, 200)])
def test_the_planned_number_of_guesses_is_as_good_as_any(mu: float, games: int) -> None:
    """By simulation: many runs under the claim, each number of guesses scored by its mean bound."""
    generator = np.random.default_rng(5)
    planned = planned_guesses(games, mu, 1e-5, 0.95)
    assert 1 <= planned <= games

    def mean_bound(guesses: int) -> float:
        bounds = []
        for _ in range(30):
            ratios = generator.normal(mu / 2, 1, games)
            surest = ratios[np.argsort(-np.abs(ratios))[:guesses]]
            bounds.append(epsilon_from_one_run(games, guesses, int((surest > 0).sum()), 1e-5, 0.95))
        return float(np.mean(bounds))

    others = [mean_bound(max(1, round(games * share))) for share in (0.01, 0.03, 0.1, 0.3, 1.0)]
    assert mean_bound(planned) >= 0.9 * max(others)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: rate_above(3, 2, 0.9), "errors"),
        (lambda: rate_above(-1, 2, 0.9), "errors"),
        (lambda: rate_above(0, 0, 0.9), "games"),
        (lambda: rate_above(0, 2, 1.0), "confidence"),
        (lambda: one_run_p_value(5, 6, 1, 1.0, 1e-5), "games"),
        (lambda: one_run_p_value(5, 4, 5, 1.0, 1e-5), "correct"),
        (lambda: one_run_p_value(5, 4, 3, -1.0, 1e-5), "epsilon"),
        (lambda: one_run_p_value(5, 4, 3, 1.0, 0.0), "delta"),
        (lambda: epsilon_from_one_run(5, 4, 3, 1e-5, 0.0), "confidence"),
        (lambda: epsilon_from_rates(0.1, 0.1, 1.0), "delta"),
    ],
)
def test_bad_numbers_are_named(call, name) -> None:
    with pytest.raises(InvalidParameter, match=name):
        call()
