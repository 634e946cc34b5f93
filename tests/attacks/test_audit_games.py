"""From scores to a verdict: counting, claims, the page, and how often correct code is called violated."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from accounting import (
    Budget,
    GaussianRelease,
    InvalidParameter,
    Ledger,
    SampledGaussianRelease,
    Unprotected,
    gaussian_epsilon,
)
from accounting.rounding import rounded_down, rounded_up
from attacks.auditing import AuditResult, Claim, audit_games
from attacks.auditing.bounds import (
    epsilon_from_gdp,
    epsilon_from_one_run,
    epsilon_from_rates,
    planned_guesses,
    rate_above,
)

DELTA = 1e-5


def claim(mu: float) -> Claim:
    return Claim(gaussian_epsilon(mu, DELTA), DELTA, mu)


def played(mu: float, games: int, seed: int, *, noise: float = 1.0, claimed: float | None = None) -> AuditResult:
    """Games against Gaussian noise, with coins: N(0, noise²) out and N(μ, noise²) in."""
    generator = np.random.default_rng(seed)
    coins = generator.random(games) < 0.5
    scores = mu * coins + noise * generator.standard_normal(games)
    return audit_games(scores[coins], scores[~coins], claim(mu if claimed is None else claimed))


def test_audit_is_a_public_name() -> None:
    """The module has the same name: whoever imports it first must not put it in the function's place."""
    code = "from attacks.auditing import NoiseAudit\nfrom attacks import audit\nassert callable(audit), audit"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_every_count_by_hand() -> None:
    result = audit_games([3.0, 0.9, -0.5, 2.2], [0.3, 1.4, -4.0], claim(2.0), confidence=0.9)
    counts = result.counts
    assert (counts.games_in, counts.games_out, counts.games) == (4, 3, 7)
    assert counts.threshold == 1.0
    assert (counts.false_negatives, counts.false_positives) == (2, 1)
    # By distance from 1: −4, 3, −0.5, 2.2, 0.3, 1.4, 0.9.
    right = [True, True, False, True, True, False, False]
    assert counts.guesses == planned_guesses(7, 2.0, DELTA, 0.9)
    assert counts.correct == sum(right[: counts.guesses])
    assert result.bound("gdp").epsilon == epsilon_from_gdp(1, 3, 2, 4, DELTA, 0.9)
    assert result.bound("one-run").epsilon == epsilon_from_one_run(7, counts.guesses, counts.correct, DELTA, 0.9)


def test_ties_are_never_broken_by_the_coin() -> None:
    """All scores alike: an order that put "in" first would guess them all right."""
    result = audit_games(np.full(500, 3.0), np.full(500, 3.0), claim(1.0))
    assert 0 < result.counts.guesses < 1000
    assert result.counts.correct == 0
    assert result.lower_bound == 0


def test_sides_that_no_fair_coin_explains_are_refused() -> None:
    """With 20 in and 2,000 out, "always out" is right 99 times in 100 and says nothing about privacy."""
    with pytest.raises(InvalidParameter, match="fair coins"):
        audit_games(np.zeros(20), np.zeros(2000), claim(1.0))


@given(st.integers(0, 10_000))
def test_the_order_of_games_does_not_matter(seed: int) -> None:
    generator = np.random.default_rng(seed)
    inside, outside = generator.normal(1, 1, 40).round(1), generator.normal(0, 1, 60).round(1)
    first = audit_games(inside, outside, claim(1.0))
    second = audit_games(generator.permutation(inside), generator.permutation(outside), claim(1.0))
    assert first.to_json() == second.to_json()


def test_pure_noise_certifies_nothing() -> None:
    """Scores that do not depend on the coin: a lower bound above 0 is an error, and as rare as stated."""
    results = [played(0.0, 400, seed, claimed=1.0) for seed in range(200)]
    for method in ("gdp", "one-run"):
        wrong = sum(result.bound(method).epsilon > 0 for result in results)
        assert binomtest(wrong, 200, 0.05, alternative="greater").pvalue > 1e-3
    assert np.mean([result.lower_bound for result in results]) < 0.05


def test_bounds_exceed_the_truth_no_more_often_than_stated() -> None:
    """The claim is exactly what the noise is worth: the hardest case for a lower bound."""
    results = [played(1.0, 2000, seed) for seed in range(200)]
    for method in ("gdp", "one-run"):
        wrong = sum(result.bound(method).epsilon > result.claim.epsilon for result in results)
        assert binomtest(wrong, 200, 0.05, alternative="greater").pvalue > 1e-3
    assert {result.alarm for result in results} == {1e-3}
    assert sum(result.verdict == "violated" for result in results) <= 2  # three would have probability 1e-3
    assert np.mean([result.lower_bound for result in results]) > 0.7 * results[0].claim.epsilon


@pytest.mark.parametrize("mu", [0.25, 1.0, 3.0])
def test_half_the_noise_is_found(mu: float) -> None:
    results = [played(mu, 10_000, seed, noise=0.5) for seed in range(20)]
    assert {result.verdict for result in results} == {"violated"}
    assert all(result.ratio is not None and result.ratio > 1 for result in results)


def test_what_chance_explains_is_suspect_and_not_violated() -> None:
    """28 % errors in 2,000 games: a bound of 0.95 is above μ = 1, one of 0.9995 is not."""
    scores = np.where(np.arange(1000) < 720, 2.0, -2.0)
    result = audit_games(scores, -scores, claim(1.0), threshold=0.0)
    assert result.beyond_chance < result.claim.epsilon < result.lower_bound
    assert (result.verdict, result.ratio is not None and result.ratio > 1) == ("suspect", True)
    assert "chance explains" in result.sentence
    assert audit_games(scores, -scores, claim(1.0), threshold=0.0, alarm=0.2).verdict == "violated"


