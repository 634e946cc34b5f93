"""The audit with records: worst cases reach the sensitivity, every mechanism is played, wrong mechanisms are found."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Budget, InvalidParameter, gaussian_epsilon
from attacks import audit
from attacks.auditing import AuditResult, Claim, Prediction, RecordAudit, Scene, Watcher, audit_uploads
from attacks.auditing.canaries import opposite_phases, opposite_sides, scene_for
from attacks.auditing.evidence import weigh
from attacks.auditing.predictions import exact_total
from attacks.auditing.records import Still, invert
from dpfedvis.data import FederatedData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.mechanisms import (
    MECHANISMS,
    ClippedGradientPerturbation,
    GradientPerturbation,
    HeuristicNoise,
    InputPerturbation,
    MeanEmbedding,
    Mechanism,
    NoPerturbation,
    PreparedRecords,
    PublishedFedDL,
    mechanism,
)
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import Moments
from dpfedvis.numerics.exact import Grid, Integers
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.mmd import data_gradient
from dpfedvis.numerics.random_features import RandomFeatures
from dpfedvis.runs.upload_reader import Recorder, Recording

DELTA = 1e-5
BUDGET = Budget(gaussian_epsilon(1.0, DELTA), DELTA)  # μ = 1
SMALL = RecordAudit(games=400, rounds=2, records=3)
PROTECTED = [name for name, kind in MECHANISMS.items() if kind().protection != "none"]
OPEN = [name for name in MECHANISMS if name not in PROTECTED]
REACH = 2e-4  # that rounding may take off
CHEAP = {"mean-embedding": MeanEmbedding(frequencies=20, steps=1), "input": InputPerturbation(tau_x=0.3)}


def played(chosen: Mechanism | str, level: RecordAudit = SMALL, budget: Budget | None = BUDGET) -> AuditResult:
    return audit(chosen, budget, level=level)


@pytest.mark.parametrize("name", PROTECTED)
def test_the_claim_of_every_protected_mechanism_stands_and_is_nearly_reached(name: str) -> None:
    """Without noise the canaries are as far apart as the sensitivity says, but for rounding towards zero."""
    result = played(CHEAP.get(name, name))
    assert result.verdict == "consistent"
    assert 1 - REACH < result.facts["reach"] <= 1 + 1e-9
    assert result.bound("gdp").epsilon > 0.45 * result.claim.epsilon
    assert result.claim.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-6)
    assert result.facts["level"] == "records"


@pytest.mark.parametrize("name", OPEN)
def test_without_protection_there_is_no_claim_and_every_canary_is_found(name: str) -> None:
    result = played(name)
    assert (result.verdict, result.claim.exists) == ("no claim", False)
    assert result.counts.false_positives + result.counts.false_negatives == 0
    assert result.lower_bound > 4
    assert result.sentence.startswith("No claim to audit; lower bound found: ε ≥ ")
    assert result.claim.delta == DELTA


@pytest.mark.parametrize("chosen", [HeuristicNoise(beta=5.0), PublishedFedDL(beta=5.0)], ids=lambda each: each.name)
def test_noise_scaled_by_the_upload_hides_nothing_however_large(chosen: Mechanism) -> None:
    """A canary that cancels the rest leaves no upload, and so no noise."""
    counts = played(chosen, replace(SMALL, games=200)).counts
    assert counts.false_positives + counts.false_negatives == 0


@pytest.mark.parametrize("trust", ["aggregate", "central"])
@pytest.mark.parametrize("name", [name for name in PROTECTED if name not in CHEAP])
def test_canaries_stay_apart_in_a_sum(name: str, trust: str) -> None:
    kind: Any = MECHANISMS[name]
    result = played(kind(trust=trust), replace(SMALL, games=300, rounds=1))
    assert result.verdict != "violated"
    assert 1 - REACH < result.facts["reach"] <= 1 + 1e-9
    assert result.bound("gdp").epsilon > 0.2 * result.claim.epsilon


def test_several_local_steps_and_the_bound_of_the_theorem_stay_below_their_claim() -> None:
    several = played("variable", replace(SMALL, local_steps=3))
    theorem = played(GradientPerturbation(bound="theorem", tau_x=1.0, tau_y=2.0, upsilon=2.5))
    for result in (several, theorem):
        assert result.verdict == "consistent"
        assert result.facts["reach"] < 1  # their sensitivities are bounds that no record is known to attain


def test_a_plug_in_mechanism_needs_no_change_here() -> None:
    result = played(FirstFeature(), replace(SMALL, games=200))
    assert result.verdict == "consistent"
    assert 1 - REACH < result.facts["reach"] <= 1 + 1e-9


@dataclass(frozen=True)
class FirstFeature(GradientPerturbation):
    """All features but the first left out, which is where the canary is."""

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        values = super().total(local, Y, public, grid, factor)
        values[:, 1:] = 0
        return values


# Planted faults: mechanisms that state too small a sensitivity, or do not do what their sensitivity needs.


@dataclass(frozen=True)
class HalfSensitivity(GradientPerturbation):
    """The add-remove sensitivity under replace-one: half the noise that is needed."""

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        return super().sensitivity(public, records) / 2


@dataclass(frozen=True)
class RecordsOfAll(GradientPerturbation):
    """The mean is over the client's own records, the sensitivity over three times as many."""

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        return super().sensitivity(public, 3 * records)


