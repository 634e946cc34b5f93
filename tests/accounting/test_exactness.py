"""What integers are charged: the numbers of the proof, and how they enter ε and δ."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import CannotAccount, InvalidParameter
from accounting.exactness import DEVIATION, MOST_EPSILON, REACH, TAIL, charged_epsilon, inner_delta, shared_deviation


def test_the_deviation_covers_sampler_lemma_and_shared_noise() -> None:
    with mpmath.workdps(80):
        lemma = mpmath.log((1 + mpmath.mpf("1.1e-34")) / (1 - mpmath.mpf("1.1e-34")))
        assert 2 * mpmath.exp(-8 * mpmath.pi**2) < mpmath.mpf("1.1e-34")
        assert lemma < mpmath.mpf("2.3e-34")
        assert 26 * 2.0**-53 + lemma + shared_deviation(4.0, 10**6) / 2 < DEVIATION
        assert 2 * mpmath.exp(-(mpmath.mpf(REACH) ** 2) / 2) < TAIL


def test_shared_noise_is_the_sum_of_its_terms() -> None:
    assert shared_deviation(4.0, 1) == 0
    assert shared_deviation(2.0, 2) == pytest.approx(10 * math.exp(-4 * math.pi**2), rel=1e-12)
    assert shared_deviation(2.0, 10) == pytest.approx(7e-17, rel=0.1)
    assert shared_deviation(4.0, 10**6) < 3e-62
    assert shared_deviation(3.0, 5000) >= shared_deviation(3.0, 1000)
    assert shared_deviation(1e200, 3) == 0


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_a_sum_of_discrete_gaussians_is_nearly_one(parties: int) -> None:
    """Exactly convolved, at a parameter so small that the deviation can be seen at all."""
    s = 0.8
    reach = 30
    with mpmath.workdps(40):
        weights = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(s) ** 2)) for k in range(-reach, reach + 1)]
        whole = mpmath.fsum(weights)
        one = np.array([each / whole for each in weights])
        total = one
        for _ in range(parties - 1):
            total = np.convolve(total, one)
        middle = len(total) // 2
        ideal = [
            mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * parties * mpmath.mpf(s) ** 2)) for k in range(-8 * reach, 8 * reach)
        ]
        scale = mpmath.fsum(ideal)
        ratios = [abs(mpmath.log(total[middle + k] * scale / ideal[8 * reach + k])) for k in range(-12, 13)]
        assert 1e-7 < max(ratios) <= shared_deviation(s, parties) / 2


def test_continuous_noise_is_not_charged() -> None:
    assert charged_epsilon(0) == 0
    assert inner_delta(0, 1e-300) == 1e-300


@given(st.integers(1, 2**70), st.integers(1, 2**70))
def test_the_charge_is_that_of_the_next_power_of_two(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert charged_epsilon(low) <= charged_epsilon(high)
    assert 2 * one * DEVIATION <= charged_epsilon(one) <= 4 * one * DEVIATION
    assert charged_epsilon(one) == charged_epsilon(2 ** (one - 1).bit_length())
    assert charged_epsilon(2 ** one.bit_length()) == 2 * 2 ** one.bit_length() * DEVIATION


@given(st.integers(1, 2**56), st.floats(-60, -1).map(lambda power: 10.0**power))
def test_the_inner_delta_and_the_charge_make_up_delta(values: int, delta: float) -> None:
    deviation = charged_epsilon(values) / 2
    with mpmath.workdps(40):
        drawn = mpmath.mpf(deviation) / DEVIATION
        tail = drawn * TAIL * (1 + mpmath.exp(MOST_EPSILON))
        try:
            inner = inner_delta(values, delta)
        except CannotAccount:
            assert delta <= tail * (1 + 1e-9)
            return
        used = mpmath.exp(deviation) * inner + tail
        assert used <= delta
        assert used > delta * (1 - 1e-12) or tail > delta / 2
    if values > 1:
        assert inner <= inner_delta(values // 2, delta)


def test_nothing_is_left_of_a_tiny_delta_or_under_a_huge_charge() -> None:
    for values, delta in ((1, 1e-70), (10**6, 1e-60), (2**70, 1e-5), (10**5000, 0.5)):
        with pytest.raises(CannotAccount, match="too small"):
            inner_delta(values, delta)
    assert charged_epsilon(10**5000) == math.inf


@pytest.mark.parametrize("values", [-1, 1.5, math.nan, "3", None, math.inf])
def test_a_bad_number_of_integers_is_named(values: Any) -> None:
    for call in (lambda: charged_epsilon(values), lambda: inner_delta(values, 1e-5)):
        with pytest.raises(InvalidParameter, match="values must be"):
            call()
