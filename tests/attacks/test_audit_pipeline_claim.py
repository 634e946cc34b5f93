"""The audit of the end-to-end map as one mechanism: its claim stands, and faults in any one stage are found."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import kstest

from accounting import Budget, GaussianRelease, InvalidParameter, Ledger, NoiseSource
from accounting.audit_summary import HARDLY, SEPARATE
from accounting.rounding import rounded_down
from attacks import audit
from attacks.auditing import Claim, PipelineAudit
from attacks.auditing.pipeline_games import Played, for_statement
from dpfedvis.mechanisms import KMeans, mechanism
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.kernels import Array
from dpfedvis.site import computation

BUDGET = Budget(10.0, 1e-5)  # large, so that few games tell its claim from one that is too small
SMALL = PipelineAudit(games=160)
STAGES = ["scale histogram", "moments", "second moments", "cluster sums", "density"]


@pytest.fixture(scope="module")
def played() -> Played:
    return SMALL.play(KMeans(), BUDGET)


def test_the_claim_of_the_whole_map_stands_and_is_nearly_reached(played: Played) -> None:
    result = played.audit()
    assert result.verdict == "consistent"
    assert result.claim.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-6)
    assert result.bound("gdp").epsilon > 0.4 * result.claim.epsilon
    assert result.bound("one-run").epsilon > 0
    assert result.facts["reach"] == pytest.approx(1.0, abs=0.06)
    assert list(result.facts["noise_seen"].values()) == pytest.approx([1.0] * 8, abs=0.1)
    assert result.facts["stages"] == STAGES
    assert (result.facts["rounds"], result.proof) == (4, "")


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_the_adversary_predicts_every_upload(trust: Literal["local", "aggregate"]) -> None:
    """What is left of an upload, or of a sum, after the prediction is the noise of its event, and nothing else.

    With hardly any noise: a wrong τ, centre, C, Y, map, grid or weight then leaves more than that.
    """
    games = 40 if trust == "local" else 20
    played = replace(SMALL, games=games, clients=8).play(KMeans(trust=trust), Budget(500, 1e-5))
    left: defaultdict[str, list[Array]] = defaultdict(list)
    for run in played.runs:
        for each in run.seen:
            event, pairs = each.events[0], [(event, run.model(event)) for event in each.events]
            assert isinstance(event, GaussianRelease)
            truth = [pair.inside if run.coins.get(one.client, True) else pair.outside for one, pair in pairs]
            relative = pairs[0][1].relative
            noise = event.sigma if relative is None else event.sigma * relative
            left[event.what].append(((each.values - np.sum(truth, axis=0)) / noise).ravel())
    assert list(left) == STAGES
    for what, residuals in left.items():
        values = np.concatenate(residuals)
        assert np.mean(values**2) == pytest.approx(1.0, abs=5 * np.sqrt(2 / len(values))), what


def test_stages_that_a_run_does_without_are_left_out() -> None:
    played = replace(SMALL, scale=False, density=False, shares={"subspace": 0.5}).play(KMeans(), BUDGET)
    result = played.audit()
    assert result.facts["stages"] == ["moments", "second moments", "cluster sums"]
    assert (result.verdict, result.claim.epsilon) == ("consistent", pytest.approx(BUDGET.epsilon, rel=1e-6))
    assert list(result.facts["noise_seen"].values()) == pytest.approx([1.0] * 6, abs=0.1)
    shares = {line.what: line.share for line in played.statement.lines}
    assert shares["second moments"] == pytest.approx(0.5)


def test_canaries_move_every_stage_within_its_sensitivity(played: Played) -> None:
    moved: defaultdict[str, list[float]] = defaultdict(list)
    (run,) = played.runs
    for each in run.seen:
        (event,) = each.events
        assert isinstance(event, GaussianRelease)
        moved[event.what].append(float(np.linalg.norm(run.model(event).whitened)) / event.sensitivity)
    for what in STAGES:
        assert max(moved[what]) <= 1 + 1e-12, what
        assert np.mean(moved[what]) > 0.6, what


@pytest.mark.parametrize("seed", range(1, 4))
def test_honest_code_is_not_called_violated(seed: int) -> None:
    assert audit("k-means", Budget(4.0, 1e-5), level=replace(SMALL, games=80, seed=seed)).verdict != "violated"


# Sums: the server sees no client by itself.


@pytest.fixture(scope="module")
def summed() -> Played:
    return replace(SMALL, games=60).play(KMeans(trust="aggregate"), BUDGET)


def test_the_claim_stands_where_only_sums_are_seen(summed: Played) -> None:
    result = summed.audit()
    assert result.verdict == "consistent"
    assert result.claim.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-6)
    assert result.bound("gdp").epsilon > 0.3 * result.claim.epsilon
    assert result.facts["reach"] == pytest.approx(1.0, abs=0.06)
    assert (result.facts["runs"], result.facts["clients"]) == (60, 20)
    assert all(len(each.events) == 20 for run in summed.runs for each in run.seen)
    assert list(result.facts["noise_seen"].values()) == pytest.approx([1.0] * 8, abs=0.15)


def test_runs_differ_in_canaries_coins_and_noise(summed: Played) -> None:
    assert 0.3 < np.mean(list(summed.coins.values())) < 0.7
    first, second = (run.seen[0].values for run in summed.runs[:2])
    assert not np.array_equal(first, second)
    assert len({round(each, 9) for each in summed.evidence.ratios.values()}) == 60


def test_too_little_noise_of_sums_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, dict.fromkeys(STAGES, 0.3))
    found = replace(SMALL, games=60, clients=8).play(KMeans(trust="aggregate"), BUDGET)
    assert found.audit().verdict == "violated"
    assert found.membership().excess < 1e-3


# Membership, by the same games.


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_membership_is_guessed_as_often_as_the_noise_allows(trust: str, request: pytest.FixtureRequest) -> None:
    found: Played = request.getfixturevalue("played" if trust == "local" else "summed")
    games = found.membership()
    mu = found.audit().claim.mu
    assert mu is not None
    assert games.outcome.limit.mu == pytest.approx(mu)
    assert games.allowed == pytest.approx(float(ndtr(mu / 2)))
    assert games.possible <= games.allowed
    assert games.accuracy.low <= games.possible <= games.accuracy.high
    assert games.outcome.auc.value == pytest.approx(float(ndtr(games.distance / np.sqrt(2))), abs=0.06)
    assert games.excess > 1e-3
    assert len(games.outcome.members) + len(games.outcome.others) == len(found.coins)


def test_membership_scores_have_the_law_that_thresholds_rest_on() -> None:
    games = replace(SMALL, games=600).play(KMeans(), Budget(4.0, 1e-5)).membership()
    assert kstest(games.outcome.others, "norm").pvalue > 1e-3
    assert kstest(games.outcome.members - games.distance, "norm").pvalue > 1e-3


def test_a_leak_is_told_by_the_membership_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, dict.fromkeys(STAGES, 0.3))
    found = SMALL.play(KMeans(), BUDGET)
    games = found.membership()
    assert games.excess < 1e-6
    assert games.accuracy.low > games.allowed
    audited = found.statement.with_audit(for_statement(found.audit(), games, "command"))
    assert "**More often right than the guarantee allows**" in str(audited)
    assert "**Violated.**" in str(audited)


# Planted faults.


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_a_sensitivity_that_a_record_exceeds_is_proof(
    trust: Literal["local", "aggregate"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few the games: no chance is in it."""
    honest = KMeans.sensitivity
    monkeypatch.setattr(KMeans, "sensitivity", lambda *given: honest(*given) / 2)
    found = replace(SMALL, games=20, clients=4).play(KMeans(trust=trust), Budget(1.0, 1e-5))
    result = found.audit()
    assert result.verdict == "violated"
    assert result.proof.startswith("One record moves cluster sums by ")
    assert result.proof in result.sentence
    assert {what for what, (_, most) in found.moved.items() if most > 1.001} == {"cluster sums"}


