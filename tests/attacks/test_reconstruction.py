"""Reconstruction: exact where rows are exact, and no better than μ allows where they are not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, least_squares
from scipy.spatial.distance import cdist
from scipy.stats import beta as beta_law
from scipy.stats import multivariate_normal

from accounting import Budget, GaussianRelease
from accounting.errors import InvalidParameter
from attacks import reconstruct_from_coordinates, reconstruct_from_distances, reconstruct_from_kernel
from attacks.reconstruction.rows import BadRows, squared_distances_of
from attacks.reconstruction.scores import largest_pair_accuracy, recognised, relative_error
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.mechanisms.rows import DistanceRows, GramRows, KernelRows
from dpfedvis.numerics.distances import gram_frame
from dpfedvis.numerics.kernels import Kernel
from tests.makers import DIGITS

RNG = np.random.default_rng(1)


def landmarks(count: int) -> np.ndarray:
    """Like records, and none of them."""
    return (DIGITS[RNG.permutation(len(DIGITS))[:count]] + 0.1 * RNG.standard_normal((count, 64))).astype(np.float32)


@pytest.fixture(scope="module")
def Y() -> np.ndarray:
    return landmarks(100)


def test_exact_distances_are_the_records(Y: np.ndarray) -> None:
    guess = reconstruct_from_distances(DistanceRows().of(DIGITS, Y), Y)
    assert relative_error(guess, DIGITS) < 1e-12
    assert recognised(guess, DIGITS) == 1


def test_float32_is_no_protection(Y: np.ndarray) -> None:
    guess = reconstruct_from_distances(DistanceRows().of(DIGITS, Y).astype(np.float32), Y)
    assert 1e-9 < relative_error(guess, DIGITS) < 1e-5
    assert recognised(guess, DIGITS) == 1


@pytest.mark.parametrize("gammas", [(0.05,), (0.01, 0.05, 0.2)])
def test_exact_kernel_values_are_the_records(Y: np.ndarray, gammas: tuple[float, ...]) -> None:
    K = KernelRows(Kernel(gammas)).of(DIGITS, Y)
    guess = reconstruct_from_kernel(K, Y, gammas if len(gammas) > 1 else gammas[0])
    assert relative_error(guess, DIGITS) < 1e-11


def test_exact_coordinates_are_the_records(Y: np.ndarray) -> None:
    assert relative_error(reconstruct_from_coordinates(GramRows().of(DIGITS, Y), Y), DIGITS) < 1e-12


def test_least_squares_agrees_with_a_general_solver() -> None:
    """The slow way: fit x to its distances by a solver that knows nothing of centring."""
    Y, X = RNG.standard_normal((8, 3)), RNG.standard_normal((4, 3))
    D = cdist(X, Y)
    guess = reconstruct_from_distances(D, Y)
    for row, got in zip(D, guess, strict=True):
        solved = least_squares(lambda x, row=row: np.linalg.norm(x - Y, axis=1) - row, Y.mean(axis=0), xtol=1e-14)
        np.testing.assert_allclose(got, solved.x, atol=1e-6)


def test_with_fewer_landmarks_the_part_in_their_span_is_exact() -> None:
    Y = landmarks(20)
    guess = reconstruct_from_distances(DistanceRows().of(DIGITS, Y), Y)
    centred = Y - Y.mean(axis=0, dtype=np.float64)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:19]
    np.testing.assert_allclose((guess - DIGITS) @ axes.T, 0, atol=1e-10)
    # And what the prior fills in is better than nothing.
    span = Y.mean(axis=0) + (DIGITS - Y.mean(axis=0)) @ axes.T @ axes
    assert relative_error(guess, DIGITS) < relative_error(span, DIGITS)


@pytest.mark.parametrize("sigma", [0.0, 0.3])
def test_the_filled_in_part_is_the_posterior_mean(sigma: float) -> None:
    """The slow way: condition the joint Gaussian of record and coordinates, formed in full."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    Y = RNG.standard_normal((6, 9)) * np.linspace(0.5, 2, 9) + 3
    centre = Y.mean(axis=0)
    W = np.linalg.svd(Y - centre, full_matrices=False)[2][:4].T
    S = np.cov(Y.T, bias=True)
    share = max(0.1, float(ledoit_wolf_shrinkage(Y - centre, assume_centered=True)))
    C = (1 - share) * S + share * np.diag(np.diag(S))
    Z = RNG.standard_normal((5, 4))
    expected = centre + Z @ np.linalg.solve(W.T @ C @ W + sigma**2 * np.eye(4), W.T @ C)
    np.testing.assert_allclose(reconstruct_from_coordinates(Z, Y, sigma=sigma), expected, atol=1e-7)


