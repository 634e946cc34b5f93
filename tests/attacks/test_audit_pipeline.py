"""The audit of the end-to-end map as one mechanism: its claim stands, and faults in any one stage are found."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accounting import Budget, GaussianRelease, InvalidParameter, Ledger, NoiseSource, SeededNoise
from attacks import audit
from attacks.audit import Claim, PipelineAudit
from attacks.auditing.pipeline import Played, for_statement
from dpfedvis.cli import main
from dpfedvis.federation import client
from dpfedvis.kernels import Array
from dpfedvis.mechanisms import KMeans, mechanism
from dpfedvis.reporting.audited import SEPARATE

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


def test_the_adversary_predicts_every_upload() -> None:
    """What is left of an upload after the prediction is the noise of its event, and nothing else.

    With hardly any noise: a wrong τ, centre, C, Y, map or grid then leaves more than that.
    """
    played = replace(SMALL, games=40).play(KMeans(), Budget(1e4, 1e-5))
    left: defaultdict[str, list[Array]] = defaultdict(list)
    for each in played.seen:
        (event,) = each.events
        assert isinstance(event, GaussianRelease)
        pair = played.model(event)
        truth = pair.inside if played.coins[event.client] else pair.outside
        left[event.what].append((each.values - truth).ravel() / event.sigma)
    assert list(left) == STAGES
    for what, residuals in left.items():
        values = np.concatenate(residuals)
        assert np.mean(values**2) == pytest.approx(1.0, abs=5 * np.sqrt(2 / len(values))), what


def test_canaries_move_every_stage_within_its_sensitivity(played: Played) -> None:
    moved: defaultdict[str, list[float]] = defaultdict(list)
    for each in played.seen:
        (event,) = each.events
        assert isinstance(event, GaussianRelease)
        pair = played.model(event)
        moved[event.what].append(float(np.linalg.norm(pair.inside - pair.outside)) / event.sensitivity)
    for what in STAGES:
        assert max(moved[what]) <= 1 + 1e-5, what
        assert np.mean(moved[what]) > 0.6, what


@pytest.mark.parametrize("seed", range(1, 4))
def test_honest_code_is_not_called_violated(seed: int) -> None:
    assert audit("k-means", Budget(4.0, 1e-5), level=replace(SMALL, games=80, seed=seed)).verdict != "violated"


# Planted faults.


def test_a_stage_that_the_claim_leaves_out_is_found(played: Played) -> None:
    kept = Ledger()
    kept.record(*(event for event in played.estimator.ledger_.events() if event.what != "cluster sums"))
    assert played.audit(Claim.of_ledger(kept, BUDGET.delta)).verdict == "violated"


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


class Weak:
    """Noise of a part of the scale that was asked for."""

    def __init__(self, source: NoiseSource, factor: float) -> None:
        self._source, self._factor = source, factor

    def add(self, values: Array, sigma: float) -> Array:
        return self._source.add(values, self._factor * sigma) if self._factor > 0 else values


def plant(monkeypatch: pytest.MonkeyPatch, factors: dict[str, float]) -> None:
    """Weaken the noise that clients add to the uploads of these names."""

    def weak(name: str, generator: np.random.Generator, event: GaussianRelease) -> Weak:
        return Weak(SeededNoise(generator), factors.get(event.what, 1.0))

    monkeypatch.setattr(client, "noise_source", weak)


# The statement and the command line.


def test_the_statement_carries_the_audit(played: Played) -> None:
    result = played.audit()
    plain = played.statement
    audited = plain.with_audit(for_statement(result, "dpfedvis audit --level pipeline"))
    assert plain.to_dict()["audit"] is None
    assert "## Audit" not in str(plain)
    facts = json.loads(audited.to_json())["audit"]
    assert facts["lower_bounds"] == {each.method: each.epsilon for each in result.bounds}
    assert (facts["verdict"], facts["games"], facts["confidence"]) == ("consistent", 160, 0.95)
    assert (facts["stages"], facts["placement"]) == (STAGES, "weights")
    assert facts["claimed_epsilon"] == pytest.approx(plain.end_to_end)
    for part in ("## Audit", SEPARATE, "`dpfedvis audit --level pipeline`", f"≥ {result.lower_bound:.4g}"):
        assert part in str(audited)


def test_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--epsilon", "4", "--games", "40", "--out", str(tmp_path / "new")]
    assert main(["audit", "--level", "pipeline", *options, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    stem = "k-means-pipeline"
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        f"{stem}.{kind}" for kind in ("json", "md", "png")
    } | {f"{stem}-statement.{kind}" for kind in ("json", "md")}
    assert json.loads((tmp_path / "new" / f"{stem}.json").read_text()) == result
    assert (result["canaries"], result["facts"]["level"]) == (40, "pipeline")
    assert result["claimed_epsilon"] == pytest.approx(4.0, rel=1e-6)
    stated = json.loads((tmp_path / "new" / f"{stem}-statement.json").read_text())
    assert stated["audit"]["lower_bounds"]["gdp"] == result["bounds"]["gdp"]["epsilon"]
    command = stated["audit"]["command"]
    assert command.startswith("dpfedvis audit --level pipeline --mechanism k-means --epsilon 4.0 ")
    # The command in the statement gives the same numbers again.
    assert main([*command.split()[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [result]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--epsilon is needed"),
        (["--epsilon", "4", "--mechanism", "all"], "one of them"),
        (["--epsilon", "4", "--mechanism", "input"], "protects uploads"),
        (["--epsilon", "4", "--trust", "aggregate"], "trust local"),
        (["--epsilon", "4", "--games", "3"], "at least 20"),
    ],
)
def test_what_cannot_be_audited_is_refused(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--level", "pipeline", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, said in err, err.count("\n")) == ("", True, 1)


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"records": 3}, {"features": 6}, {"games": 5}, {"rounds": 0}, {"seed": -1}, {"confidence": 1.0}):
        with pytest.raises(InvalidParameter):
            replace(SMALL, **wrong)
    for budget in (None, Budget(4.0, 1e-5, adjacency="add-remove")):
        with pytest.raises(InvalidParameter):
            SMALL.play(mechanism("k-means"), budget)