def test_a_stage_that_canaries_hardly_move_is_named() -> None:
    found = replace(SMALL, games=40).play(mechanism("gradient"), Budget(1.0, 1e-5))
    hardly = [what for what, (mean, _) in found.moved.items() if mean < HARDLY]
    assert "gradient" in hardly
    assert "moments" not in hardly
    audited = found.statement.with_audit(for_statement(found.audit(), found.membership(), "command"))
    assert f"Hardly tested, therefore: {', '.join(hardly)}." in str(audited)


def test_discrete_noise_has_the_limit_of_the_gaussian_that_it_is_worth() -> None:
    found = replace(SMALL, games=20, noise="discrete").play(KMeans(), Budget(3.0, 1e-5))
    games = found.membership()
    assert games.outcome.limit.mu == pytest.approx(Budget(3.0, 1e-5).mu, rel=1e-6)
    assert games.allowed == pytest.approx(float(ndtr(Budget(3.0, 1e-5).mu / 2)), rel=1e-6)


def test_a_stage_that_the_claim_leaves_out_is_found(played: Played) -> None:
    kept = Ledger()
    kept.record(*(event for event in played.estimator.ledger_.events() if event.what != "cluster sums"))
    smaller = Claim.of_ledger(kept, BUDGET.delta)
    assert played.audit(smaller).lower_bound > smaller.epsilon


