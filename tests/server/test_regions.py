"""Regions of a map: what is clear of noise, and what noise alone may not pass for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedvis.server.regions import Regions, pooled, quantile, regions
from dpfedvis.server.round_log import Tally
from dpfedvis.server.verdict import share_of

PAIRS = np.array([[0.0, 0.0], [0.1, 0.0], [9.0, 0.0], [9.1, 0.0]])


def slow_z(found: Regions, counts: np.ndarray, noise: float) -> list[float]:
    """The counts of each region over their noise, one landmark at a time."""
    z = []
    for number in range(len(found.clear)):
        own = [counts[each] for each in range(len(counts)) if found.of[each] == number]
        z.append(sum(own) / (noise * len(own) ** 0.5))
    return z


@given(st.integers(1, 30), st.integers(1, 4), st.integers(0, 2**32 - 1), st.floats(0.001, 1.0))
def test_every_landmark_has_one_region_with_the_sum_of_its_counts(k: int, d: int, seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    landmarks, counts = rng.normal(size=(k, d)), rng.dirichlet(np.ones(k)) + noise * rng.normal(size=k)
    found = regions(landmarks, counts, noise)
    assert sorted(set(found.of.tolist())) == list(range(len(found.clear)))
    assert found.shares.sum() == pytest.approx(counts.sum())
    z = np.array(slow_z(found, counts, noise))
    assert z == pytest.approx(found.shares / found.noise)
    assert (found.clear == (z > quantile(k))).all()
    assert (found.supported[found.clear_landmarks]).all()


def test_neighbours_that_are_weak_apart_are_one_region_and_a_far_empty_place_is_none() -> None:
    least = quantile(4)
    # Each of the first two is below the threshold alone; together they are above it, for the noise grows with its root.
    found = regions(PAIRS, np.array([0.9, 0.9, 0.0, 0.1]) * least, 1.0)
    assert found.of[0] == found.of[1] != found.of[2]
    assert found.clear[found.of[0]]
    assert found.supported.tolist() == [True, True, False, False]


def test_two_clear_places_are_two_regions() -> None:
    found = regions(PAIRS, np.array([5.0, 5.0, 5.0, 5.0]), 1.0)
    assert (len(found.clear), found.clear.all()) == (4, True)


def test_noise_alone_has_a_clear_region_in_at_most_one_map_in_twenty() -> None:
    rng, false = np.random.default_rng(0), 0
    for _ in range(400):
        found = regions(rng.normal(size=(20, 3)), rng.normal(size=20), 1.0)
        false += bool(found.clear.any())
    assert false <= 40  # 20 expected at most; more than 40 by chance once in 10⁵


def test_pooled_counts_are_of_the_settled_rounds_with_their_noise() -> None:
    rng = np.random.default_rng(1)
    counts = np.concatenate([np.full((6, 5), 99.0), 0.2 + 0.1 * rng.normal(size=(6, 5))])
    tally = Tally(counts, np.full(12, 0.1))
    mean, noise = pooled(tally)
    assert mean == pytest.approx(counts[6:].mean(axis=0))
    assert noise == pytest.approx(0.1 / np.sqrt(6))
    assert Tally.of(tally.rounds()).counts == pytest.approx(counts)  # type: ignore[union-attr]
    assert Tally.of([]) is None


def test_the_interval_has_the_share_though_the_landmarks_were_chosen_by_the_same_counts() -> None:
    """Of 20 equal landmarks the half with the largest counts is taken: their sum is too large."""
    rng, inside = np.random.default_rng(2), 0
    for _ in range(200):
        counts = 1 / 20 + 0.05 * rng.normal(size=(12, 20))
        tally = Tally(counts, np.full(12, 0.05))
        chosen = pooled(tally)[0] > 1 / 20
        low, share, high = share_of(tally, chosen)
        assert 0 <= low <= share <= high <= 1
        inside += low <= chosen.mean() <= high
    assert inside >= 190
