"""Scores of membership against slow references, and the law of the best of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import sensitivity
from attacks.membership.scores import (
    gradient_scores,
    insider_scores,
    landmark_scores,
    list_scores,
    nearest_distances,
)
from attacks.shared.gradients import Contribution, SeenGradient
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import data_gradient
from tests.attacks.conftest import PLAIN
from tests.attacks.strong_games import likelihood_score

CONTRIBUTIONS = [PLAIN, Contribution(Kernel((0.1, 0.7))), Contribution(Kernel((0.1, 0.7)), clip=0.6)]


def slow_contributions(X: np.ndarray, Y: np.ndarray, contribution: Contribution) -> np.ndarray:
    """c(x) of each record, flattened, from the library's own gradients of one record, clipped by hand."""
    kernel, clip = contribution.kernel, contribution.clip
    parts = np.array([data_gradient(x[None], Y, kernel, denominator=1) for x in X]).reshape(len(X), -1)
    if clip is not None:
        largest = 4 * kernel.mean_gamma / len(Y) * clip
        parts *= np.minimum(1.0, largest / np.linalg.norm(parts, axis=1))[:, None]
    return parts


@pytest.mark.parametrize("contribution", CONTRIBUTIONS)
def test_inner_products_match_contributions_written_out(contribution):
    rng = np.random.default_rng(1)
    X, other, Y, G = (rng.normal(size=shape) + 3 for shape in ((6, 3), (4, 3), (5, 3), (5, 3)))
    first, second = (slow_contributions(each, Y, contribution) for each in (X, other))
    close = {"rtol": 1e-9, "atol": 1e-14}
    np.testing.assert_allclose(contribution.gram(X, other, Y), first @ second.T, **close)
    np.testing.assert_allclose(contribution.products(X, Y, G), first @ G.ravel(), **close)
    np.testing.assert_allclose(contribution.squares(X, Y), np.sum(first**2, axis=1), **close)
    np.testing.assert_allclose(contribution.mean(X, Y, 9).ravel(), first.sum(axis=0) / 9, **close)


def noisy_rounds(rng: np.random.Generator, records: np.ndarray, contribution: Contribution) -> list[SeenGradient]:
    seen = []
    for sigma in (0.05, 0.02):
        Y = rng.normal(size=(4, records.shape[1]))
        exact = contribution.mean(records, Y, len(records))
        seen.append(SeenGradient(Y, exact + sigma * rng.normal(size=exact.shape), sigma))
    return seen


def scaled(X: np.ndarray, seen: list[SeenGradient], contribution: Contribution) -> np.ndarray:
    return np.hstack([slow_contributions(X, each.landmarks, contribution) / each.sigma for each in seen])


@pytest.mark.parametrize("contribution", CONTRIBUTIONS)
def test_scores_without_a_list_match_dense_algebra(contribution):
    rng = np.random.default_rng(2)
    records, X, R = (rng.normal(size=(n, 3)) for n in (5, 4, 7))
    seen = noisy_rounds(rng, records, contribution)
    flat = np.concatenate([(each.values / each.sigma).ravel() for each in seen])
    reference, candidates = scaled(R, seen, contribution), scaled(X, seen, contribution)
    mean = reference.mean(axis=0)
    covariance = np.cov(reference.T, bias=True) / 5 + np.eye(len(flat))
    shift = (candidates - mean) / 5
    whitened = np.linalg.solve(covariance, shift.T).T
    expected = whitened @ (flat - mean) - np.vecdot(whitened, shift) / 2
    np.testing.assert_allclose(gradient_scores(seen, contribution, X, R, 5), expected, rtol=1e-8, atol=1e-10)


