"""Theorems as functions: values against formulas written out again, preconditions, the empirical side, the study."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.spatial.distance import cdist
from scipy.stats import binomtest, chi2

from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData, load
from dpfedvis.distances import GramDistances, NystromDistances, gram_frame, kernel_factor, nystrom_factor
from dpfedvis.evaluation.bounds import (
    NORMS,
    Bound,
    Condition,
    Constants,
    DistanceError,
    Distances,
    KernelError,
    NotConverged,
    Smoothness,
    Spread,
    centred,
    condition,
    dissimilarity,
    entry_error,
    gram_certificate,
    kernel_certificate,
    left_over,
    lemma1_corrected,
    lemma1_printed,
    local_gradient,
    mmd_bound,
    noisy_rows,
    norms,
    perturbation,
    rounding,
    tail,
    thm1_corrected,
    thm1_printed,
    thm2_corrected,
    thm2_printed,
    thm5_corrected,
    thm5_printed,
    thm6_delta_corrected,
    thm6_delta_printed,
    thm6_sigma_corrected,
    thm6_sigma_printed,
    trivial_error,
    with_noisy_records,
)
from dpfedvis.evaluation.bounds.others import others
from dpfedvis.evaluation.bounds.study import Settings, Study
from dpfedvis.feddl import FedDL
from dpfedvis.kernels import InvalidPoints, Kernel
from dpfedvis.mmd import mmd2

KERNEL = Kernel.gaussian(0.3)
ORDER = {"spectral": 2, "frobenius": "fro"}


def gaussian(X: np.ndarray, Y: np.ndarray, kernel: Kernel = KERNEL) -> np.ndarray:
    return np.mean([np.exp(-gamma * cdist(X, Y) ** 2) for gamma in kernel.gammas], axis=0)


@pytest.fixture(scope="module")
def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return centred(rng.normal(size=(150, 4))), rng.normal(size=(30, 4))


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
        from dpfedvis.mmd import gradient

        Y, x = np.zeros((3, 2)), np.array([[1 / math.sqrt(0.6), 0.0]])
        apart = np.linalg.norm(gradient(x, Y, KERNEL) - gradient(-x, Y, KERNEL))
        assert apart == pytest.approx(dissimilarity(KERNEL, 3), rel=1e-12)

    def test_every_round_of_the_real_loop_goes_down(self) -> None:
        """FedDL with its default step, 1/L, on unlike clients."""
        data = load("digits", records=120)
        fed = FederatedData.from_dataset(data, clients=4, partition="by-class", seed=0)
        run = FedDL(landmarks=8, rounds=12, bandwidth=0.1, bounds=(-0.5, 1.5), exact_trace=True).run(fed)
        values = [each.exact for each in run.trace]
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


class TestNystrom:
    def test_thm2_values(self) -> None:
        said = {"points": 100, "sample": 25, "rank": 4, "tail": 2.0, "largest": 3.0}
        assert thm2_printed(**said, norm="spectral").value == pytest.approx(2 + 2 * 100 * 3 / 5)
        assert thm2_printed(**said, norm="frobenius").value == pytest.approx(2 + 3 * (64 * 4 / 25) ** 0.25)
        expected = 2 + 2 * 100 * 3 / 5 * (math.sqrt(75 / 99) + math.sqrt(math.log(20)))
        for norm in NORMS:
            assert thm2_corrected(**said, failure=0.05, norm=norm).value == pytest.approx(expected)
        few = thm2_corrected(**{**said, "sample": 96}, failure=0.05, norm="spectral").value
        assert few == pytest.approx(2 + 600 / math.sqrt(96) * (math.sqrt(4 / 99) + math.sqrt(4 / 96 * math.log(20))))
        with pytest.raises(InvalidParameter, match="sample"):
            thm2_printed(**{**said, "sample": 101}, norm="spectral")

    def test_tail(self) -> None:
        values = np.array([3.0, -4.0, 1.0, 2.0])
        assert tail(values, 1, "spectral") == 3
        assert tail(values, 2, "frobenius") == pytest.approx(math.sqrt(5))
        assert tail(values, 9, "spectral") == 0

    @pytest.mark.parametrize("gammas", [(0.3,), (0.1, 0.9)])
    def test_sums_are_those_of_squared_kernels(self, problem, gammas) -> None:
        X, Y = problem
        kernel = Kernel(gammas)
        spread = Spread.of(X, Y, kernel)
        assert spread.own == pytest.approx(np.sum(gaussian(X, X, kernel) ** 2))
        assert spread.cross == pytest.approx(np.sum(gaussian(X, Y, kernel) ** 2))
        assert spread.landmark == pytest.approx(np.sum(gaussian(Y, Y, kernel) ** 2))
        if len(gammas) == 1:
            square = mmd2(X, Y, Kernel.gaussian(0.6), estimator="biased")
            assert spread.mmd == pytest.approx(math.sqrt(square))
            assert spread.gap(150 / 30) == pytest.approx(150 * spread.mmd)

    def test_mmd_bound_is_at_most_n_times_the_mmd(self, problem) -> None:
        X, Y = problem
        for norm in NORMS:
            bound = mmd_bound(X, Y, KERNEL, norm=norm)
            assert bound.value <= 150 * Spread.of(X, Y, KERNEL).mmd * (1 + 1e-9) + 1e-6
        poor = mmd_bound(X, Y + 100.0, KERNEL, norm="spectral")
        assert poor.value == pytest.approx(np.linalg.norm(gaussian(X, X)))

    def test_mmd_bound_vanishes_when_landmarks_are_the_records(self, problem) -> None:
        X, _ = problem
        assert mmd_bound(X, X.copy(), KERNEL, norm="frobenius").value < 1e-4 * len(X)

    def test_left_over_of_rank_and_ridge(self, problem) -> None:
        _, Y = problem
        W = gaussian(Y, Y)
        values = np.linalg.eigvalsh(W)[::-1]
        assert left_over(W)["spectral"] < 1e-7
        cut = left_over(W, rank=5)
        assert cut["spectral"] == pytest.approx(values[5])
        assert cut["frobenius"] == pytest.approx(np.linalg.norm(values[5:]))
        ridged = left_over(W, ridge=0.5)
        assert ridged["frobenius"] == pytest.approx(np.linalg.norm(0.5 * values / (values + 0.5)))


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


class TestCertificate:
    def test_allowance_covers_what_near_duplicates_do_to_rounding(self) -> None:
        """Landmarks 1e-7 apart: W is singular to rounding, and E ⪰ 0 fails by far less than the allowance."""
        rng = np.random.default_rng(2)
        half = rng.normal(size=(20, 3))
        X, Y = rng.normal(size=(60, 3)), np.vstack([half, half + 1e-7 * rng.normal(size=half.shape)])
        W = gaussian(Y, Y)
        factor = kernel_factor(gaussian(X, Y), W)
        E = gaussian(X, X) - factor.left @ factor.left.T
        radius = float(np.linalg.norm(np.vstack([X, Y]), axis=1).max())
        allowance = rounding(W, entry_error=entry_error(KERNEL, 3, radius))
        assert np.linalg.eigvalsh((E + E.T) / 2)[0] >= -2 * allowance * len(X)
        assert 0 < allowance < 1e-3
        # Without the cut-off the estimate exceeds K: this is what the cut-off is for.
        matrix, signs = nystrom_factor(W, cutoff=0.0)
        uncut = gaussian(X, Y) @ matrix[:, signs > 0]
        assert np.linalg.eigvalsh(gaussian(X, X) - uncut @ uncut.T)[0] < -0.1

    @pytest.mark.parametrize("error", [1e-13, 1e-12, 1e-11, 1e-10])
    def test_allowance_is_needed_and_enough_when_entries_are_wrong(self, error) -> None:
        """Records that are the landmarks: E = 0, so that wrong entries make K̂ exceed K, and tr E alone would not do."""
        rng = np.random.default_rng(4)
        Y = rng.normal(size=(12, 2))
        K, kernel = gaussian(Y, Y, Kernel.gaussian(0.03)), Kernel.gaussian(0.03)
        needed = False
        for _ in range(20):
            wrong = error * rng.choice([-1.0, 1.0], size=(2, 12, 12))
            W = K + np.triu(wrong[0]) + np.triu(wrong[0], 1).T
            factor = kernel_factor(K + wrong[1], W)
            E = gaussian(Y, Y, kernel) - factor.left @ factor.left.T
            allowance = rounding(W, entry_error=error)
            for norm in NORMS:
                truth = np.linalg.norm(E, ORDER[norm])
                assert truth <= kernel_certificate(factor, norm=norm, allowance=allowance).value
                needed |= truth > 1.5 * kernel_certificate(factor, norm=norm).value
        assert needed

    def test_value_is_the_trace(self, problem) -> None:
        X, Y = problem
        factor = kernel_factor(gaussian(X, Y), gaussian(Y, Y))
        E = gaussian(X, X) - factor.left @ factor.left.T
        assert kernel_certificate(factor, norm="spectral").value == pytest.approx(np.trace(E), abs=1e-6)
        for norm, times in (("spectral", 2), ("frobenius", 4)):
            more = kernel_certificate(factor, norm=norm, allowance=1e-3).value
            assert more == pytest.approx(np.trace(E) + times * 150e-3, abs=1e-6)

    def test_noisy_rows_without_noise_are_the_certificate(self, problem) -> None:
        X, Y = problem
        matrix, _ = nystrom_factor(gaussian(Y, Y), rank=8)
        left = gaussian(X, Y) @ matrix
        values = np.linalg.eigvalsh(gaussian(Y, Y))[::-1][:8]
        for norm in NORMS:
            bound = noisy_rows(left, values, sigma=0.0, failure=0.1, norm=norm)
            assert bound.value == pytest.approx(150 - np.sum(left**2))
            assert noisy_rows(left, values, sigma=0.1, failure=0.1, norm=norm).value > bound.value
        # Rank 1 is where the spectral tail alone would be the larger one.
        one = [noisy_rows(left[:, :1], values[:1], sigma=0.1, failure=0.1, norm=norm).value for norm in NORMS]
        assert one[0] <= one[1]
        with pytest.raises(InvalidParameter, match="eigenvalues"):
            noisy_rows(left, values[:3], sigma=0.1, failure=0.1, norm="spectral")

    def test_noisy_rows_values(self) -> None:
        """The formula written out again: the property test alone would not miss a term of it."""
        left, values, sigma, failure = np.diag([6.0, 3.0, 2.0])[[0, 1, 2, 0, 1]], np.array([4.0, 1.0, 0.25]), 0.01, 0.1
        g_f = sigma * math.sqrt(chi2.isf(failure / 6, 5) * (1 / 4 + 1 + 4))
        g2 = min(g_f, sigma * (math.sqrt(5) + math.sqrt(3) + math.sqrt(2 * math.log(20))) / 0.5)
        size, largest = math.sqrt(2 * 36 + 2 * 9 + 4), math.sqrt(2) * 6
        for norm, g in (("spectral", g2), ("frobenius", g_f)):
            expected = 5 - (size - g_f) ** 2 + 2 * largest * g + g2 * g
            bound = noisy_rows(left, values, sigma=sigma, failure=failure, norm=norm)
            assert bound.value == pytest.approx(expected, rel=1e-12)
            assert bound.holds_with == 0.9

    def test_gram_heights_are_distances_to_the_span(self) -> None:
        """Landmarks in a plane of five dimensions: heights are what is left of the records outside it."""
        rng = np.random.default_rng(3)
        X, Y = rng.normal(size=(40, 5)), rng.normal(size=(9, 5))
        Y[:, 2:] = 0
        certificate = gram_certificate(cdist(X, Y), cdist(Y, Y))
        np.testing.assert_allclose(certificate.heights, np.linalg.norm(X[:, 2:], axis=1), rtol=1e-9)
        D, shadow = cdist(X, X), cdist(X[:, :2], X[:, :2])
        reach = certificate.heights[:, None] + certificate.heights
        over = np.sqrt(shadow**2 + reach**2) - shadow
        np.fill_diagonal(over, 0)
        spectral, frobenius = certificate.bounds()
        assert frobenius.value == pytest.approx(np.linalg.norm(over))
        assert spectral.value == pytest.approx(min(np.linalg.norm(over), over.sum(axis=1).max()))
        assert np.linalg.norm(D - shadow) <= frobenius.value


class TestEmpirical:
    def test_kernel_error_against_lanczos_of_scipy(self, problem) -> None:
        X, Y = problem
        factor = kernel_factor(gaussian(X, Y), gaussian(Y, Y), rank=12)
        E = gaussian(X, X) - factor.left @ factor.left.T
        operator = LinearOperator(E.shape, matvec=lambda v: E @ v, dtype=np.float64)
        largest = eigsh(operator, k=1, return_eigenvectors=False, v0=np.ones(len(E)))[0]
        error = KernelError(X, KERNEL, np.asarray(factor.left))
        found = norms(error, np.random.default_rng(0), tile=40, tolerance=1e-8)
        assert found.spectral == pytest.approx(abs(largest), rel=1e-9)
        assert found.frobenius == pytest.approx(np.linalg.norm(E), rel=1e-12)
        assert found.residual <= 1e-8 * found.spectral

    @pytest.mark.parametrize("tile", [7, 64, 1000])
    def test_distance_errors_against_dense_ones(self, problem, tile) -> None:
        X, Y = problem
        B, W, D = cdist(X, Y), cdist(Y, Y), cdist(X, X)
        matrix, signs = nystrom_factor(W)
        nystrom = NystromDistances((B @ matrix).astype(np.float32), signs.astype(np.float32))
        gram = GramDistances(gram_frame(W).coordinates(B))
        shadow = np.maximum((B @ matrix * signs) @ (B @ matrix).T, 0)
        np.fill_diagonal(shadow, 0)
        for estimate, dense in ((nystrom, shadow), (gram, cdist(gram.left, gram.left))):
            found = norms(DistanceError(X, estimate), np.random.default_rng(0), tile=tile, tolerance=1e-6)
            assert found.frobenius == pytest.approx(np.linalg.norm(D - dense), rel=1e-3, abs=1e-3)
            assert found.spectral == pytest.approx(np.linalg.norm(D - dense, 2), rel=1e-3, abs=1e-3)
        whole = norms(Distances(X), np.random.default_rng(0), tile=tile)
        assert whole.spectral == pytest.approx(np.linalg.norm(D, 2), rel=1e-6)
        assert whole.frobenius == pytest.approx(np.linalg.norm(D), rel=1e-12)

    def test_the_largest_eigenvalue_may_be_negative(self) -> None:
        class Diagonal:
            size = 30

            def tile(self, rows: slice, columns: slice) -> np.ndarray:
                return np.diag(np.r_[-9.0, np.linspace(0, 4, 29)])[rows, columns]

        found = norms(Diagonal(), np.random.default_rng(0), tile=11, block=2, tolerance=1e-9)
        assert found.spectral == pytest.approx(9)

    def test_too_few_passes_are_an_error_with_the_interval(self, problem) -> None:
        X, _ = problem
        with pytest.raises(NotConverged, match="after 1 passes the spectral norm is"):
            norms(Distances(X), np.random.default_rng(0), most=1, tolerance=1e-12)

    def test_a_floor_ends_the_search_in_rounding_errors(self) -> None:
        class Noise:
            size = 200

            def tile(self, rows: slice, columns: slice) -> np.ndarray:
                values = np.random.default_rng(0).normal(size=(200, 200))
                return 1e-9 * (values + values.T)[rows, columns]

        found = norms(Noise(), np.random.default_rng(0), floor=1e-8, most=10)
        assert found.residual <= 1e-8
        with pytest.raises(NotConverged):
            norms(Noise(), np.random.default_rng(0), tolerance=1e-9, most=5)

    def test_not_a_number_is_refused(self) -> None:
        X = np.zeros((5, 2))
        X[3, 1] = np.nan
        with pytest.raises(InvalidPoints, match="row 3"):
            norms(Distances(X), np.random.default_rng(0))

    def test_progress_is_told_of_each_pass(self, problem) -> None:
        calls: list[None] = []
        found = norms(Distances(problem[0]), np.random.default_rng(0), progress=lambda: calls.append(None))
        assert len(calls) == found.passes > 1


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(load("digits", records=80), TestStudy.SETTINGS)


class TestStudy:
    SETTINGS = Settings(landmarks=(6, 12), sigmas=(0.0, 0.2), rounds=8)

    def test_every_own_bound_is_above_the_truth(self, study) -> None:
        cases = study.run()
        assert [(case.kind, case.landmarks, case.sigma) for case in cases] == study.plan()
        assert len(cases) == 8
        for case in cases:
            for bound in case.bounds:
                truth = case.truth.spectral if bound.norm == "spectral" else case.truth.frobenius
                if bound.form != "printed":
                    assert truth <= bound.value
                if bound.statement in ("Thm 3", "Thm 5"):
                    assert bound.vacuous
            for each in case.distances:
                assert each.truth.spectral <= each.truth.frobenius * (1 + 1e-9)
                for bound in each.bounds:
                    truth = each.truth.spectral if bound.norm == "spectral" else each.truth.frobenius
                    assert truth <= bound.value

    def test_certificates_of_noisy_rows_are_above_the_truth(self, study) -> None:
        study.run()
        cases = study.rows()
        assert [(case.landmarks, case.sigma) for case in cases] == [(6, 0.2), (12, 0.2)]
        for case in cases:
            assert case.truth.spectral <= case.bounds[0].value
            assert case.truth.frobenius <= case.bounds[1].value
            assert case.bounds[0].holds_with == 0.95
            assert case.rank <= case.landmarks

    def test_truth_is_that_of_the_dense_matrices(self, study) -> None:
        case = next(each for each in study.run() if each.kind == "sampled")
        rng = study._rng("sampled", case.landmarks, 0.0)
        Y = study.X[rng.permutation(80)[: case.landmarks]]
        factor = kernel_factor(gaussian(study.X, Y, study.kernel), gaussian(Y, Y, study.kernel))
        E = gaussian(study.X, study.X, study.kernel) - factor.left @ factor.left.T
        assert case.truth.spectral == pytest.approx(np.linalg.norm(E, 2), rel=1e-6)
        assert study.diameter == pytest.approx(cdist(study.X, study.X).max())
        assert study.size == pytest.approx(np.linalg.norm(cdist(study.X, study.X)))

    def test_the_same_seed_gives_the_same_cases_and_another_one_does_not(self, study) -> None:
        again = Study(study.dataset, self.SETTINGS).run()
        assert again == study.run()
        other = Study(study.dataset, replace(self.SETTINGS, seed=1)).run()
        assert other[0].truth != again[0].truth

    def test_other_theorems(self, study) -> None:
        found = others(study)
        assert {each.what.split(":")[0].split(",")[0] for each in found} == {"Thm 1", "Thm 4", "Thm 6"}
        for each in found[:2]:
            assert each.truth <= each.bounds[0].value
        assert found[1].bounds[1].value is None

    def test_bad_settings_are_named(self) -> None:
        with pytest.raises(InvalidParameter, match="landmarks"):
            Study(load("digits", records=10), Settings((11,), ()))
        with pytest.raises(InvalidParameter, match="landmarks"):
            Settings((1,), ())
        with pytest.raises(InvalidParameter, match="sigma"):
            Settings((5,), (-1.0,))
        with pytest.raises(InvalidParameter, match="typical squared distance"):
            Study(replace(load("digits", records=10), X=np.ones((10, 3))), Settings((3,), ()))

    def test_thm1_printed_needs_a_value_of_zeta(self) -> None:
        with pytest.raises(InvalidParameter, match="zeta"):
            thm1_printed(constants=Smoothness((1.0,), (1.0,)), zeta=-1, rounds=1, local_steps=1, decrease=0)