def test_noisy_distances_are_weighted_as_in_the_full_regression() -> None:
    """The slow way: Bayesian regression of squared distances on x and a free intercept ‖x‖², formed in full."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    Y = RNG.standard_normal((12, 4)) * np.linspace(1, 3, 4) + np.geomspace(0.1, 30, 12)[:, None]
    D, sigma = cdist(RNG.standard_normal((6, 4)), Y) + 0.3 * RNG.standard_normal((6, 12)), 0.3
    mean = Y.mean(axis=0)
    S = np.cov(Y.T, bias=True)
    share = max(0.1, float(ledoit_wolf_shrinkage(Y - mean, assume_centered=True)))
    precision = np.linalg.inv((1 - share) * S + share * np.diag(np.diag(S)))
    variance = 4 * ((D**2).mean(axis=0) - sigma**2) * sigma**2 + 2 * sigma**4
    assert variance.max() > 100 * variance.min()  # or weights would not matter
    design = np.column_stack([-2 * (Y - mean), np.ones(12)])
    prior = np.zeros((5, 5))
    prior[:4, :4] = precision
    target = D**2 - np.square(Y - mean).sum(axis=1)
    solved = np.linalg.solve(design.T / variance @ design + prior, (target / variance @ design).T).T
    np.testing.assert_allclose(reconstruct_from_distances(D, Y, sigma=sigma), mean + solved[:, :4], rtol=1e-5)


@given(
    st.lists(st.floats(1e-3, 1e2), min_size=1, max_size=4),
    st.lists(st.floats(0, 100), min_size=1, max_size=8),
)
def test_mean_kernels_are_inverted(gammas: list[float], squares: list[float]) -> None:
    kernel = Kernel(tuple(gammas))
    s = np.array(squares) / max(gammas)
    K = np.mean([np.exp(-gamma * s) for gamma in gammas], axis=0)
    got = squared_distances_of(K[None], kernel)[0]
    for each, found, value in zip(s, got, K, strict=True):
        # A rounding of K by one ulp moves the root by about ulp/|slope|.
        slope = np.mean([gamma * math.exp(-gamma * each) for gamma in gammas])
        assert found == pytest.approx(each, rel=1e-9, abs=4e-16 * value / slope + 1e-12 / max(gammas))
        if 0 < value < 1:
            top = 2 + 2 * each + 1 / min(gammas)
            root = brentq(
                lambda t, v=value: np.mean([math.exp(-gamma * t) for gamma in gammas]) - v, -1e-9, top, rtol=1e-12
            )
            assert found == pytest.approx(root, rel=1e-8, abs=4e-15 * value / slope + 1e-9)


@pytest.mark.parametrize("sigma", [0.03, 0.3, 3.0])
def test_knowing_the_noise_helps(Y: np.ndarray, sigma: float) -> None:
    D, Z = DistanceRows().of(DIGITS, Y), GramRows().of(DIGITS, Y)
    noisy = D + sigma * RNG.standard_normal(D.shape)
    known = relative_error(reconstruct_from_distances(noisy, Y, sigma=sigma, bounds=(0, 1)), DIGITS)
    assert known < relative_error(reconstruct_from_distances(noisy, Y, bounds=(0, 1)), DIGITS)
    blind = relative_error(np.tile(Y.mean(axis=0), (len(DIGITS), 1)), DIGITS)
    assert known < blind
    rows = Z + sigma * RNG.standard_normal(Z.shape)
    assert relative_error(reconstruct_from_coordinates(rows, Y, sigma=sigma), DIGITS) < min(
        blind, relative_error(reconstruct_from_coordinates(rows, Y), DIGITS)
    )
    K = KernelRows(Kernel.gaussian(0.02)).of(DIGITS, Y)
    uncertain = K + 0.02 * sigma * RNG.standard_normal(K.shape)
    assert relative_error(reconstruct_from_kernel(uncertain, Y, 0.02, sigma=0.02 * sigma), DIGITS) < blind


def test_perturbed_records_come_back_perturbed_and_are_then_denoised(Y: np.ndarray) -> None:
    noisy = DIGITS + 0.3 * RNG.standard_normal(DIGITS.shape)
    D = DistanceRows().of(noisy, Y)
    assert relative_error(reconstruct_from_distances(D, Y), noisy) < 1e-12
    denoised = relative_error(reconstruct_from_distances(D, Y, record_sigma=0.3, bounds=(0, 1)), DIGITS)
    assert denoised < 0.75 * relative_error(noisy, DIGITS)


def test_bounds_are_kept(Y: np.ndarray) -> None:
    D = DistanceRows().of(DIGITS, Y)
    guess = reconstruct_from_distances(D + RNG.standard_normal(D.shape), Y, bounds=(0.0, 1.0))
    assert guess.min() >= 0
    assert guess.max() <= 1


def test_blocks_change_nothing(Y: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    D = DistanceRows().of(DIGITS[:50], Y)
    whole = reconstruct_from_distances(D, Y)
    monkeypatch.setattr("attacks.reconstruction.rows.BLOCK_ROWS", 7)
    np.testing.assert_allclose(reconstruct_from_distances(D, Y), whole, atol=1e-12)


def test_coordinates_from_distances_are_the_same_attack(Y: np.ndarray) -> None:
    """The server's own Gram frame, which makes maps, gives coordinates at the distances of the records."""
    D = DistanceRows().of(DIGITS[:20], Y)
    frame = gram_frame(cdist(Y.astype(np.float64), Y.astype(np.float64)))
    guess = reconstruct_from_distances(D, Y)
    np.testing.assert_allclose(cdist(frame.coordinates(D), frame.coordinates(D)), cdist(guess, guess), atol=1e-4)


