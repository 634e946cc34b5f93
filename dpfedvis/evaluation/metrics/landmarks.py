"""How well landmarks stand for the records: MMD and certificate, at the kernel of the run and at a common one."""

from __future__ import annotations

import math

import numpy as np

from dpfedvis.evaluation.metrics.base import Evaluated
from dpfedvis.numerics.distances import CUTOFF, nystrom_factor
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix
from dpfedvis.numerics.mmd import mmd2

# The MMD costs n²: beyond this many records it is that of a sample.
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

    With ``release="none"`` the kernel of the run was made for the subspace; here it is taken between whole records.
    """
    kernel = common_kernel(evaluated.X) if common else evaluated.kernel
    if kernel is None or evaluated.landmarks is None:
        return None
    return certificate_per_record(evaluated.X, evaluated.landmarks, kernel)


def common_kernel(X: Array) -> Kernel | None:
    """Return exp(−d²/s) with s the mean squared distance of two records; None where all records are equal."""
    spread = 2 * float(np.var(X, axis=0, dtype=np.float64).sum())
    return Kernel.gaussian(1 / spread) if spread > 0 else None


def root_mmd(X: Array, landmarks: Array, kernel: Kernel, *, seed: int = 0) -> float:
    """Return the MMD (not squared, biased: at least 0) of records and landmarks.

    Exact up to 5000 records; beyond, that of a sample of 5000 which follows from the seed alone.
    """
    if len(X) > EXACT_MMD:
        X = X[np.sort(np.random.default_rng(seed).permutation(len(X))[:EXACT_MMD])]
    square = mmd2(np.asarray(X, np.float64), np.asarray(landmarks, np.float64), kernel, estimator="biased")
    return math.sqrt(max(square, 0.0))


def certificate_per_record(X: Array, landmarks: Array, kernel: Kernel) -> float:
    """Return tr(K − C W⁺ Cᵀ)/n: the trace certificate of the Nyström estimate, per record, from 0 to 1.

    It is the mean of E_ii = 1 − ‖F_i‖², what the landmarks leave unexplained of a record, and n times it bounds the
    error of the estimated kernel matrix in the spectral and the Frobenius norm (`dpfedvis.evaluation.theory`). It is
    computed from the *exact* rows of all records, so that runs compare by their landmarks whatever they release: a
    server has it only where it sees exact rows. Rounding, which `kernel_certificate` allows for, is left out.
    """
    Y = np.asarray(landmarks, np.float64)
    # As in `kernel_factor`, in blocks: neither all rows nor all factors are held at once.
    matrix, signs = nystrom_factor(kernel_matrix(Y, Y, kernel), cutoff=CUTOFF)
    matrix, total = matrix[:, signs > 0], 0.0
    for start in range(0, len(X), _BLOCK):
        block = np.asarray(X[start : start + _BLOCK], np.float64)
        factor = kernel_matrix(block, Y, kernel) @ matrix
        total += float(np.maximum(1 - np.vecdot(factor, factor), 0).sum())
    return total / len(X)
