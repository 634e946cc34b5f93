"""Membership inference: certain where gradients are exact, bounded by μ where noise is calibrated, and a leak shows."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import binom, binomtest, norm

from accounting import Budget, Ledger, SampledGaussianRelease, Unprotected, gaussian_epsilon, sensitivity
from accounting.events import GaussianRelease
from attacks import membership
from attacks.gradients import Contribution, SeenGradient
from attacks.inversion_curve import see
from attacks.kinds import NothingToAttack, Truth, kind
from attacks.membership import Game
from attacks.membership_games import Neighbours, judge, play
from attacks.membership_scores import (
    gradient_scores,
    insider_scores,
    landmark_scores,
    likelihood_score,
    list_scores,
    nearest_distances,
)
from attacks.roc import Limit, NoScores, auc, conformal_threshold, exceeds, rate
from attacks.views import as_learned, contribution_of, gradients_of
from dpfedvis.commands.attack import truth_of
from dpfedvis.config import RunConfig
from dpfedvis.data import FederatedData, load
from dpfedvis.errors import DpfedvisError
from dpfedvis.feddl import FedDL
from dpfedvis.kernels import Kernel
from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.mmd import clipped_data_gradient, data_gradient
from dpfedvis.recording import Recording
from dpfedvis.runs import execute

DIGITS = load("digits").X[np.random.default_rng(0).permutation(1797)].astype(np.float64)
GAMMA = 0.1
PLAIN = Contribution(Kernel.gaussian(GAMMA))
CONTRIBUTIONS = [PLAIN, Contribution(Kernel((0.1, 0.7))), Contribution(Kernel((0.1, 0.7)), clip=0.6)]
GAME = Game("scores", "members", "others", "everything", independent=True)
# One false alarm in a thousand; every seed below is fixed, so that a test that passes goes on passing.
LEVEL = 1e-3


def slow_contributions(X: np.ndarray, Y: np.ndarray, contribution: Contribution) -> np.ndarray:
    """c(x) of each record, flattened, from the library's own gradients of one record."""
    kernel, clip = contribution.kernel, contribution.clip
    parts = [
        data_gradient(x[None], Y, kernel, denominator=1)
        if clip is None
        else clipped_data_gradient(x[None], Y, kernel, clip=clip, denominator=1)
        for x in X
    ]
    return np.array(parts).reshape(len(X), -1)


@pytest.mark.parametrize("contribution", CONTRIBUTIONS)
def test_inner_products_match_contributions_written_out(contribution):
    rng = np.random.default_rng(1)
    X, other, Y, G = (rng.normal(size=shape) + 3 for shape in ((6, 3), (4, 3), (5, 3), (5, 3)))
    first, second = (slow_contributions(each, Y, contribution) for each in (X, other))
    close = {"rtol": 1e-9, "atol": 1e-14}
    np.testing.assert_allclose(contribution.gram(X, other, Y), first @ second.T, **close)
    np.testing.assert_allclose(contribution.products(X, Y, G), first @ G.ravel(), **close)
    np.testing.assert_allclose(contribution.squares(X, Y), np.sum(first**2, axis=1), **close)
    np.testing.assert_allclose(contribution.mean(X, Y, 9).ravel(), first.sum(axis=0) / 9, **close)


def noisy_rounds(rng: np.random.Generator, records: np.ndarray, contribution: Contribution) -> list[SeenGradient]:
    seen = []
    for sigma in (0.05, 0.02):
        Y = rng.normal(size=(4, records.shape[1]))
        exact = contribution.mean(records, Y, len(records))
        seen.append(SeenGradient(Y, exact + sigma * rng.normal(size=exact.shape), sigma))
    return seen


def scaled(X: np.ndarray, seen: list[SeenGradient], contribution: Contribution) -> np.ndarray:
    return np.hstack([slow_contributions(X, each.landmarks, contribution) / each.sigma for each in seen])


