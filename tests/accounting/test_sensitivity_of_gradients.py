"""Sensitivity of gradients, clipped or not, and of variables after local steps, searched for its worst neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting import sensitivity
from tests.accounting.worst_pairs import BOTH, RECORDS, ROUNDING, Array, ball, neighbours, pieces, worst

WIDTHS = pytest.mark.parametrize("gamma", [1e-3, 1.0, 40.0])


# --- slow references -------------------------------------------------------------------------------------------------


def data_gradient(X: Array, Y: Array, gammas: list[float], denominator: float) -> Array:
    """−(4/(n n_y)) Σ_j mean_b γ_b (x_j − y_i) exp(−γ_b‖x_j − y_i‖²), one row per landmark."""
    differences = X[:, None] - Y[None]
    squares = (differences**2).sum(-1)
    weights = sum(gamma * np.exp(-gamma * squares) for gamma in gammas) / len(gammas)
    return -4 * (weights[:, :, None] * differences).sum(0) / (denominator * len(Y))


def full_gradient(X: Array, Y: Array, gammas: list[float], denominator: float) -> Array:
    """Add the terms in Y alone, of the unbiased estimator."""
    own = -data_gradient(Y, Y, gammas, len(Y) - 1) if len(Y) > 1 else 0.0
    return data_gradient(X, Y, gammas, denominator) + own


def clipped_gradient(X: Array, Y: Array, gammas: list[float], denominator: float, clip: float) -> Array:
    total = np.zeros_like(Y)
    for x in X:
        part = data_gradient(x[None], Y, gammas, 1) * len(Y) / (4 * np.mean(gammas))
        total += part * min(1.0, clip / max(np.linalg.norm(part), 1e-300))
    return 4 * np.mean(gammas) * total / (denominator * len(Y))


def local_steps(X: Array, Y: Array, gammas: list[float], denominator: float, step: float, count: int) -> Array:
    for _ in range(count):
        Y = Y - step * full_gradient(X, Y, gammas, denominator)
    return Y


# --- gradient --------------------------------------------------------------------------------------------------------


@BOTH
@WIDTHS
@pytest.mark.parametrize("landmarks", [1, 3])
def test_tight_gradient_bound_holds_for_the_worst_pair_that_search_finds(
    gamma: float, adjacency: str, landmarks: int
) -> None:
    denominator = 5.0
    scale = 1 / math.sqrt(gamma)

    def moved(z: Array) -> float:
        Y, x, other = pieces(z, landmarks)
        first, second = neighbours(RECORDS * scale, x, other, adjacency)
        return float(
            np.linalg.norm(
                data_gradient(first, Y, [gamma], denominator) - data_gradient(second, Y, [gamma], denominator)
            )
        )

    found = worst(moved, 2 * landmarks + 4, scale)
    bound = sensitivity.gradient(gamma=gamma, records=denominator, landmarks=landmarks, adjacency=adjacency)
    assert 0.999 * bound <= found <= bound * ROUNDING


@BOTH
@pytest.mark.parametrize(("gamma", "records", "landmarks"), [(0.005, 4000, 500), (1.0, 1, 1), (33.0, 7, 20)])
def test_tight_gradient_bound_is_attained_to_1e_9(gamma: float, records: int, landmarks: int, adjacency: str) -> None:
    """All landmarks at 0, two records at ±1/√(2γ)."""
    Y = np.zeros((landmarks, 3))
    x = np.array([1 / math.sqrt(2 * gamma), 0.0, 0.0])
    first, second = neighbours(np.zeros((0, 3)), x, -x, adjacency)
    difference = data_gradient(first, Y, [gamma], records) - data_gradient(second, Y, [gamma], records)
    bound = sensitivity.gradient(gamma=gamma, records=records, landmarks=landmarks, adjacency=adjacency)
    assert np.linalg.norm(difference) == pytest.approx(bound, rel=1e-9)


def test_tight_gradient_bound_is_the_printed_number() -> None:
    by_hand = 8 * math.sqrt(0.005 / (2 * math.e)) / (4000 * math.sqrt(500))
    assert sensitivity.gradient(gamma=0.005, records=4000, landmarks=500) == pytest.approx(by_hand, rel=1e-14)
    half = sensitivity.gradient(gamma=0.005, records=4000, landmarks=500, adjacency="add-remove")
    assert half == pytest.approx(by_hand / 2, rel=1e-14)


@BOTH
def test_gradient_bound_of_several_bandwidths_holds_and_is_the_mean(adjacency: str) -> None:
    gammas = [0.3, 1.0, 4.0]

    def moved(z: Array) -> float:
        Y, x, other = pieces(z, 2)
        first, second = neighbours(RECORDS, x, other, adjacency)
        return float(np.linalg.norm(data_gradient(first, Y, gammas, 3.0) - data_gradient(second, Y, gammas, 3.0)))

    bound = sensitivity.gradient(gamma=gammas, records=3.0, landmarks=2, adjacency=adjacency)
    single = [sensitivity.gradient(gamma=g, records=3.0, landmarks=2, adjacency=adjacency) for g in gammas]
    assert bound == pytest.approx(np.mean(single), rel=1e-14)
    assert 0.8 * bound <= worst(moved, 8, 1.0) <= bound * ROUNDING
    assert sensitivity.gradient(gamma=[2.0, 2.0], records=9, landmarks=4) == pytest.approx(
        sensitivity.gradient(gamma=2.0, records=9, landmarks=4), rel=1e-14
    )


# --- the theorem's Δ -------------------------------------------------------------------------------------------------

BALLS = [(0.2, 0.05, 1.0), (3.0, 0.5, 0.5), (0.2, 2.0, 1.5), (3.0, 0.05, 0.3)]  # γ, τ_X, τ_Y


def theorem_pieces(z: Array, landmarks: int, tau_x: float, tau_y: float) -> tuple[Array, Array, Array]:
    """Clip what search proposes: records to τ_X, the landmarks' spectral norm to τ_Y."""
    Y, x, other = pieces(z, landmarks)
    Y = Y * min(1.0, tau_y / max(float(np.linalg.norm(Y, 2)), 1e-300))
    return Y, ball(x, tau_x), ball(other, tau_x)


