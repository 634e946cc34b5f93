"""What is found or refused before the first round."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import Budget, InvalidParameter, Ledger, UnprotectedReleaseError
from dpfedvis import FederatedData
from dpfedvis.data import InvalidData
from dpfedvis.feddl import FedDL
from dpfedvis.mechanisms import HeuristicNoise, NoPerturbation, VariablePerturbation

BUDGET = Budget(3, 1e-5)


def federated(records: int = 60, clients: int = 3, scale: float = 1.0, **options: object) -> FederatedData:
    generator = np.random.default_rng(7)
    parts = [scale * generator.standard_normal((records, 4)) for _ in range(clients)]
    return FederatedData(parts, **options)  # type: ignore[arg-type]


def whats(ledger: Ledger) -> set[str]:
    return {event.what for event in ledger.events()}


def test_without_bounds_a_protected_run_learns_its_scale_within_the_budget() -> None:
    result = FedDL(mechanism="gradient", budget=BUDGET, landmarks=6, rounds=3).run(federated(records=400))
    assert whats(result.ledger) == {"scale histogram", "moments", "gradient"}
    assert result.ledger.spent(end_to_end=True) == pytest.approx(BUDGET.epsilon, rel=1e-6)


def test_without_bounds_an_unprotected_run_says_what_it_gave_away() -> None:
    result = FedDL(mechanism="none", landmarks=6, rounds=2).run(federated())
    assert whats(result.ledger) == {"median distance", "mean", "gradient"}
    assert result.ledger.spent(1e-5) == np.inf


def test_declared_bounds_make_the_scale_public() -> None:
    result = FedDL(mechanism="gradient", budget=BUDGET, landmarks=6, rounds=2).run(federated(bounds=(-3, 3)))
    assert whats(result.ledger) == {"gradient"}
    assert np.abs(result.landmarks).max() <= 3


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_histogram_finds_the_scale_of_data_of_any_size(scale: float) -> None:
    config = FedDL(mechanism="gradient", budget=Budget(20, 1e-5), landmarks=4, rounds=1)
    (gamma,) = config.run(federated(records=400, scale=scale)).setting.kernel.gammas
    assert 1 / 4 < gamma * 2 * 4 * scale**2 < 4


def test_a_scale_that_the_budget_cannot_show_is_that_of_standardised_features() -> None:
    tiny = Budget(1e-3, 1e-5)
    for seed in range(10):
        result = FedDL(mechanism="gradient", budget=tiny, landmarks=4, rounds=1, seed=seed, step_size=1e-9).run(
            federated(records=12, scale=1e-3)
        )
        assert result.setting.kernel.gammas == (1 / 8,)


@pytest.mark.parametrize("mechanism", [NoPerturbation(), HeuristicNoise()])
def test_an_unprotected_mechanism_under_a_budget_is_refused_before_the_scale_is_released(
    mechanism: NoPerturbation | HeuristicNoise,
) -> None:
    ledger = Ledger(budget=BUDGET)
    with pytest.raises(UnprotectedReleaseError, match="protects nothing"):
        FedDL(mechanism=mechanism, budget=BUDGET, bandwidth="moments", tau_x=2.0).run(federated(), ledger=ledger)
    assert len(ledger) == 0


@pytest.mark.parametrize("start", [np.zeros((3, 3)), np.full((6, 4), np.nan)])
def test_a_start_that_does_not_fit_is_refused_before_anything_is_released(start: np.ndarray) -> None:
    ledger = Ledger(budget=BUDGET)
    with pytest.raises(InvalidParameter, match="start"):
        FedDL(mechanism="gradient", budget=BUDGET, landmarks=6, start=start).run(federated(), ledger=ledger)
    assert len(ledger) == 0


def test_variable_under_add_remove_is_refused_before_anything_is_released() -> None:
    budget = Budget(3, 1e-5, adjacency="add-remove")
    ledger = Ledger(budget=budget)
    config = FedDL(mechanism=VariablePerturbation(), budget=budget, public_records=60, bandwidth="moments", tau_x=2.0)
    with pytest.raises(InvalidParameter, match="replace-one"):
        config.run(federated(), ledger=ledger)
    assert len(ledger) == 0


def test_nothing_to_share_means_no_secure_sum() -> None:
    with pytest.raises(InvalidParameter, match="trust of none"):
        FedDL(mechanism=NoPerturbation(trust="aggregate"), landmarks=4, rounds=1, bandwidth=1.0).run(federated())


@pytest.mark.parametrize("bounds", [(1, 0), (0, np.inf), (0, np.nan), (1,), "ab", 3])
def test_bounds_that_are_none_are_refused_by_name(bounds: object) -> None:
    with pytest.raises(InvalidData, match="bounds"):
        federated(bounds=bounds)
