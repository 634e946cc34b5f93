"""What holds of the MMD and its gradient for any data: sensitivity, smoothness, symmetry, blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpfedvis.numerics import mmd
from dpfedvis.numerics.kernels import InvalidPoints, Kernel

ESTIMATORS = st.sampled_from(["unbiased", "biased"])
GAMMAS = st.floats(1e-3, 1e3)


@st.composite
def problems(draw, *, min_records=1, min_landmarks=2):
    """Records, landmarks and a kernel, at a scale between all points alike and all points far apart."""
    n = draw(st.integers(min_records, 12))
    n_y = draw(st.integers(min_landmarks, 8))
    m = draw(st.integers(1, 5))
    kernel = Kernel(tuple(draw(st.lists(GAMMAS, min_size=1, max_size=3))))
    scale = draw(st.floats(0.01, 10)) / math.sqrt(kernel.mean_gamma)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X, Y = scale * rng.normal(size=(n, m)), scale * rng.normal(size=(n_y, m))
    if draw(st.booleans()):
        Y[1:] = Y[0]  # coinciding landmarks are where the bounds are tight
    if draw(st.booleans()):
        X[0] = Y[0]
    return X, Y, kernel


def tight_sensitivity(kernel, records, landmarks):
    """8√(γ/(2e))/(n_p√n_y), the mean over bandwidths."""
    mean = np.mean([math.sqrt(gamma / (2 * math.e)) for gamma in kernel.gammas])
    return 8 * mean / (records * math.sqrt(landmarks))


def replaced(X, record):
    neighbour = X.copy()
    neighbour[-1] = record
    return neighbour


class TestSensitivity:
    @given(problems(), st.integers(0, 2**32 - 1), st.floats(0, 3))
    def test_one_record_moves_the_gradient_by_at_most_the_tight_bound(self, problem, seed, radius):
        X, Y, kernel = problem
        direction = np.random.default_rng(seed).normal(size=X.shape[1])
        record = Y[0] + radius * direction / np.linalg.norm(direction) / math.sqrt(kernel.mean_gamma)
        ends = [mmd.data_gradient(Z, Y, kernel, denominator=len(X)) for Z in (X, replaced(X, record))]
        bound = tight_sensitivity(kernel, len(X), len(Y))
        assert np.linalg.norm(ends[0] - ends[1]) <= bound * (1 + 1e-9)

    @given(GAMMAS, st.integers(1, 20), st.integers(1, 20), st.integers(1, 4))
    def test_the_tight_bound_is_attained(self, gamma, records, landmarks, features):
        kernel = Kernel((gamma,))
        X, Y = np.zeros((records, features)), np.zeros((landmarks, features))
        X[-1, 0] = 1 / math.sqrt(2 * gamma)
        ends = [mmd.data_gradient(Z, Y, kernel, denominator=records) for Z in (X, replaced(X, -X[-1]))]
        bound = tight_sensitivity(kernel, records, landmarks)
        assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(bound, rel=1e-9)

    def test_no_record_is_found_that_beats_the_bound(self):
        """An optimizer looks for the two records that move the gradient most, landmarks included."""
        kernel, landmarks, features = Kernel((0.8,)), 3, 2
        bound = tight_sensitivity(kernel, 1, landmarks)

        def minus_change(flat):
            first, second, Y = flat[:2], flat[2:4], flat[4:].reshape(landmarks, features)
            ends = [mmd.data_gradient(x[None], Y, kernel, denominator=1) for x in (first, second)]
            return -np.linalg.norm(ends[0] - ends[1])

        # Landmarks that start far apart end in a local maximum.
        rng, best = np.random.default_rng(0), 0.0
        for _ in range(5):
            start = np.concatenate([rng.normal(size=4), 0.3 * rng.normal(size=landmarks * features)])
            best = max(best, -minimize(minus_change, start).fun)
        assert best <= bound * (1 + 1e-9)
        assert best >= 0.999 * bound


class TestSmoothness:
    @given(problems(), ESTIMATORS, st.integers(0, 2**32 - 1), st.floats(1e-4, 10))
    def test_gradient_is_lipschitz(self, problem, estimator, seed, length):
        X, Y, kernel = problem
        step = length / math.sqrt(kernel.mean_gamma) * np.random.default_rng(seed).normal(size=Y.shape)
        ends = [mmd.gradient(X, Z, kernel, estimator=estimator) for Z in (Y, Y + step)]
        bound = mmd.smoothness(kernel, len(Y), estimator=estimator) * np.linalg.norm(step)
        assert np.linalg.norm(ends[0] - ends[1]) <= bound * (1 + 1e-9)

    @given(problems(min_landmarks=1), st.integers(0, 2**32 - 1), st.floats(1e-4, 10))
    def test_one_landmark_needs_the_data_term_only(self, problem, seed, length):
        X, Y, kernel = problem
        Y = Y[:1]
        step = length / math.sqrt(kernel.mean_gamma) * np.random.default_rng(seed).normal(size=Y.shape)
        ends = [mmd.gradient(X, Z, kernel, estimator="biased") for Z in (Y, Y + step)]
        bound = mmd.smoothness(kernel, 1, estimator="biased") * np.linalg.norm(step)
        assert np.linalg.norm(ends[0] - ends[1]) <= bound * (1 + 1e-9)

    @pytest.mark.parametrize("landmarks", [2, 4])
    @pytest.mark.parametrize("estimator", ["unbiased", "biased"])
    def test_worst_pair_found_by_an_optimizer(self, landmarks, estimator, record_property):
        """The search reaches the bound from random starts, and never passes it."""
        kernel, features, records = Kernel((1.0,)), 2, 2
        bound = mmd.smoothness(kernel, landmarks, estimator=estimator)
        size = landmarks * features

        def minus_ratio(flat):
            Y, step = flat[:size].reshape(landmarks, features), flat[size : 2 * size].reshape(landmarks, features)
            X = flat[2 * size :].reshape(records, features)
            ends = [mmd.gradient(X, Y + side * step, kernel, estimator=estimator) for side in (0.5, -0.5)]
            return -np.linalg.norm(ends[0] - ends[1]) / (np.linalg.norm(step) * bound)

        rng, ratio = np.random.default_rng(1), 0.0
        for _ in range(3):
            start = np.concatenate([rng.normal(size=size), 0.3 * rng.normal(size=size), rng.normal(size=4)])
            ratio = max(ratio, -minimize(minus_ratio, start, options={"maxiter": 80}).fun)
        record_property("ratio", float(ratio))
        print(f"worst ratio to L for {landmarks} landmarks, {estimator}: {ratio:.6f}")
        assert 0.98 <= ratio <= 1 + 1e-6

    @given(problems(min_records=2), ESTIMATORS)
    def test_steps_of_one_over_L_go_down(self, problem, estimator):
        X, Y, kernel = problem
        smoothness = mmd.smoothness(kernel, len(Y), estimator=estimator)
        value = mmd.mmd2(X, Y, kernel, estimator=estimator)
        for _ in range(5):
            gradient = mmd.gradient(X, Y, kernel, estimator=estimator)
            Y = Y - gradient / smoothness
            after = mmd.mmd2(X, Y, kernel, estimator=estimator)
            # The descent lemma: at least ‖∇f‖²/(2L) is gained.
            assert after <= value - np.sum(gradient**2) / (2 * smoothness) + 1e-12
            value = after


class TestInvariance:
    @given(problems(), ESTIMATORS, st.integers(0, 2**32 - 1))
    def test_rotation_and_translation(self, problem, estimator, seed):
        X, Y, kernel = problem
        rng, m = np.random.default_rng(seed), X.shape[1]
        rotation, _ = np.linalg.qr(rng.normal(size=(m, m)))
        shift = rng.normal(size=m) / math.sqrt(kernel.mean_gamma)
        moved = mmd.gradient(X @ rotation + shift, Y @ rotation + shift, kernel, estimator=estimator)
        expected = mmd.gradient(X, Y, kernel, estimator=estimator) @ rotation
        tolerance = 1e-9 * mmd.smoothness(kernel, len(Y)) / math.sqrt(min(kernel.gammas))
        np.testing.assert_allclose(moved, expected, atol=tolerance)

    @given(problems(min_records=2), ESTIMATORS, st.floats(0.1, 10))
    def test_scale(self, problem, estimator, factor):
        """f(cX, cY) with γ/c² is f(X, Y) with γ, so its gradient is 1/c of it."""
        X, Y, kernel = problem
        scaled = Kernel(tuple(gamma / factor**2 for gamma in kernel.gammas))
        value = mmd.mmd2(factor * X, factor * Y, scaled, estimator=estimator)
        assert value == pytest.approx(mmd.mmd2(X, Y, kernel, estimator=estimator), abs=1e-10)
        np.testing.assert_allclose(
            factor * mmd.gradient(factor * X, factor * Y, scaled, estimator=estimator),
            mmd.gradient(X, Y, kernel, estimator=estimator),
            atol=1e-9 * math.sqrt(kernel.mean_gamma),
        )

    @given(problems(), st.integers(1, 15), st.sampled_from([np.float32, np.float64]))
    def test_block_size_does_not_matter(self, problem, block, dtype):
        X, Y, kernel = problem
        X, Y = X.astype(dtype), Y.astype(dtype)
        whole = mmd.data_gradient(X, Y, kernel, denominator=len(X))
        parts = mmd.data_gradient(X, Y, kernel, denominator=len(X), block=block)
        size = 1 + math.sqrt(max(np.abs(X).max(), np.abs(Y).max()) ** 2 * max(kernel.gammas))
        tolerance = 100 * np.finfo(dtype).eps * size**2 * tight_sensitivity(kernel, 1, 1)
        np.testing.assert_allclose(parts, whole, atol=tolerance)

    @given(problems(min_records=2), ESTIMATORS)
    def test_mmd2_is_symmetric_and_biased_is_not_negative(self, problem, estimator):
        X, Y, kernel = problem
        value = mmd.mmd2(X, Y, kernel, estimator=estimator)
        assert value == pytest.approx(mmd.mmd2(Y, X, kernel, estimator=estimator), abs=1e-12)
        assert mmd.mmd2(X, Y, kernel, estimator="biased") >= -1e-12

    @given(problems(), st.randoms(use_true_random=False))
    def test_order_of_records_does_not_matter(self, problem, random):
        X, Y, kernel = problem
        order = list(range(len(X)))
        random.shuffle(order)
        expected = mmd.data_gradient(X, Y, kernel, denominator=len(X))
        value = mmd.data_gradient(X[order], Y, kernel, denominator=len(X))
        np.testing.assert_allclose(value, expected, atol=1e-9 * tight_sensitivity(kernel, 1, 1))


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8, 1e9])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_record_moves_the_gradient_by_more_than_its_bound_far_from_the_origin(offset: float, dtype: type) -> None:
    generator = np.random.default_rng(3)
    Y = (offset + generator.random((6, 2))).astype(dtype)
    bound = 4 * math.sqrt(6.0 / (2 * math.e)) / math.sqrt(6)
    for scale in (0.1, 1.0, 30.0, 3000.0):
        x = (offset + scale * generator.standard_normal((1, 2))).astype(dtype)
        one = mmd.data_gradient(x, Y, Kernel.gaussian(6.0), denominator=1.0)
        assert np.linalg.norm(one) <= bound * (1 + 1e-4)


def test_landmarks_too_far_apart_for_the_kernel_are_refused_by_name() -> None:
    Y = np.array([[0.0, 0.0], [1e8, 0.0]])
    with pytest.raises(InvalidPoints, match="too far apart"):
        mmd.data_gradient(Y, Y, Kernel.gaussian(1.0), denominator=1.0)
