"""MMD and its gradient against loops, finite differences and autograd; clipping, smoothness, memory, errors."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from accounting.errors import InvalidParameter
from dpfedvis.numerics import mmd
from dpfedvis.numerics.kernels import InvalidPoints, Kernel, Workspace, squared_norms

KERNELS = [Kernel((0.3,)), Kernel((0.1, 0.7)), Kernel((0.05, 0.3, 1.1))]
ESTIMATORS = ["unbiased", "biased"]


def slow_kernel(x, y, kernel):
    return np.mean([math.exp(-gamma * float(np.sum((x - y) ** 2))) for gamma in kernel.gammas])


def slow_mmd2(X, Y, kernel, estimator):
    left_out = estimator == "unbiased"

    def own(Z):
        n = len(Z)
        pairs = [(i, j) for i in range(n) for j in range(n) if not (left_out and i == j)]
        return sum(slow_kernel(Z[i], Z[j], kernel) for i, j in pairs) / len(pairs)

    cross = sum(slow_kernel(x, y, kernel) for x in X for y in Y) / (len(X) * len(Y))
    return own(X) - 2 * cross + own(Y)


def slow_record_matrix(x, Y, kernel):
    """One record's matrix, rows (x − y_i) w_i, in float64."""
    x, Y = x.astype(np.float64), Y.astype(np.float64)
    weights = [np.mean([g * math.exp(-g * float(np.sum((x - y) ** 2))) for g in kernel.gammas]) for y in Y]
    return (x - Y) * np.array(weights)[:, None]


def slow_data_gradient(X, Y, kernel, denominator, clip=math.inf):
    total = np.zeros(Y.shape)
    for x in X:
        matrix = slow_record_matrix(x, Y, kernel)
        norm = np.linalg.norm(matrix)
        total += matrix * min(1.0, kernel.mean_gamma * clip / norm if norm else 1.0)
    return -4 * total / (denominator * len(Y))


def slow_gradient(X, Y, kernel, estimator):
    n_y = len(Y)
    own = -slow_data_gradient(Y, Y, kernel, n_y - (estimator == "unbiased"))
    return slow_data_gradient(X, Y, kernel, len(X)) + own


def relative_error(value, reference):
    return np.linalg.norm(value - reference) / np.linalg.norm(reference)


def mnist_like(n, n_y, m=784, seed=0):
    """Images in [0, 1] with most pixels dark, and landmarks near some of them."""
    rng = np.random.default_rng(seed)
    centres = np.where(rng.random((10, m)) < 0.2, rng.random((10, m)), 0)
    X = np.clip(centres[rng.integers(10, size=n)] + 0.15 * rng.normal(size=(n, m)), 0, 1)
    Y = np.clip(centres[rng.integers(10, size=n_y)] + 0.2 * rng.normal(size=(n_y, m)), 0, 1)
    return X.astype(np.float32), Y.astype(np.float32)


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    return rng.normal(size=(9, 3)), rng.normal(size=(5, 3)) + 0.5


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
class TestAgainstReferences:
    def test_mmd2_matches_the_loop(self, points, kernel, estimator):
        value = mmd.mmd2(*points, kernel, estimator=estimator)
        assert value == pytest.approx(slow_mmd2(*points, kernel, estimator), abs=1e-13)

    def test_gradient_matches_the_loop(self, points, kernel, estimator):
        value = mmd.gradient(*points, kernel, estimator=estimator)
        np.testing.assert_allclose(value, slow_gradient(*points, kernel, estimator), rtol=1e-11, atol=1e-14)

    def test_gradient_matches_finite_differences(self, points, kernel, estimator):
        X, Y = points
        gradient, step = mmd.gradient(X, Y, kernel, estimator=estimator), 1e-5
        for index in np.ndindex(Y.shape):
            shift = np.zeros_like(Y)
            shift[index] = step
            ahead = mmd.mmd2(X, Y + shift, kernel, estimator=estimator)
            behind = mmd.mmd2(X, Y - shift, kernel, estimator=estimator)
            assert gradient[index] == pytest.approx((ahead - behind) / (2 * step), abs=1e-9)

    def test_gradient_is_the_sum_of_its_parts(self, points, kernel, estimator):
        X, Y = points
        parts = mmd.data_gradient(X, Y, kernel, denominator=len(X)) + mmd.landmark_gradient(
            Y, kernel, estimator=estimator
        )
        np.testing.assert_array_equal(mmd.gradient(X, Y, kernel, estimator=estimator), parts)


