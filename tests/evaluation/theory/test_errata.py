"""Counterexamples to what is printed: one named test for each entry of reports/theory/errata.md."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import binomtest, chi2

from accounting import gaussian_delta, gaussian_epsilon, sensitivity
from accounting.accountants.closed import theorem_sigma
from dpfedvis.evaluation.theory import (
    NORMS,
    Condition,
    Constants,
    Smoothness,
    condition,
    lemma1_corrected,
    lemma1_printed,
    local_gradient,
    perturbation,
    tail,
    thm1_corrected,
    thm1_printed,
    thm2_printed,
    thm4_classical,
    thm4_corrected,
    thm4_printed,
    thm5_corrected,
    thm5_printed,
    thm6_delta_printed,
    thm6_sigma_corrected,
    thm6_sigma_printed,
    trivial_error,
)
from dpfedvis.evaluation.theory.convergence import motion
from dpfedvis.numerics import mmd
from dpfedvis.numerics.distances import kernel_factor, nystrom_factor
from dpfedvis.numerics.kernels import Kernel

ROOT = Path(__file__).parents[3]
UNIT = Kernel.gaussian(1.0)


def gaussian(X: np.ndarray, Y: np.ndarray, gamma: float = 1.0) -> np.ndarray:
    return np.exp(-gamma * cdist(X, Y) ** 2)


def nystrom_error(K: np.ndarray, chosen: np.ndarray, rank: int | None = None) -> np.ndarray:
    factor = kernel_factor(K[:, chosen], K[np.ix_(chosen, chosen)], rank=rank)
    return K - factor.left @ factor.left.T


def two_clusters(each: int) -> np.ndarray:
    """Kernel matrix of two clusters of coincident points, far apart."""
    return np.kron(np.eye(2), np.ones((each, each)))


class TestThm1:
    CLIENTS = (np.zeros((4, 1)), np.full((4, 1), 1.0))
    START = np.array([[0.2], [0.7]])

    def test_two_local_steps_make_the_printed_right_hand_side_negative(self) -> None:
        constants = Smoothness.of_kernel(UNIT, 2, (0.5, 0.5))
        L = constants.mean
        seen = motion(self.CLIENTS, (0.5, 0.5), self.START, UNIT, rounds=5, local_steps=2, step_size=1 / L)
        assert constants.spread == pytest.approx(1)
        # 12 · 3 · 5 / (1 − 3 · 2) = −36.
        printed = 4 * seen.decrease / (10 * L) - 36 * seen.dissimilarity**2 / L**2
        assert printed < 0 < seen.mean_square

    def test_the_precondition_fails_for_every_number_of_local_steps_above_one(self) -> None:
        for constants in (Smoothness((1.0, 1.0), (0.5, 0.5)), Smoothness((1.0, 5.0), (0.9, 0.1))):
            for steps in range(2, 50):
                bound = thm1_printed(constants=constants, zeta=0.1, rounds=3, local_steps=steps, decrease=1.0)
                assert bound.value is None
                assert "denominator" in bound.precondition
                assert bound.vacuous
        only = thm1_printed(constants=Smoothness((2.0,), (1.0,)), zeta=0.1, rounds=3, local_steps=1, decrease=1.0)
        assert only.value == pytest.approx(4 / (3 * 2) + 72 * 0.01 / 4)

    def test_with_one_local_step_heterogeneity_costs_nothing(self) -> None:
        """The printed bound is true there, but its ζ-term, here 99 % of it, is not needed."""
        constants = Smoothness.of_kernel(UNIT, 2, (0.5, 0.5))
        seen = motion(
            self.CLIENTS, (0.5, 0.5), self.START, UNIT, rounds=20, local_steps=1, step_size=1 / constants.mean
        )
        said = {"constants": constants, "zeta": seen.dissimilarity, "rounds": 20, "local_steps": 1}
        printed = thm1_printed(**said, decrease=seen.decrease).value
        corrected = thm1_corrected(**said, decrease=seen.decrease).value
        assert seen.mean_square <= corrected < 0.01 * printed

    def test_averaging_with_other_weights_than_those_of_F_goes_up(self) -> None:
        """Alg. 1 averages with 1/P, Thm 1 has n_p/n: from the minimum of the latter's F the former's step leaves it."""
        X = [np.zeros((18, 1)), np.full((2, 1), 1.0)]
        of_theorem, of_algorithm = (0.9, 0.1), (0.5, 0.5)
        Y, step = np.array([[-0.05], [0.2]]), 1 / mmd.smoothness(UNIT, 2)

        def F(Y: np.ndarray) -> float:
            return sum(w * mmd.mmd2(x, Y, UNIT) for w, x in zip(of_theorem, X, strict=True))

        def moved(Y: np.ndarray, weights: tuple[float, float]) -> np.ndarray:
            return Y - step * sum(w * mmd.gradient(x, Y, UNIT) for w, x in zip(weights, X, strict=True))

        for _ in range(200):
            Y = moved(Y, of_theorem)
        assert F(moved(Y, of_theorem)) <= F(Y) + 1e-12
        assert F(moved(Y, of_algorithm)) > F(Y) + 0.01


class TestThm2:
    @pytest.mark.parametrize(("each", "bound"), [(17, 16.5), (100, 40.0)])
    def test_spectral_fails_for_a_sample_that_misses_a_cluster(self, each: int, bound: float) -> None:
        K, chosen = two_clusters(each), np.arange(each)
        truth = np.linalg.norm(nystrom_error(K, chosen), 2)
        printed = thm2_printed(points=2 * each, sample=each, rank=2, tail=0.0, largest=1.0, norm="spectral")
        assert tail(np.linalg.eigvalsh(K), 2, "spectral") < 1e-9
        assert printed.value == pytest.approx(bound, abs=0.01)
        assert truth == pytest.approx(each)
        assert truth > printed.value

    def test_frobenius_fails_for_a_sample_that_misses_a_cluster(self) -> None:
        K = two_clusters(100)
        truth = np.linalg.norm(nystrom_error(K, np.arange(2)))
        printed = thm2_printed(points=200, sample=2, rank=2, tail=0.0, largest=1.0, norm="frobenius")
        assert printed.value == pytest.approx(64**0.25 * 1.0)
        assert truth == pytest.approx(100)

    def test_frobenius_fails_for_random_samples_too(self) -> None:
        """The factor n is missing; 30 of 30 random samples of standard normal data exceed the bound."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(300, 5))
        K = gaussian(X, X, 0.2)
        rest, exceeded = tail(np.linalg.eigvalsh(K), 20, "frobenius"), 0
        for _ in range(30):
            chosen = rng.permutation(300)[:20]
            printed = thm2_printed(points=300, sample=20, rank=20, tail=rest, largest=1.0, norm="frobenius")
            exceeded += np.linalg.norm(nystrom_error(K, chosen)) > printed.value
        assert exceeded == 30

    def test_no_bound_of_this_kind_holds_for_distances(self) -> None:
        """D is not PSD: two landmarks that approach each other make the error as large as one likes, with ρ = 0."""
        X = np.array([[1.0], [3.0]])
        errors = []
        for gap in (1e-2, 1e-4, 1e-6):
            Y = np.array([[0.0], [gap]])
            matrix, signs = nystrom_factor(cdist(Y, Y))
            left = cdist(X, Y) @ matrix
            errors.append(np.linalg.norm((left * signs) @ left.T - cdist(X, X)))
            assert np.linalg.eigvalsh(cdist(Y, Y))[0] < 0
        D = cdist(np.vstack([X, [[0.0], [gap]]]), np.vstack([X, [[0.0], [gap]]]))
        printed = thm2_printed(
            points=4, sample=2, rank=2, tail=tail(np.linalg.eigvalsh(D), 2, "spectral"), largest=0.0, norm="spectral"
        )
        assert printed.value < 5
        assert errors[1] > 90 * errors[0]
        assert errors[2] > 1e6


