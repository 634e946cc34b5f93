"""Rows of records against their definitions; what noise leaves of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from accounting import InvalidParameter, sensitivity
from dpfedvis.mechanisms import rows as module
from dpfedvis.mechanisms.rows import DistanceRows, GramRows, KernelRows
from dpfedvis.numerics.kernels import Kernel
from tests.makers import points

KERNEL = Kernel((0.1, 0.5))
KINDS = [DistanceRows(), GramRows(), GramRows(0.3), KernelRows(KERNEL)]


def few(landmarks=8):
    return points(30, landmarks, 4, dtype=np.float32)


@pytest.mark.parametrize("rows", KINDS, ids=repr)
def test_every_kind_gives_finite_float64_of_its_width(rows):
    X, Y = few()
    values = rows.of(X, Y)
    assert values.shape == (30, rows.width(Y))
    assert values.dtype == np.float64
    assert np.isfinite(values).all()


@pytest.mark.parametrize("rows", KINDS, ids=repr)
def test_a_row_depends_on_its_record_alone(rows, monkeypatch):
    X, Y = few()
    whole = rows.of(X, Y)
    order = np.random.default_rng(1).permutation(30)
    np.testing.assert_allclose(rows.of(X[order], Y), whole[order], atol=1e-12)
    np.testing.assert_allclose(rows.of(X[:1], Y), whole[:1], atol=1e-12)
    monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    np.testing.assert_allclose(rows.of(X, Y), whole, atol=1e-12)


def test_distance_rows_are_distances():
    X, Y = few()
    np.testing.assert_allclose(DistanceRows().of(X, Y), cdist(X, Y), atol=1e-12)


def test_kernel_rows_are_kernel_values():
    X, Y = few()
    D = cdist(X, Y) ** 2
    expected = (np.exp(-0.1 * D) + np.exp(-0.5 * D)) / 2
    np.testing.assert_allclose(KernelRows(KERNEL).of(X, Y), expected, atol=1e-12)


def test_gram_rows_are_an_orthonormal_projection():
    X, Y = few(landmarks=3)  # a plane in four dimensions
    values = GramRows().of(X, Y)
    assert values.shape[1] == 2
    assert (cdist(values, values) <= cdist(X, X) + 1e-6).all()
    at_landmarks = GramRows().of(Y, Y)
    np.testing.assert_allclose(cdist(at_landmarks, at_landmarks), cdist(Y, Y), atol=1e-6)
    np.testing.assert_allclose(at_landmarks.mean(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2, 100.0])
def test_directions_below_the_noise_are_left_out(noise):
    rng = np.random.default_rng(2)
    Y = rng.normal(size=(50, 6)) * 2.0 ** -np.arange(6)
    spread = np.linalg.svd(Y - Y.mean(axis=0), compute_uv=False) / math.sqrt(50)
    assert GramRows(noise).width(Y) == max(1, int((spread > noise).sum()))


def test_coincident_landmarks_leave_one_direction():
    X, Y = few()
    assert np.isfinite(GramRows().of(X, np.repeat(Y[:1], 5, axis=0))).all()
    assert GramRows().width(np.repeat(Y[:1], 5, axis=0)) == 1


def test_sensitivities_are_those_of_the_accounting():
    assert DistanceRows().sensitivity(3.0, 16, "replace-one") == 24.0
    assert GramRows(0.7).sensitivity(3.0, 16, "replace-one") == 6.0
    assert KernelRows(KERNEL).sensitivity(0.01, 16, "replace-one") == pytest.approx(
        sensitivity.kernel_rows(gamma=KERNEL.gammas, landmarks=16, tau_x=0.01)
    )


@pytest.mark.parametrize("rows", KINDS, ids=repr)
def test_a_row_cannot_hide_that_a_record_is_there(rows):
    """Under add-remove the very number of rows tells."""
    with pytest.raises(InvalidParameter, match="adjacency"):
        rows.sensitivity(1.0, 4, "add-remove")
