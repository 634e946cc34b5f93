"""AUC, rates, thresholds, and the most that a guarantee allows of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import binom, binomtest, norm

from accounting import Budget, Ledger, SampledGaussianRelease, Unprotected, gaussian_epsilon
from accounting.events import GaussianRelease
from attacks import membership
from attacks.membership.rates import Game
from attacks.shared.statistics import Limit, NoScores, auc, conformal_threshold, exceeds, rate

GAME = Game("scores", "members", "others", "everything", independent=True)


@pytest.mark.parametrize("ties", [False, True])
def test_auc_and_its_interval_match_all_pairs(ties):
    rng = np.random.default_rng(5)
    a, b = rng.normal(0.5, 1, 40), rng.normal(0, 1, 30)
    if ties:
        a, b = a.round(), b.round()
    wins = (a[:, None] > b) + 0.5 * (a[:, None] == b)
    variance = wins.mean(axis=1).var(ddof=1) / 40 + wins.mean(axis=0).var(ddof=1) / 30
    found = auc(a, b)
    assert found.value == pytest.approx(wins.mean(), rel=1e-12)
    assert found.high - found.low == pytest.approx(2 * norm.ppf(0.975) * math.sqrt(variance), rel=1e-9)


def test_perfect_scores_have_an_interval_with_width():
    found = auc(np.arange(50, 100), np.arange(50))
    assert found.value == found.high == 1
    assert found.low == pytest.approx(0.025 ** (1 / 50), rel=1e-9)


@given(hits=st.integers(0, 30), more=st.integers(0, 30))
def test_rates_and_p_values_are_exact(hits, more):
    trials = hits + more + 1
    expected = binomtest(hits, trials).proportion_ci(0.95, "exact")
    assert (rate(hits, trials).low, rate(hits, trials).high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert exceeds(hits, trials, 0.3) == pytest.approx(binom.sf(hits - 1, trials, 0.3), abs=1e-12)


@given(mu=st.floats(0, 6))
def test_largest_auc_is_the_area_under_the_largest_rates(mu):
    limit = Limit.of_mu(mu)
    area = quad(lambda z: limit.tpr(float(ndtr(z))) * norm.pdf(z), -9, 9, limit=200)[0]
    assert limit.auc() == pytest.approx(area, abs=1e-6)


@given(epsilon=st.floats(0, 8), delta=st.floats(1e-6, 0.3))
def test_largest_auc_of_epsilon_delta(epsilon, delta):
    limit, grid = Limit(None, epsilon, delta), np.linspace(0, 1, 4001)
    area = np.trapezoid([limit.tpr(float(each)) for each in grid], grid)
    # The curve bends only between two points of the grid, where the trapezoid is off by less than one cell.
    assert limit.auc() == pytest.approx(area, abs=2 / 4000)


@given(mu=st.floats(0.0, 6.0), epsilon=st.floats(0.0, 8.0), delta=st.sampled_from([0.0, 1e-5, 0.1]))
def test_no_guess_is_right_more_often_than_allowed(mu, epsilon, delta):
    grid = np.concatenate([np.linspace(1e-6, 1 - 1e-6, 2001), ndtr([-mu / 2]), [(1 - delta) / (1 + math.exp(epsilon))]])
    for limit in (Limit.of_mu(mu), Limit(None, epsilon, delta)):
        best = max((1 - fpr + limit.tpr(float(fpr))) / 2 for fpr in grid)
        assert limit.accuracy() == pytest.approx(best, abs=1e-9)


@given(mu=st.floats(0.1, 4.0))
def test_a_curve_allows_less_than_one_point_of_it_and_no_less_than_mu(mu):
    pairs = [(gaussian_epsilon(mu, delta), delta) for delta in (1e-5, 0.01, 0.1, 0.3)]
    exact, one, curve = Limit.of_mu(mu), Limit(None, *pairs[0]), Limit(None, *pairs[0], tuple(pairs[1:]))
    assert exact.accuracy() <= curve.accuracy() + 1e-9 <= one.accuracy() + 2e-9
    assert exact.auc() <= curve.auc() + 1e-9 <= one.auc() + 2e-9
    for fpr in (1e-3, 0.05, 0.4):
        assert exact.tpr(fpr) <= curve.tpr(fpr) + 1e-9 <= one.tpr(fpr) + 2e-9
    # The curve is worth something.
    assert curve.accuracy() < one.accuracy()


@given(epsilon=st.floats(0.1, 8), fpr=st.floats(1e-4, 0.99))
def test_gdp_allows_no_more_than_its_epsilon_delta(epsilon, fpr):
    limit = Limit.of_mu(Budget(epsilon, 1e-5).mu)
    assert limit.tpr(fpr) <= Limit(None, epsilon, 1e-5).tpr(fpr) + 1e-9


def test_limits_come_from_the_ledger():
    event = GaussianRelease(what="gradient", client="a", sensitivity=3.0, sigma=1.0)
    with Ledger() as ledger:
        assert Limit.of_ledger(ledger, 1e-5, rows=True).mu == 0
        ledger.record(event, replace(event, sensitivity=4.0), replace(event, client="b"))
        ledger.record(Unprotected(what="rows", client="b", stage="release", why="exact"))
        assert Limit.of_ledger(ledger, 1e-5, rows=False).mu == pytest.approx(5)
        assert Limit.of_ledger(ledger, 1e-5, rows=True).auc() == 1
    with Ledger() as ledger:
        ledger.record(replace(event, adjacency="add-remove"))
        assert Limit.of_ledger(ledger, 1e-5, rows=True).mu == pytest.approx(6)
    sampled = SampledGaussianRelease(
        what="gradient", client="a", sensitivity=1.0, sigma=2.0, sampling_rate=0.1, adjacency="add-remove"
    )
    with Ledger() as ledger:
        ledger.record(sampled)
        # Replacing is two steps of add-remove, and a sampled release has no μ to double.
        assert Limit.of_ledger(ledger, 1e-5, rows=True).epsilon == math.inf


@given(seed=st.integers(0, 10**6), n=st.integers(2, 60), fpr=st.floats(0.01, 0.5))
def test_conformal_thresholds_leave_the_right_rank(seed, n, fpr):
    scores = np.random.default_rng(seed).normal(size=n)
    threshold = conformal_threshold(scores, fpr)
    # A new score above the threshold has one of the k best of n + 1 ranks, with k/(n + 1) ≤ fpr.
    assert (int((scores >= threshold).sum())) / (n + 1) <= fpr + 1e-9
    assert (int((scores >= threshold).sum()) + 1) / (n + 1) > fpr - 1e-9


def test_rates_at_a_threshold_from_calibration():
    calibration, others = np.arange(1000) / 1000, np.arange(0, 1000, 10) / 1000
    found = membership([0.995, 0.5, 2.0, 3.0], others, calibration=calibration, game=GAME, limit=Limit.of_mu(1.0))
    small, large = found.points
    assert (small.target, large.target) == (0.001, 0.01)
    assert small.tpr.value == 0.5
    assert large.tpr.value == 0.75
    assert large.allowed == pytest.approx(ndtr(norm.ppf(0.01) + 1))
    few = membership([1.0, 2.0], [0.0, 1.0], calibration=calibration[:500], game=GAME, limit=Limit.of_mu(1.0))
    assert [each.tpr is None for each in few.points] == [True, False]
    assert "too few records out" in few.markdown()
    assert json.loads(few.to_json())["points"][0]["tpr"] is None


@pytest.mark.parametrize("scores", [[1.0], [[1.0, 2.0]], [1.0, math.nan]])
def test_scores_that_are_none_are_refused(scores):
    with pytest.raises(NoScores):
        membership(scores, [0.0, 1.0], game=GAME, limit=Limit.of_mu(1.0))
