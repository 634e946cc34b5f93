"""Federated k-means: sums against a slow reference, and what becomes of landmarks that nobody is near."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.cluster import KMeans as Lloyd

from accounting import Budget, InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.feddl import FedDL
from dpfedvis.kernels import Kernel
from dpfedvis.mechanisms import KMeans, k_means
from dpfedvis.mechanisms.base import Local
from dpfedvis.optimisers import Plain
from dpfedvis.setting import Setting

SETTING = Setting(Kernel((0.5,)), landmarks=4, features=2, rounds=9, local_steps=1, step_size=1.0)
CORNERS = np.array([(0.0, 0.0), (10.0, 0.0), (0.0, 10.0), (10.0, 10.0)])


def sums(X, Y, setting=SETTING, reach=0.75, denominator=None):
    local = Local.of(X, float(denominator or len(X)))
    return KMeans(reach=reach).message(local, Y, setting, np.random.default_rng(0)).values


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
        monkeypatch.setattr(k_means, "block_rows", lambda *_: block)
    np.testing.assert_allclose(sums(X, Y, reach=reach, denominator=80), expected, rtol=1e-9, atol=1e-12)


def test_a_landmark_moves_to_the_mean_of_its_records():
    X = np.concatenate([corner + np.array([(0.2, 0.1), (0.1, -0.3)]) for corner in CORNERS])
    step = KMeans().update(CORNERS, sums(X, CORNERS), SETTING, Plain(1.0))
    np.testing.assert_allclose(step.landmarks, CORNERS + np.array([0.15, -0.1]), rtol=1e-9)


def test_a_landmark_moves_no_further_than_the_radius():
    """Noise may leave a large sum over a small count."""
    average = np.zeros((4, 3))
    average[:, -1], average[0] = 0.3, (50.0, 0.0, 0.1)
    step = KMeans(reach=0.75).update(CORNERS, average, SETTING, Plain(1.0))
    assert np.linalg.norm(step.landmarks[0] - CORNERS[0]) == pytest.approx(0.75, rel=1e-6)


def test_an_empty_landmark_goes_beside_the_fullest():
    average = np.array([(0.0, 0.0, 0.3), (0.0, 0.0, 0.5), (0.0, 0.0, 0.01), (0.0, 0.0, -0.2)])
    landmarks = KMeans().update(CORNERS, average, SETTING, Plain(1.0)).landmarks
    np.testing.assert_array_equal(landmarks[:2], CORNERS[:2])
    for empty, full in ((2, 1), (3, 0)):
        away = np.linalg.norm(landmarks[empty] - CORNERS[full])
        assert 0 < away < 4 * 0.75
    again = KMeans().update(CORNERS, average, SETTING, Plain(1.0)).landmarks
    np.testing.assert_array_equal(again, landmarks)


def test_where_all_are_empty_nothing_moves():
    average = np.full((4, 3), -1.0)
    np.testing.assert_array_equal(KMeans().update(CORNERS, average, SETTING, Plain(1.0)).landmarks, CORNERS)


def test_without_noise_it_is_lloyds_algorithm():
    rng = np.random.default_rng(1)
    X = CORNERS[rng.integers(0, 4, 400)] + rng.normal(0, 0.5, (400, 2))
    start = CORNERS + rng.normal(0, 1.5, CORNERS.shape)
    config = FedDL(
        landmarks=4,
        mechanism=KMeans(sweeps=8, reach=20.0),
        budget=Budget(1e9, 1e-5),
        rounds=50,
        bandwidth=0.5,
        start=start,
    )
    result = config.run(FederatedData([X[:100], X[100:]], dtype=np.float64))
    assert len(result.trace) == 8
    lloyd = Lloyd(4, init=start, n_init=1, max_iter=50).fit(X)
    np.testing.assert_allclose(result.landmarks, lloyd.cluster_centers_, atol=1e-3)


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
