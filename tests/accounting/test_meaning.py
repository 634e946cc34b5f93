"""An ε means what its event says: unit, adjacency, noise source, and the moment of asking."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from accounting import (
    Budget,
    CannotAccount,
    GaussianRelease,
    InvalidParameter,
    Ledger,
    LedgerError,
    PlannedRelease,
    SampledGaussianRelease,
    SeededNoise,
    calibrate,
    sensitivity,
)
from accounting.gate import Gate
from accounting.noise import add_rounded


def gaussian(client: str = "a", **fields: object) -> GaussianRelease:
    values = {"what": "x", "client": client, "sensitivity": 1.0, "sigma": 10.0, **fields}
    return GaussianRelease(**values)


def test_sampling_records_amplifies_nothing_for_a_whole_client() -> None:
    with pytest.raises(InvalidParameter, match="record under Poisson sampling"):
        SampledGaussianRelease(
            what="x", client="a", sensitivity=1, sigma=1, sampling_rate=0.1, adjacency="add-remove", unit="client"
        )
    with pytest.raises(InvalidParameter, match="record under Poisson sampling"):
        calibrate(Budget(1, 1e-5, adjacency="add-remove", unit="client"), PlannedRelease("g", 1.0, sampling_rate=0.01))


@pytest.mark.parametrize("noise", ["none", "discrete"])
def test_other_noise_cannot_be_booked_as_continuous(noise: str) -> None:
    with pytest.raises(InvalidParameter, match="noise"):
        gaussian(noise=noise)
    with pytest.raises(InvalidParameter, match="noise"):
        calibrate(Budget(1, 1e-5), PlannedRelease("g", 1.0))["g"].event("a", noise=noise)


def test_a_release_on_a_grid_is_seeded_unless_said_otherwise_and_never_continuous() -> None:
    release = calibrate(Budget(1, 1e-5), PlannedRelease("g", 1.0, values=4))["g"]
    assert release.event("a", grid=0.01).noise == "seeded"
    assert release.event("a", grid=0.01, noise="discrete").noise == "discrete"
    with pytest.raises(InvalidParameter, match="noise"):
        release.event("a", grid=0.01, noise="system")


def test_an_open_ledger_sees_what_others_wrote(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path, Budget(1, 1e-5)) as writer, Ledger(path) as second, Ledger.read(path) as reader:
        writer.record(gaussian())
        for other in (second, reader):
            assert len(other) == 1
            assert other.clients == ["a"]
            assert other.spent() == writer.spent() > 0
            assert other.remaining() == writer.remaining() < 1
        with pytest.raises(LedgerError, match="reading only"):
            reader.record(gaussian())


def test_clients_of_different_meaning_have_no_common_epsilon() -> None:
    ledger = Ledger()
    ledger.record(gaussian("a"), gaussian("b", adjacency="add-remove"))
    for ask in (ledger.spent, ledger.compare):
        with pytest.raises(CannotAccount, match="different adjacencies"):
            ask(1e-5)
    assert ledger.spent(1e-5, client="a") > 0


def test_what_fits_is_never_one_digit_over_when_computed_back() -> None:
    generator = np.random.default_rng(5)
    for _ in range(300):
        budget = Budget(float(10 ** generator.uniform(-3, 2)), float(10 ** generator.uniform(-12, -2)))
        ledger = Ledger(budget=budget)
        ledger.record(gaussian(sigma=1 / np.sqrt(Gate(budget).allowed_mu2()) * (1 + 1e-15)))
        assert ledger.spent() <= budget.epsilon
        assert Ledger(budget=budget).remaining() <= budget.epsilon


def test_a_cycle_of_sampled_and_plain_releases_is_looked_ahead_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    exactly = Gate._exactly_fits

    def counting(self: Gate, releases: object) -> bool:
        asked.append(releases)
        return exactly(self, releases)

    monkeypatch.setattr(Gate, "_exactly_fits", counting)
    ledger = Ledger(budget=Budget(3, 1e-5, adjacency="add-remove"))
    common = {"what": "x", "client": "a", "adjacency": "add-remove", "sensitivity": 1.0}
    for round in range(12):
        ledger.record(SampledGaussianRelease(**common, sigma=2.0, sampling_rate=0.05, round=round))
        ledger.record(GaussianRelease(**common, sigma=30.0, round=round))
    assert len(asked) < 60


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_noise_covers_what_is_not_finite(value: float) -> None:
    with pytest.raises(InvalidParameter, match="finite"):
        add_rounded(np.array([1.0, value]), 1.0, 0.01, SeededNoise(np.random.default_rng(0)))


def test_the_scale_histogram_is_for_replace_one() -> None:
    assert sensitivity.scale_histogram() == 2
    with pytest.raises(InvalidParameter, match="every pair"):
        sensitivity.scale_histogram(adjacency="add-remove")