class TestLemma1:
    def test_printed_tail_of_chi_square_is_too_small(self) -> None:
        m, t = 784, 8.0
        assert chi2.sf(m + math.sqrt(2 * m * t) + 2 * t, m) > 2.9 * math.exp(-t)
        assert chi2.sf(m + 2 * math.sqrt(m * t) + 2 * t, m) < math.exp(-t)

    def test_printed_fails_for_two_equal_records_by_its_tail_alone(self) -> None:
        """For n = 2 the wrong factor √2 is made up for by the zero diagonal, and the tail decides."""
        m, sigma, gamma, failure = 784, 1e-5, 1.0, 2 * math.exp(-8.0)
        printed = lemma1_printed(
            records=2, features=m, kernel=UNIT, sigma=sigma, diameter=0.0, failure=failure, norm="frobenius"
        )
        # √2 |1 − exp(−2γσ²χ²)| above the bound means χ² above this.
        least = -math.log1p(-printed.value / math.sqrt(2)) / (2 * gamma * sigma**2)
        assert chi2.sf(least, m) > 1.4 * failure

    def test_printed_fails_almost_surely_for_four_equal_records(self) -> None:
        """n(n − 1)e^{−t} = 0.4 % is allowed; it fails in nearly all of 200 trials. The factor √2 should be 2."""
        rng, trials = np.random.default_rng(0), 200
        n, m, sigma, failure = 4, 784, 1e-3, 12 * math.exp(-8.0)
        said = {"records": n, "features": m, "kernel": UNIT, "sigma": sigma, "failure": failure, "norm": "frobenius"}
        printed = lemma1_printed(**said, diameter=0.0).value
        corrected, exact = lemma1_corrected(**said, diameter=0.0).value, perturbation(**said, diameter=0.0).value
        moved = [np.linalg.norm(gaussian(E, E) - 1) for E in sigma * rng.normal(size=(trials, n, m))]
        exceeded = int(np.sum(np.array(moved) > printed))
        assert exceeded > 0.95 * trials
        assert binomtest(exceeded, trials, failure, alternative="greater").pvalue < 1e-100
        assert max(moved) < exact < corrected


