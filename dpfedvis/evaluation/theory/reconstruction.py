"""Thm 3 and Thm 5: the error of the Nyström estimate of K, with noise on the records or on the landmarks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.evaluation.theory.bound import Bound, Form, Norm, trivial_error
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix

# Above this many points all eigenvalues take minutes; the condition number is then bounded from below.
EIGEN_LIMIT = 6000


@dataclass(frozen=True)
class Condition:
    """Condition number of the kernel matrix of landmarks and records together.

    Parameters
    ----------
    value : float
    is_floor : bool
        Whether the true one is larger: beyond float64, or not computed.
    """

    value: float
    is_floor: bool = False


def condition(points: Array, kernel: Kernel, *, limit: int = EIGEN_LIMIT) -> Condition:
    """Cond(K) of all points, shape (n, m).

    Eigenvalues have errors of about n ulps of the largest. A smallest eigenvalue below that is only known to be at most
    twice that, so Cond(K) ≥ 1/(2n·ulp). Above `limit` points: the smallest eigenvalue is at most the mean
    one, which is 1, and the largest at least the mean row sum, so Cond(K) ≥ (1/n)Σk.
    """
    points = np.asarray(points, np.float64)
    n, ulp = len(points), float(np.finfo(np.float64).eps)
    if n > limit:
        from dpfedvis.numerics.mmd import similarity

        return Condition(n * similarity(points, points, kernel), is_floor=True)
    K = kernel_matrix(points, points, kernel)
    values = np.linalg.eigvalsh((K + K.T) / 2)
    largest, smallest = float(values[-1]), float(values[0])
    if smallest <= n * ulp * largest:
        return Condition(1 / (2 * n * ulp), is_floor=True)
    return Condition(largest / smallest)


def thm5_printed(*, records: int, landmarks: int, rank: int, condition: Condition, mmd2: float, norm: Norm) -> Bound:
    """Thm 5 as printed.

    Spectral: Cond·(|MMD|/(n_x + n_y) + 1) + 2n_x.
    Frobenius: √(n_x + n_y − k)·Cond·(|MMD|/(n_x + n_y) + 1) + 2k^{1/4} n_x √(1 + n_y/n_x).

    Both are true but vacuous: above 2n_x, where the error is never above n_x (`trivial_error`). Their proof is wrong.
    It equates the sum Σ ± k with the MMD, though only the latter is normalised; it equates errors of matrices of sizes
    n_x and n_x + n_y; and in the Frobenius norm it drops a factor 2 from its own (n_x + 2n_y)n_x.

    Parameters
    ----------
    condition : Condition
        Of the kernel matrix of landmarks and records together.
    mmd2 : float
        The paper's MMD: squared, unbiased.
    """
    return _thm5(records, landmarks, rank, condition, abs(mmd2), 1.0, norm, "printed")


def thm5_corrected(*, records: int, landmarks: int, rank: int, condition: Condition, norm: Norm) -> Bound:
    """Thm 5 with a proof: Cond + 2n_x, and √(n_x + n_y − k)·Cond + 2k^{1/4} n_x √(1 + 2n_y/n_x).

    Proof. Of the printed chain: E is the lower right block of the error of the joint kernel matrix K_a, so its norm
    is no larger. By (*) of `nystrom` with s = 1 the latter is at most ‖A_X A_Xᵀ‖ + σ_{k+1}(W), and σ_{k+1}(W) ≤
    σ_1(K_a) = Cond·σ_min ≤ Cond, because σ_min(K_a) is at most the mean eigenvalue, tr K_a/(n_x + n_y) = 1. No MMD
    comes in. Frobenius: already ‖E‖_F ≤ n_x. So both are vacuous; see `mmd_bound` for one that is not.
    """
    return _thm5(records, landmarks, rank, condition, 0.0, 2.0, norm, "corrected")


def with_noisy_records(clean: Bound, perturbation: Bound, statement: str = "Thm 3") -> Bound:
    """Thm 3 from Thm 5 for the noisy records and Lemma 1: ‖K̂ − K_XX‖ ≤ ‖K̂ − K_X̃X̃‖ + ‖K_X̃X̃ − K_XX‖.

    The sum of any bound on the first term (printed, corrected or a certificate) and any on the second.
    """
    if clean.value is None or perturbation.value is None or clean.norm is None:
        why = clean.precondition or perturbation.precondition
        return Bound(statement, clean.form, None, clean.norm, precondition=why)
    records = round(trivial_records(clean))
    return Bound(
        statement,
        clean.form,
        clean.value + perturbation.value,
        clean.norm,
        clean.holds_with + perturbation.holds_with - 1,
        trivial_error(records, clean.norm, noisy_records=True),
        is_floor=clean.is_floor,
        note=f"of which {perturbation.value:.4g} for the noise, {perturbation.form}",
    )


def trivial_records(bound: Bound) -> float:
    """n_x: the trivial bound for exact records in either norm."""
    return checks.positive("trivial bound", bound.trivial if bound.trivial is not None else math.nan)


def _thm5(
    records: int,
    landmarks: int,
    rank: int,
    condition: Condition,
    mmd2: float,
    factor: float,
    norm: Norm,
    form: Form,
) -> Bound:
    n_x, n_y, k = (
        checks.count("records", records),
        checks.count("landmarks", landmarks),
        checks.count("rank", rank),
    )
    if k > n_y:
        raise InvalidParameter("rank", rank, f"at most the number of landmarks, {n_y}")
    first = condition.value * (mmd2 / (n_x + n_y) + 1)
    if norm == "spectral":
        value = first + 2 * n_x
    else:
        value = math.sqrt(n_x + n_y - k) * first + 2 * k**0.25 * n_x * math.sqrt(1 + factor * n_y / n_x)
    return Bound("Thm 5", form, value, norm, trivial=trivial_error(n_x, norm), is_floor=condition.is_floor)
