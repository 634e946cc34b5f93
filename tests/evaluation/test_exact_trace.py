"""The exact objective of a run, held against the MMD itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpfedvis.data import FederatedData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.evaluation.exact_trace import ExactObjective, exact_trace
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import mmd2
from dpfedvis.server.callbacks import KeepLandmarks
from tests.makers import federation

KERNEL = Kernel((0.2,))


@pytest.fixture
def fed():
    return federation(shift=0.4, dtype=np.float64)


def objective(fed, Y, weights, kernel=KERNEL, estimator="unbiased"):
    return sum(
        w * mmd2(client.X, Y, kernel, estimator=estimator) for w, client in zip(weights, fed.clients, strict=True)
    )


@pytest.mark.parametrize("weights", ["records", "equal"])
@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
def test_the_exact_trace_is_the_weighted_mmd(weights, estimator, fed):
    kept = KeepLandmarks()
    config = FedDL(landmarks=6, rounds=4, gamma=(0.1, 0.4), weights=weights, mmd=estimator, seed=1)
    result = config.run(fed, callbacks=[kept])
    found = exact_trace(fed, result, kept.kept)
    assert list(found) == [1, 2, 3, 4]
    omega = [1 / 3] * 3 if weights == "equal" else [n / 95 for n in (20, 30, 45)]
    for number, value in found.items():
        expected = objective(fed, kept.kept[number], omega, Kernel((0.1, 0.4)), estimator)
        assert value == pytest.approx(expected, rel=1e-9)


def test_single_records_have_no_pairs():
    fed = FederatedData([np.zeros((1, 2)), np.ones((1, 2))])
    value = ExactObjective(fed, [0.5, 0.5], KERNEL)(np.zeros((2, 2)))
    assert value == pytest.approx(-(1 + math.exp(-0.4)) + 1)
