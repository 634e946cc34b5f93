"""Bounds on the Nyström error: Thm 2, the MMD, and certificates from what is at hand, rounding included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import chi2

from accounting.errors import InvalidParameter
from dpfedvis.evaluation.theory import (
    NORMS,
    Spread,
    cut_off_norms,
    entry_error,
    gram_certificate,
    kernel_certificate,
    mmd_bound,
    noisy_rows,
    rounding,
    tail,
    thm2_corrected,
    thm2_printed,
)
from dpfedvis.numerics.distances import kernel_factor, nystrom_factor
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import mmd2
from tests.evaluation.conftest import KERNEL, gaussian

ORDER = {"spectral": 2, "frobenius": "fro"}


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
        assert cut_off_norms(W)["spectral"] < 1e-7
        cut = cut_off_norms(W, rank=5)
        assert cut["spectral"] == pytest.approx(values[5])
        assert cut["frobenius"] == pytest.approx(np.linalg.norm(values[5:]))
        ridged = cut_off_norms(W, ridge=0.5)
        assert ridged["frobenius"] == pytest.approx(np.linalg.norm(0.5 * values / (values + 0.5)))


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