@BOTH
@pytest.mark.parametrize(("gamma", "tau_x", "tau_y"), BALLS)
def test_theorem_bound_holds_for_the_worst_pair_that_search_finds(
    gamma: float, tau_x: float, tau_y: float, adjacency: str
) -> None:
    """Υ = τ_X + τ_Y always bounds ‖x − y‖, since a row's norm is at most the spectral norm."""
    shared = np.array([ball(x, tau_x) for x in RECORDS])

    def moved(z: Array) -> float:
        Y, x, other = theorem_pieces(z, 2, tau_x, tau_y)
        first, second = neighbours(shared, x, other, adjacency)
        return float(np.linalg.norm(data_gradient(first, Y, [gamma], 3.0) - data_gradient(second, Y, [gamma], 3.0)))

    bound = sensitivity.gradient(
        gamma=gamma,
        records=3.0,
        landmarks=2,
        bound="theorem",
        adjacency=adjacency,
        tau_x=tau_x,
        tau_y=tau_y,
        upsilon=tau_x + tau_y,
    )
    assert 0 < worst(moved, 8, 1.0) <= bound * ROUNDING


def test_theorem_bound_is_the_printed_formula() -> None:
    gamma, n, n_y, tau_x, tau_y, upsilon = 0.2, 30, 5, 2.0, 3.0, 4.0
    printed = 8 * math.sqrt(n_y) * gamma * tau_x / (n * n_y) * (1 + 2 * gamma * (tau_x + tau_y) * (tau_x + upsilon))
    given = {"records": n, "landmarks": n_y, "bound": "theorem", "tau_x": tau_x, "tau_y": tau_y, "upsilon": upsilon}
    assert sensitivity.gradient(gamma=gamma, **given) == pytest.approx(printed, rel=1e-14)
    single = [sensitivity.gradient(gamma=g, **given) for g in (0.1, 0.5)]
    assert sensitivity.gradient(gamma=[0.1, 0.5], **given) == pytest.approx(np.mean(single), rel=1e-14)


