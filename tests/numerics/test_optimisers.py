"""Steps of the server against references written out in loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting import InvalidParameter
from dpfedvis.numerics.optimisers import Adam, Momentum, Plain, optimiser

GRADIENTS = [np.random.default_rng(s).normal(size=(3, 2)) for s in range(12)]


def slow_momentum(gradients, step_size, decay):
    velocity, steps = np.zeros((3, 2)), []
    for gradient in gradients:
        for i in range(3):
            for k in range(2):
                velocity[i, k] = decay * velocity[i, k] + gradient[i, k]
        steps.append(-step_size * velocity)
    return steps


def slow_adam(gradients, step_size, first=0.9, second=0.999, tiny=1e-8):
    mean, square, steps = np.zeros((3, 2)), np.zeros((3, 2)), []
    for t, gradient in enumerate(gradients, start=1):
        step = np.zeros((3, 2))
        for i in range(3):
            for k in range(2):
                mean[i, k] = first * mean[i, k] + (1 - first) * gradient[i, k]
                square[i, k] = second * square[i, k] + (1 - second) * gradient[i, k] ** 2
                top, below = mean[i, k] / (1 - first**t), square[i, k] / (1 - second**t)
                step[i, k] = -step_size * top / (math.sqrt(below) + tiny)
        steps.append(step)
    return steps


def test_plain_is_gradient_descent():
    np.testing.assert_allclose(Plain(0.25).step(GRADIENTS[0]), -0.25 * GRADIENTS[0])


def test_momentum_is_the_heavy_ball():
    chosen = Momentum(0.2, decay=0.7)
    for gradient, expected in zip(GRADIENTS, slow_momentum(GRADIENTS, 0.2, 0.7), strict=True):
        np.testing.assert_allclose(chosen.step(gradient), expected, rtol=1e-12)


def test_adam_is_adam():
    chosen = Adam(0.05)
    for gradient, expected in zip(GRADIENTS, slow_adam(GRADIENTS, 0.05), strict=True):
        np.testing.assert_allclose(chosen.step(gradient), expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
def test_it_goes_on_from_its_state(name):
    whole, before, after = (optimiser(name, 0.1) for _ in range(3))
    for gradient in GRADIENTS[:5]:
        whole.step(gradient)
        before.step(gradient)
    after.restore({key: value.copy() for key, value in before.state.items()})
    for gradient in GRADIENTS[5:]:
        np.testing.assert_array_equal(after.step(gradient), whole.step(gradient))


@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
def test_two_of_a_kind_share_nothing(name):
    used, fresh = optimiser(name, 0.1), optimiser(name, 0.1)
    used.step(GRADIENTS[0])
    np.testing.assert_array_equal(fresh.step(GRADIENTS[1]), optimiser(name, 0.1).step(GRADIENTS[1]))


@pytest.mark.parametrize("kind", [Plain, Momentum, Adam])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
def test_a_bad_step_size_is_named(kind, value):
    with pytest.raises(InvalidParameter, match="step_size"):
        kind(step_size=value)


def test_bad_rates_and_names_are_named():
    for build, value in [
        (lambda: Momentum(0.1, decay=1.0), 1.0),
        (lambda: Adam(0.1, first=0.0), 0.0),
        (lambda: Adam(0.1, second=1.5), 1.5),
        (lambda: optimiser("adagrad", 0.1), "adagrad"),
    ]:
        with pytest.raises(InvalidParameter) as caught:
            build()
        assert caught.value.value == value
