"""The number of rounds that a budget is best spent on, from public numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget, gaussian_mu
from dpfedvis import FedTSNE
from dpfedvis.data import FederatedData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.mechanisms import (
    ClippedGradientPerturbation,
    GradientPerturbation,
    KMeans,
    NoPerturbation,
    VariablePerturbation,
)
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.optimisers import Momentum
from dpfedvis.server.rounds import (
    FROM_AFAR,
    MOST_CHOSEN,
    WITHOUT_CHOICE,
    added_up,
    chooses,
    moved_by,
    rounds_for,
    with_largest_step,
)

reaches = st.floats(1e-3, 10)
single = st.floats(1e-6, 1e3)


@given(single, reaches, st.integers(1, 300))
def test_as_many_rounds_as_the_reach_allows(moved: float, reach: float, most: int) -> None:
    found = rounds_for(lambda rounds: rounds * moved, reach, most)
    assert 1 <= found <= most
    assert found == 1 or found * moved <= reach
    assert found == most or (found + 1) * moved > reach


@given(single, st.floats(1, 10), reaches, st.sampled_from([0.0, 0.5, 0.9]))
def test_less_noise_never_means_fewer_rounds(moved: float, less: float, reach: float, decay: float) -> None:
    more, fewer = (
        rounds_for(lambda rounds, each=each: each * added_up(rounds, decay), reach) for each in (moved / less, moved)
    )
    assert more >= fewer


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_noise_adds_up_as_the_optimiser_adds_it_up(decay: float) -> None:
    rounds, tries = 6, 20_000
    generator, where = np.random.default_rng(0), np.zeros(tries)
    steps = Momentum(1.0, decay) if decay else None
    for _ in range(rounds):
        noise = math.sqrt(rounds) * generator.standard_normal(tries)  # √S: one budget for all rounds
        where += -noise if steps is None else steps.step(noise)
    assert where.std() == pytest.approx(added_up(rounds, decay), rel=0.03)


@given(
    st.integers(2, 500), st.integers(1, 800), st.floats(1e-4, 1e4), st.floats(0.1, 10), st.sampled_from([1, 10, 4000])
)
def test_the_width_of_the_kernel_cancels(
    landmarks: int, features: int, gamma: float, epsilon: float, records: int
) -> None:
    """With step 1/L the choice rests on n, n_y, d and μ, and comes to 0.59·S·f·√(n_y d)/(nμ) widths for many n_y."""
    mechanism, mu = GradientPerturbation(), gaussian_mu(epsilon, 1e-5)

    def moved(gamma: float) -> float:
        public = with_largest_step(PublicParameters(Kernel.gaussian(gamma), 1, features, 1, 1, 1.0), landmarks)
        return moved_by(mechanism.sensitivity(public, records) / mu, public, mechanism)

    assert moved(gamma) == pytest.approx(moved(1.0), rel=1e-9)
    if landmarks > 50:
        assert moved(gamma) == pytest.approx(0.593 * math.sqrt(landmarks * features) / (records * mu), rel=0.02)


def test_only_rounds_with_noise_of_a_budget_are_chosen() -> None:
    budget = Budget(1, 1e-5)
    for each in (GradientPerturbation(), ClippedGradientPerturbation(), VariablePerturbation()):
        assert chooses(each, budget)
        assert not chooses(each, None)
    assert not chooses(KMeans(), budget)
    assert not chooses(NoPerturbation(), None)


def _fed(records: int = 400) -> FederatedData:
    generator = np.random.default_rng(1)
    return FederatedData.split(generator.uniform(0, 1, (records, 4)), clients=4, partition="iid", seed=0)


def _rounds(records: int = 400, **settings: Any) -> int:
    given = {"mechanism": GradientPerturbation(), "budget": Budget(1, 1e-5), "landmarks": 20, "bounds": (0.0, 1.0)}
    result = FedDL(**{**given, **settings}).run(_fed(records))
    assert result.public.rounds == result.contract.rounds
    assert len(result.trace) == result.contract.mechanism.uploads(result.contract.rounds)
    return result.contract.rounds


def test_a_run_has_the_rounds_of_the_formula() -> None:
    """Local noise of four equal sites; by hand."""
    mu, n, d, landmarks = gaussian_mu(8, 1e-5), 400, 4, 20
    smoothness = 4 * (2 * math.exp(-1.5) / landmarks + 1 / (landmarks - 1))
    noise = 8 * math.sqrt(1 / (2 * math.e)) / math.sqrt(landmarks) / (n / 4) / mu / math.sqrt(4)
    expected = int(FROM_AFAR / (noise * math.sqrt(d) / smoothness))
    assert 1 < expected < MOST_CHOSEN
    assert _rounds(budget=Budget(8, 1e-5)) == expected


def test_rounds_grow_with_epsilon_records_and_trust() -> None:
    by_epsilon = [_rounds(budget=Budget(each, 1e-5)) for each in (0.01, 1, 4, 16)]
    assert by_epsilon[0] == 1
    assert by_epsilon == sorted(by_epsilon)
    assert by_epsilon[1] < by_epsilon[3] <= MOST_CHOSEN
    assert _rounds(mechanism=GradientPerturbation(trust="aggregate")) > by_epsilon[1]
    assert _rounds(1200) > by_epsilon[1]


def test_a_step_of_half_the_size_takes_twice_the_rounds() -> None:
    common: dict[str, Any] = {"budget": Budget(2, 1e-5), "gamma": 1.0}
    whole, half = _rounds(step_size=2.0, **common), _rounds(step_size=1.0, **common)
    assert whole > 1
    assert half in (2 * whole, 2 * whole + 1)


def test_sampled_rounds_are_chosen_as_whole_ones() -> None:
    """Noise multiplier and denominator of a Poisson sample both have a factor of about q."""
    common: dict[str, Any] = {"budget": Budget(4, 1e-5, adjacency="add-remove"), "public_records": 100}
    assert _rounds(sampling_rate=0.5, **common) == _rounds(**common) > 1


def test_variable_perturbation_of_one_step_has_the_rounds_of_gradients() -> None:
    budget = Budget(8, 1e-5)
    assert _rounds(budget=budget) == _rounds(mechanism=VariablePerturbation(), budget=budget)


def test_given_rounds_are_kept_and_others_have_the_former_default() -> None:
    assert _rounds(rounds=3) == 3
    assert _rounds(mechanism=KMeans()) == WITHOUT_CHOICE
    assert _rounds(mechanism=NoPerturbation(), budget=None) == WITHOUT_CHOICE


def test_a_private_map_chooses_its_rounds_before_the_sites_sign() -> None:
    def fitted(epsilon: float, **settings: Any) -> FedTSNE:
        given = {"mechanism": "gradient", "budget": Budget(epsilon, 1e-5), "perplexity": 5.0, "n_jobs": 1}
        return FedTSNE(**{**given, **settings}, feddl={"bounds": (0.0, 1.0)}).fit(_fed(120))

    few, more = fitted(1.0), fitted(30.0)
    assert few.settings_.rounds is None
    assert 1 <= few.feddl_.contract.rounds < more.feddl_.contract.rounds <= MOST_CHOSEN
    assert fitted(1.0, rounds=2).feddl_.contract.rounds == 2