@pytest.mark.parametrize("contribution", CONTRIBUTIONS)
def test_scores_without_a_list_match_dense_algebra(contribution):
    rng = np.random.default_rng(2)
    records, X, R = (rng.normal(size=(n, 3)) for n in (5, 4, 7))
    seen = noisy_rounds(rng, records, contribution)
    flat = np.concatenate([(each.values / each.sigma).ravel() for each in seen])
    reference, candidates = scaled(R, seen, contribution), scaled(X, seen, contribution)
    mean = reference.mean(axis=0)
    covariance = np.cov(reference.T, bias=True) / 5 + np.eye(len(flat))
    shift = (candidates - mean) / 5
    whitened = np.linalg.solve(covariance, shift.T).T
    expected = whitened @ (flat - mean) - np.vecdot(whitened, shift) / 2
    np.testing.assert_allclose(gradient_scores(seen, contribution, X, R, 5), expected, rtol=1e-8, atol=1e-10)


def test_what_rounding_hides_counts_as_noise():
    """Without noise the matrix is singular. The same as dense algebra with as much noise as the rule states."""
    rng, records, rounds = np.random.default_rng(7), 5, 500
    Y, R, X = (rng.normal(size=(n, 3)) for n in (4, 40, 6))
    seen = SeenGradient(Y, PLAIN.mean(X[:records], Y, records))
    reference, candidates = (slow_contributions(each, Y, PLAIN) for each in (R, X))
    noise = seen.scale**2 / rounds
    heat = np.finfo(float).eps * np.sum(reference**2) / noise / records
    assert heat > 10
    mean = reference.mean(axis=0)
    covariance = np.cov(reference.T, bias=True) / records + heat * noise * np.eye(seen.values.size)
    shift = (candidates - mean) / records
    whitened = np.linalg.solve(covariance, shift.T).T
    expected = whitened @ (seen.values.ravel() - mean) - np.vecdot(whitened, shift) / 2
    # Rounding shows in the scores themselves, which machines differ in, and the factor is far larger than that.
    found = gradient_scores([seen] * rounds, PLAIN, X, R, records)
    np.testing.assert_allclose(found, expected, rtol=0.25, atol=0.05 * np.abs(expected).max())


@pytest.mark.parametrize("contribution", CONTRIBUTIONS)
def test_scores_with_a_list_match_dense_algebra(contribution):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(9, 3))
    seen = noisy_rounds(rng, X[:4], contribution)
    flat = np.concatenate([(each.values / each.sigma).ravel() for each in seen])
    design, share = scaled(X, seen, contribution).T / 4, 4 / 9
    precision = design.T @ design + np.eye(9) / (share * (1 - share))
    expected = np.linalg.solve(precision, design.T @ (flat - design @ np.full(9, share)))
    np.testing.assert_allclose(list_scores(seen, contribution, X, 4), expected, rtol=1e-8, atol=1e-10)


def test_the_likelihood_score_has_the_law_it_claims():
    rng, sigma, games = np.random.default_rng(4), 0.01, 1500
    x, other, known, Y = (rng.normal(size=shape) for shape in ((3,), (3,), (2, 3), (5, 3)))
    for record, shift in ((other, 0), (x, 1)):
        exact = PLAIN.mean(np.vstack([known, record]), Y, 3)
        noise = sigma * rng.normal(size=(games, *exact.shape))
        scores = [likelihood_score([SeenGradient(Y, exact + e, sigma)], PLAIN, x, other, known, 3) for e in noise]
        z = np.array([each.z for each in scores])
        assert z.mean() == pytest.approx(shift * scores[0].distance, abs=4 / math.sqrt(games))
        assert z.std() == pytest.approx(1, abs=4 / math.sqrt(2 * games))