def test_printed_equation_nine(points):
    """Eq. 9 as it stands in the paper, columns turned into rows."""
    X, Y = points
    gamma, n_p, n_y = 0.3, len(X), len(Y)
    K = np.array([[slow_kernel(x, y, Kernel((gamma,))) for y in Y] for x in X])
    W = np.array([[slow_kernel(x, y, Kernel((gamma,))) for y in Y] for x in Y])
    expected = -4 * gamma / (n_p * n_y) * (K.T @ X - K.sum(axis=0)[:, None] * Y)
    expected += 4 * gamma / (n_y * (n_y - 1)) * (W.T @ Y - W.sum(axis=0)[:, None] * Y)
    np.testing.assert_allclose(mmd.gradient(X, Y, Kernel((gamma,))), expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_mmd2_does_not_depend_on_tiles(monkeypatch, points, estimator):
    expected = mmd.mmd2(*points, KERNELS[2], estimator=estimator)
    monkeypatch.setattr(mmd, "block_rows", lambda *_: 2)
    assert mmd.mmd2(*points, KERNELS[2], estimator=estimator) == pytest.approx(expected, abs=1e-14)


def test_unbiased_mmd2_of_one_distribution_is_about_zero():
    X, Y = np.random.default_rng(3).normal(size=(2, 1500, 2)).astype(np.float32)
    assert abs(mmd.mmd2(X, Y, Kernel((0.5,)))) < 2e-3
    assert mmd.mmd2(X, X, Kernel((0.5,)), estimator="biased") == pytest.approx(0, abs=1e-6)


def test_max_clip_is_attained_by_coinciding_landmarks():
    gamma, n_y = 0.3, 6
    record = np.array([[1 / math.sqrt(2 * gamma), 0.0]])
    matrix = slow_record_matrix(record[0], np.zeros((n_y, 2)), Kernel((gamma,)))
    assert np.linalg.norm(matrix) / gamma == pytest.approx(mmd.max_clip(Kernel((gamma,)), n_y), rel=1e-14)
    assert mmd.max_clip(Kernel((gamma,)), n_y) == pytest.approx(math.sqrt(n_y / (2 * math.e * gamma)))


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("bandwidths", [1, 3])
def test_float32_is_close_to_float64_at_the_scale_of_images(scale, bandwidths):
    X, Y = mnist_like(300, 20)
    median = float(np.median([np.sum((x - y) ** 2, dtype=np.float64) for x in X[:30] for y in Y]))
    kernel = Kernel(tuple(scale * 2**b / median for b in range(bandwidths)))
    value = mmd.data_gradient(X, Y, kernel, denominator=len(X))
    assert value.dtype == np.float32
    assert relative_error(value, slow_data_gradient(X, Y, kernel, len(X))) <= 1e-4


def test_float32_is_close_to_float64_over_many_blocks():
    X, Y = mnist_like(20_000, 50, m=100)
    kernel = Kernel((0.05,))
    value = mmd.data_gradient(X, Y, kernel, denominator=len(X), block=256)
    exact = mmd.data_gradient(X.astype(np.float64), Y.astype(np.float64), kernel, denominator=len(X))
    assert relative_error(value, exact) <= 1e-4


def test_float32_far_from_the_origin_is_computed_in_float64():
    X, Y = mnist_like(60, 8)
    X, Y = X + np.float32(500), Y + np.float32(500)
    kernel = Kernel((0.02,))
    value = mmd.data_gradient(X, Y, kernel, denominator=len(X), squared_norms=squared_norms(X))
    assert value.dtype == np.float32
    assert relative_error(value, slow_data_gradient(X, Y, kernel, len(X))) <= 1e-4
    near = mmd.mmd2((X - np.float32(500)), (Y - np.float32(500)), kernel)
    assert mmd.mmd2(X, Y, kernel) == pytest.approx(near, rel=1e-4)


def test_dtypes(points):
    X, Y = points
    single = [points.astype(np.float32) for points in (X, Y)]
    assert mmd.data_gradient(X, Y, KERNELS[0], denominator=9).dtype == np.float64
    assert mmd.gradient(*single, KERNELS[0]).dtype == np.float32
    assert mmd.data_gradient(single[0], Y, KERNELS[0], denominator=9).dtype == np.float64


@pytest.mark.parametrize("kernel", KERNELS)
def test_workspace_and_known_norms_change_nothing(points, kernel):
    X, Y = points
    workspace, expected = Workspace(), mmd.gradient(X, Y, kernel)
    first = mmd.gradient(X, Y, kernel, workspace=workspace, squared_norms=squared_norms(X))
    kept = first.copy()
    mmd.gradient(X[:4] + 1, Y + 1, kernel, workspace=workspace)
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_allclose(kept, expected, rtol=1e-12, atol=1e-15)


def test_inputs_are_not_changed(points):
    X, Y = points
    before = X.copy(), Y.copy()
    mmd.data_gradient(X, Y, KERNELS[1], denominator=9)
    mmd.mmd2(X, Y, KERNELS[1])
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(Y, before[1])


def test_records_need_not_be_contiguous(points):
    X, Y = points
    expected = mmd.data_gradient(X, Y, KERNELS[0], denominator=9)
    value = mmd.data_gradient(np.asfortranarray(X), np.asfortranarray(Y), KERNELS[0], denominator=9)
    np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-15)