def test_half_of_the_printed_theorem_is_no_bound_for_adding_a_record() -> None:
    """A record near the origin pulls far landmarks, however small τ_X is; Δ/2 vanishes with τ_X."""
    gamma, n, n_y, tau_x = 1.0, 10.0, 4, 1e-3
    distance = 1 / math.sqrt(2 * gamma)
    Y = np.tile([distance, 0.0], (n_y, 1))
    given = {
        "gamma": gamma,
        "records": n,
        "landmarks": n_y,
        "bound": "theorem",
        "tau_x": tau_x,
        "tau_y": float(np.linalg.norm(Y, 2)),
        "upsilon": distance + tau_x,
    }
    moved = float(np.linalg.norm(data_gradient(np.zeros((1, 2)), Y, [gamma], n)))
    assert moved > 50 * sensitivity.gradient(**given) / 2
    assert moved <= sensitivity.gradient(**given, adjacency="add-remove")


# --- clipped gradient ------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("gammas", "clip"), [([1.0], 0.05), ([1.0], 0.4), ([0.3, 2.0], 0.4), ([0.3, 2.0], 100.0)])
def test_clipped_gradient_bound_holds_for_the_worst_pair_that_search_finds(
    gammas: list[float], clip: float, adjacency: str
) -> None:
    def moved(z: Array) -> float:
        Y, x, other = pieces(z, 2)
        first, second = neighbours(RECORDS, x, other, adjacency)
        both = [clipped_gradient(data, Y, gammas, 3.0, clip) for data in (first, second)]
        return float(np.linalg.norm(both[0] - both[1]))

    bound = sensitivity.clipped_gradient(gamma=gammas, records=3.0, landmarks=2, clip=clip, adjacency=adjacency)
    assert 0.8 * bound <= worst(moved, 8, 1.0) <= bound * ROUNDING


@BOTH
def test_clipped_gradient_bound_is_attained_by_opposite_records(adjacency: str) -> None:
    gamma, clip, n, n_y = 2.0, 0.3, 6, 5
    x = np.array([0.4, 0.0])
    first, second = neighbours(np.zeros((0, 2)), x, -x, adjacency)
    both = [clipped_gradient(data, np.zeros((n_y, 2)), [gamma], n, clip) for data in (first, second)]
    bound = sensitivity.clipped_gradient(gamma=gamma, records=n, landmarks=n_y, clip=clip, adjacency=adjacency)
    assert bound == pytest.approx((8 if adjacency == "replace-one" else 4) * gamma * clip / (n * n_y), rel=1e-14)
    assert np.linalg.norm(both[0] - both[1]) == pytest.approx(bound, rel=1e-9)


@BOTH
def test_clipping_above_the_largest_norm_changes_nothing(adjacency: str) -> None:
    given = {"gamma": 0.7, "records": 9, "landmarks": 4, "adjacency": adjacency}
    largest = math.sqrt(4 / (2 * math.e * 0.7))
    assert sensitivity.clipped_gradient(**given, clip=largest) == pytest.approx(
        sensitivity.gradient(**given), rel=1e-12
    )
    assert sensitivity.clipped_gradient(**given, clip=9 * largest) == sensitivity.gradient(**given)
    assert sensitivity.clipped_gradient(**given, clip=0.9 * largest) < sensitivity.gradient(**given)


# --- variable after Q steps ------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("gammas", "step", "count"), [([1.0], 0.02, 4), ([1.0], 0.3, 3), ([1.0], 1.0, 2), ([0.4, 2.0], 0.3, 3)]
)
def test_variable_bound_holds_for_the_worst_pair_of_runs_that_search_finds(
    gammas: list[float], step: float, count: int, adjacency: str
) -> None:
    def moved(z: Array) -> float:
        Y, x, other = pieces(z, 2)
        runs = [local_steps(data, Y, gammas, 3.0, step, count) for data in neighbours(RECORDS, x, other, adjacency)]
        return float(np.linalg.norm(runs[0] - runs[1]))

    bound = sensitivity.variable(
        gamma=gammas, records=3.0, landmarks=2, step_size=step, local_steps=count, adjacency=adjacency
    )
    found = worst(moved, 8, 1.0)
    assert 0.1 * bound < found <= bound * ROUNDING