@pytest.mark.parametrize(
    ("D", "Y", "keywords", "error"),
    [
        (np.ones((3, 4)), np.ones((5, 2)), {}, "there are 5 landmarks"),
        (np.full((3, 5), np.nan), RNG.random((5, 2)), {}, "not finite"),
        (np.ones((0, 5)), RNG.random((5, 2)), {}, r"shape \(0, 5\)"),
        (np.ones(5), RNG.random((5, 2)), {}, r"shape \(5,\)"),
        (np.ones((3, 5)), np.ones((5, 2)), {}, "all landmarks are one point"),
        (np.ones((3, 5)), RNG.random((5, 2)), {"sigma": -1.0}, "sigma must be"),
        (np.ones((3, 5)), RNG.random((5, 2)), {"record_sigma": math.nan}, "record_sigma must be"),
    ],
)
def test_bad_input_is_named(D: np.ndarray, Y: np.ndarray, keywords: dict[str, Any], error: str) -> None:
    with pytest.raises((BadRows, InvalidParameter), match=error):
        reconstruct_from_distances(D, Y, **keywords)


# What the noise allows. Records are clipped to τ and lie at ±τ along one direction: the worst pair there is.
TAU, PAIRS = 1.0, 3000


def told_apart(mechanism: str, epsilon: float) -> tuple[float, float, int]:
    """Run the library on records of the worst pair; return the accuracy of the best test, μ of the rows, and n."""
    from dpfedvis.mechanisms import InputPerturbation

    axis = np.array([0.6, 0.8, 0.0])
    signs = np.random.default_rng(7).choice([-1.0, 1.0], PAIRS)
    fed = FederatedData([signs[:, None] * TAU * axis], bounds=(-1.0, 1.0))
    start = np.linspace(-0.9, 0.9, 6)[:, None] * axis + 0.05 * np.random.default_rng(0).standard_normal((6, 3))
    estimator = FedTSNE(
        n_landmarks=6,
        mechanism=InputPerturbation(tau_x=TAU) if mechanism == "input" else mechanism,
        budget=Budget(epsilon, 1e-5),
        release="exact" if mechanism == "input" else "noisy",
        rounds=2,
        tau_x=TAU,
        perplexity=5,
        n_jobs=1,
        # Landmarks that stay, spread along the pair: noisy rows leave out directions in which landmarks hardly spread.
        feddl={"start": start, "step_size": 1e-9},
        tsne={"n_iter": 1, "early_exaggeration_iter": 0},
    )
    heard: list[np.ndarray] = []
    events: list[Any] = []

    def witness(event: Any, values: np.ndarray) -> None:
        if event[0].stage == "release":
            heard.append(values)
            events.append(event[0])

    estimator.watch(witness=witness).fit(fed)
    rows = heard[0]
    releases = [each for each in estimator.ledger_.events() if isinstance(each, GaussianRelease)]
    released = releases[0] if mechanism == "input" else releases[-1]
    Y = estimator.landmarks_
    guess = reconstruct_from_distances(rows, Y) if mechanism == "input" else reconstruct_from_coordinates(rows, Y)
    # The likelihood ratio of two Gaussians around ±z is a threshold on the projection to their difference.
    centre = Y.mean(axis=0, dtype=np.float64)
    W = np.linalg.svd(Y - centre, full_matrices=False)[2][: rows.shape[1] if mechanism != "input" else 3].T
    score = (guess - centre) @ W @ (W.T @ axis) + (centre @ W) @ (W.T @ axis)
    return float(np.mean(np.sign(score) == signs)), released.sensitivity / released.sigma, PAIRS


