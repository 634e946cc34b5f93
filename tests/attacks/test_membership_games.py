"""Membership inference: certain where gradients are exact, bounded by μ where noise is calibrated, and a leak shows."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy.special import ndtr

from accounting import Budget, Ledger
from attacks.membership.rates import judge
from attacks.membership.scores import gradient_scores, list_scores
from attacks.shared.gradients import as_learned, contribution_of, gradients_of
from attacks.shared.registry import NothingToAttack, Truth, kind
from attacks.shared.statistics import Limit, auc
from dpfedvis.cli.attack import truth_of
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.runs.execute import execute
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording
from tests import makers
from tests.attacks.conftest import GAMMA, PLAIN
from tests.attacks.strong_games import STRONG, Neighbours, play, see

DIGITS = makers.DIGITS[np.random.default_rng(0).permutation(1797)].astype(np.float64)
# One false alarm in a thousand; every seed below is fixed, so that a test that passes goes on passing.
LEVEL = 1e-3


def digits_games(**settings) -> tuple[float, float, Limit]:
    """AUC with and without a list of candidates, for two clients of 60 digits."""
    size, listed, unlisted = 60, [], []
    feddl = FedDL(**{"landmarks": 50, "rounds": 8, "gamma": GAMMA, "bounds": (0, 1), "seed": 1, **settings})
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

    def sensitivity(self, public, records):
        return super().sensitivity(public, records) / 2


@dataclass(frozen=True)
class Forgetful(GradientPerturbation):
    """A leak: composition forgotten, noise for one round in each of three."""

    name: ClassVar[str] = "forgetful"

    def sensitivity(self, public, records):
        return super().sensitivity(public, records) / math.sqrt(public.rounds)


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
    honest, faulty = (
        judge(mu * coins + sd * rng.normal(size=count), coins, mu, Limit.of_mu(mu), STRONG) for sd in (1, 0.5)
    )
    assert honest.excess > LEVEL > faulty.excess
    assert faulty.outcome.auc.low > faulty.outcome.limit.auc()


def test_games_of_different_distances_are_judged_each_by_its_own():
    rng, count = np.random.default_rng(15), 4000
    coins, apart = rng.random(count) < 0.5, rng.choice([0.5, 2.0], count)
    found = judge(apart * coins + rng.normal(size=count), coins, apart, Limit.of_mu(2.0), STRONG)
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
    # Some 500 games: what is possible is within three standard errors of what was found.
    assert found.accuracy.value > found.possible - 3 * math.sqrt(0.25 / 500)
    assert found.possible > 0.55


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


CONFIG = RunConfig(
    data="digits", records=300, clients=3, landmarks=40, rounds=6, perplexity=5, jobs=1, gamma=0.1, mechanism="none"
)


@pytest.fixture(scope="module")
def budgeted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run under a budget for its landmarks."""
    changes = {"mechanism": "gradient", "epsilon": 1.0, "scope": "landmarks", "map": "clusters"}
    return execute(CONFIG.updated(**changes), tmp_path_factory.mktemp("membership") / "budget").folder


def attacked(folder: Path):
    return kind("membership")(Recording.read(folder), truth_of(folder), np.random.default_rng(0))


def test_a_recorded_run_without_noise_gives_its_members_away(tmp_path: Path):
    report = attacked(execute(CONFIG, tmp_path / "run").folder)
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
    report.figure(tmp_path / "membership.png")
    assert (tmp_path / "membership.png").stat().st_size > 1000


def test_a_recorded_run_under_a_budget_does_not(budgeted: Path):
    report = attacked(budgeted)
    listed, unlisted, landmarks, _ = report.games
    assert report.missing == ("Not played: the run published no map of records.",)
    for each in (listed, unlisted, landmarks):
        assert each.limit.mu == pytest.approx(Budget(1, 1e-5).mu, rel=1e-6)
        assert each.auc.low < each.limit.auc()


def test_a_game_with_nothing_to_see_does_not_cost_the_others(tmp_path: Path):
    """Noise of this size carries records away from all landmarks, so that every gradient is exactly 0."""
    changes = {"mechanism": "input", "epsilon": 0.1, "gamma": 50.0, "map": "clusters", "sample": "random"}
    report = attacked(execute(CONFIG.updated(**changes), tmp_path / "run").folder)
    assert [each.game.name for each in report.games] == [
        "the landmarks alone",
        "the landmarks before the first round (control)",
    ]
    assert any("all of them 0" in each for each in report.missing)
    assert "all of them 0" in report.markdown()
    assert report.caution == ""
    assert "later in the file" not in report.markdown()


def test_of_a_private_map_candidates_are_seen_in_its_subspace(record_private_map, hushed):
    """With noise that hides nothing, what the server sees follows from coordinates in the subspace."""
    hushed(50)
    fed = FederatedData.split(DIGITS[:60], clients=3, seed=0, bounds=(0, 1))
    recording, truth = record_private_map(fed, 500, 40), Truth(fed, DIGITS[600:900].astype(np.float32))
    client = recording.clients[1]
    records = as_learned(recording, truth.client(client.name))
    assert records.shape == (20, recording.public.features)
    assert recording.public.features < recording.landmarks.shape[1] == 64
    for each in gradients_of(recording, client.name):
        expected = contribution_of(recording).mean(records, each.landmarks, client.denominator)
        assert np.abs(each.values - expected).max() < 5 * each.sigma
        assert np.abs(each.values).max() > 20 * each.sigma
    report = kind("membership")(recording, truth, np.random.default_rng(0))
    assert report.games[0].game.name == "gradients, with a list of candidates"
    assert report.games[0].auc.value > 0.9
    assert as_learned(replace(recording, published={}), truth.pooled) is truth.pooled


def test_without_fresh_records_there_is_no_game(budgeted: Path):
    recording, truth = Recording.read(budgeted), truth_of(budgeted)
    with pytest.raises(NothingToAttack, match="took no part"):
        kind("membership")(recording, replace(truth, fresh=None), np.random.default_rng(0))
