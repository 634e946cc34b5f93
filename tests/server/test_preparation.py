"""What is found or refused before the first round."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from accounting import Budget, InvalidParameter, Ledger, UnprotectedReleaseError
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.data import InvalidData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.mechanisms import (
    ClippedGradientPerturbation,
    GradientPerturbation,
    HeuristicNoise,
    KMeans,
    MeanEmbedding,
    NoPerturbation,
    VariablePerturbation,
)
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import gradient
from dpfedvis.numerics.optimisers import Plain
from dpfedvis.protocol.uploads import in_units
from tests.makers import federation

BUDGET = Budget(3, 1e-5)


def federated(records: int = 60, clients: int = 3, scale: float = 1.0, **options: object) -> FederatedData:
    return federation((records,) * clients, shift=0.0, spread=scale, seed=7, **options)


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


@pytest.mark.parametrize("mechanism", ["gradient", "clipped", "variable"])
def test_kernel_sums_run_without_bounds_and_without_a_histogram(mechanism: str) -> None:
    """Their grid follows from the landmarks, so that the noise is planned before a cell is known."""
    start = np.linspace(-1.0, 1.0, 16).reshape(4, 4)
    result = FedDL(mechanism=mechanism, budget=BUDGET, landmarks=4, rounds=2, gamma=1.0, start=start).run(federated())
    sigmas = [event.sigma for event in result.ledger.events() if event.round == 1]
    assert len(whats(result.ledger)) == 1
    assert result.public.noise == pytest.approx(sigmas[0] / np.sqrt(len(sigmas)), rel=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_histogram_finds_the_scale_of_data_of_any_size(scale: float) -> None:
    config = FedDL(mechanism="gradient", budget=Budget(20, 1e-5), landmarks=4, rounds=1)
    (gamma,) = config.run(federated(records=400, scale=scale)).public.kernel.gammas
    assert 1 / 4 < gamma * 2 * 4 * scale**2 < 4


def test_a_scale_that_the_budget_cannot_show_is_that_of_standardised_features() -> None:
    tiny = Budget(1e-3, 1e-5)
    for seed in range(10):
        result = FedDL(mechanism="gradient", budget=tiny, landmarks=4, rounds=1, seed=seed, step_size=1e-9).run(
            federated(records=12, scale=1e-3)
        )
        assert result.public.kernel.gammas == (1 / 8,)


@pytest.mark.parametrize("mechanism", [NoPerturbation(), HeuristicNoise()])
def test_an_unprotected_mechanism_under_a_budget_is_refused_before_the_scale_is_released(
    mechanism: NoPerturbation | HeuristicNoise,
) -> None:
    ledger = Ledger(budget=BUDGET)
    with pytest.raises(UnprotectedReleaseError, match="protects nothing"):
        FedDL(mechanism=mechanism, budget=BUDGET, gamma="moments", tau_x=2.0).run(federated(), ledger=ledger)
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
    config = FedDL(mechanism=VariablePerturbation(), budget=budget, public_records=60, gamma="moments", tau_x=2.0)
    with pytest.raises(InvalidParameter, match="replace-one"):
        config.run(federated(), ledger=ledger)
    assert len(ledger) == 0


def test_nothing_to_share_means_no_secure_sum() -> None:
    with pytest.raises(InvalidParameter, match="trust of none"):
        FedDL(mechanism=NoPerturbation(trust="aggregate"), landmarks=4, rounds=1, gamma=1.0).run(federated())


@pytest.mark.parametrize("bounds", [(1, 0), (0, np.inf), (0, np.nan), (1,), "ab", 3])
def test_bounds_that_are_none_are_refused_by_name(bounds: object) -> None:
    with pytest.raises(InvalidData, match="bounds"):
        federated(bounds=bounds)


WHOLE = Budget(3, 1e-5, unit="client")


@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
@pytest.mark.parametrize("mechanism", [GradientPerturbation, ClippedGradientPerturbation, MeanEmbedding, KMeans])
def test_a_claim_for_whole_clients_is_priced_as_that_for_a_client_with_one_record(mechanism: type, trust: str) -> None:
    """Clients of 10, 60 and 200 records: none of them may be told apart by its noise or its weight."""
    chosen = mechanism(trust=trust)
    fed = FederatedData([np.random.default_rng(n).standard_normal((n, 4)) for n in (10, 60, 200)])
    config = FedDL(mechanism=chosen, budget=WHOLE, gamma=1.0, landmarks=4, rounds=2, start="normal", tau_x=9.0)
    result = config.run(fed)
    share = 1.0 if trust == "local" else 1 / 3
    events = list(result.ledger.events())
    assert {event.unit for event in events} == {"client"}
    # A mean is rounded value by value, so that it moves by a cell more in each.
    values = math.prod(chosen.shape(result.public))
    expected = [share * chosen.sensitivity(result.public, 1.0) + event.grid * math.sqrt(values) for event in events]
    assert [event.sensitivity for event in events] == pytest.approx(expected, rel=1e-12)
    assert max(event.grid * math.sqrt(values) for event in events) < 1e-4 * expected[0]
    assert len({event.sigma for event in events}) == 1
    assert result.ledger.spent(end_to_end=True) == pytest.approx(3, rel=1e-6)


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("epsilon", [1.0, 1e-4])
@pytest.mark.parametrize("mechanism", ["gradient", "clipped", "variable"])
def test_noise_of_many_landmarks_and_features_fits_its_grid(mechanism: str, epsilon: float, unit: str) -> None:
    """As many as MNIST has: kernel sums have fine cells, and a whole client moves them far."""
    fed = FederatedData([np.random.default_rng(p).random((5, 784)) for p in range(2)], bounds=(0, 1))
    budget = Budget(epsilon, 1e-5, unit=unit)
    result = FedDL(mechanism=mechanism, budget=budget, landmarks=500, rounds=50).run(
        fed, callbacks=[lambda done, Y: done.number == 1]
    )
    assert np.isfinite(result.landmarks).all()
    for event in result.ledger.events():
        assert event.noise_multiplier == pytest.approx(result.plan.multipliers[event.what].sigma)


def test_weights_do_not_tell_the_size_of_a_client_that_is_the_unit() -> None:
    """The server's average is the plain mean of what two clients of 5 and 400 records uploaded."""
    parts = [np.random.default_rng(p).standard_normal((n, 4)) for p, n in enumerate((5, 400))]
    seen: list[np.ndarray] = []
    config = FedDL(mechanism="k-means", budget=WHOLE, gamma=1.0, landmarks=3, rounds=1, start="normal", tau_x=9.0)
    result = config.run(FederatedData(parts), witness=lambda events, values: seen.append(in_units(values, events[0])))
    expected = KMeans().update(result.start, np.mean(seen, axis=0), result.public, Plain(1.0)).landmarks
    grid = KMeans().grid(result.public, result.start)
    np.testing.assert_allclose(result.landmarks, expected, rtol=1e-5, atol=grid.step)
    sized = KMeans().update(result.start, np.average(seen, axis=0, weights=[5, 400]), result.public, Plain(1.0))
    assert not np.allclose(result.landmarks, sized.landmarks, rtol=1e-2)


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "input"},
        {"budget": Budget(3, 1e-5, unit="client", adjacency="add-remove"), "public_records": 60},
        {
            "budget": Budget(3, 1e-5, unit="client", adjacency="add-remove"),
            "public_records": 60,
            "sampling_rate": 0.5,
        },
        {"sampling_rate": 0.5},
    ],
)
def test_a_claim_for_whole_clients_is_refused_where_nothing_covers_it(settings: dict[str, object]) -> None:
    values = {"mechanism": "gradient", "budget": WHOLE, "gamma": 1.0, "landmarks": 4, **settings}
    ledger = Ledger(budget=values["budget"])
    with pytest.raises(InvalidParameter, match="unit"):
        FedDL(**values).run(federated(), ledger=ledger)
    assert len(ledger) == 0