@dataclass(frozen=True)
class ForgotToClip(ClippedGradientPerturbation):
    """States the sensitivity of clipped parts, and clips none."""

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        return GradientPerturbation().total(local, Y, public, grid, factor)


@dataclass(frozen=True)
class ForgotTheBound(InputPerturbation):
    """Noise for records of norm τ_X, which nobody enforces."""

    def at_home(self, records: Array, public: PublicParameters) -> Integers:
        return 2 * super().at_home(records, public)


@dataclass(frozen=True)
class Unnormalised(MeanEmbedding):
    """Features of norm 2 taken for features of norm 1."""

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        return 2 * super().total(local, Y, public, grid, factor)


@pytest.mark.parametrize(
    "fault",
    [
        HalfSensitivity(),
        RecordsOfAll(),
        ForgotToClip(),
        ForgotTheBound(tau_x=0.3),
        Unnormalised(frequencies=20, steps=1),
        HalfSensitivity(trust="aggregate"),
    ],
    ids=lambda each: f"{type(each).__name__}-{each.trust}",
)
def test_wrong_mechanisms_are_found(fault: Mechanism) -> None:
    result = played(fault, replace(SMALL, games=600, rounds=1))
    assert result.verdict == "violated"
    assert result.facts["reach"] > 1.3
    assert result.claim.epsilon == pytest.approx(BUDGET.epsilon, rel=1e-6)  # the ledger saw nothing wrong


def test_opposite_sides_attain_the_sensitivity_and_cancel() -> None:
    kernel = Kernel.gaussian(0.7)
    scene = opposite_sides(kernel, games=1, records=3, landmarks=5, own_axes=False)
    parts = [
        data_gradient(scene.client(0, inside=side), scene.landmarks, kernel, denominator=3) for side in (True, False)
    ]
    assert np.abs(parts[0]).max() < 1e-15
    assert np.linalg.norm(parts[0] - parts[1]) == pytest.approx(8 * math.sqrt(0.7 / (2 * math.e)) / (3 * math.sqrt(5)))
    apart = opposite_sides(kernel, games=4, records=2, landmarks=2, own_axes=True)
    uploads = [data_gradient(apart.inside[[game]], apart.landmarks, kernel, denominator=1).ravel() for game in range(4)]
    assert np.count_nonzero(np.abs(np.array(uploads) @ np.array(uploads).T) > 1e-12) == 4


def test_opposite_phases_are_opposite() -> None:
    chosen, kernel = MeanEmbedding(frequencies=30), Kernel.gaussian(0.4)
    scene = opposite_phases(chosen, kernel, records=2, landmarks=2, seed=9)
    phases = (scene.inside - scene.outside) @ RandomFeatures(kernel, 60, 30, 9).matrix.astype(np.float64)
    np.testing.assert_allclose(np.cos(phases), -1, atol=1e-6)


def test_one_record_is_recovered_from_its_gradient() -> None:
    generator = np.random.default_rng(2)
    landmarks, record = generator.normal(size=(4, 3)), generator.normal(size=(1, 3))
    seen = data_gradient(record, landmarks, Kernel.gaussian(0.1), denominator=1)
    np.testing.assert_allclose(invert(seen, landmarks), record[0], rtol=1e-9)