@BOTH
def test_variable_after_one_step_is_attained_and_is_the_step_times_the_gradient_bound(adjacency: str) -> None:
    gamma, n, n_y, step = 1.3, 6, 3, 0.7
    x = np.array([1 / math.sqrt(2 * gamma), 0.0])
    both = neighbours(np.ones((2, 2)), x, -x, adjacency)
    runs = [local_steps(data, np.zeros((n_y, 2)), [gamma], n, step, 1) for data in both]
    bound = sensitivity.variable(
        gamma=gamma, records=n, landmarks=n_y, step_size=step, local_steps=1, adjacency=adjacency
    )
    assert bound == pytest.approx(
        step * sensitivity.gradient(gamma=gamma, records=n, landmarks=n_y, adjacency=adjacency), rel=1e-12
    )
    assert np.linalg.norm(runs[0] - runs[1]) == pytest.approx(bound, rel=1e-9)


def test_variable_bound_is_the_geometric_sum() -> None:
    given = {"gamma": 0.5, "records": 40, "landmarks": 10}
    step, count, smoothness = 0.3, 6, 12 * 0.5 / 10
    by_hand = sum((1 + step * smoothness) ** t for t in range(count)) * step * sensitivity.gradient(**given)
    assert sensitivity.variable(**given, step_size=step, local_steps=count) == pytest.approx(by_hand, rel=1e-12)
    other = sensitivity.variable(**given, step_size=step, local_steps=count, smoothness=0.2)
    by_hand = sum((1 + step * 0.2) ** t for t in range(count)) * step * sensitivity.gradient(**given)
    assert other == pytest.approx(by_hand, rel=1e-12)


def test_variable_takes_the_theorem_bound_too() -> None:
    given = {"gamma": 0.5, "records": 40, "landmarks": 10, "bound": "theorem"}
    given |= {"tau_x": 1.0, "tau_y": 2.0, "upsilon": 3.0}
    assert sensitivity.variable(**given, step_size=0.3, local_steps=1) == pytest.approx(
        0.3 * sensitivity.gradient(**given), rel=1e-12
    )


def test_default_smoothness_holds_up_to_twice_as_many_records_as_the_denominator_and_no_further() -> None:
    """The data's curvature grows with records over denominator, so that a public stand-in must not be far too small."""
    gamma, landmarks = 1.0, 2
    smoothness = 12 * gamma / landmarks
    away = np.array([math.sqrt(1.5 / gamma), 0.0])  # where the kernel bends down the most
    for Y, x in [(np.zeros((2, 2)), away), (np.array([[0.0, 0.0], away]), np.zeros(2))]:
        for ratio, holds in [(1, True), (2, True), (20, False)]:
            X = np.tile(x, (ratio * 3, 1))
            steepest = 0.0
            for direction in np.eye(4).reshape(4, 2, 2):
                ends = [full_gradient(X, Y + sign * 1e-5 * direction, [gamma], 3.0) for sign in (1, -1)]
                steepest = max(steepest, float(np.linalg.norm(ends[0] - ends[1])) / 2e-5)
            assert (steepest <= smoothness * ROUNDING) == holds
    # Forty times too many records, pulling both ways: a push grows faster than the default constant allows.
    X = np.vstack([np.tile(away, (20, 1)), np.tile(-away, (20, 1))])
    extra = np.vstack([X, [1 / math.sqrt(2 * gamma), 0.0]])
    given = {"gamma": gamma, "records": 1, "landmarks": 1, "step_size": 0.005, "local_steps": 4}
    given["adjacency"] = "add-remove"
    runs = [local_steps(data, np.zeros((1, 2)), [gamma], 1.0, 0.005, 4) for data in (X, extra)]
    moved = float(np.linalg.norm(runs[0] - runs[1]))
    assert moved > 1.2 * sensitivity.variable(**given)
    assert moved <= sensitivity.variable(**given, smoothness=4 * gamma * 41)
