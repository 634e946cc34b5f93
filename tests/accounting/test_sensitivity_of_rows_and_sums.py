"""Sensitivity of one row per record and of one-shot sums, searched for its worst neighbours and attained."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from accounting import InvalidParameter, sensitivity
from tests.accounting.worst_pairs import BOTH, RECORDS, ROUNDING, Array, ball, neighbours, pieces, worst

# --- one row per record ----------------------------------------------------------------------------------------------


def gram_coordinates(x: Array, Y: Array) -> Array:
    """ẑ = −½ (B² − mean row of W²) V w^{−½}, from squared distances alone."""
    W2 = ((Y[:, None] - Y[None]) ** 2).sum(-1)
    J = np.eye(len(Y)) - 1 / len(Y)
    w, V = np.linalg.eigh(-0.5 * J @ W2 @ J)
    keep = w > 1e-9 * w.max()
    B2 = ((x[None] - Y) ** 2).sum(-1)
    return -0.5 * (B2 - W2.mean(0)) @ V[:, keep] / np.sqrt(w[keep])


@pytest.mark.parametrize("tau_x", [0.3, 5.0])
def test_input_bound_holds_and_is_attained_by_opposite_records(tau_x: float) -> None:
    found = worst(lambda z: float(np.linalg.norm(ball(z[:3], tau_x) - ball(z[3:], tau_x))), 6, 10 * tau_x)
    assert found == pytest.approx(sensitivity.input(tau_x=tau_x), rel=1e-6)
    assert found <= sensitivity.input(tau_x=tau_x) * ROUNDING
    assert sensitivity.input(tau_x=tau_x) == 2 * tau_x


@pytest.mark.parametrize("landmarks", [2, 6])
@pytest.mark.parametrize("tau_x", [0.3, 5.0])
def test_gram_rows_bound_holds_and_is_attained_inside_the_span(landmarks: int, tau_x: float) -> None:
    Y = np.random.default_rng(landmarks).normal(size=(landmarks, 4))

    def moved(z: Array) -> float:
        rows = [gram_coordinates(ball(point, tau_x), Y) for point in (z[:4], z[4:])]
        return float(np.linalg.norm(rows[0] - rows[1]))

    bound = sensitivity.gram_rows(tau_x=tau_x)
    assert worst(moved, 8, 10 * tau_x) <= bound * (1 + 1e-7)
    inside = tau_x * (Y[0] - Y[1]) / np.linalg.norm(Y[0] - Y[1])
    assert moved(np.concatenate([inside, -inside])) == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("landmarks", [1, 3])
@pytest.mark.parametrize("tau_x", [0.3, 5.0])
def test_distance_rows_bound_holds_and_is_attained_by_landmarks_in_line(landmarks: int, tau_x: float) -> None:
    def moved(z: Array) -> float:
        Y, x, other = pieces(z, landmarks)
        rows = [np.linalg.norm(ball(point, tau_x) - Y, axis=1) for point in (x, other)]
        return float(np.linalg.norm(rows[0] - rows[1]))

    bound = sensitivity.distance_rows(tau_x=tau_x, landmarks=landmarks)
    assert worst(moved, 2 * landmarks + 4, 3 * tau_x) <= bound * ROUNDING
    line = np.concatenate([np.tile([3 * tau_x, 0.0], landmarks), [tau_x, 0.0, -tau_x, 0.0]])
    assert moved(line) == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("gammas", [[0.5], [20.0], [0.2, 5.0]])
@pytest.mark.parametrize("tau_x", [0.01, 0.3, 50.0])
def test_kernel_rows_bound_holds_and_is_reached_for_small_and_large_records(gammas: list[float], tau_x: float) -> None:
    def moved(z: Array) -> float:
        Y, x, other = pieces(z, 2)
        rows = []
        for point in (ball(x, tau_x), ball(other, tau_x)):
            squares = ((point - Y) ** 2).sum(1)
            rows.append(np.mean([np.exp(-gamma * squares) for gamma in gammas], axis=0))
        return float(np.linalg.norm(rows[0] - rows[1]))

    bound = sensitivity.kernel_rows(gamma=gammas, landmarks=2, tau_x=tau_x)
    found = worst(moved, 8, 1.0)
    assert found <= bound * ROUNDING
    assert bound <= sensitivity.kernel_rows(gamma=gammas, landmarks=2) == math.sqrt(2)
    if tau_x == 50.0:
        apart = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, tau_x, 0.0])
        assert moved(apart) == pytest.approx(bound, rel=1e-9)
    if tau_x == 0.01 and len(gammas) == 1:
        steepest = 1 / math.sqrt(2 * gammas[0])
        opposite = np.array([steepest, 0.0, steepest, 0.0, tau_x, 0.0, -tau_x, 0.0])
        assert moved(opposite) >= 0.99 * bound


@pytest.mark.parametrize(
    "call",
    [
        lambda adjacency: sensitivity.input(tau_x=1.0, adjacency=adjacency),
        lambda adjacency: sensitivity.gram_rows(tau_x=1.0, adjacency=adjacency),
        lambda adjacency: sensitivity.distance_rows(tau_x=1.0, landmarks=3, adjacency=adjacency),
        lambda adjacency: sensitivity.kernel_rows(gamma=1.0, landmarks=3, adjacency=adjacency),
    ],
)
def test_rows_under_add_remove_are_refused_since_they_show_the_number_of_records(call: Callable) -> None:
    assert call("replace-one") > 0
    with pytest.raises(InvalidParameter, match="shows the number of records, but is 'add-remove'"):
        call("add-remove")


# --- one-shot uploads ------------------------------------------------------------------------------------------------


def fourier_mean(X: Array, frequencies: Array, denominator: float) -> Array:
    angles = X @ frequencies.T
    features = np.hstack([np.cos(angles), np.sin(angles)]) / math.sqrt(len(frequencies))
    return features.sum(axis=0) / denominator


@BOTH
def test_mean_embedding_bound_holds_for_the_worst_pair_that_search_finds(adjacency: str) -> None:
    frequencies = np.random.default_rng(1).normal(size=(5, 2))

    def moved(z: Array) -> float:
        first, second = neighbours(RECORDS, z[:2], z[2:], adjacency)
        return float(np.linalg.norm(fourier_mean(first, frequencies, 3) - fourier_mean(second, frequencies, 3)))

    bound = sensitivity.mean_embedding(records=3, adjacency=adjacency)
    assert 0.7 * bound <= worst(moved, 4, 3.0) <= bound * ROUNDING


@BOTH
def test_mean_embedding_bound_is_attained_by_opposite_phases(adjacency: str) -> None:
    frequencies = np.array([[1.0], [3.0], [-5.0]])
    first, second = neighbours(np.zeros((0, 1)), np.array([0.2]), np.array([0.2 + math.pi]), adjacency)
    moved = np.linalg.norm(fourier_mean(first, frequencies, 8) - fourier_mean(second, frequencies, 8))
    bound = sensitivity.mean_embedding(records=8, adjacency=adjacency)
    assert bound == (0.25 if adjacency == "replace-one" else 0.125)
    assert moved == pytest.approx(bound, rel=1e-9)


def scaled_moments(X: Array, tau: float, denominator: float) -> Array:
    parts = [np.append(x / tau, float(x @ x) / tau**2) for x in X]
    return np.sum(parts, axis=0) / denominator


@BOTH
@pytest.mark.parametrize("tau", [0.2, 7.0])
def test_moments_bound_holds_and_is_attained(tau: float, adjacency: str) -> None:
    shared = np.array([ball(x, tau) for x in RECORDS])

    def moved(z: Array) -> float:
        first, second = neighbours(shared, ball(z[:2], tau), ball(z[2:], tau), adjacency)
        return float(np.linalg.norm(scaled_moments(first, tau, 3) - scaled_moments(second, tau, 3)))

    bound = sensitivity.moments(records=3, adjacency=adjacency)
    assert worst(moved, 4, 2 * tau) <= bound * ROUNDING
    assert moved(np.array([tau, 0.0, -tau, 0.0])) == pytest.approx(bound, rel=1e-9)


@BOTH
@pytest.mark.parametrize("clip", [0.2, 7.0])
def test_second_moment_bound_holds_and_is_attained_by_orthogonal_records(clip: float, adjacency: str) -> None:
    shared = np.array([ball(x, clip) for x in RECORDS])

    def moved(z: Array) -> float:
        first, second = neighbours(shared, ball(z[:2], clip), ball(z[2:], clip), adjacency)
        return float(np.linalg.norm(sum(np.outer(x, x) for x in first) - sum(np.outer(x, x) for x in second)))

    bound = sensitivity.second_moment(clip=clip, adjacency=adjacency)
    assert 0.99 * bound <= worst(moved, 4, 2 * clip) <= bound * ROUNDING
    assert moved(np.array([clip, 0.0, 0.0, clip])) == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("records", [1, 40])
def test_cluster_sums_bound_is_attained_by_two_clusters_and_by_one(records: float) -> None:
    def row(offset: float, cluster: int) -> Array:
        total = np.zeros((2, 2))
        total[cluster] = offset, 1.0
        return total / records

    replaced = sensitivity.cluster_sums(records=records)
    assert np.linalg.norm(row(1.0, 0) - row(1.0, 1)) == pytest.approx(replaced, rel=1e-12)
    assert np.linalg.norm(row(1.0, 0) - row(-1.0, 0)) == pytest.approx(replaced, rel=1e-12)
    added = sensitivity.cluster_sums(records=records, adjacency="add-remove")
    assert np.linalg.norm(row(-1.0, 1)) == pytest.approx(added, rel=1e-12)


def test_histogram_bound_is_attained_by_every_pair_of_cells_and_never_exceeded() -> None:
    cells = 5
    shared = [0, 3, 3]
    for one in range(cells):
        counts = np.bincount([*shared, one], minlength=cells)
        removed = np.linalg.norm(counts - np.bincount(shared, minlength=cells))
        assert removed == sensitivity.histogram(adjacency="add-remove") == 1.0
        for other in range(cells):
            moved = np.linalg.norm(counts - np.bincount([*shared, other], minlength=cells))
            assert moved == (0.0 if one == other else pytest.approx(sensitivity.histogram(), rel=1e-15))