@given(
    seed=st.integers(0, 10**6),
    spread=st.floats(0.05, 5),
    records=st.integers(1, 4),
    landmarks=st.integers(1, 5),
    gammas=st.lists(st.floats(0.05, 5), min_size=1, max_size=2),
)
def test_no_pair_is_further_apart_than_mu(seed, spread, records, landmarks, gammas):
    rng, sigma = np.random.default_rng(seed), 0.3
    x, other, known = (spread * rng.normal(size=shape) for shape in ((2,), (2,), (records - 1, 2)))
    Y, G = rng.normal(size=(2, landmarks, 2))
    contribution = Contribution(Kernel(tuple(gammas)))
    score = likelihood_score([SeenGradient(Y, G, sigma)] * 3, contribution, x, other, known, records)
    delta = sensitivity.gradient(gamma=gammas, records=records, landmarks=landmarks)
    assert score.distance <= math.sqrt(3) * delta / sigma * (1 + 1e-9)


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


def digits_games(**settings) -> tuple[float, float, Limit]:
    """AUC with and without a list of candidates, for two clients of 60 digits."""
    size, listed, unlisted = 60, [], []
    feddl = FedDL(**{"landmarks": 50, "rounds": 8, "bandwidth": GAMMA, "bounds": (0, 1), "seed": 1, **settings})
    with Ledger(budget=feddl.budget) as ledger:
        parts = [DIGITS[p * size : (p + 1) * size].astype(np.float32) for p in range(2)]
        for p, seen in enumerate(see(feddl, parts, ledger=ledger)):
            asked = np.concatenate([parts[p], DIGITS[600 + p * size : 600 + (p + 1) * size]])
            listed.append(list_scores(seen, PLAIN, asked, size))
            unlisted.append(gradient_scores(seen, PLAIN, asked, DIGITS[1000:1200], size))
        limit = Limit.of_ledger(ledger, 1e-5, rows=True)

    def pooled(scores: list[np.ndarray]) -> float:
        return auc(*(np.concatenate(each) for each in zip(*(np.split(s, 2) for s in scores), strict=True))).value

    return pooled(listed), pooled(unlisted), limit


def test_exact_gradients_tell_members_from_others():
    listed, unlisted, limit = digits_games(mechanism="none")
    assert listed == 1
    assert unlisted > 0.7
    assert limit.auc() == 1


def test_a_budget_leaves_little_to_tell():
    """ε = 1: 120 members and 120 others, whose AUC has a standard error of 0.037 if the scores tell nothing."""
    listed, unlisted, limit = digits_games(mechanism="gradient", budget=Budget(1, 1e-5))
    assert limit.auc() == pytest.approx(ndtr(Budget(1, 1e-5).mu / math.sqrt(2)), abs=1e-6)
    assert max(listed, unlisted) < limit.auc() + 3 * 0.037


WORST = Neighbours.worst(gamma=GAMMA, records=2, landmarks=3, features=2)
BUDGET = Budget(4, 1e-5)


def games(neighbours: Neighbours = WORST, *, mechanism="gradient", budget=BUDGET, count=500, rounds=3):
    rng = np.random.default_rng(11)
    return play(neighbours, mechanism=mechanism, budget=budget, gamma=GAMMA, rounds=rounds, games=count, rng=rng)


@dataclass(frozen=True)
class HalfTheNoise(GradientPerturbation):
    """A leak: it states half its sensitivity, so that the ledger claims what half the noise would be worth."""

    name: ClassVar[str] = "half"

    def sensitivity(self, setting, records):
        return super().sensitivity(setting, records) / 2


@dataclass(frozen=True)
class Forgetful(GradientPerturbation):
    """A leak: composition forgotten, noise for one round in each of three."""

    name: ClassVar[str] = "forgetful"

    def sensitivity(self, setting, records):
        return super().sensitivity(setting, records) / math.sqrt(setting.rounds)


def test_the_worst_pair_reaches_mu_and_no_more():
    found = games()
    assert found.outcome.limit.mu == pytest.approx(BUDGET.mu, rel=1e-6)
    assert found.distance == pytest.approx(found.outcome.limit.mu, rel=1e-5)
    assert found.excess > LEVEL
    # It is not far below either: the attack is as strong as the bound.
    assert found.accuracy.high > found.allowed


