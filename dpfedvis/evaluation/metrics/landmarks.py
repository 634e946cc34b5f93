"""How well landmarks represent the records: MMD and certificate, at the kernel of the run and at a common one."""

from __future__ import annotations

import math

import numpy as np

from dpfedvis.evaluation.metrics.base import Evaluated
from dpfedvis.numerics.distances import CUTOFF, nystrom_factor
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix
from dpfedvis.numerics.mmd import mmd2

# The MMD costs n²: above this many records a sample is used.
EXACT_MMD = 5000
_BLOCK = 2048


def mmd(evaluated: Evaluated, common: bool = False) -> float | None:
    """MMD of records and landmarks, at the kernel of the run or at `common_kernel`."""
    kernel = common_kernel(evaluated.X) if common else evaluated.kernel
    if kernel is None or evaluated.landmarks is None:
        return None
    return root_mmd(evaluated.X, evaluated.landmarks, kernel, seed=evaluated.seed)


def certificate(evaluated: Evaluated, common: bool = False) -> float | None:
    """Certificate of the landmarks per record, at the kernel of the run or at `common_kernel`.

    With ``release="none"`` the run's kernel was chosen for the subspace; here it compares whole records.
    """
    kernel = common_kernel(evaluated.X) if common else evaluated.kernel
    if kernel is None or evaluated.landmarks is None:
        return None
    return certificate_per_record(evaluated.X, evaluated.landmarks, kernel)


def common_kernel(X: Array) -> Kernel | None:
    """Return exp(−d²/s) with s the mean squared distance of two records; None if all records are equal."""
    spread = 2 * float(np.var(X, axis=0, dtype=np.float64).sum())
    return Kernel.gaussian(1 / spread) if spread > 0 else None


def root_mmd(X: Array, landmarks: Array, kernel: Kernel, *, seed: int = 0) -> float:
    """Return the MMD (not squared, biased: at least 0) of records and landmarks.

    Exact up to 5000 records; above, from a sample of 5000 that depends on the seed alone.
    """
    if len(X) > EXACT_MMD:
        X = X[np.sort(np.random.default_rng(seed).permutation(len(X))[:EXACT_MMD])]
    square = mmd2(np.asarray(X, np.float64), np.asarray(landmarks, np.float64), kernel, estimator="biased")
    return math.sqrt(max(square, 0.0))


def certificate_per_record(X: Array, landmarks: Array, kernel: Kernel) -> float:
    """Return tr(K − C W⁺ Cᵀ)/n: the trace certificate of the Nyström estimate, per record, from 0 to 1.

    It is the mean of E_ii = 1 − ‖F_i‖², the part of a record that the landmarks do not explain. n times it bounds the
    error of the estimated kernel matrix in the spectral and the Frobenius norm (`dpfedvis.evaluation.theory`). It is
    computed from the *exact* rows of all records, so runs are compared by their landmarks, not by what they release; a
    server knows it only if it sees exact rows. Rounding is ignored (see `kernel_certificate`).
    """
    Y = np.asarray(landmarks, np.float64)
    # As in `kernel_factor`, but in blocks, to save memory.
    matrix, signs = nystrom_factor(kernel_matrix(Y, Y, kernel), cutoff=CUTOFF)
    matrix, total = matrix[:, signs > 0], 0.0
    for start in range(0, len(X), _BLOCK):
        block = np.asarray(X[start : start + _BLOCK], np.float64)
        factor = kernel_matrix(block, Y, kernel) @ matrix
        total += float(np.maximum(1 - np.vecdot(factor, factor), 0).sum())
    return total / len(X)
