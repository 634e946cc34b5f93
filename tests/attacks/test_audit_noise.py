"""The noise-and-accounting audit: it passes the code as it is, and finds every planted fault of noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from accounting import Budget, InvalidParameter, SeededNoise, gaussian_epsilon
from attacks import audit
from attacks.auditing import AuditResult, NoiseAudit
from dpfedvis.mechanisms import (
    MECHANISMS,
    GradientPerturbation,
    InputPerturbation,
    Mechanism,
)
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol import noise
from dpfedvis.server import session
from dpfedvis.site import computation

DELTA = 1e-5
BUDGET = Budget(gaussian_epsilon(1.0, DELTA), DELTA)  # μ = 1
CLAIM = 4.377  # ε of μ = 1
ROUNDS = 50


def of_every_kind() -> list[Mechanism]:
    """Every mechanism of the registry that protects, under every trust that it knows."""
    kinds: dict[str, Any] = {name: kind for name, kind in MECHANISMS.items() if kind().protection == "upload"}
    settings = {"mean-embedding": {"frequencies": 2000}}
    trusts = ("local", "aggregate", "central")
    return [
        InputPerturbation(tau_x=3.0),
        *(kind(trust=trust, **settings.get(name, {})) for name, kind in kinds.items() for trust in trusts),
    ]


def audited(mechanism: Mechanism | str = "gradient", **settings: Any) -> AuditResult:
    return audit(mechanism, BUDGET, level=NoiseAudit(**settings))


def test_the_full_audit_certifies_most_of_the_claim() -> None:
    """10,000 canaries in 392,000 dimensions, 50 rounds: the one-run method certifies about half as much."""
    result = audited(canaries=10_000, landmarks=500, features=784, clients=1, rounds=ROUNDS)
    assert result.facts["coordinates"] == 392_000
    assert result.claim.epsilon == pytest.approx(CLAIM, abs=1e-3)
    assert result.claim.mu == pytest.approx(1.0, rel=1e-6)
    assert result.verdict == "consistent"
    assert result.bound("gdp").epsilon >= 3.8
    assert result.bound("one-run").epsilon >= 1.9


@pytest.mark.parametrize("mechanism", of_every_kind(), ids=lambda each: f"{each.name}-{each.trust}")
def test_every_protected_mechanism_under_every_trust(mechanism: Mechanism) -> None:
    """4,000 canaries: σ that is right by a tenth on either side gives a bound between these."""
    result = audited(mechanism, canaries=4000, rounds=4, clients=4)
    assert result.verdict == "consistent"
    assert 0.75 * CLAIM < result.bound("gdp").epsilon <= CLAIM
    assert result.claim.epsilon == pytest.approx(CLAIM, abs=1e-3)
    assert result.facts["rounds"] == (1 if mechanism.protection == "home" else mechanism.uploads(4))


def test_noise_of_the_operating_system() -> None:
    """Not seeded, so with wide margins: five standard deviations of the estimate."""
    result = audited(noise="discrete", canaries=10_000, rounds=2, confidence=0.99)
    assert result.facts["noise"] == "discrete"
    assert result.bound("gdp").epsilon > 3.0
    assert result.bound("gdp").epsilon < 1.25 * CLAIM


def test_correct_code_is_called_violated_no_more_often_than_stated() -> None:
    results = [audited(canaries=1000, rounds=2, clients=2, landmarks=10, seed=seed) for seed in range(60)]
    for method in ("gdp", "one-run"):
        above = sum(result.bound(method).epsilon > result.claim.epsilon for result in results)
        assert binomtest(above, len(results), 0.05, alternative="greater").pvalue > 1e-3


# Planted faults: streams that give faulty generators, at sites and at the curator, where they make their own.


class Weak(np.random.Generator):
    """Too little noise: marks a generator whose noise is to be weakened by `factor`."""

    factor = 0.5


class ForOneRound(Weak):
    """Noise calibrated to one round, used in all of them: composition forgotten."""

    factor = 1 / math.sqrt(ROUNDS)


class NoNoise(Weak):
    factor = 0.0


class WeakNoise(SeededNoise):
    """The noise of a generator, times what the generator is marked with."""

    def add_integers(self, values: Integers, parameter: Any) -> Integers:
        factor = getattr(self.generator, "factor", 1.0)
        noise = super().add_integers(values, parameter) - values
        return values + np.rint(factor * noise).astype(np.int64)


@pytest.fixture(autouse=True)
def weak_where_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "SeededNoise", WeakNoise)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Streams]], None]:
    """Return a function that lets all noise come from streams of this kind."""

    def planted(fault: type[Streams]) -> None:
        for module in (computation, session):
            monkeypatch.setattr(module, "Streams", fault)

    return planted


Plant = Callable[[type[Streams]], None]


class HalfNoise(Streams):
    def generator(self, *purpose: str | int) -> np.random.Generator:
        return Weak(super().generator(*purpose).bit_generator)


class OneRoundNoise(Streams):
    def generator(self, *purpose: str | int) -> np.random.Generator:
        return ForOneRound(super().generator(*purpose).bit_generator)


class SameEveryRound(Streams):
    """A generator made anew from the same seed in every round."""

    def generator(self, *purpose: str | int) -> np.random.Generator:
        return super().generator(*purpose[:-1], 0)


class OneClientWithout(Streams):
    """Noise missing at one client of five."""

    def generator(self, *purpose: str | int) -> np.random.Generator:
        drawn = super().generator(*purpose)
        return NoNoise(drawn.bit_generator) if purpose[0] == "noise" and purpose[2] == 3 else drawn


class SharedByAll(Streams):
    """The same noise at every client: whoever knows the records of one takes the noise off the others."""

    def generator(self, *purpose: str | int) -> np.random.Generator:
        return super().generator(*purpose[:2], 0, *purpose[3:])


@pytest.mark.parametrize(
    ("fault", "least"),
    [(HalfNoise, 9.0), (OneRoundNoise, 40.0), (SameEveryRound, 40.0), (OneClientWithout, 4.6)],
)
def test_planted_faults_are_found(fault: type[Streams], least: float, plant: Plant) -> None:
    plant(fault)
    result = audited(rounds=ROUNDS)
    assert result.verdict == "violated"
    assert result.bound("gdp").epsilon > least
    assert result.claim.epsilon == pytest.approx(CLAIM, abs=1e-3)  # the ledger saw nothing wrong


@pytest.mark.parametrize("fault", [HalfNoise, OneRoundNoise, SameEveryRound])
@pytest.mark.parametrize("trust", ["aggregate", "central"])
def test_faults_are_found_where_only_the_sum_is_seen(fault: type[Streams], trust: str, plant: Plant) -> None:
    plant(fault)
    result = audited(GradientPerturbation(trust=trust), rounds=ROUNDS, canaries=4000, clients=4)
    assert result.verdict == "violated"


def test_half_the_noise_at_home_is_found(plant: Plant) -> None:
    plant(HalfNoise)
    assert audited("input").bound("gdp").epsilon > 9.0


def test_the_one_run_bound_alone_finds_gross_faults(plant: Plant) -> None:
    """It needs no independence, so that it convinces where the other may be doubted; it sees gross faults only."""
    plant(SameEveryRound)
    result = audit("gradient", Budget(1, DELTA), level=NoiseAudit(rounds=ROUNDS))
    assert result.counts.correct == result.counts.guesses
    assert result.bound("one-run").epsilon > 3 * result.claim.epsilon


class Honest(Streams):
    """No fault."""


def test_streams_without_a_fault_pass(plant: Plant) -> None:
    """The planted faults are found for what they do, and not for being planted."""
    plain = audited(rounds=4)
    plant(Honest)
    assert audited(rounds=4).to_json() == plain.to_json()


def test_noise_that_clients_share_is_found(plant: Plant) -> None:
    """Though no game shows it: each looks at one client by itself."""
    plant(SharedByAll)
    result = audited(rounds=4)
    assert result.verdict == "violated"
    assert {"independence", "repeated"} <= {finding.check for finding in result.findings}
    assert result.beyond_chance < result.claim.epsilon


def test_the_seed_decides_everything() -> None:
    first, again, other = (audited(canaries=500, rounds=3, seed=seed) for seed in (1, 1, 2))
    assert first.to_json() == again.to_json()
    assert not np.array_equal(first.scores_in, other.scores_in)


def test_progress_is_told_round_by_round() -> None:
    told: list[tuple[int, int]] = []
    audited(canaries=100, rounds=3, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"canaries": 3}, "canaries"),
        ({"canaries": 10_001, "landmarks": 10, "features": 10, "clients": 100}, "canaries"),
        ({"canaries": 50, "clients": 51}, "clients"),
        ({"rounds": 0}, "rounds"),
        ({"features": 1}, "features"),
        ({"gamma": -1.0}, "gamma"),
        ({"confidence": 1.0}, "confidence"),
        ({"seed": -1}, "seed"),
        ({"noise": "loud"}, "noise"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameter, match=name):
        audited(**settings)


@pytest.mark.parametrize(
    ("mechanism", "budget", "name"),
    [
        ("none", BUDGET, "mechanism"),
        ("gradient", None, "budget"),
        ("gradient", Budget(1, DELTA, adjacency="add-remove"), "adjacency"),
        ("magic", BUDGET, "mechanism"),
    ],
)
def test_what_cannot_be_audited_is_named(mechanism: str, budget: Budget | None, name: str) -> None:
    with pytest.raises(InvalidParameter, match=name):
        audit(mechanism, budget, level=NoiseAudit(canaries=100))
