"""Grids, clipping and sums in integers, each against a slow and obvious reference in Python's own integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from accounting.errors import InvalidParameter
from dpfedvis.numerics import exact, exact_sums
from dpfedvis.numerics.exact import ExactTotal, Grid, check_axes, clip_cells, integer_axes
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import max_clip

KERNEL, SEVERAL = Kernel((0.4,)), Kernel((0.1, 0.4, 2.0))


def integers(cells):
    return [[int(value) for value in row] for row in cells]


def sample(records=30, landmarks=6, features=4, seed=0, scale=1.0):
    generator = np.random.default_rng(seed)
    grid = Grid.of_norm(8.0, features)
    X, Y = (grid.nearest(scale * generator.normal(size=(n, features))) for n in (records, landmarks))
    return X, Y, grid


# Grids


@given(
    arrays(np.float64, (4, 3), elements=st.floats(-1e40, 1e40)),
    st.floats(1e-6, 1e6),
    st.integers(1, 5000),
)
def test_cells_are_the_coordinates_over_the_step_towards_zero(X, norm, features):
    grid = Grid.of_norm(norm, features)
    assert math.log2(grid.step).is_integer()
    assert grid.most * grid.step >= norm
    for row, cells in zip(X, grid.cells(X), strict=True):
        for value, cell in zip(row, cells, strict=True):
            exactly = math.trunc(Fraction(float(value)) / Fraction(grid.step))
            assert abs(int(cell) - max(-grid.most, min(grid.most, exactly))) <= (abs(exactly) > 2**52)


@given(st.floats(1e-6, 1e6), st.integers(1, 10**6))
def test_squared_distances_on_a_grid_are_exact(norm, features):
    grid = Grid.of_norm(norm, features)
    assert (2 * math.sqrt(features) * grid.most) ** 2 <= 2**53


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(1, 1000))
def test_public_bounds_give_a_grid_that_holds_them(low, width, features):
    grid = Grid.of_bounds(low, low + width, features)
    assert grid.most * grid.step >= max(abs(low), abs(low + width))
    assert grid.step <= width / 2**10 or grid.most >= 2**10


def test_pixels_fit_int16():
    assert Grid.of_bounds(0.0, 1.0, 784).dtype == np.int16


def test_a_record_outside_the_box_around_the_landmarks_has_a_kernel_of_zero():
    Y = np.random.default_rng(0).normal(size=(5, 3))
    grid = Grid.around(Y, KERNEL)
    far = np.zeros((1, 3))
    far[0, 1] = np.abs(Y).max() + exact.reach(KERNEL) + 1.0
    pulls = exact_sums.kernel_pulls(grid.cells(far), grid.nearest(Y), KERNEL, grid)
    assert not pulls.any()


def test_points_of_the_grid_are_exact_in_float32():
    grid = Grid.of_norm(3.0, 2)
    cells = np.array([[grid.most, -grid.most + 1], [1, 0]])
    assert (grid.snap(grid.points(cells).astype(np.float32)) == grid.points(cells)).all()
    np.testing.assert_array_equal(grid.cells(grid.points(cells).astype(np.float32)), cells)


@pytest.mark.parametrize(("step", "most"), [(0.3, 5), (0.0, 5), (-1.0, 5), (0.5, 0), (0.5, 2**21), (math.inf, 1)])
def test_a_grid_that_is_none_is_refused(step, most):
    with pytest.raises(InvalidParameter):
        Grid(step, most)


# Clipping and axes


@given(arrays(np.int32, (5, 4), elements=st.integers(-(2**20), 2**20)), st.floats(1.0, 2.0**22))
def test_clipped_rows_are_no_longer_than_the_bound_in_integers(cells, bound):
    clipped = clip_cells(cells, bound)
    for row, before in zip(integers(clipped), integers(cells), strict=True):
        square = sum(value * value for value in row)
        assert Fraction(square) <= Fraction(bound) ** 2
        if sum(value * value for value in before) <= Fraction(bound) ** 2:
            assert row == before
        else:
            assert all(abs(new) <= abs(old) and new * old >= 0 for new, old in zip(row, before, strict=True))
            lost = math.sqrt(sum(v * v for v in before)) and bound - math.sqrt(square)
            assert lost <= math.sqrt(len(row)) + 1e-6 * bound


@given(
    arrays(np.float64, (5, 4), elements=st.floats(-1e15, 1e15) | st.floats(-3.0, 3.0)),
    st.floats(0.1, 1.0),
    st.sampled_from([np.float32, np.float64]),
)
def test_a_clipped_record_keeps_its_direction_also_beyond_the_grid(X, norm, dtype):
    grid, X = Grid.of_norm(1.0, 4), X.astype(dtype)
    clipped = grid.clipped(X, norm)
    for x, row, alone in zip(X.astype(np.float64), clipped, [grid.clipped(x[None], norm)[0] for x in X], strict=True):
        np.testing.assert_array_equal(row, alone)
        size = math.hypot(*x)
        expected = x * min(1.0, norm / size) if size else x
        # Scaled into the grid, and then to the norm: each rounds towards zero.
        np.testing.assert_allclose(grid.points(row), expected, atol=2.01 * grid.step)
        assert sum(int(value) ** 2 for value in row) <= (norm / grid.step) ** 2


@given(st.integers(2, 30), st.integers(1, 5), st.integers(0, 10**6))
def test_integer_axes_make_no_vector_longer(features, directions, seed):
    frame = np.linalg.qr(np.random.default_rng(seed).normal(size=(features, features)))[0][
        :, : min(directions, features)
    ]
    axes = integer_axes(frame)
    check_axes(axes)
    np.testing.assert_allclose(axes / exact.AXES_UNIT, frame, atol=1e-4)


def test_axes_that_lengthen_are_refused():
    with pytest.raises(InvalidParameter, match="spectral norm"):
        check_axes(1.01 * exact.AXES_UNIT * np.eye(3))


# Sums


def pulls(X, Y, kernel, grid, factor=1.0, clip=None):
    """Σ (x − y) k̂ in Python's integers; the kernel from exact squared distances."""
    total = [[0] * len(Y[0]) for _ in Y]
    unit = 2**exact.KERNEL_BITS
    for x in X:
        squares = [sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for y in Y]
        weights = [
            sum(
                part * math.exp(-gamma * grid.step**2 * square)
                for part, gamma in zip(kernel.gradient_coefficients, kernel.gammas, strict=True)
            )
            for square in squares
        ]
        if clip is not None:
            norm = math.sqrt(sum(s * grid.step**2 * w * w for s, w in zip(squares, weights, strict=True)))
            weights = [weight * min(1.0, clip / norm) for weight in weights]
        for i, y in enumerate(Y):
            rounded = math.floor(weights[i] * factor * unit)
            for j, (a, b) in enumerate(zip(x, y, strict=True)):
                total[i][j] += (a - b) * rounded
    return np.array(total)