def test_half_the_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, dict.fromkeys(STAGES, 0.5))
    assert audit("k-means", BUDGET, level=SMALL).verdict == "violated"


@pytest.mark.parametrize("what", ["second moments", "density"])
def test_missing_noise_of_one_stage_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the stage has a small share of the budget, and the noise of the others is as it should be."""
    plant(monkeypatch, {what: 0.0})
    result = audit("k-means", BUDGET, level=SMALL)
    assert result.verdict == "violated"
    assert {name for name, share in result.facts["noise_seen"].items() if share < 0.5} == {f"{what}, round 0"}


def plant(monkeypatch: pytest.MonkeyPatch, factors: dict[str, float]) -> None:
    """Weaken the noise that clients add to the uploads of these names."""
    honest = computation.add_noise

    def weak(source: NoiseSource, values: Integers, event: GaussianRelease, *further: Any) -> Integers:
        noise = honest(source, values, event, *further) - values
        return values + np.rint(factors.get(event.what, 1.0) * noise).astype(np.int64)

    monkeypatch.setattr(computation, "add_noise", weak)


# The statement, and settings.


def test_the_statement_carries_the_audit_and_the_attack(played: Played) -> None:
    result, games = played.audit(), played.membership()
    plain = played.statement
    audited = plain.with_audit(for_statement(result, games, "dpfedvis audit --level pipeline"))
    assert plain.to_dict()["audit"] is None
    assert "## Audit\n" not in str(plain)
    facts = json.loads(audited.to_json())["audit"]
    assert facts["lower_bounds"] == {each.method: each.epsilon for each in result.bounds}
    assert (facts["verdict"], facts["games"], facts["confidence"]) == ("consistent", 160, 0.95)
    assert (list(facts["moved"]), facts["trust"], facts["noise"]) == (STAGES, "local", "seeded")
    assert (facts["sentence"], facts["leaks"]) == (result.sentence, False)
    assert facts["claimed_epsilon"] == pytest.approx(plain.end_to_end)
    assert facts["excess"] == games.excess
    rates = {each["name"].split(" (")[0]: each for each in facts["membership"]}
    assert list(rates) == ["right guesses", "AUC", "TPR at FPR 0.1%", "TPR at FPR 1.0%"]
    assert facts["membership"][3]["name"].endswith(f"(counted {games.outcome.points[1].fpr.value:.1%})")
    assert (rates["AUC"]["found"], rates["AUC"]["allowed"]) == (games.outcome.auc.value, games.outcome.limit.auc())
    assert (rates["right guesses"]["found"], rates["right guesses"]["low"]) == (
        games.accuracy.value,
        games.accuracy.low,
    )
    for part in ("## Audit", SEPARATE, "`dpfedvis audit --level pipeline`", f"≥ {rounded_down(result.lower_bound)}"):
        assert part in str(audited)
    for part in ("## Membership attack", f"| AUC | {games.outcome.auc} |", "the guarantee allows"):
        assert part in str(audited)
    assert "More often right than" not in str(audited)


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in (
        {"records": 3},
        {"features": 6},
        {"games": 5},
        {"rounds": 0},
        {"seed": -1},
        {"confidence": 1.0},
        {"clients": 1},
    ):
        with pytest.raises(InvalidParameter):
            replace(SMALL, **wrong)
    for budget in (None, Budget(4.0, 1e-5, adjacency="add-remove")):
        with pytest.raises(InvalidParameter):
            SMALL.play(mechanism("k-means"), budget)