def lower_end(right: float, n: int, level: float = 1e-6) -> float:
    """Clopper–Pearson: with probability 1 − level the true accuracy is above the returned lower end."""
    k = round(right * n)
    return float(beta_law.ppf(level, k, n - k + 1)) if k else 0.0


@pytest.mark.parametrize("mechanism", ["gradient", "input"])
@pytest.mark.parametrize("epsilon", [2.0, 6.0, 20.0])
def test_the_worst_pair_is_told_apart_no_better_than_mu_allows(mechanism: str, epsilon: float) -> None:
    """A leak would show: with half the noise the accuracy would be Φ(μ), far outside of the interval."""
    right, mu, n = told_apart(mechanism, epsilon)
    allowed = largest_pair_accuracy(mu)
    assert lower_end(right, n) <= allowed
    # The bound is attained for this pair, so that it would notice; half the noise would be caught.
    assert right == pytest.approx(allowed, abs=0.04)
    assert lower_end(largest_pair_accuracy(2 * mu), n) > allowed


def test_under_dp_nothing_beats_the_prior_by_much(Y: np.ndarray) -> None:
    """Records of one budget of ε = 1: the error is that of guessing, and hardly anyone is recognised."""
    sigma = 2 * 8.0 / Budget(1, 1e-5).mu
    Z = GramRows().of(DIGITS, Y)
    guess = reconstruct_from_coordinates(Z + sigma * RNG.standard_normal(Z.shape), Y, sigma=sigma)
    blind = relative_error(np.tile(Y.mean(axis=0), (len(DIGITS), 1)), DIGITS)
    assert relative_error(guess, DIGITS) == pytest.approx(blind, rel=0.01)
    assert recognised(guess, DIGITS) < 5 / len(DIGITS)


def test_the_posterior_mean_is_the_best_linear_guess() -> None:
    """Records that follow the prior: no other shrinkage of the same coordinates has a smaller mean error."""
    Y = multivariate_normal(np.zeros(4), np.diag([4, 2, 1, 0.5])).rvs(2000, random_state=0)
    X = multivariate_normal(np.zeros(4), np.diag([4, 2, 1, 0.5])).rvs(4000, random_state=1)
    noisy = GramRows().of(X, Y) + 1.5 * RNG.standard_normal((4000, 4))
    best = relative_error(reconstruct_from_coordinates(noisy, Y, sigma=1.5), X)
    for wrong in (0.5, 0.9, 2.5, 5.0):
        assert best < relative_error(reconstruct_from_coordinates(noisy, Y, sigma=wrong), X)
