"""A kernel, and records with landmarks, that bounds are tried on."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dpfedvis.evaluation.theory import centred
from dpfedvis.numerics.kernels import Kernel

KERNEL = Kernel.gaussian(0.3)


def gaussian(X: np.ndarray, Y: np.ndarray, kernel: Kernel = KERNEL) -> np.ndarray:
    return np.mean([np.exp(-gamma * cdist(X, Y) ** 2) for gamma in kernel.gammas], axis=0)


@pytest.fixture(scope="module")
def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return centred(rng.normal(size=(150, 4))), rng.normal(size=(30, 4))
