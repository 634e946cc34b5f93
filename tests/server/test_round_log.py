"""The trace: an estimate of the objective from what the server saw, held against the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting import Budget
from dpfedvis.data import FederatedData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.evaluation.exact_trace import ExactObjective, exact_trace
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.server.callbacks import KeepLandmarks
from dpfedvis.server.round_log import Round, Slope, as_array, from_array
from tests.makers import federation

KERNEL = Kernel((0.2,))


@pytest.fixture
def fed():
    return federation(shift=0.4, dtype=np.float64)


@pytest.mark.parametrize("mechanism", ["none", "variable"])
def test_the_estimate_follows_the_objective_within_its_error(mechanism, fed):
    """Each step adds an error of at most (L/2)‖step‖²."""
    budget = None
    if mechanism == "variable":
        # Each record many times over, at the largest budget: the same means, with noise that does not show.
        budget, fed = Budget(500, 1e-5), FederatedData([np.tile(client.X, (1000, 1)) for client in fed.clients])
    kept = KeepLandmarks()
    config = FedDL(landmarks=6, mechanism=mechanism, budget=budget, rounds=25, gamma=0.2, seed=1)
    result = config.run(fed, callbacks=[kept])
    start = ExactObjective(fed, [n / 95 for n in (20, 30, 45)], KERNEL)
    exact = exact_trace(fed, result, kept.kept)
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
        kept = KeepLandmarks()
        config = FedDL(
            landmarks=6,
            mechanism="gradient",
            budget=Budget(2.0, 1e-5),
            rounds=6,
            gamma=0.2,
            seed=seed,
            start=np.random.default_rng(0).normal(size=(6, 4)),
        )
        result = config.run(fed, callbacks=[kept])
        exact = exact_trace(fed, result, kept.kept)
        change = result.trace[-1].change - result.trace[1].change
        true = exact[5] - exact[1]
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
    trace = [Round(s, 0.5 * s, math.nan if s == 1 else -1.0 / (s + 1)) for s in range(count)]
    values = as_array(trace)
    assert values.shape == (count, 3)
    assert repr(from_array(values)) == repr(trace)
