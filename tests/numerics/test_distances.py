"""Gram, Nyström and kernel estimates against dense references; what landmarks that span little do to them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from accounting import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.mechanisms.rows import GramRows
from dpfedvis.numerics.distances import (
    GramDistances,
    NystromDistances,
    gram_frame,
    kernel_factor,
    nystrom_factor,
)
from dpfedvis.numerics.kernels import Kernel, kernel_matrix
from tests.makers import points


def in_float64(frame, B):
    """Coordinates without the last step to float32."""
    return (B**2 - frame.offset) @ frame.matrix


def gram_coordinates(X, Y, noise=0.0):
    return in_float64(gram_frame(cdist(Y, Y), noise=noise), cdist(X, Y))


def projected(X, Y):
    """Records projected to the affine span of the landmarks, by least squares."""
    centre = Y.mean(axis=0)
    basis = (Y - centre).T
    return (basis @ np.linalg.lstsq(basis, (X - centre).T, rcond=None)[0]).T


# Gram


def test_gram_is_exact_when_landmarks_span_the_data():
    X, Y = points()
    np.testing.assert_allclose(cdist(*[gram_coordinates(X, Y)] * 2), cdist(X, X), atol=1e-8)


def test_coordinates_are_the_same_in_float32():
    X, Y = points()
    frame = gram_frame(cdist(Y, Y))
    coordinates = frame.coordinates(cdist(X, Y))
    assert coordinates.dtype == np.float32
    np.testing.assert_allclose(coordinates, in_float64(frame, cdist(X, Y)), rtol=1e-6, atol=1e-6)
    estimate = GramDistances(coordinates)
    np.testing.assert_allclose(estimate.block(coordinates[:7]), cdist(X[:7], X), rtol=1e-4, atol=5e-3)


def test_small_distances_survive_among_far_landmarks():
    """Squares in float32 would lose them."""
    X, Y = points(seed=3)
    Y = 10 * Y
    X = Y.mean(axis=0) + 1e-3 * X
    coordinates = gram_frame(cdist(Y, Y)).coordinates(cdist(X, Y))
    np.testing.assert_allclose(cdist(coordinates, coordinates), cdist(X, X), rtol=1e-5, atol=1e-12)


def test_gram_is_a_projection_when_they_do_not():
    X, Y = points(landmarks=4, features=10)
    estimated = cdist(*[gram_coordinates(X, Y)] * 2)
    assert (estimated <= cdist(X, X) + 1e-9).all()
    np.testing.assert_allclose(estimated, cdist(*[projected(X, Y)] * 2), atol=1e-8)
    assert estimated.max() < 0.9 * cdist(X, X).max()


@pytest.mark.parametrize("landmarks", [4, 20])
def test_gram_does_not_depend_on_rotation_and_shift(landmarks):
    X, Y = points(landmarks=landmarks, features=6)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    before, after = (gram_coordinates(x, y) for x, y in ((X, Y), (X @ turn + 7.0, Y @ turn + 7.0)))
    np.testing.assert_allclose(cdist(after, after), cdist(before, before), atol=1e-8)


@pytest.mark.parametrize(("landmarks", "features"), [(12, 5), (4, 10), (30, 30)])
def test_a_client_projects_to_the_same_coordinates(landmarks, features):
    X, Y = points(landmarks=landmarks, features=features)
    at_home, from_distances = GramRows().of(X, Y), gram_coordinates(X, Y)
    assert at_home.shape == from_distances.shape == (len(X), min(features, landmarks - 1))
    np.testing.assert_allclose(cdist(at_home, at_home), cdist(from_distances, from_distances), atol=1e-8)


def test_axes_come_in_order_of_spread():
    _, Y = points(landmarks=50)
    spread = gram_coordinates(Y, Y).var(axis=0)
    assert (np.diff(spread) <= 1e-12).all()


def test_coincident_landmarks_are_refused():
    with pytest.raises(DpfedvisError, match="coincide"):
        gram_frame(np.zeros((4, 4)))


def test_one_landmark_is_refused():
    with pytest.raises(DpfedvisError, match="coincide"):
        gram_frame(np.zeros((1, 1)))


def test_collinear_landmarks_give_the_place_on_the_line():
    X, _ = points(features=3)
    direction = np.array([1.0, 2.0, -2.0]) / 3
    Y = np.linspace(-2, 3, 9)[:, None] * direction
    coordinates = gram_coordinates(X, Y)
    assert coordinates.shape[1] == 1
    np.testing.assert_allclose(cdist(coordinates, coordinates), cdist(*[(X @ direction)[:, None]] * 2), atol=1e-8)


def test_duplicate_landmarks_change_nothing():
    X, Y = points()
    once, twice = gram_coordinates(X, Y), gram_coordinates(X, np.concatenate([Y, Y[:5]]))
    assert once.shape == twice.shape
    np.testing.assert_allclose(cdist(twice, twice), cdist(once, once), atol=1e-7)


# The rule by which directions are cut


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1, 0.5])
def test_a_direction_is_kept_while_its_signal_is_above_its_noise(noise):
    rng = np.random.default_rng(4)
    Y = rng.normal(size=(40, 8)) * 2.0 ** -np.arange(8)
    W = cdist(Y, Y)
    spread = np.linalg.svd(Y - Y.mean(axis=0), compute_uv=False) ** 2
    least = max(1e-9 * spread[0], np.sqrt(40) * np.sqrt((W**2).mean()) * noise)
    expected = int((spread > least).sum())
    assert gram_frame(W, noise=noise).matrix.shape[1] == max(1, expected)
    if noise in (0.01, 0.1):
        assert 1 < expected < 8


def test_drowned_landmarks_keep_one_direction():
    _, Y = points()
    assert gram_frame(cdist(Y, Y), noise=1e6).matrix.shape[1] == 1


def test_the_cut_helps_against_noise():
    rng = np.random.default_rng(5)
    scale = 1.5 ** -np.arange(20)
    X, Y = rng.normal(size=(100, 20)) * scale, rng.normal(size=(60, 20)) * scale
    B = cdist(X, Y) + rng.normal(0, 0.05, (100, 60))
    errors = [
        np.abs(cdist(z, z) - cdist(X, X)).mean()
        for z in (in_float64(gram_frame(cdist(Y, Y), noise=noise), B) for noise in (0.0, 0.05))
    ]
    assert errors[1] < 0.5 * errors[0]


def test_noise_must_be_a_scale():
    _, Y = points()
    with pytest.raises(InvalidParameter, match="noise"):
        gram_frame(cdist(Y, Y), noise=-1.0)


# Nyström on distances


def nystrom(X, Y, **options):
    matrix, signs = nystrom_factor(cdist(Y, Y), **options)
    return NystromDistances(cdist(X, Y) @ matrix, signs)


def test_nystrom_is_the_papers_estimate():
    X, Y = points()
    B, W, estimate = cdist(X, Y), cdist(Y, Y), nystrom(X, Y)
    expected = B @ np.linalg.pinv(W, hermitian=True) @ B.T
    np.testing.assert_allclose((estimate.left * estimate.signs) @ estimate.left.T, expected, atol=1e-9)
    np.testing.assert_allclose(estimate.block(estimate.left[:5]), np.maximum(expected[:5], 0), atol=1e-9)


@pytest.mark.parametrize("rank", [1, 4, 9, 12])
def test_rank_keeps_the_largest_eigenvalues(rank):
    X, Y = points()
    B, W, estimate = cdist(X, Y), cdist(Y, Y), nystrom(X, Y, rank=rank)
    values, vectors = np.linalg.eigh(W)
    kept = np.argsort(-np.abs(values))[:rank]
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    product = (estimate.left * estimate.signs) @ estimate.left.T
    np.testing.assert_allclose(product, B @ inverse @ B.T, atol=1e-9)
    assert np.linalg.matrix_rank(product) == rank


def test_ridge_is_added_to_the_landmarks():
    X, Y = points()
    B, W, estimate = cdist(X, Y), cdist(Y, Y), nystrom(X, Y, ridge=0.3)
    expected = B @ np.linalg.inv(W + 0.3 * np.eye(12)) @ B.T
    np.testing.assert_allclose((estimate.left * estimate.signs) @ estimate.left.T, expected, atol=1e-8)


def test_duplicate_landmarks_do_not_blow_nystrom_up():
    X, Y = points()
    once, twice = nystrom(X, Y), nystrom(X, np.concatenate([Y, Y[:3]]))
    np.testing.assert_allclose(twice.block(twice.left), once.block(once.left), atol=1e-7)


def test_landmarks_have_one_positive_eigenvalue():
    _, Y = points(landmarks=30)
    _, signs = nystrom_factor(cdist(Y, Y))
    assert (signs > 0).sum() == 1
    assert (signs < 0).sum() == 29


def test_landmarks_are_at_their_own_distances():
    _, Y = points()
    estimate = nystrom(Y, Y)
    np.testing.assert_allclose(estimate.block(estimate.left), cdist(Y, Y), atol=1e-9)


@pytest.mark.parametrize(("name", "options"), [("rank", {"rank": 0}), ("ridge", {"ridge": -1.0})])
def test_bad_options_are_named(name, options):
    _, Y = points()
    with pytest.raises(InvalidParameter, match=name):
        nystrom_factor(cdist(Y, Y), **options)


# Kernels


def kernels(X, Y, gamma=0.3):
    return np.exp(-gamma * cdist(X, Y) ** 2), np.exp(-gamma * cdist(Y, Y) ** 2)


def test_kernel_factor_is_nystrom():
    X, Y = points()
    C, W = kernels(X, Y)
    factor = kernel_factor(C, W)
    np.testing.assert_allclose(factor.left @ factor.left.T, C @ np.linalg.pinv(W, hermitian=True) @ C.T, atol=1e-8)


def test_the_certificate_comes_from_the_uploads_alone():
    X, Y = points()
    C, W = kernels(X, Y)
    E = kernels(X, X)[0] - C @ np.linalg.solve(W, C.T)
    factor = kernel_factor(C, W)
    np.testing.assert_allclose(factor.residuals, np.diag(E), atol=1e-9)
    assert factor.certificate == pytest.approx(np.trace(E))
    assert np.linalg.norm(E, 2) <= np.linalg.norm(E) <= factor.certificate


def test_the_certificate_grows_as_the_rank_falls():
    X, Y = points(landmarks=30)
    C, W = kernels(X, Y)
    certificates = [kernel_factor(C, W, rank=rank).certificate for rank in (30, 20, 10, 5, 1)]
    assert certificates == sorted(certificates)
    assert kernel_factor(C, W, ridge=0.1).certificate > certificates[0]


@pytest.mark.parametrize("apart", [1e-9, 1e-8, 1e-7, 1e-6])
def test_nearly_equal_landmarks_leave_the_certificate_valid(apart):
    """Their difference has an eigenvalue of the size of its own rounding error."""
    rng, kernel = np.random.default_rng(0), Kernel.gaussian(15.0)
    for _ in range(20):
        X, half = rng.normal(size=(10, 1)), rng.normal(size=(3, 1))
        Y = np.concatenate([half, half + apart * rng.normal(size=half.shape)])
        factor = kernel_factor(kernel_matrix(X, Y, kernel), kernel_matrix(Y, Y, kernel))
        E = np.exp(-15.0 * cdist(X, X) ** 2) - factor.left @ factor.left.T
        assert np.linalg.eigvalsh(E)[0] > -1e-6


def test_landmarks_themselves_have_no_residual():
    _, Y = points()
    C, W = kernels(Y, Y)
    assert kernel_factor(C, W).certificate == pytest.approx(0, abs=1e-9)
