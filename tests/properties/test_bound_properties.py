"""Every corrected bound and every certificate holds: always, or with the frequency that it claims.

Frequencies are tested exactly: a bound that may fail with probability p is refused when a binomial test at LEVEL says
that it failed too often: at 40 trials and p = 0.2, in 24 of them. LEVEL is so small that thousands of examples raise no
false alarm.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import binomtest

from accounting import gaussian_epsilon, sensitivity
from dpfedvis.evaluation.theory import (
    NORMS,
    Condition,
    KernelError,
    Smoothness,
    condition,
    dissimilarity,
    gram_certificate,
    kernel_certificate,
    lemma1_corrected,
    local_gradient,
    mmd_bound,
    noisy_rows,
    norms,
    perturbation,
    rounding,
    tail,
    thm1_corrected,
    thm2_corrected,
    thm4_classical,
    thm4_corrected,
    thm5_corrected,
    thm5_printed,
    thm6_sigma_corrected,
    thm6_sigma_printed,
    trivial_error,
    with_noisy_records,
)
from dpfedvis.evaluation.theory.convergence import motion
from dpfedvis.numerics import mmd
from dpfedvis.numerics.distances import KernelFactor, gram_frame, kernel_factor, nystrom_factor
from dpfedvis.numerics.kernels import Kernel

LEVEL = 1e-7
ORDER = {"spectral": 2, "frobenius": "fro"}
ULP = float(np.finfo(np.float64).eps)
LAYOUTS = ("spread", "clusters", "coincident", "collinear", "far clusters", "near duplicates", "records", "circle")
GAMMAS = st.floats(-2.5, 1.5).map(lambda exponent: 10.0**exponent)
SEEDS = st.integers(0, 2**32 - 1)


def points(kind: str, n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    X = rng.normal(size=(n, m))
    if kind == "coincident":
        return np.repeat(X[:1], n, axis=0)
    if kind == "collinear":
        return rng.normal(size=(n, 1)) * X[0]
    if kind == "clusters":
        return 3.0 * rng.normal(size=(3, m))[rng.integers(0, 3, n)] + 0.1 * X
    if kind == "far clusters":
        return X + 100.0 * rng.integers(0, 2, (n, 1))
    if kind == "near duplicates":
        return X[rng.integers(0, max(1, n // 3), n)] + 10.0 ** rng.uniform(-12, -2) * X
    if kind == "circle":
        angle = np.linspace(0, 2 * math.pi, n, endpoint=False)
        return np.stack([np.cos(angle), *[np.sin(angle)] * (m - 1)], axis=1)
    return X


@st.composite
def layouts(draw: st.DrawFn, most: int = 20) -> tuple[np.ndarray, np.ndarray, Kernel]:
    """Records, landmarks and a kernel of one or two widths."""
    rng = np.random.default_rng(draw(SEEDS))
    m = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(LAYOUTS))
    X = points(kind, draw(st.integers(2, most)), m, rng)
    if kind == "records":
        Y = X[rng.integers(0, len(X), draw(st.integers(1, most)))]
    else:
        Y = points(draw(st.sampled_from([kind, "spread", kind])), draw(st.integers(1, most)), m, rng)
    gammas = draw(st.lists(GAMMAS, min_size=1, max_size=2))
    return X, Y, Kernel(tuple(gammas))


def gaussian(X: np.ndarray, Y: np.ndarray, kernel: Kernel) -> np.ndarray:
    """Kernel values from differences of coordinates: each within (m + 3) ulps, wherever the points lie."""
    squares = cdist(X, Y, "sqeuclidean")
    return np.mean([np.exp(-gamma * squares) for gamma in kernel.gammas], axis=0)


def estimate(
    X: np.ndarray, Y: np.ndarray, kernel: Kernel, rank: int | None = None, ridge: float = 0.0
) -> tuple[KernelFactor, np.ndarray, float]:
    """The factor, the true error, and the allowance for rounding."""
    W = gaussian(Y, Y, kernel)
    factor = kernel_factor(gaussian(X, Y, kernel), W, rank=rank, ridge=ridge)
    error = gaussian(X, X, kernel) - factor.left @ factor.left.T
    return factor, error, rounding(W, entry_error=(X.shape[1] + 3) * ULP, ridge=ridge)


def holds_often_enough(failures: int, trials: int, allowed: float) -> bool:
    return bool(binomtest(failures, trials, allowed, alternative="greater").pvalue >= LEVEL)


RANKS = st.one_of(st.none(), st.integers(1, 20))
RIDGES = st.sampled_from([0.0, 0.0, 1e-12, 1e-6, 0.1, 3.0])


class TestDeterministic:
    @given(layouts(), RANKS, RIDGES)
    def test_the_certificate_holds_with_its_allowance_for_rounding(self, layout, rank, ridge) -> None:
        """E ⪰ 0 and its norms; landmarks may be anything at all."""
        X, Y, kernel = layout
        factor, E, allowance = estimate(X, Y, kernel, rank, ridge)
        tiny = 1e-13 * len(X) * len(Y)  # of E itself, as computed here
        assert np.linalg.eigvalsh((E + E.T) / 2)[0] >= -2 * allowance * len(X) - tiny
        for norm in NORMS:
            bound = kernel_certificate(factor, norm=norm, allowance=allowance)
            assert np.linalg.norm(E, ORDER[norm]) <= bound.value + tiny
        # The allowance must stay an allowance.
        assert allowance < 1e-3

    @given(layouts(), RANKS, RIDGES)
    def test_the_mmd_of_the_squared_kernel_bounds_the_error(self, layout, rank, ridge) -> None:
        X, Y, kernel = layout
        shift = X.mean(axis=0)
        _, E, allowance = estimate(X, Y, kernel, rank, ridge)
        for norm in NORMS:
            bound = mmd_bound(X - shift, Y - shift, kernel, norm=norm, rank=rank, ridge=ridge)
            # √ of a difference of sums of n² terms: 1e-8 n, more where points lie far from 0.
            slack = (1e-6 + 4 * allowance) * len(X)
            assert np.linalg.norm(E, ORDER[norm]) <= bound.value + slack
            assert bound.value <= len(X) * (1 + 1e-12)

    @given(layouts(), RANKS, SEEDS, st.floats(0, 3))
    def test_trivial_thm5_and_thm3_hold_and_the_printed_ones_are_never_below_the_trivial(
        self, layout, rank, seed, sigma
    ) -> None:
        X, Y, kernel = layout
        rank = min(rank or len(Y), len(Y))
        X = X - Y.mean(axis=0)
        Y = Y - Y.mean(axis=0)
        noisy = X + sigma * np.random.default_rng(seed).normal(size=X.shape)
        known = condition(np.vstack([Y, X]), kernel)
        _, E, _ = estimate(X, Y, kernel, rank)
        factor, _, _ = estimate(noisy, Y, kernel, rank)
        from_noisy = gaussian(X, X, kernel) - factor.left @ factor.left.T
        sizes = {"records": len(X), "landmarks": len(Y), "rank": rank}
        for norm in NORMS:
            slack = 1e-5 * len(X)
            size, size_noisy = (np.linalg.norm(error, ORDER[norm]) for error in (E, from_noisy))
            assert size <= trivial_error(len(X), norm) + slack
            assert size_noisy <= trivial_error(len(X), norm, noisy_records=True) + slack
            corrected = thm5_corrected(**sizes, condition=known, norm=norm)
            assert size <= corrected.value
            # However small the condition number, which is at least 1, the printed form says nothing.
            printed = thm5_printed(**sizes, condition=Condition(1.0), mmd2=0.0, norm=norm)
            assert printed.vacuous
            assert corrected.vacuous
            assert printed.value > trivial_error(len(X), norm, noisy_records=True)

    @given(layouts())
    def test_gram_certificate_holds(self, layout) -> None:
        X, Y, _ = layout
        centre = Y.mean(axis=0)
        X, Y = X - centre, Y - centre
        scale = float(max(np.abs(X).max(), np.abs(Y).max(), 1e-300))
        assume(np.ptp(Y, axis=0).max() > 1e-6 * scale)
        B, W = cdist(X, Y), cdist(Y, Y)
        certificate = gram_certificate(B, W)
        frame = gram_frame(W)
        assert certificate.coordinates.shape[1] == frame.matrix.shape[1]
        gap = cdist(X, X) - cdist(certificate.coordinates, certificate.coordinates)
        # Coordinates along weak directions carry errors of about √n_y ulps of scale over √CUTOFF.
        slack = 1e-5 * scale * len(X)
        for bound in certificate.bounds():
            assert np.linalg.norm(gap, ORDER[bound.norm]) <= bound.value + slack

    @given(layouts(), RANKS)
    def test_a_whole_sample_leaves_the_best_rank_k_error(self, layout, rank) -> None:
        """Thm 2 at c = n: no randomness is left, and the bound is attained."""
        X, _, kernel = layout
        K = gaussian(X, X, kernel)
        rank = min(rank or len(X), len(X))
        E = K - (left := kernel_factor(K, K, rank=rank).left) @ left.T
        for norm in NORMS:
            rest = tail(np.linalg.eigvalsh(K), rank, norm)
            bound = thm2_corrected(
                points=len(X), sample=len(X), rank=rank, tail=rest, largest=1.0, failure=0.1, norm=norm
            )
            assert bound.value == rest
            assert abs(np.linalg.norm(E, ORDER[norm]) - rest) <= 1e-6 * len(X)


class TestProbabilistic:
    TRIALS, FAILURE = 40, 0.2

    @given(layouts(10), SEEDS, st.floats(-4, 1).map(lambda exponent: 10.0**exponent))
    def test_noise_on_records_moves_the_kernel_no_further(self, layout, seed, sigma) -> None:
        X, _, kernel = layout
        n, m = X.shape
        noise = sigma * np.random.default_rng(seed).normal(size=(self.TRIALS, n, m))
        K = gaussian(X, X, kernel)
        changes = [gaussian(X + E, X + E, kernel) - K for E in noise]
        said = {"records": n, "features": m, "kernel": kernel, "sigma": sigma, "failure": self.FAILURE}
        diameter = float(cdist(X, X).max())
        for norm in NORMS:
            sizes = np.array([np.linalg.norm(change, ORDER[norm]) for change in changes])
            exact = perturbation(**said, norm=norm, diameter=diameter)
            free = perturbation(**said, norm=norm)
            corrected = lemma1_corrected(**said, norm=norm, diameter=diameter)
            assert exact.value <= free.value * (1 + 1e-12)
            assert exact.value <= corrected.value * (1 + 1e-12)
            for bound in (exact, free, corrected):
                failures = int(np.sum(sizes > bound.value + 1e-12 * n))
                assert holds_often_enough(failures, self.TRIALS, self.FAILURE)

    @given(layouts(14), SEEDS, st.floats(-3, 0.5).map(lambda exponent: 10.0**exponent))
    def test_certificates_with_noisy_records_hold_for_the_exact_kernel(self, layout, seed, sigma) -> None:
        X, Y, kernel = layout
        rng, failures = np.random.default_rng(seed), dict.fromkeys(NORMS, 0)
        for _ in range(self.TRIALS):
            noisy = X + sigma * rng.normal(size=X.shape)
            factor, _, allowance = estimate(noisy, Y, kernel)
            error = gaussian(X, X, kernel) - factor.left @ factor.left.T
            for norm in NORMS:
                moved = perturbation(
                    records=len(X), features=X.shape[1], kernel=kernel, sigma=sigma, failure=self.FAILURE, norm=norm
                )
                bound = with_noisy_records(kernel_certificate(factor, norm=norm, allowance=allowance), moved)
                assert bound.holds_with == 1 - self.FAILURE
                failures[norm] += np.linalg.norm(error, ORDER[norm]) > bound.value
        for norm in NORMS:
            assert holds_often_enough(failures[norm], self.TRIALS, self.FAILURE)

    @given(layouts(24), SEEDS, st.integers(1, 24), RANKS)
    def test_uniform_samples_obey_thm2(self, layout, seed, sample, rank) -> None:
        X, _, kernel = layout
        n = len(X)
        sample = min(sample, n)
        rank = min(rank or sample, sample)
        K, rng = gaussian(X, X, kernel), np.random.default_rng(seed)
        values, failures = np.linalg.eigvalsh(K), dict.fromkeys(NORMS, 0)
        for _ in range(self.TRIALS):
            chosen = rng.permutation(n)[:sample]
            factor = kernel_factor(K[:, chosen], K[np.ix_(chosen, chosen)], rank=rank)
            error = K - factor.left @ factor.left.T
            for norm in NORMS:
                bound = thm2_corrected(
                    points=n,
                    sample=sample,
                    rank=rank,
                    tail=tail(values, rank, norm),
                    largest=1.0,
                    failure=self.FAILURE,
                    norm=norm,
                )
                failures[norm] += np.linalg.norm(error, ORDER[norm]) > bound.value + 1e-6 * n
        for norm in NORMS:
            assert holds_often_enough(failures[norm], self.TRIALS, self.FAILURE)

    @given(layouts(14), SEEDS, st.floats(-4, 0).map(lambda exponent: 10.0**exponent), st.integers(1, 6))
    def test_the_certificate_of_noisy_rows_holds(self, layout, seed, sigma, rank) -> None:
        X, Y, kernel = layout
        C, W = gaussian(X, Y, kernel), gaussian(Y, Y, kernel)
        matrix, signs = nystrom_factor(W, rank=rank, cutoff=1e-9)
        matrix = matrix[:, signs > 0]
        values = 1 / np.vecdot(matrix.T, matrix.T)
        K, rng = gaussian(X, X, kernel), np.random.default_rng(seed)
        failures = dict.fromkeys(NORMS, 0)
        for _ in range(self.TRIALS):
            left = (C + sigma * rng.normal(size=C.shape)) @ matrix
            for norm in NORMS:
                bound = noisy_rows(left, values, sigma=sigma, failure=self.FAILURE, norm=norm)
                failures[norm] += np.linalg.norm(K - left @ left.T, ORDER[norm]) > bound.value + 1e-6 * len(X)
        for norm in NORMS:
            assert holds_often_enough(failures[norm], self.TRIALS, self.FAILURE)


@st.composite
def federations(draw: st.DrawFn) -> tuple[list[np.ndarray], list[float], np.ndarray, Kernel]:
    """Clients that differ, weights, landmarks and a kernel on the scale of the data."""
    rng = np.random.default_rng(draw(SEEDS))
    m, count = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    spread = draw(st.floats(0, 4))
    clients = [rng.normal(size=(draw(st.integers(1, 6)), m)) + spread * rng.normal(size=m) for _ in range(count)]
    weights = rng.dirichlet(np.ones(count)) if draw(st.booleans()) else np.full(count, 1 / count)
    Y = rng.normal(size=(draw(st.integers(2, 5)), m))
    if draw(st.booleans()):
        Y[1:] = Y[0]
    return clients, list(weights), Y, Kernel(tuple(draw(st.lists(st.floats(0.02, 5.0), min_size=1, max_size=2))))


class TestConvergence:
    @given(federations(), st.integers(1, 4), st.integers(1, 4), st.floats(0.05, 1.95))
    def test_thm1_corrected_holds(self, federation, rounds, steps, part) -> None:
        clients, weights, Y, kernel = federation
        constants = Smoothness.of_kernel(kernel, len(Y), weights)
        step = part / constants.mean
        seen = motion(clients, weights, Y, kernel, rounds=rounds, local_steps=steps, step_size=step)
        widest = dissimilarity(kernel, len(Y))
        assert seen.dissimilarity <= widest * (1 + 1e-9)
        for zeta in (seen.dissimilarity, widest):
            bound = thm1_corrected(
                constants=constants,
                zeta=zeta,
                rounds=rounds,
                local_steps=steps,
                decrease=seen.decrease,
                step_size=step,
            )
            assert seen.mean_square <= bound.value * (1 + 1e-9) + 1e-12 * step

    @given(federations(), st.integers(1, 5))
    def test_rounds_of_one_over_L_go_down_by_what_they_move(self, federation, rounds) -> None:
        """F falls by at least (L/2)‖ΔY‖² a round, whatever the clients: the whole loop is descent."""
        clients, weights, Y, kernel = federation
        L = mmd.smoothness(kernel, len(Y))
        seen = motion(clients, weights, Y, kernel, rounds=rounds, local_steps=1, step_size=1 / L)
        assert seen.decrease >= L / 2 * rounds * seen.mean_square - 1e-12
        assert seen.mean_square >= 0

    @given(federations(), st.integers(0, 6), st.floats(0.01, 2.0), SEEDS)
    def test_gradient_after_local_steps_moves_by_at_most_its_sensitivity(self, federation, steps, part, seed) -> None:
        """Δ*(1 + ηL)^Q for the gradient at a client's own landmarks, where Thm 6's Δ does not hold."""
        clients, _, Y, kernel = federation
        X = clients[0]
        neighbour = X.copy()
        neighbour[0] = np.random.default_rng(seed).normal(size=X.shape[1]) * 2
        L = mmd.smoothness(kernel, len(Y))
        ends = []
        for data in (X, neighbour):
            Z = Y
            for _ in range(steps):
                Z = Z - part / L * mmd.gradient(data, Z, kernel)
            ends.append(mmd.gradient(data, Z, kernel))
        tight = sensitivity.gradient(gamma=kernel.gammas, records=len(X), landmarks=len(Y))
        bound = tight
        if steps:
            bound = local_gradient(delta=tight, smoothness=L, step_size=part / L, local_steps=steps)
        assert np.linalg.norm(ends[0] - ends[1]) <= bound * (1 + 1e-9)


class TestNoise:
    @given(st.floats(-2, 4), st.floats(-12, -1), st.integers(1, 1000))
    def test_thm6_says_so_where_its_variance_is_too_small(self, log_epsilon, log_delta, rounds) -> None:
        epsilon, delta = 10.0**log_epsilon, 10.0**log_delta
        said = {"delta_f": 2.0, "rounds": rounds, "epsilon": epsilon, "delta": delta}
        printed, corrected = thm6_sigma_printed(**said), thm6_sigma_corrected(**said)
        assert gaussian_epsilon(2 * math.sqrt(rounds) / corrected.value, delta) <= epsilon * (1 + 1e-6)
        if printed.value is None:
            assert "that it claims" in printed.precondition
        else:
            assert printed.value >= corrected.value * (1 - 1e-6)

    @given(st.floats(-3, 3), st.floats(-12, -1), st.floats(0.01, 100.0))
    def test_thm4_repaired(self, log_epsilon, log_delta, tau_x) -> None:
        said = {"tau_x": tau_x, "epsilon": 10.0**log_epsilon, "delta": 10.0**log_delta}
        classical, exact = thm4_classical(**said), thm4_corrected(**said)
        assert gaussian_epsilon(2 * tau_x / exact.value, said["delta"]) <= said["epsilon"] * (1 + 1e-6)
        assert (classical.value is None) == (said["epsilon"] >= 1)
        assert classical.value is None or classical.value >= exact.value


class TestEmpirical:
    @given(layouts(24), st.integers(1, 9), st.integers(1, 5), SEEDS)
    def test_norms_are_those_of_the_dense_matrix(self, layout, tile, block, seed) -> None:
        X, Y, kernel = layout
        centre = X.mean(axis=0)
        left = np.asarray(kernel_factor(gaussian(X, Y, kernel), gaussian(Y, Y, kernel)).left)
        matrix = KernelError(X - centre, kernel, left)
        whole = slice(0, len(X))
        E = matrix.tile(whole, whole)
        found = norms(matrix, np.random.default_rng(seed), tile=tile, block=block, tolerance=1e-10)
        assert abs(found.frobenius - np.linalg.norm(E)) <= 1e-10 * len(X)
        assert abs(found.spectral - np.linalg.norm(E, 2)) <= 1e-7 * len(X)