class TestDegenerate:
    def test_an_empty_sample_has_gradient_zero(self, points):
        _, Y = points
        empty = np.empty((0, 3))
        assert not mmd.data_gradient(empty, Y, KERNELS[0], denominator=2.5).any()

    def test_one_record(self, points):
        X, Y = points
        value = mmd.data_gradient(X[:1], Y, KERNELS[1], denominator=1)
        np.testing.assert_allclose(value, slow_data_gradient(X[:1], Y, KERNELS[1], 1), rtol=1e-11)

    def test_one_landmark(self, points):
        X, Y = points
        assert not mmd.landmark_gradient(Y[:1], KERNELS[0], estimator="biased").any()
        value = mmd.mmd2(X, Y[:1], KERNELS[0], estimator="biased")
        assert value == pytest.approx(slow_mmd2(X, Y[:1], KERNELS[0], "biased"))

    def test_all_points_coincide(self):
        X = np.full((6, 2), 0.5)
        assert mmd.mmd2(X, X[:3], KERNELS[1]) == pytest.approx(0, abs=1e-14)
        np.testing.assert_allclose(mmd.gradient(X, X[:3], KERNELS[1]), 0, atol=1e-15)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_far_points_underflow_to_zero(self, dtype):
        X, Y = np.zeros((4, 2), dtype), np.array([[1e4, 0], [-1e4, 0]], dtype)
        assert not mmd.data_gradient(X, Y, KERNELS[2], denominator=4).any()


class TestSmoothness:
    @pytest.mark.parametrize("landmarks", [2, 3, 5, 100])
    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_hessian_attains_the_bound(self, landmarks, estimator):
        """The configuration in the proof: coinciding landmarks, all records √(3/(2γ)) away."""
        gamma, step = 0.7, 1e-4
        X = np.array([[math.sqrt(1.5 / gamma), 0.0]])
        direction = np.zeros((landmarks, 2))
        direction[0, 0], direction[1, 0] = 1, -1
        ends = [mmd.gradient(X, side * step * direction, Kernel((gamma,)), estimator=estimator) for side in (1, -1)]
        change = np.linalg.norm(ends[0] - ends[1]) / np.linalg.norm(2 * step * direction)
        bound = mmd.smoothness(Kernel((gamma,)), landmarks, estimator=estimator)
        assert change == pytest.approx(bound, rel=1e-6)

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_closed_form(self, estimator):
        kappa = 2 * math.exp(-1.5)
        for landmarks in range(2, 50):
            value = mmd.smoothness(Kernel((0.5,)), landmarks, estimator=estimator)
            rest = landmarks - 1 if estimator == "unbiased" else landmarks
            both = kappa / landmarks + 1 / rest, 1 / landmarks + kappa / rest
            assert value == pytest.approx(4 * 0.5 * max(both))
            assert value <= 12 * 0.5 / landmarks
        assert mmd.smoothness(Kernel((0.5,)), 1, estimator=estimator) == 2.0

    def test_several_bandwidths_take_the_mean(self):
        single = [mmd.smoothness(Kernel((gamma,)), 7) for gamma in (0.1, 0.9)]
        assert mmd.smoothness(Kernel((0.1, 0.9)), 7) == pytest.approx(np.mean(single))