def test_noisy_rows_of_whole_clients_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="unit"):
        FedTSNE(mechanism="gradient", budget=WHOLE, release="noisy", tau_x=3.0).fit(federated())


def test_filled_means_tie_records_together_so_a_budget_refuses_them() -> None:
    parts = [np.array([[1.0, np.nan], [2.0, 3.0], [0.0, 1.0]])] * 2
    fed = FederatedData(parts, missing="client-mean")
    with pytest.raises(InvalidParameter, match="public-value"):
        FedDL(mechanism="gradient", budget=BUDGET, gamma=1.0, landmarks=3).run(fed)
    FedDL(mechanism="gradient", budget=BUDGET, gamma=1.0, landmarks=3, rounds=1, start="normal").run(
        FederatedData(parts, missing="public-value")
    )


@pytest.mark.parametrize("mechanism", ["gradient", "clipped", "variable", "mean-embedding", "k-means"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_absurd_record_does_not_stop_a_client(mechanism: str, dtype: type) -> None:
    parts = [client.X.astype(dtype) for client in federated().clients]
    parts[1][3] = 1e19 if dtype == np.float32 else 1e100
    result = FedDL(mechanism=mechanism, budget=BUDGET, gamma=1.0, landmarks=4, rounds=2, start="normal").run(
        FederatedData(parts, dtype=dtype)
    )
    assert not result.failures
    assert np.isfinite(result.landmarks).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"start": "uniform"},
        {"local_steps": 3},
        {"mechanism": "input", "budget": Budget(3, 1e-5, adjacency="add-remove"), "public_records": 60},
        {"share": 0.5},
        {"noisy_rows": {"distances": 0.9}, "share": 0.1},
        {"mechanism": "none", "budget": None, "noisy_rows": {"distances": 0.1}},
    ],
)
def test_what_cannot_work_is_found_before_anything_is_released(settings: dict[str, object]) -> None:
    values = {"mechanism": "gradient", "budget": BUDGET, "landmarks": 4, "rounds": 2, **settings}
    ledger = Ledger(budget=values["budget"])
    with pytest.raises(InvalidParameter):
        FedDL(**values).run(federated(), ledger=ledger)
    assert len(ledger) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"start": [[1.0]]},
        {"tau_x": -1.0},
        {"landmarks": 1},
        {"seed": None},
        {"seed": -1},
        {"budget": 2.0},
        {"noise": "system"},
        {"bounds": (0, 1, 2)},
        {"bounds": (0, np.inf)},
    ],
)
def test_settings_that_make_no_sense_are_refused_at_once(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        FedDL(**settings)


def test_a_checkpoint_keeps_its_own_ledger(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="checkpoint"):
        FedDL(rounds=1).run(federated(), ledger=Ledger(), checkpoint=tmp_path / "run")


@pytest.mark.parametrize("bandwidth", [np.float32(0.5), np.int64(1), np.array([0.5, 1.0])])
def test_a_bandwidth_may_be_any_number(bandwidth: object) -> None:
    result = FedDL(gamma=bandwidth, rounds=1, landmarks=3).run(federated())
    assert result.public.kernel.gammas == tuple(np.atleast_1d(bandwidth).astype(float))


def test_exact_local_steps_are_the_main_line_of_algorithm_1() -> None:
    fed, start = federated(records=20), np.random.default_rng(1).standard_normal((5, 4))
    steps = {"gamma": 0.3, "landmarks": 5, "rounds": 3, "step_size": 0.4, "start": start}
    result = FedDL(mechanism="local-steps", local_steps=4, **steps).run(fed)
    Y = start.astype(np.float32)
    for _ in range(3):
        own = []
        for client in fed.clients:
            Y_p = Y
            for _ in range(4):
                Y_p = Y_p - 0.4 * gradient(client.X, Y_p, Kernel.gaussian(0.3))
            own.append(Y_p)
        Y = np.mean(own, axis=0)
    np.testing.assert_allclose(result.landmarks, Y, atol=1e-5)
    assert whats(result.ledger) == {"landmarks"}
    assert result.ledger.spent(1e-5) == np.inf


def test_the_server_of_local_steps_may_use_momentum() -> None:
    common = {"mechanism": "local-steps", "gamma": 0.3, "landmarks": 5, "rounds": 4, "start": "normal"}
    plain, heavy = (FedDL(**common, optimiser=name).run(federated()) for name in ("plain", "momentum"))
    assert np.abs(plain.landmarks - heavy.landmarks).max() > 1e-3


@pytest.mark.parametrize("mechanism", [NoPerturbation, None, 3])
def test_what_is_no_mechanism_is_refused_by_name(mechanism: object) -> None:
    with pytest.raises(InvalidParameter, match="mechanism"):
        FedDL(mechanism=mechanism, rounds=1).run(federated())
