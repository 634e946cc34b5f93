"""No random pair of neighbours moves an upload further than its sensitivity says, at any scale and shape."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from accounting import sensitivity

Array = np.ndarray
ROUNDING = 1 + 1e-9
ADJACENCY = st.sampled_from(["replace-one", "add-remove"])
GAMMAS = st.lists(st.floats(-2, 2).map(lambda exponent: 10.0**exponent), min_size=1, max_size=3)


@st.composite
def neighbouring(draw: st.DrawFn, radius: float | None = None) -> tuple[Array, Array, Array, str]:
    """Landmarks, two neighbouring data sets (one may be empty under add-remove), and the adjacency."""
    adjacency = draw(ADJACENCY)
    shared, landmarks, features = draw(st.integers(0, 3)), draw(st.integers(2, 4)), draw(st.integers(1, 3))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = 10.0 ** draw(st.floats(-1.5, 1.5))
    Y, X = generator.normal(size=(landmarks, features)), spread * generator.normal(size=(shared + 2, features))
    if draw(st.booleans()):
        Y = np.repeat(Y[:1], landmarks, axis=0)  # coinciding landmarks are the worst
    if draw(st.booleans()):
        X[-1] = 2 * Y[0] - X[-2]  # and records on opposite sides of them
    if radius is not None:
        X *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(X, axis=1), 1e-300))[:, None]
    other = np.vstack([X[:shared], X[-1:]]) if adjacency == "replace-one" else X[:shared]
    return Y, X[: shared + 1], other, adjacency


def data_gradient(X: Array, Y: Array, gammas: list[float], denominator: float) -> Array:
    rows = np.zeros_like(Y)
    for i, y in enumerate(Y):
        for x in X:
            square = float(np.sum((x - y) ** 2))
            weight = sum(gamma * math.exp(-gamma * square) for gamma in gammas) / len(gammas)
            rows[i] -= 4 * weight * (x - y) / (denominator * len(Y))
    return rows


def full_gradient(X: Array, Y: Array, gammas: list[float], denominator: float) -> Array:
    return data_gradient(X, Y, gammas, denominator) - data_gradient(Y, Y, gammas, len(Y) - 1)


def distance(one: Array, other: Array) -> float:
    return float(np.linalg.norm(np.asarray(one) - np.asarray(other)))


@given(neighbouring(), GAMMAS, st.floats(0.5, 50.0))
def test_gradient_tight(pair: tuple, gammas: list[float], denominator: float) -> None:
    Y, first, second, adjacency = pair
    moved = distance(
        full_gradient(first, Y, gammas, denominator),
        full_gradient(second, Y, gammas, denominator),
    )
    bound = sensitivity.gradient(gamma=gammas, records=denominator, landmarks=len(Y), adjacency=adjacency)
    # The rounding of the sum of both gradients, which may be much larger than their difference.
    assert moved <= bound * ROUNDING + 1e-12 * np.linalg.norm(full_gradient(first, Y, gammas, denominator))


@given(neighbouring(), GAMMAS, st.floats(0.5, 50.0))
def test_gradient_theorem_with_the_smallest_constants_that_hold(
    pair: tuple, gammas: list[float], denominator: float
) -> None:
    Y, first, second, adjacency = pair
    records = np.vstack([first, second])
    moved = distance(data_gradient(first, Y, gammas, denominator), data_gradient(second, Y, gammas, denominator))
    bound = sensitivity.gradient(
        gamma=gammas,
        records=denominator,
        landmarks=len(Y),
        bound="theorem",
        adjacency=adjacency,
        tau_x=float(np.linalg.norm(records, axis=1).max()),
        tau_y=float(np.linalg.norm(Y, 2)),
        upsilon=float(np.linalg.norm(records[:, None] - Y[None], axis=2).max()),
    )
    assert moved <= bound * ROUNDING


@given(neighbouring(), GAMMAS, st.floats(-3, 2).map(lambda exponent: 10.0**exponent))
def test_clipped_gradient(pair: tuple, gammas: list[float], clip: float) -> None:
    Y, first, second, adjacency = pair

    def upload(X: Array) -> Array:
        total = np.zeros_like(Y)
        scale = 4 * np.mean(gammas) / len(Y)
        for x in X:
            part = data_gradient(x[None], Y, gammas, 1.0) / scale
            total += scale * part * min(1.0, clip / max(float(np.linalg.norm(part)), 1e-300)) / 7.0
        return total

    bound = sensitivity.clipped_gradient(gamma=gammas, records=7.0, landmarks=len(Y), clip=clip, adjacency=adjacency)
    assert distance(upload(first), upload(second)) <= bound * ROUNDING + 1e-15


@given(neighbouring(), GAMMAS, st.floats(-3, 0.5).map(lambda exponent: 10.0**exponent), st.integers(1, 6))
def test_variable_after_local_steps(pair: tuple, gammas: list[float], step: float, count: int) -> None:
    Y, first, second, adjacency = pair
    denominator = float(len(first))
    step = step * len(Y) / (12 * np.mean(gammas))  # in units of 1/L, so that all widths see short and long steps
    runs = []
    for X in (first, second):
        Z = Y.copy()
        for _ in range(count):
            Z = Z - step * full_gradient(X, Z, gammas, denominator)
        runs.append(Z)
    bound = sensitivity.variable(
        gamma=gammas,
        records=denominator,
        landmarks=len(Y),
        step_size=step,
        local_steps=count,
        adjacency=adjacency,
    )
    assert distance(*runs) <= bound * ROUNDING


RADIUS = 1.7


def rows_of_replaced_record(pair: tuple) -> tuple[Array, Array, Array]:
    Y, first, second, _ = pair
    return Y, first[-1], second[-1] if len(second) else -first[-1]


@given(neighbouring(radius=RADIUS), GAMMAS)
def test_rows_of_records_distances_kernels_and_gram_coordinates(pair: tuple, gammas: list[float]) -> None:
    Y, x, other = rows_of_replaced_record(pair)
    assert distance(x, other) <= sensitivity.input(tau_x=RADIUS) * ROUNDING
    squares = [((point - Y) ** 2).sum(1) for point in (x, other)]
    bound = sensitivity.distance_rows(tau_x=RADIUS, landmarks=len(Y))
    assert distance(np.sqrt(squares[0]), np.sqrt(squares[1])) <= bound * ROUNDING
    kernels = [np.mean([np.exp(-gamma * square) for gamma in gammas], axis=0) for square in squares]
    bound = sensitivity.kernel_rows(gamma=gammas, landmarks=len(Y), tau_x=RADIUS)
    assert distance(*kernels) <= bound * ROUNDING <= sensitivity.kernel_rows(gamma=gammas, landmarks=len(Y)) * 1.001
    # Coordinates in the landmarks' span: an orthonormal basis of it, here from an SVD.
    centred = Y - Y.mean(0)
    _, sizes, basis = np.linalg.svd(centred, full_matrices=False)
    basis = basis[sizes > 1e-9]
    moved = distance(basis @ (x - Y.mean(0)), basis @ (other - Y.mean(0)))
    assert moved <= sensitivity.gram_rows(tau_x=RADIUS) * ROUNDING


@given(neighbouring(radius=RADIUS), st.floats(0.5, 100.0), st.integers(0, 2**32 - 1))
def test_one_shot_uploads(pair: tuple, denominator: float, seed: int) -> None:
    Y, first, second, adjacency = pair
    generator = np.random.default_rng(seed)
    frequencies = generator.normal(size=(4, first.shape[1])) * generator.uniform(0.1, 10)

    def features(X: Array) -> Array:
        angles = X @ frequencies.T
        return (np.hstack([np.cos(angles), np.sin(angles)]) / 2).sum(0) / denominator

    def moments(X: Array) -> Array:
        return np.append(X.sum(0) / RADIUS, (X**2).sum() / RADIUS**2) / denominator

    def clusters(X: Array) -> Array:
        total = np.zeros((len(Y), Y.shape[1] + 1))
        for x in X:
            own = int(np.argmin([np.sum((x - y) ** 2) for y in Y]))
            offset = x - Y[own]
            total[own] += np.append(offset / max(1.0, float(np.linalg.norm(offset))), 1.0)
        return total / denominator

    def histogram(X: Array) -> Array:
        return np.histogram(X[:, 0], bins=5, range=(-RADIUS * ROUNDING, RADIUS * ROUNDING))[0]

    for upload, bound in [
        (features, sensitivity.mean_embedding(records=denominator, adjacency=adjacency)),
        (moments, sensitivity.moments(records=denominator, adjacency=adjacency)),
        (lambda X: X.T @ X, sensitivity.second_moment(clip=RADIUS, adjacency=adjacency)),
        (clusters, sensitivity.cluster_sums(records=denominator, adjacency=adjacency)),
        (histogram, sensitivity.histogram(adjacency=adjacency)),
    ]:
        assert distance(upload(first), upload(second)) <= bound * ROUNDING


@given(GAMMAS, st.integers(1, 10**6), st.integers(1, 10**4), st.floats(1.0, 100.0), st.integers(1, 20))
def test_sensitivities_shrink_with_records_and_grow_with_steps(
    gammas: list[float], records: int, landmarks: int, factor: float, steps: int
) -> None:
    given_ = {"gamma": gammas, "landmarks": landmarks}
    for adjacency in ("replace-one", "add-remove"):
        here = sensitivity.gradient(**given_, records=records, adjacency=adjacency)
        there = sensitivity.gradient(**given_, records=records * factor, adjacency=adjacency)
        assert math.isclose(here, there * factor, rel_tol=1e-12)
        step = landmarks / (12 * float(np.mean(gammas)))
        run = [
            sensitivity.variable(**given_, records=records, adjacency=adjacency, step_size=step, local_steps=count)
            for count in (1, steps, steps + 1)
        ]
        assert math.isclose(run[0], step * here, rel_tol=1e-12)
        assert run[0] <= run[1] * ROUNDING < run[2] * ROUNDING
        assert math.isclose(run[1], step * here * (2.0**steps - 1), rel_tol=1e-12)
    replaced = sensitivity.gradient(**given_, records=records)
    assert replaced == 2 * sensitivity.gradient(**given_, records=records, adjacency="add-remove")
