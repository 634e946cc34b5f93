"""The certificate of noisy rows on data: which rank to take, and how far it is from the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpfedvis.evaluation.theory.certificate import noisy_rows
from dpfedvis.evaluation.theory.empirical import KernelError, Norms, norms
from dpfedvis.evaluation.theory.facts import NORMS, Bound
from dpfedvis.numerics.distances import CUTOFF, Float64, nystrom_factor
from dpfedvis.numerics.kernels import Kernel, kernel_matrix


@dataclass(frozen=True)
class RowsCase:
    """Exact landmarks, rows with noise.

    Parameters
    ----------
    landmarks, rank : int
    sigma : float
        Noise in each kernel value that a client uploads.
    truth : Norms
        Of K − F̃F̃ᵀ.
    bounds : tuple of Bound
    """

    landmarks: int
    sigma: float
    rank: int
    truth: Norms
    bounds: tuple[Bound, ...]


def rows_case(
    X: Float64, Y: Float64, kernel: Kernel, *, sigma: float, failure: float, rng: np.random.Generator
) -> RowsCase:
    """Draw noise of `sigma`, and take the rank among 1, 2, 4, … whose Frobenius certificate is smallest.

    The choice looks at the noise, so that each rank is given an equal share of `failure` (a union bound).
    """
    C = np.asarray(kernel_matrix(X, Y, kernel), np.float64)
    matrix, signs = nystrom_factor(kernel_matrix(Y, Y, kernel), cutoff=CUTOFF)
    matrix = matrix[:, signs > 0]
    # Columns of V|λ|^{−½} have squared norms 1/λ.
    eigenvalues: Float64 = 1 / np.vecdot(matrix.T, matrix.T)
    left = (C + sigma * rng.normal(size=C.shape)) @ matrix
    ranks = [2**i for i in range(len(eigenvalues).bit_length())]
    share = failure / len(ranks)

    def certificates(rank: int) -> tuple[Bound, ...]:
        kept = (left[:, :rank], eigenvalues[:rank])
        return tuple(noisy_rows(*kept, sigma=sigma, failure=share, norm=norm) for norm in NORMS)

    rank = min(ranks, key=lambda rank: certificates(rank)[1].value or 0.0)
    truth = norms(KernelError(X, kernel, left[:, :rank]), rng)
    chosen = tuple(replace(bound, holds_with=1 - failure) for bound in certificates(rank))
    return RowsCase(len(Y), sigma, rank, truth, chosen)