def test_without_mu_no_bound_assumes_gaussian_noise() -> None:
    generator = np.random.default_rng(0)
    inside, outside = generator.random(300) < 0.9, generator.random(300) < 0.1
    result = audit_games(inside, outside, Claim(3.0, DELTA), threshold=0.5)
    assert [bound.method for bound in result.bounds] == ["rates", "one-run"]
    counts = result.counts
    rates = rate_above(counts.false_positives, 300, 0.975), rate_above(counts.false_negatives, 300, 0.975)
    assert result.bound("rates").epsilon == epsilon_from_rates(*rates, DELTA)
    assert (counts.guesses, counts.correct) == (600, 600 - counts.false_positives - counts.false_negatives)
    with pytest.raises(InvalidParameter, match="threshold"):
        audit_games(inside, outside, Claim(3.0, DELTA))


def test_no_claim_is_neither_passed_nor_broken() -> None:
    result = audit_games([1.0] * 50, [0.0] * 50, Claim(math.inf, DELTA), threshold=0.5)
    assert (result.verdict, result.ratio) == ("no claim", None)
    assert result.lower_bound > 2
    assert "No claim to audit; lower bound found: ε ≥" in result.sentence
    shown = json.loads(result.to_json())
    assert (shown["claimed_epsilon"], shown["ratio"], shown["verdict"]) == (None, None, "no claim")
    assert "called violated" not in result.markdown()


def test_json_and_page_say_what_was_found(tmp_path: Path) -> None:
    result = played(1.0, 1000, 3)
    shown = json.loads(result.to_json())
    assert shown["claimed_epsilon"] == result.claim.epsilon
    assert shown["bounds"]["gdp"] == {
        "epsilon": result.bound("gdp").epsilon,
        "confidence": 0.95,
        "assumptions": ["independent games, fair coins", "Gaussian trade-off (the claim's own form)"],
    }
    assert shown["bounds"]["one-run"]["assumptions"] == ["fair independent coins only"]
    assert (shown["canaries"], shown["alarm"], shown["verdict"]) == (1000, 0.001, "consistent")
    assert 0 < shown["beyond_chance"] < shown["lower_bound"]
    page = result.markdown("scores.svg")
    for words in (
        "![Scores and bounds; on one machine](scores.svg)",
        f"≥ {rounded_down(result.lower_bound)}",
        f"| {rounded_up(result.claim.epsilon)} |",
        "| 0.95 |",
        "fixed before the run",
    ):
        assert words in page
    result.figure(tmp_path / "scores.svg")
    assert "<!-- threshold -->" in (tmp_path / "scores.svg").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["scores.svg"]


def test_a_picture_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        played(1.0, 100, 0).figure(tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("inside", "outside", "name"),
    [
        ([], [1.0], "scores_in"),
        ([1.0], [], "scores_out"),
        ([[1.0]], [1.0], "scores_in"),
        ([math.nan], [1.0], "scores_in"),
    ],
)
def test_bad_scores_are_named(inside: list[float], outside: list[float], name: str) -> None:
    with pytest.raises(InvalidParameter, match=name):
        audit_games(inside, outside, claim(1.0))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((1.0, 0.0), "delta"), ((-1.0, 0.1), "epsilon"), ((1.0, 0.1, 0.0), "mu"), ((math.nan, 0.1), "epsilon")],
)
def test_bad_claims_are_named(arguments: tuple[float, ...], name: str) -> None:
    with pytest.raises(InvalidParameter, match=name):
        Claim(*arguments)


def test_the_claim_of_a_ledger_is_its_own() -> None:
    common = {"what": "x", "client": "a", "sensitivity": 1.0}
    with Ledger(budget=Budget(50, DELTA)) as ledger:
        ledger.record(GaussianRelease(**{**common, "client": "b"}, sigma=1.0))
        ledger.record(GaussianRelease(**common, sigma=2.0, count=4), GaussianRelease(**common, sigma=1.0))
        found = Claim.of_ledger(ledger, DELTA)
        assert found.mu == pytest.approx(math.sqrt(2))
        assert found.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2), DELTA), rel=1e-9)
        assert (found.exists, found.source) == (True, "ledger")
    with Ledger() as ledger:
        ledger.record(GaussianRelease(**common, sigma=1.0, noise="discrete", grid=0.001, values=100))
        found = Claim.of_ledger(ledger, DELTA)
        assert found.mu == 1
        assert found.epsilon >= gaussian_epsilon(1.0, DELTA)
    with Ledger() as ledger:
        ledger.record(SampledGaussianRelease(**common, sigma=1.0, sampling_rate=0.1, adjacency="add-remove"))
        found = Claim.of_ledger(ledger, DELTA)
        assert found.mu is None
        assert found.exists
    with Ledger() as ledger:
        ledger.record(GaussianRelease(**common, sigma=1.0), Unprotected(what="y", client="a", why="exact"))
        found = Claim.of_ledger(ledger, DELTA)
        assert (found.epsilon, found.mu, found.exists) == (math.inf, None, False)
    with Ledger() as ledger, pytest.raises(InvalidParameter, match="ledger"):
        Claim.of_ledger(ledger, DELTA)