def test_what_rounding_hides_counts_as_noise():
    """Without noise the matrix is singular. The same as dense algebra with as much noise as the rule states."""
    rng, records, rounds = np.random.default_rng(7), 5, 500
    Y, R, X = (rng.normal(size=(n, 3)) for n in (4, 40, 6))
    seen = SeenGradient(Y, PLAIN.mean(X[:records], Y, records))
    reference, candidates = (slow_contributions(each, Y, PLAIN) for each in (R, X))
    noise = seen.scale**2 / rounds
    heat = np.finfo(float).eps * np.sum(reference**2) / noise / records
    assert heat > 10
    mean = reference.mean(axis=0)
    covariance = np.cov(reference.T, bias=True) / records + heat * noise * np.eye(seen.values.size)
    shift = (candidates - mean) / records
    whitened = np.linalg.solve(covariance, shift.T).T
    expected = whitened @ (seen.values.ravel() - mean) - np.vecdot(whitened, shift) / 2
    # Rounding shows in the scores themselves, which machines differ in, and the factor is far larger than that.
    found = gradient_scores([seen] * rounds, PLAIN, X, R, records)
    np.testing.assert_allclose(found, expected, rtol=0.25, atol=0.05 * np.abs(expected).max())


@pytest.mark.parametrize("contribution", CONTRIBUTIONS)
def test_scores_with_a_list_match_dense_algebra(contribution):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(9, 3))
    seen = noisy_rounds(rng, X[:4], contribution)
    flat = np.concatenate([(each.values / each.sigma).ravel() for each in seen])
    design, share = scaled(X, seen, contribution).T / 4, 4 / 9
    precision = design.T @ design + np.eye(9) / (share * (1 - share))
    expected = np.linalg.solve(precision, design.T @ (flat - design @ np.full(9, share)))
    np.testing.assert_allclose(list_scores(seen, contribution, X, 4), expected, rtol=1e-8, atol=1e-10)


def test_the_likelihood_score_has_the_law_it_claims():
    rng, sigma, games = np.random.default_rng(4), 0.01, 1500
    x, other, known, Y = (rng.normal(size=shape) for shape in ((3,), (3,), (2, 3), (5, 3)))
    for record, shift in ((other, 0), (x, 1)):
        exact = PLAIN.mean(np.vstack([known, record]), Y, 3)
        noise = sigma * rng.normal(size=(games, *exact.shape))
        scores = [likelihood_score([SeenGradient(Y, exact + e, sigma)], PLAIN, x, other, known, 3) for e in noise]
        z = np.array([each.z for each in scores])
        assert z.mean() == pytest.approx(shift * scores[0].distance, abs=4 / math.sqrt(games))
        assert z.std() == pytest.approx(1, abs=4 / math.sqrt(2 * games))


@given(
    seed=st.integers(0, 10**6),
    spread=st.floats(0.05, 5),
    records=st.integers(1, 4),
    landmarks=st.integers(1, 5),
    gammas=st.lists(st.floats(0.05, 5), min_size=1, max_size=2),
)
def test_no_pair_is_further_apart_than_mu(seed, spread, records, landmarks, gammas):
    rng, sigma = np.random.default_rng(seed), 0.3
    x, other, known = (spread * rng.normal(size=shape) for shape in ((2,), (2,), (records - 1, 2)))
    Y, G = rng.normal(size=(2, landmarks, 2))
    contribution = Contribution(Kernel(tuple(gammas)))
    score = likelihood_score([SeenGradient(Y, G, sigma)] * 3, contribution, x, other, known, records)
    delta = sensitivity.gradient(gamma=gammas, records=records, landmarks=landmarks)
    assert score.distance <= math.sqrt(3) * delta / sigma * (1 + 1e-9)


def test_landmarks_and_maps_speak_for_what_is_near():
    assert landmark_scores([[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [3.0, 0.0]]) == pytest.approx([0, -4])
    own, places = np.array([[0.0], [10.0]]), np.array([[0.0, 0.0], [100.0, 0.0]])
    scores = insider_scores([[0.0], [10.0]], own, places, np.array([[0.0, 1.0]]), neighbours=1)
    assert scores == pytest.approx([-1, -math.hypot(100, 1)])
    rng = np.random.default_rng(14)
    points, targets = rng.normal(size=(2000, 3)), rng.normal(size=(50, 3))
    slow = np.linalg.norm(points[:, None] - targets, axis=2).min(axis=1)
    np.testing.assert_allclose(nearest_distances(points, targets), slow, rtol=1e-9)