@pytest.mark.parametrize("leak", [HalfTheNoise(), Forgetful()])
def test_too_little_noise_is_noticed(leak):
    found = games(mechanism=leak)
    assert found.excess < LEVEL
    assert found.distance > 1.5 * found.outcome.limit.mu


def test_noise_that_is_less_than_the_ledger_says_is_noticed():
    """Half the σ of the event, as from a faulty source of noise; the threshold does not move with it."""
    rng, mu, count = np.random.default_rng(12), 1.0, 500
    coins = rng.random(count) < 0.5
    honest, faulty = (judge(mu * coins + sd * rng.normal(size=count), coins, mu, Limit.of_mu(mu)) for sd in (1, 0.5))
    assert honest.excess > LEVEL > faulty.excess
    assert faulty.outcome.auc.low > faulty.outcome.limit.auc()


def test_games_of_different_distances_are_judged_each_by_its_own():
    rng, count = np.random.default_rng(15), 4000
    coins, apart = rng.random(count) < 0.5, rng.choice([0.5, 2.0], count)
    found = judge(apart * coins + rng.normal(size=count), coins, apart, Limit.of_mu(2.0))
    assert found.distance == pytest.approx(apart.mean())
    assert found.possible == pytest.approx(np.mean(ndtr(apart / 2)))
    # A threshold at half of the mean distance for all would lose some of this.
    assert found.accuracy.low < found.possible < found.accuracy.high
    assert found.excess_possible > LEVEL


def test_digits_stay_below_mu_and_at_what_is_possible():
    """A pair of digits is less apart than the worst pair; the best test for it does what theory says, and no more."""
    Y = np.random.default_rng(13).random((10, 64))
    found = games(Neighbours(DIGITS[0], DIGITS[1], DIGITS[2:4], Y), budget=Budget(20, 1e-5), rounds=2)
    assert found.distance < 0.7 * found.outcome.limit.mu
    assert min(found.excess, found.excess_possible) > LEVEL
    assert found.accuracy.high > found.possible > 0.55


def test_exact_gradients_lose_every_strong_game():
    found = games(mechanism="none", budget=None, count=40, rounds=1)
    assert found.accuracy.value == found.allowed == 1
    assert found.outcome.points[0].tpr.value == 1
    assert json.loads(found.to_json())["limit"]["mu"] == "inf"
    assert "all other records" in found.markdown()


def test_games_are_repeatable():
    first, second = (games(count=20, rounds=1).to_json() for _ in range(2))
    assert first == second


def test_records_that_contribute_the_same_are_refused():
    with pytest.raises(DpfedvisError, match="contribute the same"):
        games(replace(WORST, other=WORST.record), count=10, rounds=1)
    with pytest.raises(DpfedvisError, match="gradients of single clients"):
        games(mechanism="mean-embedding", count=10, rounds=1)


