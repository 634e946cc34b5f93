"""Federated k-means: sums against a slow reference, and what becomes of landmarks that nobody is near."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.cluster import KMeans as Lloyd

from accounting import Budget, InvalidParameter
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.mechanisms import KMeans, k_means
from dpfedvis.mechanisms.base import PreparedRecords
from dpfedvis.mechanisms.k_means import EMPTY, likely
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics import exact_sums
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.optimisers import Plain
from tests.makers import federation

SETTING = PublicParameters(
    Kernel((0.5,)), landmarks=4, features=2, rounds=9, local_steps=1, step_size=1.0, grid=Grid(2.0**-15, 2**20)
)
CORNERS = np.array([(0.0, 0.0), (10.0, 0.0), (0.0, 10.0), (10.0, 10.0)])


def sums(X, Y, public=SETTING, reach=0.75, denominator=None):
    local = PreparedRecords(X, float(denominator or len(X)))
    return KMeans(reach=reach).message(local, Y, public, np.random.default_rng(0)).values


@pytest.mark.parametrize("block", [None, 3])
def test_sums_of_clipped_offsets_and_counts(block, monkeypatch):
    rng = np.random.default_rng(0)
    X, Y, reach = rng.normal(0, 2, (50, 2)), rng.normal(size=(4, 2)), 0.6
    radius, expected = reach / math.sqrt(2 * 0.5), np.zeros((4, 3))
    for x in X:
        own = int(np.argmin([np.sum((x - y) ** 2) for y in Y]))
        offset = (x - Y[own]) / radius
        expected[own] += np.append(offset * min(1.0, 1 / np.linalg.norm(offset)), 1.0) / 80
    if block is not None:
        monkeypatch.setattr(exact_sums, "block_rows", lambda *_: block)
    # Offsets are rounded towards zero, to 2⁻¹⁵ of the radius.
    np.testing.assert_allclose(sums(X, Y, reach=reach, denominator=80), expected, rtol=1e-4, atol=50 * 2.0**-14 / 80)


def test_a_landmark_moves_to_the_mean_of_its_records():
    X = np.concatenate([corner + np.array([(0.2, 0.1), (0.1, -0.3)]) for corner in CORNERS])
    step = KMeans(reach=0.75).update(CORNERS, sums(X, CORNERS), SETTING, Plain(1.0))
    np.testing.assert_allclose(step.landmarks, CORNERS + np.array([0.15, -0.1]), atol=1e-4)


def test_a_landmark_moves_no_further_than_the_radius():
    """Noise may leave a large sum over a small count."""
    average = np.zeros((4, 3))
    average[:, -1], average[0] = 0.3, (50.0, 0.0, 0.1)
    step = KMeans(reach=0.75).update(CORNERS, average, SETTING, Plain(1.0))
    assert np.linalg.norm(step.landmarks[0] - CORNERS[0]) == pytest.approx(0.75, rel=1e-6)


def test_of_a_step_the_server_takes_what_is_not_noise():
    """Against the formula, coordinate by coordinate; and without noise all of it."""
    rng = np.random.default_rng(2)
    steps, noise = rng.normal(0, (0.5, 0.1, 0.01), (6, 3)), rng.uniform(0.02, 0.2, 6)
    found = k_means.kept(steps, noise)
    weights = [1 / each**2 / sum(1 / other**2 for other in noise) for each in noise]
    for j in range(3):
        seen = sum(weight * step**2 for weight, step in zip(weights, steps[:, j], strict=True))
        signal = max(seen - sum(weight * each**2 for weight, each in zip(weights, noise, strict=True)), 0.0)
        np.testing.assert_allclose(found[:, j], [signal / (signal + each**2) for each in noise], rtol=1e-12)
    np.testing.assert_array_equal(k_means.kept(steps, np.zeros(6)), np.ones((6, 3)))


def test_steps_of_very_much_noise_are_hardly_taken():
    """By chance their mean square may be above that of the noise; but true steps are at most 1 long."""
    noise = np.full(20, 100.0)
    steps = np.random.default_rng(0).normal(0, 100.0, (20, 64)) * 1.1
    assert np.linalg.norm(k_means.kept(steps, noise) * steps, axis=1).max() < 0.02


@given(
    arrays(np.float64, (5, 2), elements=st.floats(-10, 10)),
    arrays(np.float64, 5, elements=st.floats(1e-6, 10)),
    st.floats(1.0, 100.0),
)
def test_the_filter_keeps_a_part_and_less_of_it_the_more_noise_there_is(steps, noise, factor):
    part, noisier = k_means.kept(steps, noise), k_means.kept(steps, factor * noise)
    assert ((part >= 0) & (part <= 1)).all()
    assert (noisier <= part + 1e-12).all()
    quieter = np.argsort(noise)
    assert (np.diff(part[quieter], axis=0) <= 1e-12).all(), "a landmark with less noise moves further"


def test_the_filter_brings_noisy_steps_closer_to_the_truth():
    rng = np.random.default_rng(3)
    true = rng.normal(0, 0.1, (400, 12))
    noise = rng.uniform(0.05, 1.0, 400)
    seen = true + noise[:, None] * rng.standard_normal(true.shape)
    error = np.mean((seen * k_means.kept(seen, noise) - true) ** 2)
    assert error < 0.1**2  # that of not moving at all; as seen it is 0.35
    assert np.mean((seen - true) ** 2) > 30 * error


def test_settled_landmarks_are_not_shaken_by_the_noise_of_another_sweep():
    rng = np.random.default_rng(4)
    Y = rng.normal(size=(200, 5))
    average = np.full((200, 6), 0.0)
    average[:, -1] = 1 / 200
    average += 0.002 * rng.standard_normal(average.shape)
    average[:, -1] = 1 / 200
    public = replace(SETTING, landmarks=200, features=5, noise=0.002)
    moved = {noise: KMeans().update(Y, average, replace(public, noise=noise), Plain(1.0)) for noise in (0.0, 0.002)}
    size = {noise: np.linalg.norm(step.landmarks - Y) for noise, step in moved.items()}
    assert size[0.002] < 0.25 * size[0.0]


def test_a_run_tells_its_mechanism_of_the_noise():
    """σ/n over clients by their weights: local noise adds up, a shared one is one for all."""
    fed = federation((20, 60), 3, shift=0, dtype=np.float64)
    common = {"landmarks": 4, "budget": Budget(1.0, 1e-5), "gamma": 0.5, "start": "normal"}
    for trust in ("local", "aggregate"):
        result = FedDL(mechanism=KMeans(trust=trust), **common).run(fed)
        sigmas = {event.client: event.sigma for event in result.ledger.events()}
        own = [weight * sigma for weight, sigma in zip((0.25, 0.75), sigmas.values(), strict=True)]
        # Two clients, one of whom may collude: each adds all of the noise, and the sum has √2 of it.
        expected = math.hypot(*own) if trust == "local" else math.sqrt(2) * next(iter(sigmas.values()))
        assert result.public.noise == pytest.approx(expected, rel=1e-12)
    assert FedDL(landmarks=4, gamma=0.5, start="normal").run(fed).public.noise == 0.0


def test_an_empty_landmark_goes_beside_the_fullest():
    average = np.array([(0.0, 0.0, 0.3), (0.0, 0.0, 0.5), (0.0, 0.0, 0.01), (0.0, 0.0, -0.2)])
    landmarks = KMeans().update(CORNERS, average, SETTING, Plain(1.0)).landmarks
    np.testing.assert_array_equal(landmarks[:2], CORNERS[:2])
    for empty, full in ((2, 1), (3, 0)):
        away = np.linalg.norm(landmarks[empty] - CORNERS[full])
        assert 0 < away < 4 * KMeans().reach
    again = KMeans().update(CORNERS, average, SETTING, Plain(1.0)).landmarks
    np.testing.assert_array_equal(again, landmarks)


def test_where_all_are_empty_nothing_moves():
    average = np.full((4, 3), -1.0)
    np.testing.assert_array_equal(KMeans().update(CORNERS, average, SETTING, Plain(1.0)).landmarks, CORNERS)


def test_without_noise_it_is_lloyds_algorithm():
    rng = np.random.default_rng(1)
    X = CORNERS[rng.integers(0, 4, 400)] + rng.normal(0, 0.5, (400, 2))
    start = CORNERS + rng.normal(0, 1.5, CORNERS.shape)
    Y, chosen = start, KMeans(reach=20.0)
    for _ in range(8):
        Y = chosen.update(Y, sums(X, Y, reach=20.0), SETTING, Plain(1.0)).landmarks
    lloyd = Lloyd(4, init=start, n_init=1, max_iter=50).fit(X)
    np.testing.assert_allclose(Y, lloyd.cluster_centers_, atol=1e-3)


@pytest.mark.parametrize(("rounds", "expected"), [(1, 1), (4, 4), (50, 4)])
def test_sweeps_are_uploads_and_rounds_limit_them(rounds, expected):
    assert KMeans(sweeps=4).uploads(rounds) == expected


@pytest.mark.parametrize(
    ("name", "settings"), [("sweeps", {"sweeps": 0}), ("reach", {"reach": 0.0}), ("trust", {"trust": "none"})]
)
def test_bad_settings_are_named(name, settings):
    with pytest.raises(InvalidParameter) as caught:
        KMeans(**settings)
    assert caught.value.name == name


# Counts under noise


@given(arrays(np.float64, st.integers(2, 40), elements=st.floats(-1, 1)), st.floats(0, 10))
def test_likely_counts_lie_between_what_is_seen_and_equal_shares(counts, noise):
    found, middle = likely(counts, noise), 1 / len(counts)
    low, high = np.minimum(counts, middle), np.maximum(counts, middle)
    assert (found >= low - 1e-12).all()
    assert (found <= high + 1e-12).all()
    np.testing.assert_allclose(likely(counts, 0.0), counts, atol=1e-12)


def test_counts_of_pure_noise_make_no_landmark_empty():
    """Half of them would be, taken as they are: and those would be moved beside winners of a lottery."""
    rng, k = np.random.default_rng(0), 50
    counts = 1 / k + rng.normal(0, 1.0, k)
    assert np.sum(counts < EMPTY / k) > 15
    assert np.sum(likely(counts, 1.1) < EMPTY / k) == 0


def test_pure_noise_moves_nothing_but_seldom():
    """By the central limit theorem a sum of noise is above two standard deviations in 2.3 % of cases."""
    rng, noise = np.random.default_rng(1), np.linspace(0.5, 3.0, 20)
    moved = [k_means.kept(noise[:, None] * rng.standard_normal((20, 16)), noise).any() for _ in range(1000)]
    assert 0.005 < np.mean(moved) < 0.06
    alike = [np.ptp(likely(1 / 20 + 0.2 * rng.standard_normal(20), 0.2)) == 0 for _ in range(1000)]
    assert np.mean(alike) > 0.9


def test_a_landmark_is_empty_only_where_noise_does_not_explain_its_count():
    """A few full landmarks raise the spread of the counts; the others are then no emptier than noise can make them."""
    average, public = np.zeros((4, 3)), replace(SETTING, noise=0.2)
    average[:, -1] = (1.0, 0.9, -0.1, -0.1)
    assert (likely(average[:, -1], 0.2) < EMPTY / 4).sum() == 2
    np.testing.assert_array_equal(KMeans().update(CORNERS, average, public, Plain(1.0)).landmarks, CORNERS)
    average[2:, -1] = -0.3
    assert (KMeans().update(CORNERS, average, public, Plain(1.0)).landmarks[2:] != CORNERS[2:]).any(axis=1).all()
