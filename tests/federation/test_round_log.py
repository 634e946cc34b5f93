"""The trace: an estimate of the objective from what passed the door, and the truth beside it in simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting import Budget
from dpfedvis.data import FederatedData
from dpfedvis.federation.callbacks import KeepLandmarks
from dpfedvis.federation.feddl import FedDL
from dpfedvis.federation.round_log import ExactObjective, Round, Slope, as_array, from_array
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import mmd2
from tests.makers import federation

KERNEL = Kernel((0.2,))


@pytest.fixture
def fed():
    return federation(shift=0.4, dtype=np.float64)


def objective(fed, Y, weights, kernel=KERNEL, estimator="unbiased"):
    return sum(
        w * mmd2(client.X, Y, kernel, estimator=estimator) for w, client in zip(weights, fed.clients, strict=True)
    )


@pytest.mark.parametrize("weights", ["records", "equal"])
@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
def test_the_exact_trace_is_the_weighted_mmd(weights, estimator, fed):
    kept = KeepLandmarks()
    config = FedDL(landmarks=6, rounds=4, gamma=(0.1, 0.4), weights=weights, mmd=estimator, exact_trace=True, seed=1)
    result = config.run(fed, callbacks=[kept])
    omega = [1 / 3] * 3 if weights == "equal" else [n / 95 for n in (20, 30, 45)]
    for each in result.trace:
        expected = objective(fed, kept.kept[each.number], omega, Kernel((0.1, 0.4)), estimator)
        assert each.exact == pytest.approx(expected, rel=1e-9)


def test_the_exact_trace_is_asked_for_by_name(fed):
    assert all(math.isnan(each.exact) for each in FedDL(landmarks=6, rounds=3, gamma=0.2).run(fed).trace)


def test_single_records_have_no_pairs():
    fed = FederatedData([np.zeros((1, 2)), np.ones((1, 2))])
    value = ExactObjective(fed, [0.5, 0.5], KERNEL)(np.zeros((2, 2)))
    assert value == pytest.approx(-(1 + math.exp(-0.4)) + 1)


@pytest.mark.parametrize("mechanism", ["none", "variable"])
def test_the_estimate_follows_the_objective_within_its_error(mechanism, fed):
    """Each step adds an error of at most (L/2)‖step‖²."""
    budget = None
    if mechanism == "variable":
        # Each record many times over, at the largest budget: the same means, with noise that does not show.
        budget, fed = Budget(500, 1e-5), FederatedData([np.tile(client.X, (1000, 1)) for client in fed.clients])
    config = FedDL(landmarks=6, mechanism=mechanism, budget=budget, rounds=25, gamma=0.2, exact_trace=True, seed=1)
    result = config.run(fed)
    start = ExactObjective(fed, [n / 95 for n in (20, 30, 45)], KERNEL)
    kept = KeepLandmarks()
    config.run(fed, callbacks=[kept])
    exact = {each.number: each.exact for each in result.trace}
    error, L = 0.0, result.public.smoothness
    assert result.trace[0].change == 0.0
    # `change` of a round is about the Y that it began with, and the first `exact` at hand is that after round 1.
    base = result.trace[1].change
    assert start(kept.kept[1]) == pytest.approx(exact[1])
    for each in result.trace[2:]:
        error += L / 2 * result.trace[each.number - 2].step ** 2
        estimated, true = each.change - base, exact[each.number - 1] - exact[1]
        assert abs(estimated - true) <= error * (1 + 1e-6) + 1e-6 * (mechanism == "variable")


def test_noise_does_not_bias_the_estimate(fed):
    """Over many seeds the mean error is small against what the gradients at the old points would make it."""
    errors, biased = [], []
    for seed in range(40):
        config = FedDL(
            landmarks=6,
            mechanism="gradient",
            budget=Budget(2.0, 1e-5),
            rounds=6,
            gamma=0.2,
            exact_trace=True,
            seed=seed,
            start=np.random.default_rng(0).normal(size=(6, 4)),
        )
        result = config.run(fed)
        change = result.trace[-1].change - result.trace[1].change
        true = result.trace[-2].exact - result.trace[0].exact
        errors.append(change - true)
        biased.append(sum(each.step**2 for each in result.trace[1:-1]) / result.public.step_size)
    mean, spread = np.mean(errors), np.std(errors) / math.sqrt(len(errors))
    assert abs(mean) < 0.5 * np.mean(biased) + 4 * spread


def test_mechanisms_without_gradients_give_no_estimate(fed):
    for name, steps in (("mean-embedding", 1), ("variable", 2)):
        config = FedDL(landmarks=6, mechanism=name, budget=Budget(2.0, 1e-5), rounds=3, local_steps=steps, gamma=0.2)
        assert all(math.isnan(each.change) for each in config.run(fed).trace)


def test_slope_adds_up():
    slope = Slope(1.5)
    assert slope.see(np.ones((2, 2))) == 1.5
    slope.move(np.full((2, 2), 0.5))
    assert slope.see(np.ones((2, 2))) == 3.5
    assert math.isnan(Slope().see(None))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_arrays_and_back(count):
    trace = [Round(s, 0.5 * s, -1.0 / (s + 1), math.nan) for s in range(count)]
    values = as_array(trace)
    assert values.shape == (count, 4)
    assert repr(from_array(values)) == repr(trace)