@pytest.mark.parametrize("kernel", [KERNEL, SEVERAL])
@pytest.mark.parametrize("factor", [1.0, 0.3])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_pulls_against_python_integers(kernel, factor, clip):
    X, Y, grid = sample()
    bound = None if clip is None else clip * max_clip(kernel, len(Y))
    found = exact_sums.kernel_pulls(X, Y, kernel, grid, factor=factor, clip=bound)
    expected = pulls(integers(X), integers(Y), kernel, grid, factor, bound)
    # exp differs in its last bits, and values are lowered by 2⁻⁴⁰: now and then a weight is one lower.
    assert np.abs(found - expected).max() <= 4 * np.abs(integers(X)).max()


def test_a_clipped_part_is_no_longer_than_its_bound():
    X, Y, grid = sample(records=200, scale=0.5)
    for clip in (0.01, 0.3):
        bound = clip * max_clip(KERNEL, len(Y))
        for x in X:
            part = exact_sums.kernel_pulls(x[None], Y, KERNEL, grid, clip=bound).astype(object)
            square = int((part**2).sum())
            assert square <= Fraction(bound / grid.step * 2**exact.KERNEL_BITS) ** 2


def test_nearest_landmarks_are_exact_and_the_first_of_several():
    X, Y, _ = sample(records=100)
    Y[3], X[0] = Y[1], Y[1]
    X[1] = (Y[0].astype(np.int64) + Y[2]) // 2
    expected = [
        min(range(len(Y)), key=lambda i: sum((a - b) ** 2 for a, b in zip(x, integers(Y)[i], strict=True)))
        for x in integers(X)
    ]
    assert exact_sums.nearest(X, Y).tolist() == expected