@pytest.mark.parametrize("kernel", [KERNELS[0], KERNELS[2]])
def test_memory_stays_within_three_blocks(kernel):
    rng = np.random.default_rng(0)
    X, Y = rng.random((6000, 40), np.float32), rng.random((200, 40), np.float32)
    block = 500
    block_bytes, output_bytes = block * 200 * 4, Y.nbytes
    tracemalloc.start()
    try:
        mmd.data_gradient(X, Y, kernel, denominator=6000, block=block)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The outputs are the sum and its product with Y; the norms and index arrays are a few KiB.
    assert peak <= 3 * block_bytes + 3 * output_bytes + 32_768
    assert peak < X.shape[0] * 200 * 4 / 2


class TestErrors:
    def test_estimator(self, points):
        for call in (mmd.mmd2, mmd.gradient):
            with pytest.raises(InvalidParameter, match="estimator must be 'unbiased' or 'biased', but is 'best'"):
                call(*points, KERNELS[0], estimator="best")
        with pytest.raises(InvalidParameter):
            mmd.smoothness(KERNELS[0], 3, estimator="best")

    @pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
    def test_denominator(self, points, value):
        with pytest.raises(InvalidParameter, match="denominator must be positive") as error:
            mmd.data_gradient(*points, KERNELS[0], denominator=value)
        assert error.value.name == "denominator"
        assert error.value.value is value

    def test_block_and_norms(self, points):
        with pytest.raises(InvalidParameter, match="block must be at least 1, but is 0"):
            mmd.data_gradient(*points, KERNELS[0], denominator=1, block=0)
        with pytest.raises(InvalidParameter, match=r"squared_norms must be of shape \(9,\), but is \(4,\)"):
            mmd.data_gradient(*points, KERNELS[0], denominator=1, squared_norms=np.zeros(4))

    def test_too_few_points_for_unbiased(self, points):
        X, Y = points
        with pytest.raises(InvalidPoints, match="at least 2 rows, got 1"):
            mmd.mmd2(X, Y[:1], KERNELS[0])
        with pytest.raises(InvalidPoints, match="at least 2 rows, got 1"):
            mmd.mmd2(X[:1], Y, KERNELS[0])
        with pytest.raises(InvalidPoints, match="landmarks of the unbiased MMD must have at least 2 rows"):
            mmd.gradient(X, Y[:1], KERNELS[0])
        with pytest.raises(InvalidPoints, match="records must have at least 1 rows"):
            mmd.gradient(X[:0], Y, KERNELS[0])

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_not_finite(self, points, bad):
        X, Y = points[0].copy(), points[1]
        X[7, 1] = bad
        with pytest.raises(InvalidPoints, match="row 7 of the records is not finite"):
            mmd.data_gradient(X, Y, KERNELS[0], denominator=9, block=2)
        with pytest.raises(InvalidPoints, match="row 7 of the records is not finite"):
            mmd.data_gradient(X, Y, KERNELS[0], denominator=9, squared_norms=np.sum(X**2, axis=1))
        with pytest.raises(InvalidPoints, match="landmarks"):
            mmd.data_gradient(Y, X, KERNELS[0], denominator=9)
        with pytest.raises(InvalidPoints, match="not finite"):
            mmd.mmd2(X, Y, KERNELS[0])

    def test_shapes(self, points):
        with pytest.raises(InvalidPoints, match="same number of features, got 3 and 2"):
            mmd.gradient(points[0], points[1][:, :2], KERNELS[0])

    @pytest.mark.parametrize("call", [mmd.max_clip, mmd.smoothness])
    def test_landmarks(self, call):
        with pytest.raises(InvalidParameter, match="landmarks must be at least 1, but is 0"):
            call(KERNELS[0], 0)