def test_all_stages_of_a_recorded_run_are_audited_as_one_mechanism(tmp_path: Path) -> None:
    """A protected mean (a tenth of μ²) and gradients, in one ledger, read back from the folder of the run."""
    kernel, tau, games = Kernel.gaussian(0.5), 1.0, 400
    scene = opposite_sides(kernel, games=games, records=2, landmarks=2, own_axes=False)
    coins = np.random.default_rng(8).random(games) < 0.5
    fed = FederatedData([scene.client(game, inside=bool(coin)) for game, coin in enumerate(coins)])
    chosen = mechanism("gradient")
    recorder = Recorder(tmp_path)
    result = FedDL(
        landmarks=2,
        mechanism=chosen,
        budget=BUDGET,
        rounds=2,
        gamma=kernel,
        start="mean",
        tau_x=tau,
        projection=Still(scene.landmarks),
        seed=8,
    ).run(fed, callbacks=[recorder.landmarks], witness=recorder)
    recorder.finish(result, chosen, {})
    recording = Recording.read(tmp_path)
    assert {upload.stage for upload in recording.uploads} == {"scale", "landmarks"}
    stages: dict[str, Mechanism] = {Moments.what: Moments(tau_x=tau), chosen.what: chosen}

    def predict(event: Any) -> Prediction:
        sides = [PreparedRecords(scene.client(0, inside=side).astype(np.float32), 2) for side in (True, False)]
        stage, Y = stages[event.what], scene.landmarks.astype(np.float32)
        return Prediction(*(exact_total(stage, recording.public, each, Y) * event.grid for each in sides))

    tossed = {client.name: bool(coin) for client, coin in zip(recording.clients, coins, strict=True)}
    claim = Claim.of_ledger(result.ledger, DELTA)
    whole = audit_uploads(recording.uploads, predict, tossed, claim)
    assert whole.verdict == "consistent"
    assert whole.facts["reach"] == pytest.approx(1.0, abs=1e-4)
    assert whole.bound("gdp").epsilon > 0.45 * claim.epsilon
    # Without the first stage a tenth of μ² is missing, and with the second alone as well.
    parts = [weigh(recording.of(what), predict).distance["client-0"] for what in stages]
    assert [part**2 for part in parts] == pytest.approx([0.1, 0.9], rel=1e-3)
    assert weigh(recording.uploads, lambda event: None).ratios == {}
    with pytest.raises(InvalidParameter, match="client-0"):
        audit_uploads(recording.uploads, lambda event: None, tossed, claim)


def test_ratios_are_those_of_the_densities() -> None:
    """One upload, one value after another: log N(u; a, σ²) − log N(u; b, σ²)."""
    seen = Watcher()
    result = FedDL(landmarks=3, mechanism="gradient", budget=BUDGET, rounds=1, gamma=1.0, start="normal", seed=4).run(
        FederatedData([np.ones((5, 2))]), witness=seen
    )
    [upload] = seen.seen
    sigma = upload.events[0].sigma
    a, b = np.full((3, 2), 0.1), np.linspace(-0.2, 0.1, 6).reshape(3, 2)
    found = weigh(seen.seen, lambda event: Prediction(a, b)).ratios["client-0"]
    slow = sum(
        ((u - out) ** 2 - (u - inside) ** 2) / (2 * sigma**2)
        for u, inside, out in zip(upload.values.ravel(), a.ravel(), b.ravel(), strict=True)
    )
    assert found == pytest.approx(float(slow), rel=1e-6)
    assert result.ledger.spent() <= BUDGET.epsilon


def test_the_seed_decides_everything() -> None:
    small = replace(SMALL, games=50)
    first, again = (played("gradient", small) for _ in range(2))
    assert first.to_json() == again.to_json()
    assert not np.array_equal(first.scores_in, played("gradient", replace(small, seed=1)).scores_in)


def test_progress_is_told_round_by_round() -> None:
    told: list[tuple[int, int]] = []
    level = replace(SMALL, games=30, rounds=3, progress=lambda done, total: told.append((done, total)))
    played(NoPerturbation(), level)
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"games": 5}, "games"),
        ({"records": 1}, "records"),
        ({"landmarks": 1}, "landmarks"),
        ({"rounds": 0}, "rounds"),
        ({"gamma": 0.0}, "gamma"),
        ({"confidence": 0.0}, "confidence"),
        ({"delta": 1.0}, "delta"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameter, match=name):
        RecordAudit(**settings)


def test_what_cannot_be_played_is_named() -> None:
    with pytest.raises(InvalidParameter, match="budget"):
        played("gradient", budget=None)
    with pytest.raises(InvalidParameter, match="adjacency"):
        played("gradient", budget=Budget(1, DELTA, adjacency="add-remove"))
    with pytest.raises(InvalidParameter, match="trust"):
        played(MeanEmbedding(trust="aggregate"))
    with pytest.raises(InvalidParameter, match="input"):
        scene_for(mechanism("input"), mu=None, gamma=1.0, games=20, records=2, landmarks=2, seed=0)
    zeros = np.zeros((1, 2))
    with pytest.raises(InvalidParameter, match="rest"):
        Scene(zeros, zeros, np.zeros((1, 3)), zeros, Kernel.gaussian(1.0), "")
    with pytest.raises(InvalidParameter, match="outside"):
        Scene(zeros, np.zeros((2, 2)), zeros, zeros, Kernel.gaussian(1.0), "")