def unit(vector, scale, factor=1.0):
    scaled = [math.trunc(value * (scale * factor * exact_sums.UNIT)) for value in vector]
    norm, bound = math.sqrt(sum(v * v for v in scaled)), factor * exact_sums.UNIT
    return scaled if norm <= bound else [math.trunc(v * bound * (1 - 2.0**-50) / norm) for v in scaled]


@pytest.mark.parametrize("factor", [1.0, 0.7])
def test_cluster_sums_against_python_integers(factor):
    X, Y, grid = sample(records=80)
    expected = np.zeros((len(Y), Y.shape[1] + 1), dtype=np.int64)
    for x, i in zip(integers(X), exact_sums.nearest(X, Y), strict=True):
        offset = unit([a - int(b) for a, b in zip(x, Y[i], strict=True)], grid.step / 0.9, factor)
        expected[i] += np.array([*offset, math.floor(factor * exact_sums.UNIT)])
    np.testing.assert_array_equal(exact_sums.cluster_sums(X, Y, grid, 0.9, factor=factor), expected)


def test_moments_against_python_integers():
    X, _, grid = sample(records=50)
    rows = [unit(row, grid.step / 1.5) for row in integers(X)]
    squares = [sum(value * value for value in row) // exact_sums.UNIT for row in rows]
    found = exact_sums.moment_sums(X, grid.step / 1.5)
    assert found.tolist() == [*(sum(column) for column in zip(*rows, strict=True)), sum(squares)]


def test_second_moments_against_python_integers():
    X, Y, grid = sample(records=50)
    centre = [int(value) for value in Y[0]]
    rows = [unit([a - c for a, c in zip(row, centre, strict=True)], grid.step / 1.5) for row in integers(X)]
    expected = [sum(row[i] * row[j] for row in rows) for i in range(4) for j in range(i, 4)]
    assert exact_sums.second_moment_sums(X, Y[0], grid.step / 1.5).tolist() == expected


def test_features_against_python_integers():
    X, _, grid = sample(records=20)
    W = np.rint(np.random.default_rng(0).normal(size=(4, 7)) * 2**15)
    found = exact_sums.feature_sums(X, W, 2.0**-15 * grid.step)
    expected = np.zeros(14)
    for x in integers(X):
        angles = [sum(a * int(w) for a, w in zip(x, column, strict=True)) * 2.0**-15 * grid.step for column in W.T]
        for part, function in ((slice(0, 7), math.cos), (slice(7, 14), math.sin)):
            expected[part] += [math.trunc(function(angle) * exact_sums.FEATURE_UNIT) for angle in angles]
    assert np.abs(found - expected).max() <= len(X)


def test_a_plain_sum_clips_rounds_and_ignores_what_is_not_finite():
    records = np.array([[3.0, 4.0], [0.3, -0.4], [math.nan, math.inf], [-0.1, 0.0]])

    def added(chosen):
        return exact_sums.plain_sums(lambda X: X, lambda part: chosen[part], len(chosen), 2, 2.0, cells=2.0**20)

    finite = added(records[[0, 1, 3]])
    np.testing.assert_array_equal(added(records), finite)
    assert np.abs(finite * 2.0 / 2**20 - [1.2 + 0.3 - 0.1, 1.6 - 0.4]).max() < 1e-5


def test_a_total_goes_on_beyond_what_float64_holds():
    total = ExactTotal((1,), 2.0**52)
    for _ in range(5):
        room = total.room(1)
        room += 2.0**52 - 1
    assert total.total.tolist() == [5 * (2**52 - 1)]
    with pytest.raises(InvalidParameter):
        total.room(2)


@given(st.lists(st.lists(st.floats(-3, 3), min_size=2, max_size=2), min_size=1, max_size=20), st.integers(0, 99))
def test_a_place_by_weights_is_the_same_in_any_company(records, seed):
    grid, generator = Grid.of_norm(8.0, 2), np.random.default_rng(seed)
    anchors, places = grid.nearest(generator.normal(size=(30, 2))), generator.normal(size=(30, 2))
    anchors[5] = anchors[4]
    Z = grid.cells(np.array(records))
    together = exact_sums.place_by_weights(Z, anchors, places, 10)
    for row, place in zip(Z, together, strict=True):
        np.testing.assert_array_equal(exact_sums.place_by_weights(row[None], anchors, places, 10)[0], place)
    assert (together >= places.min(axis=0) - 1e-9).all()
    assert (together <= places.max(axis=0) + 1e-9).all()