def test_landmarks_and_maps_speak_for_what_is_near():
    assert landmark_scores([[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [3.0, 0.0]]) == pytest.approx([0, -4])
    own, places = np.array([[0.0], [10.0]]), np.array([[0.0, 0.0], [100.0, 0.0]])
    scores = insider_scores([[0.0], [10.0]], own, places, np.array([[0.0, 1.0]]), neighbours=1)
    assert scores == pytest.approx([-1, -math.hypot(100, 1)])
    rng = np.random.default_rng(14)
    points, targets = rng.normal(size=(2000, 3)), rng.normal(size=(50, 3))
    slow = np.linalg.norm(points[:, None] - targets, axis=2).min(axis=1)
    np.testing.assert_allclose(nearest_distances(points, targets), slow, rtol=1e-9)


CONFIG = RunConfig(
    data="digits", records=300, clients=3, landmarks=40, rounds=6, perplexity=5, jobs=1, gamma=0.1, mechanism="none"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("membership"))


def attacked(folder: Path, name: str, **changes):
    execute(replace(CONFIG, **changes), folder / name)
    return kind("membership")(Recording.read(folder / name), truth_of(folder / name), np.random.default_rng(0))


def test_a_recorded_run_without_noise_gives_its_members_away(folder: Path):
    report = attacked(folder, "none")
    names = [each.game.name for each in report.games]
    control = "the landmarks before the first round (control)"
    expected = [
        "gradients, with a list of candidates",
        "gradients",
        "the landmarks alone",
        control,
        "the published map",
    ]
    assert (names, report.missing) == (expected, ())
    assert report.games[0].auc.value > 0.99
    assert report.games[0].points[1].tpr.value > 0.9
    values = json.loads(report.to_json())
    assert values["games"][0]["limit"] == {"mu": "inf", "epsilon": "inf", "delta": 1e-5}
    # Counts and rates, and nothing as long as a list of records.
    assert {type(each) for each in values["games"][0].values()} == {dict, int, float, list}
    assert len(values["games"][0]["points"]) == 2
    assert report.markdown().count("## From") == 5
    assert "later in the file" in values["caution"]
    assert values["caution"] in report.markdown()
    report.figure(folder / "membership.png")
    assert (folder / "membership.png").stat().st_size > 1000


def test_a_recorded_run_under_a_budget_does_not(folder: Path):
    report = attacked(folder, "budget", mechanism="gradient", epsilon=1.0, scope="landmarks", map="clusters")
    listed, unlisted, landmarks, _ = report.games
    assert report.missing == ("Not played: the run published no map of records.",)
    for each in (listed, unlisted, landmarks):
        assert each.limit.mu == pytest.approx(Budget(1, 1e-5).mu, rel=1e-6)
        assert each.auc.low < each.limit.auc()


def test_a_game_with_nothing_to_see_does_not_cost_the_others(folder: Path):
    """Noise of this size carries records away from all landmarks, so that every gradient is exactly 0."""
    report = attacked(folder, "input", mechanism="input", epsilon=0.1, gamma=50.0, map="clusters", sample="random")
    assert [each.game.name for each in report.games] == [
        "the landmarks alone",
        "the landmarks before the first round (control)",
    ]
    assert any("all of them 0" in each for each in report.missing)
    assert "all of them 0" in report.markdown()
    assert report.caution == ""
    assert "later in the file" not in report.markdown()


def test_of_a_billboard_candidates_are_seen_in_its_subspace(record_billboard):
    """With a budget that hides nothing, what the server sees follows from coordinates in the subspace."""
    fed = FederatedData.split(DIGITS[:60], clients=3, seed=0, bounds=(0, 1))
    recording, truth = record_billboard(fed, 1e6, 40), Truth(fed, DIGITS[600:900].astype(np.float32))
    client = recording.clients[1]
    records = as_learned(recording, truth.client(client.name))
    assert records.shape == (20, recording.setting.features)
    assert recording.setting.features < recording.landmarks.shape[1] == 64
    for each in gradients_of(recording, client.name):
        expected = contribution_of(recording).mean(records, each.landmarks, client.denominator)
        assert np.abs(each.values - expected).max() < 5 * each.sigma
        assert np.abs(each.values).max() > 20 * each.sigma
    report = kind("membership")(recording, truth, np.random.default_rng(0))
    assert report.games[0].game.name == "gradients, with a list of candidates"
    assert report.games[0].auc.value > 0.9
    assert as_learned(replace(recording, published={}), truth.pooled) is truth.pooled


def test_without_fresh_records_there_is_no_game(folder: Path):
    recording, truth = Recording.read(folder / "budget"), truth_of(folder / "budget")
    with pytest.raises(NothingToAttack, match="took no part"):
        kind("membership")(recording, replace(truth, fresh=None), np.random.default_rng(0))