class TestThm3AndThm5:
    def test_the_sum_in_the_proof_is_not_the_mmd(self) -> None:
        """I*ᵀKI* is to equal MMD + n_x + n_y. For coincident points it is 0, for far clusters n_x² + n_y²."""
        for X, Y, of_proof in (
            (np.zeros((2, 1)), np.zeros((2, 1)), 0.0),
            (np.zeros((3, 1)), np.full((4, 1), 30.0), 9 + 16),
        ):
            signs = np.concatenate([-np.ones(len(Y)), np.ones(len(X))])
            points = np.vstack([Y, X])
            assert signs @ gaussian(points, points) @ signs == pytest.approx(of_proof)
            assert of_proof != pytest.approx(mmd.mmd2(X, Y, UNIT) + len(points), abs=0.5)

    def test_the_spectral_statement_is_true_all_the_same_and_says_nothing(self) -> None:
        for norm in NORMS:
            for mmd2 in (0.0, 1.0):
                bound = thm5_printed(records=10, landmarks=3, rank=1, condition=Condition(1.0), mmd2=mmd2, norm=norm)
                assert bound.value > 2 * trivial_error(10, norm)
                assert bound.value > trivial_error(10, norm, noisy_records=True)
                assert bound.vacuous

    def test_the_frobenius_proof_drops_a_factor_of_two(self) -> None:
        """2k^{1/4}√((n_x + 2n_y)n_x) is not 2k^{1/4} n_x √(1 + n_y/n_x)."""
        said = {"records": 8, "landmarks": 16, "rank": 1, "condition": Condition(0.0), "norm": "frobenius"}
        of_proof = 2 * math.sqrt((8 + 2 * 16) * 8)
        assert thm5_corrected(**said).value == pytest.approx(of_proof)
        assert thm5_printed(**said, mmd2=0.0).value < 0.8 * of_proof

    def test_the_printed_bound_falls_while_noise_raises_the_error(self) -> None:
        """Noise moves landmarks apart, which makes K better conditioned: no trade-off can be read off the bound."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(40, 2))
        Y, noise = X[:10] + 0.01, rng.normal(size=(10, 2))
        errors, printed = [], []
        for sigma in (0.0, 1.0, 3.0):
            noisy = Y + sigma * noise
            factor = kernel_factor(gaussian(X, noisy), gaussian(noisy, noisy))
            errors.append(np.linalg.norm(gaussian(X, X) - factor.left @ factor.left.T, 2))
            known = condition(np.vstack([noisy, X]), UNIT)
            said = {"records": 40, "landmarks": 10, "rank": 10, "condition": known, "norm": "spectral"}
            printed.append(thm5_printed(**said, mmd2=mmd.mmd2(X, noisy, UNIT)).value)
        assert errors[0] < errors[1] < errors[2]
        assert printed[0] > printed[1] > printed[2]

    def test_the_mmd_of_the_paper_has_no_triangle_inequality(self) -> None:
        """It is squared and unbiased: 2 − 2k(a, b) on the left, 0 + 0 on the right."""
        a, b = 0.0, 2.0
        X, Y, noisy = np.array([[a], [a]]), np.array([[a], [b]]), np.array([[b], [b]])
        left = mmd.mmd2(X, noisy, UNIT)
        right = mmd.mmd2(X, Y, UNIT) + mmd.mmd2(Y, noisy, UNIT)
        assert left == pytest.approx(2 - 2 * math.exp(-4))
        assert right == pytest.approx(0, abs=1e-12)


class TestThm4:
    def test_printed_asks_for_no_noise(self) -> None:
        bound = thm4_printed(tau_x=1e-7, epsilon=1.0, delta=1e-5)
        assert bound.value == 0.0
        assert thm4_corrected(tau_x=1e-7, epsilon=1.0, delta=1e-5).value > 0
        assert thm4_printed(tau_x=1.0, epsilon=1.0, delta=1e-5).value is None

    def test_with_sigma_for_delta_it_fails_for_large_epsilon(self) -> None:
        """Asked for ε = 20, σ = 2cτ_X/ε has an exact ε above 24."""
        epsilon, delta, tau_x = 20.0, 1e-5, 1.0
        sigma = 2 * tau_x * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        assert gaussian_epsilon(2 * tau_x / sigma, delta) > 24
        assert thm4_classical(tau_x=tau_x, epsilon=epsilon, delta=delta).value is None
        below = thm4_classical(tau_x=tau_x, epsilon=0.9, delta=delta).value
        assert gaussian_delta(2 * tau_x / below, 0.9) <= delta


class TestThm6:
    def test_printed_variance_is_too_small_for_large_epsilon(self) -> None:
        sigma = theorem_sigma(sensitivity=1.0, rounds=50, epsilon=300.0, delta=1e-5)
        assert gaussian_epsilon(math.sqrt(50) / sigma, 1e-5) == pytest.approx(435, abs=1)
        bound = thm6_sigma_printed(delta_f=1.0, rounds=50, epsilon=300.0, delta=1e-5)
        assert bound.value is None
        assert "has ε = 434.8" in bound.precondition
        assert thm6_sigma_corrected(delta_f=1.0, rounds=50, epsilon=300.0, delta=1e-5).value > sigma

    def test_printed_epsilon_of_a_large_mu_is_below_the_exact_one(self) -> None:
        """At μ = 100 Thm 6 claims ε = 1220; the exact one is 5425."""
        claimed = 1220.0
        sigma = theorem_sigma(sensitivity=1.0, rounds=1, epsilon=claimed, delta=1e-5)
        assert 1 / sigma == pytest.approx(100, rel=2e-3)
        assert gaussian_epsilon(100.0, 1e-5) == pytest.approx(5425, abs=1)

    def test_half_of_delta_is_wrong_for_adding_a_record(self) -> None:
        """A record at the origin pulls every landmark, while Δ vanishes with τ_X."""
        Y, tau = np.array([[1.0], [1.0]]), 1e-6
        moved = np.linalg.norm(mmd.data_gradient(np.zeros((1, 1)), Y, UNIT, denominator=1.0))
        constants = Constants(tau, float(np.linalg.norm(Y, 2)), 1.0 + tau)
        printed = thm6_delta_printed(kernel=UNIT, records=1, landmarks=2, constants=constants).value
        assert moved > 1e4 * printed / 2
        theirs = {"gamma": 1.0, "records": 1, "landmarks": 2, "bound": "theorem", "adjacency": "add-remove"}
        assert moved <= sensitivity.gradient(**theirs, tau_x=tau, tau_y=2.0, upsilon=1.0)

    def test_constants_measured_on_the_data_do_not_cover_its_neighbours(self) -> None:
        X, Y = np.full((5, 1), 1e-6), np.full((2, 1), 1e-6)
        neighbour = X.copy()
        neighbour[0] = 1 / math.sqrt(2)
        measured = Constants(1e-6, float(np.linalg.norm(Y, 2)), 1e-9)
        delta = thm6_delta_printed(kernel=UNIT, records=5, landmarks=2, constants=measured).value
        moved = np.linalg.norm(mmd.gradient(X, Y, UNIT) - mmd.gradient(neighbour, Y, UNIT))
        assert moved > 1e4 * delta

    @pytest.mark.parametrize(("records", "times"), [(1000, 5), (10_000, 50)])
    def test_delta_does_not_cover_the_gradient_after_local_steps(self, records: int, times: float) -> None:
        """Alg. 1 uploads the gradient at the client's own Y_p^s. Between two equal clusters one record tips the scale:
        after 36 (49) local steps of 1/L the uploads differ by 5 (50) times Δ, and by 190 (1800) times Δ*.
        """
        half, a = records // 2, math.sqrt(1.5)
        X = np.array([[a]] * half + [[-a]] * half)
        neighbour = X.copy()
        neighbour[0] = -a
        L, steps = mmd.smoothness(UNIT, 2), 36 if records == 1000 else 49
        ends = []
        for data in (X, neighbour):
            Y = np.zeros((2, 1))
            for _ in range(steps):
                Y = Y - mmd.gradient(data, Y, UNIT) / L
            ends.append((Y, mmd.gradient(data, Y, UNIT)))
        moved = np.linalg.norm(ends[0][1] - ends[1][1])
        far = max(float(np.abs(data - Y.T).max()) for data in (X, neighbour) for Y, _ in ends)
        constants = Constants(a, max(float(np.linalg.norm(Y, 2)) for Y, _ in ends), far)
        delta = thm6_delta_printed(kernel=UNIT, records=records, landmarks=2, constants=constants).value
        tight = sensitivity.gradient(gamma=1.0, records=records, landmarks=2)
        assert moved > times * delta > times * tight
        assert moved > 0.18 * records * tight
        assert moved <= local_gradient(delta=tight, smoothness=L, step_size=1 / L, local_steps=steps)


def test_twelve_gamma_over_n_y_is_no_smoothness_when_four_times_the_denominator_is_summed() -> None:
    """L = 12γ/n_y is for at most about twice `records` summed records; at 4 times it is 16γ/n_y."""
    X, Y = np.zeros((20, 1)), np.zeros((2, 1))
    step = np.full((2, 1), 1e-4)
    ends = [mmd.data_gradient(X, Z, UNIT, denominator=5.0) + mmd.landmark_gradient(Z, UNIT) for Z in (Y, Y + step)]
    ratio = np.linalg.norm(ends[0] - ends[1]) / np.linalg.norm(step)
    assert ratio == pytest.approx(16 / 2, rel=1e-6)
    assert ratio > 12 / 2


def test_every_test_that_the_errata_name_exists() -> None:
    """Links of the page point to tests of this file, and every test here is linked."""
    text = (ROOT / "reports/theory/errata.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", text))
    here = set(re.findall(r"def (test_\w+)\(", Path(__file__).read_text()))
    here.remove("test_every_test_that_the_errata_name_exists")
    assert named == here
