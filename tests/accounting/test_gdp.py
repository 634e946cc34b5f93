"""The closed form against a 60-digit reference, at its edges, and on bad input."""

from __future__ import annotations

import math

import mpmath
import pytest

from accounting import InvalidParameter, gaussian_delta, gaussian_epsilon, gaussian_log_delta, gaussian_mu

MUS = [1e-3, 4e-3, 0.02, 0.1, 0.5, 1.0, 2.3, 7.0, 30.0, 120.0, 500.0]
DELTAS = [1e-2, 1e-3, 1e-5, 1e-10, 1e-20, 1e-50, 1e-100, 1e-200, 1e-300]


@pytest.fixture(autouse=True)
def sixty_digits():
    with mpmath.workdps(60):
        yield


def slow_delta(mu: float | mpmath.mpf, epsilon: float | mpmath.mpf) -> mpmath.mpf:
    """δ(ε) as printed, in so many digits that neither overflow nor cancellation matters."""
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    high, low = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    return mpmath.ncdf(high) - mpmath.exp(epsilon) * mpmath.ncdf(low)


def slow_root(function, near: float) -> mpmath.mpf:
    """Root of log δ − target by the secant method, started from two points close by."""
    return mpmath.findroot(function, (mpmath.mpf(near) * (1 - mpmath.mpf("1e-6")), mpmath.mpf(near)), solver="secant")


def relative(value: float, reference: mpmath.mpf) -> float:
    return float(abs(mpmath.mpf(value) - reference) / abs(reference))


GRID = [
    (mu, delta)
    for mu in MUS
    for delta in DELTAS
    # Below this ε is 0: δ(0) = erf(μ/√8).
    if math.erf(mu / math.sqrt(8)) > delta and gaussian_epsilon(mu, delta) <= 1.3e5
]


def test_the_grid_of_references_reaches_both_ends() -> None:
    epsilons = [gaussian_epsilon(mu, delta) for mu, delta in GRID]
    assert len(GRID) > 85
    assert min(epsilons) < 1e-2
    assert max(epsilons) > 1e5


@pytest.mark.parametrize(("mu", "delta"), GRID)
def test_each_function_agrees_with_sixty_digits_to_1e_9(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert relative(gaussian_delta(mu, epsilon), slow_delta(mu, epsilon)) <= 1e-9
    target = mpmath.log(mpmath.mpf(delta))
    exact = slow_root(lambda e: mpmath.log(slow_delta(mu, e)) - target, epsilon)
    assert relative(epsilon, exact) <= 1e-9
    exact = slow_root(lambda m: mpmath.log(slow_delta(m, epsilon)) - target, mu)
    assert relative(gaussian_mu(epsilon, delta), exact) <= 1e-9


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 1.0, 10.0, 708.0, 710.0, 5e3, 1e5])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-300])
def test_mu_of_a_budget_agrees_with_sixty_digits_to_1e_9(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert relative(delta, slow_delta(mu, epsilon)) <= 2e-9 * max(1.0, epsilon / mu)
    target = mpmath.log(mpmath.mpf(delta))
    exact = slow_root(lambda m: mpmath.log(slow_delta(m, epsilon)) - target, mu)
    assert relative(mu, exact) <= 1e-9


@pytest.mark.parametrize("mu", [1e-300, 1e-17, 1e-9, 9.9e-6, 1.01e-5, 1e-4])
@pytest.mark.parametrize("ratio", [0.0, 1e-9, 0.3, 4.0, 20.0, 37.0])
def test_tiny_mu_neither_cancels_nor_fails(mu: float, ratio: float) -> None:
    with mpmath.workdps(400):
        reference = mpmath.log(slow_delta(mu, ratio * mu))
        assert abs(gaussian_log_delta(mu, ratio * mu) - reference) < 1e-9


def test_log_delta_goes_on_where_delta_underflows() -> None:
    assert gaussian_delta(1.0, 60.0) == 0.0
    assert relative(gaussian_log_delta(1.0, 60.0), mpmath.log(slow_delta(1.0, 60.0))) < 1e-12


def test_no_overflow_beyond_the_exponent_range() -> None:
    assert 0 < gaussian_delta(40.0, 900.0) < 1
    assert gaussian_epsilon(1e6, 1e-300) == pytest.approx(5e11, rel=1e-4)
    assert gaussian_epsilon(1e200, 1e-5) == math.inf


def test_ends_of_the_range_have_their_limits() -> None:
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert gaussian_delta(math.inf, 1.0) == 1.0
    assert gaussian_delta(1.0, math.inf) == 0.0
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    assert gaussian_log_delta(0.0, 0.0) == -math.inf


def test_epsilon_zero_is_total_variation() -> None:
    for mu in (1e-8, 1e-3, 1.0, 3.0):
        assert gaussian_delta(mu, 0.0) == pytest.approx(math.erf(mu / math.sqrt(8)), rel=1e-9)
        assert gaussian_epsilon(mu, math.erf(mu / math.sqrt(8)) * (1 + 1e-9)) == 0.0
    assert gaussian_mu(0.0, 1e-5) == pytest.approx(gaussian_mu(1e-12, 1e-5), rel=1e-6)
    assert gaussian_mu(1e-40, 1e-5) == pytest.approx(gaussian_mu(0.0, 1e-5), rel=1e-9)


def test_golden_fifty_rounds_at_noise_five() -> None:
    assert gaussian_epsilon(math.sqrt(50) / 5, 1e-5) == pytest.approx(6.572970067, abs=5e-10)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 1.5, math.nan, math.inf, -math.inf, "1e-5", None, True])
def test_delta_outside_the_open_unit_interval_is_a_named_error(delta: object) -> None:
    for function in (gaussian_epsilon, gaussian_mu):
        with pytest.raises(InvalidParameter, match="delta must be strictly between 0 and 1") as caught:
            function(1.0, delta)
        assert caught.value.name == "delta"
        assert caught.value.value is delta
        assert repr(delta) in str(caught.value)


@pytest.mark.parametrize("bad", [-1.0, -1e-300, math.nan, -math.inf, "1", None, [1.0], True])
def test_negative_or_meaningless_mu_and_epsilon_are_named_errors(bad: object) -> None:
    for call, name in [
        (lambda: gaussian_delta(bad, 1.0), "mu"),
        (lambda: gaussian_delta(1.0, bad), "epsilon"),
        (lambda: gaussian_log_delta(bad, 1.0), "mu"),
        (lambda: gaussian_epsilon(bad, 1e-5), "mu"),
        (lambda: gaussian_mu(bad, 1e-5), "epsilon"),
    ]:
        with pytest.raises(InvalidParameter, match=f"{name} must be") as caught:
            call()
        assert caught.value.name == name
        assert caught.value.value is bad


def test_an_infinite_budget_buys_no_mu() -> None:
    with pytest.raises(InvalidParameter, match="epsilon must be a finite number"):
        gaussian_mu(math.inf, 1e-5)
