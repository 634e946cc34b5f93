"""Theorems as functions: values against formulas written out again, preconditions, and words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.stats import binomtest, chi2

from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData, load
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.evaluation.exact_trace import exact_trace
from dpfedvis.evaluation.theory import (
    NORMS,
    Bound,
    Condition,
    Constants,
    Smoothness,
    condition,
    dissimilarity,
    lemma1_corrected,
    lemma1_printed,
    local_gradient,
    perturbation,
    thm1_corrected,
    thm5_corrected,
    thm5_printed,
    thm6_delta_corrected,
    thm6_delta_printed,
    thm6_sigma_corrected,
    thm6_sigma_printed,
    trivial_error,
    with_noisy_records,
)
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.server.callbacks import KeepLandmarks
from tests.evaluation.conftest import KERNEL, gaussian


class TestBound:
    def test_words_say_vacuous(self) -> None:
        below = Bound("Thm 9", "ours", 3.0, "spectral", trivial=10.0)
        assert not below.vacuous
        assert str(below) == "Thm 9 ours, spectral: 3, below the trivial 10"
        above = replace(below, value=10.0, is_floor=True)
        assert above.vacuous
        assert str(above) == "Thm 9 ours, spectral: at least 10, vacuous, not below the trivial 10"
        nothing = Bound("Thm 9", "printed", None, precondition="Q is 2")
        assert nothing.vacuous
        assert str(nothing) == "Thm 9 printed: no statement, Q is 2"
        assert str(Bound("Thm 9", "printed", 2.0)) == "Thm 9 printed: 2"

    def test_only_more_than_rounding_refutes(self) -> None:
        zero = Bound("Thm 9", "ours", 0.0, "spectral", trivial=10.0)
        assert not zero.below(1e-9)
        assert zero.below(1e-3)
        assert not Bound("Thm 9", "printed", None).below(1.0)

    def test_json_has_no_infinity(self) -> None:
        infinite = Bound("Thm 9", "ours", math.inf, "spectral", trivial=1.0).as_json()
        assert (infinite["value"], infinite["infinite"], infinite["vacuous"]) == (None, True, True)
        json.dumps(infinite, allow_nan=False)


class TestPerturbation:
    SAID: ClassVar[dict[str, Any]] = {
        "records": 7,
        "features": 5,
        "kernel": KERNEL,
        "sigma": 0.2,
        "failure": 0.01,
        "norm": "frobenius",
    }

    def test_values(self) -> None:
        t, D = math.log(7 * 6 / 0.01), 3.0
        printed = 5 + math.sqrt(2 * 5 * t) + 2 * t
        corrected = 5 + 2 * math.sqrt(5 * t) + 2 * t
        expected = math.sqrt(2) * 7 * 0.3 * (0.04 * printed + math.sqrt(2) * D * 0.2 * math.sqrt(printed))
        assert lemma1_printed(**self.SAID, diameter=D).value == pytest.approx(expected)
        expected = 2 * 7 * 0.3 * (0.04 * corrected + math.sqrt(2) * D * 0.2 * math.sqrt(corrected))
        assert lemma1_corrected(**self.SAID, diameter=D).value == pytest.approx(expected)
        h = 0.2 * math.sqrt(2 * chi2.isf(0.01 / 21, 5))
        entry = min(1, math.sqrt(0.6 / math.e) * h, 0.3 * (h * h + 2 * D * h))
        assert perturbation(**self.SAID, diameter=D).value == pytest.approx(math.sqrt(42) * entry)
        assert perturbation(**{**self.SAID, "norm": "spectral"}, diameter=D).value == pytest.approx(6 * entry)

    def test_the_quantile_is_exact_for_two_equal_records(self) -> None:
        """|1 − e^{−γ‖e₁ − e₂‖²}| is γ‖e₁ − e₂‖² for small noise: the claimed failure is the true one, both ways."""
        rng, trials, failure, m, sigma = np.random.default_rng(1), 20_000, 0.1, 9, 1e-4
        difference = sigma * (rng.normal(size=(trials, m)) - rng.normal(size=(trials, m)))
        sizes = math.sqrt(2) * -np.expm1(-0.3 * np.sum(difference**2, axis=1))
        bound = perturbation(
            records=2, features=m, kernel=KERNEL, sigma=sigma, failure=failure, norm="frobenius", diameter=0.0
        )
        exceeded = int(np.sum(sizes > bound.value))
        assert binomtest(exceeded, trials, failure).pvalue > 1e-4
        # The tail of Lemma 1, repaired, is safe and not exact.
        loose = lemma1_corrected(
            records=2, features=m, kernel=KERNEL, sigma=sigma, failure=failure, norm="frobenius", diameter=0.0
        )
        assert int(np.sum(sizes > loose.value)) < 0.2 * failure * trials

    def test_no_noise_and_one_record_move_nothing(self) -> None:
        assert perturbation(**{**self.SAID, "sigma": 0.0}).value == 0
        assert perturbation(**{**self.SAID, "records": 1}).value == 0

    @pytest.mark.parametrize(
        ("name", "value"), [("failure", 0.0), ("failure", 1.0), ("sigma", math.nan), ("records", 0), ("norm", "max")]
    )
    def test_bad_input_is_named(self, name: str, value: object) -> None:
        with pytest.raises(InvalidParameter, match=name):
            perturbation(**{**self.SAID, name: value})


class TestConvergence:
    def test_values(self) -> None:
        constants = Smoothness((2.0, 4.0), (0.75, 0.25))
        assert (constants.mean, constants.largest) == (2.5, 4.0)
        assert constants.spread == pytest.approx((0.75 * 4 + 0.25 * 16) / 6.25)
        said = {"constants": constants, "zeta": 0.5, "rounds": 6, "decrease": 0.3}
        one = thm1_corrected(**said, local_steps=1)
        assert one.value == pytest.approx(2 * 0.3 / (6 * 2.5))
        drift = [0.0, 0.5 / 2.5, 0.5 / 2.5 * (1 + 3.6)]
        three = thm1_corrected(**said, local_steps=3)
        assert three.value == pytest.approx(4 * 0.3 / (18 * 2.5) + 4 / 3 * sum(d * d for d in drift))

    def test_a_step_too_long_is_a_result(self) -> None:
        constants = Smoothness((2.0,), (1.0,))
        bound = thm1_corrected(constants=constants, zeta=0, rounds=1, local_steps=1, decrease=0, step_size=1.0)
        assert bound.value is None
        assert "not below 2/L" in bound.precondition

    def test_many_local_steps_overflow_to_infinity(self) -> None:
        constants = Smoothness((2.0,), (1.0,))
        bound = thm1_corrected(constants=constants, zeta=1.0, rounds=1, local_steps=2000, decrease=0.0)
        assert bound.value == math.inf

    def test_bad_weights_are_named(self) -> None:
        with pytest.raises(InvalidParameter, match="weights"):
            Smoothness((1.0, 1.0), (0.5, 0.6))
        with pytest.raises(InvalidParameter, match="smoothness"):
            Smoothness((0.0,), (1.0,))

    def test_dissimilarity_is_attained(self) -> None:
        """Two clients whose records lie on opposite sides of coincident landmarks, 1/√(2γ) away."""
        from dpfedvis.numerics.mmd import gradient

        Y, x = np.zeros((3, 2)), np.array([[1 / math.sqrt(0.6), 0.0]])
        apart = np.linalg.norm(gradient(x, Y, KERNEL) - gradient(-x, Y, KERNEL))
        assert apart == pytest.approx(dissimilarity(KERNEL, 3), rel=1e-12)

    def test_every_round_of_the_real_loop_goes_down(self) -> None:
        """FedDL with its default step, 1/L, on unlike clients."""
        data = load("digits", records=120)
        fed = FederatedData.from_dataset(data, clients=4, partition="by-class", seed=0)
        kept = KeepLandmarks()
        run = FedDL(landmarks=8, rounds=12, gamma=0.1, bounds=(-0.5, 1.5)).run(fed, callbacks=[kept])
        values = list(exact_trace(fed, run, kept.kept).values())
        assert len(values) == 12
        assert all(after <= before + 1e-6 for before, after in pairwise(values))
        assert values[-1] < values[0]


class TestPrivacy:
    def test_gradient_after_local_steps(self) -> None:
        assert local_gradient(delta=2.0, smoothness=4.0, step_size=0.5, local_steps=3) == pytest.approx(2 * 3**3)

    def test_deltas(self) -> None:
        printed = thm6_delta_printed(kernel=KERNEL, records=7, landmarks=9, constants=Constants(1.0, 2.0, 3.0))
        assert printed.value == pytest.approx(8 * 3 * 0.3 / (7 * 9) * (1 + 2 * 0.3 * 3 * 4))
        tight = thm6_delta_corrected(kernel=KERNEL, records=7, landmarks=9)
        assert tight.value == pytest.approx(8 * math.sqrt(0.3 / (2 * math.e)) / (7 * 3))

    def test_sigmas_at_one(self) -> None:
        """2.57 times the exact noise at ε = 1, δ = 1e-5."""
        said = {"delta_f": 3.0, "rounds": 50, "epsilon": 1.0, "delta": 1e-5}
        printed, corrected = thm6_sigma_printed(**said).value, thm6_sigma_corrected(**said).value
        assert printed == pytest.approx(3 * math.sqrt(8 * 50 * math.log(math.e + 1e5)))
        assert printed / corrected == pytest.approx(2.57, abs=0.01)


class TestReconstruction:
    SAID: ClassVar[dict[str, Any]] = {"records": 50, "landmarks": 10, "rank": 4, "condition": Condition(7.0)}

    def test_values(self) -> None:
        first = 7 * (0.3 / 60 + 1)
        assert thm5_printed(**self.SAID, mmd2=-0.3, norm="spectral").value == pytest.approx(first + 100)
        expected = math.sqrt(56) * first + 2 * math.sqrt(2) * 50 * math.sqrt(1.2)
        assert thm5_printed(**self.SAID, mmd2=0.3, norm="frobenius").value == pytest.approx(expected)
        assert thm5_corrected(**self.SAID, norm="spectral").value == pytest.approx(107)
        expected = math.sqrt(56) * 7 + 2 * math.sqrt(2) * 50 * math.sqrt(1.4)
        assert thm5_corrected(**self.SAID, norm="frobenius").value == pytest.approx(expected)
        with pytest.raises(InvalidParameter, match="rank"):
            thm5_corrected(**{**self.SAID, "rank": 11}, norm="spectral")

    def test_condition_number(self, problem) -> None:
        X, _ = problem
        assert condition(X[:20], Kernel.gaussian(3.0)).value == pytest.approx(
            np.linalg.cond(gaussian(X[:20], X[:20], Kernel.gaussian(3.0)))
        )
        twice = condition(np.vstack([X[:5], X[:5]]), KERNEL)
        assert twice.is_floor
        assert twice.value > 1e14
        known = np.linalg.cond(gaussian(X[:20], X[:20], Kernel.gaussian(3.0)))
        floor = condition(X[:20], Kernel.gaussian(3.0), limit=10)
        assert floor.is_floor
        assert 1 < floor.value <= known

    def test_noise_adds_to_value_and_failure(self) -> None:
        clean = thm5_corrected(**self.SAID, norm="frobenius")
        noise = Bound("perturbation", "ours", 3.0, "frobenius", 0.95)
        both = with_noisy_records(clean, noise)
        assert both.value == pytest.approx(clean.value + 3)
        assert both.holds_with == pytest.approx(0.95)
        assert both.trivial == pytest.approx(50 * math.sqrt(2))
        missing = with_noisy_records(Bound("x", "ours", None, "spectral", precondition="why"), noise)
        assert (missing.value, missing.precondition) == (None, "why")

    def test_trivial(self) -> None:
        assert [trivial_error(9, norm) for norm in NORMS] == [9, 9]
        assert [trivial_error(9, norm, noisy_records=True) for norm in NORMS] == [9, 9 * math.sqrt(2)]
