"""Scores of reconstructions against slow and obvious references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from attacks.reconstruction import scores as scoring
from attacks.reconstruction.scores import (
    CannotScore,
    closeness,
    largest_pair_accuracy,
    psnr,
    recognised,
    relative_error,
    share_below_zero,
    ssim,
)

RNG = np.random.default_rng(0)


def slow_ssim(a: np.ndarray, b: np.ndarray, span: float) -> float:
    """Window by window, with numpy's own moments."""
    height, width = a.shape
    side = min(7, height if height % 2 else height - 1, width if width % 2 else width - 1)
    side = max(side, 2)
    c1, c2 = (0.01 * span) ** 2, (0.03 * span) ** 2
    values = []
    for i in range(height - side + 1):
        for j in range(width - side + 1):
            x, y = (image[i : i + side, j : j + side].ravel() for image in (a, b))
            (vx, cov), (_, vy) = np.cov(x, y)
            top = (2 * x.mean() * y.mean() + c1) * (2 * cov + c2)
            values.append(top / ((x.mean() ** 2 + y.mean() ** 2 + c1) * (vx + vy + c2)))
    return float(np.mean(values))


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (7, 7), (9, 12), (5, 6), (3, 3), (2, 2), (2, 5)])
@pytest.mark.parametrize("span", [1.0, 16.0])
def test_ssim_is_that_of_the_slow_way(shape: tuple[int, int], span: float) -> None:
    a, b = RNG.uniform(0, span, (2, 4, *shape))
    b[1] = a[1]
    b[2] = 0
    expected = [slow_ssim(x, y, span) for x, y in zip(a, b, strict=True)]
    got = ssim(a.reshape(4, -1), b.reshape(4, -1), shape, span=span)
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    assert got[1] == pytest.approx(1)


def test_ssim_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = RNG.random((2, 10, 64))
    whole = ssim(a, b, (8, 8), span=1)
    monkeypatch.setattr(scoring, "BLOCK_ROWS", 3)
    np.testing.assert_array_equal(ssim(a, b, (8, 8), span=1), whole)


def test_recognised_is_that_of_the_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = RNG.random((40, 5))
    indices = RNG.permutation(40)[:25]
    guess = truth[indices] + 0.3 * RNG.standard_normal((25, 5))
    hits = [np.linalg.norm(truth - each, axis=1).argmin() == right for each, right in zip(guess, indices, strict=True)]
    assert 0 < np.mean(hits) < 1
    monkeypatch.setattr(scoring, "BLOCK_ROWS", 7)
    assert recognised(guess, truth, indices) == np.mean(hits)
    assert recognised(truth, truth) == 1


def test_a_record_that_is_there_twice_is_recognised_as_either() -> None:
    truth = np.repeat(RNG.random((5, 3)), 2, axis=0)
    assert recognised(truth, truth) == 1
    assert recognised(truth[[0]], truth, [2]) == 0


def test_errors_by_hand() -> None:
    truth = np.array([[3.0, 4.0], [0.0, 0.0]])
    guess = np.array([[3.0, 4.0], [0.0, 1.0]])
    assert relative_error(guess, truth) == pytest.approx(1 / 5)
    assert psnr(guess, truth, span=2) == pytest.approx(10 * math.log10(4 / 0.25))
    assert psnr(truth, truth, span=2) is None


@given(st.floats(0, 40))
def test_the_pair_bound_is_that_of_two_gaussians(mu: float) -> None:
    """The best threshold test between N(0, 1) and N(μ, 1), on a grid of thresholds, is not better."""
    thresholds = np.linspace(-5, mu + 5, 2001)
    right = (norm.cdf(thresholds) + norm.sf(thresholds - mu)) / 2
    assert right.max() <= largest_pair_accuracy(mu) + 1e-12
    assert right.max() == pytest.approx(largest_pair_accuracy(mu), abs=1e-3)


def test_without_a_guarantee_the_pair_bound_says_nothing() -> None:
    assert largest_pair_accuracy(math.inf) == 1
    assert largest_pair_accuracy(0) == 0.5


def test_pairs_by_hand() -> None:
    assert share_below_zero([-1.0, 2.0, 0.0, -0.1]) == 2.5 / 4
    with pytest.raises(CannotScore):
        share_below_zero([])


def test_closeness_puts_it_together() -> None:
    truth = RNG.random((30, 64))
    indices = np.arange(0, 30, 3)
    guess = truth[indices] + 0.01 * RNG.standard_normal((10, 64))
    mean = np.full(64, 0.5)
    scores = closeness(guess, truth, indices, mean, bounds=(0, 1), image_shape=(8, 8))
    true = truth[indices]
    assert scores.relative_error == relative_error(guess, true)
    assert scores.baseline_error == relative_error(np.tile(mean, (10, 1)), true)
    assert scores.psnr == psnr(guess, true, span=1)
    assert scores.ssim == ssim(guess, true, (8, 8), span=1).mean()
    assert scores.baseline_ssim is not None
    assert scores.ssim is not None
    assert scores.baseline_ssim < scores.ssim
    assert (scores.recognised, scores.chance, scores.scored) == (1, 1 / 30, 10)
    plain = closeness(guess, truth, indices, mean, bounds=None, image_shape=None)
    assert (plain.psnr, plain.ssim, plain.baseline_ssim) == (None, None, None)


def test_bad_input_is_named() -> None:
    square = np.ones((2, 4))
    with pytest.raises(CannotScore, match=r"\(2, 4\)"):
        relative_error(square, square[:1])
    with pytest.raises(CannotScore, match="all zero"):
        relative_error(square, 0 * square)
    with pytest.raises(CannotScore, match=r"\(3, 2\)"):
        ssim(square, square, (3, 2), span=1)
    with pytest.raises(CannotScore, match="numbers of records"):
        recognised(square, square, [0, 5])
