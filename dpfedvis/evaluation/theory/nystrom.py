"""Thm 2, and our bound without sampling: the Nyström error by the MMD of the squared kernel.

Both rest on one argument. Let A and B hold the features of all points and of the landmarks, so that H = AᵀA, W = BᵀB,
and the rank-k estimate is Ĥ = AᵀPA with P the projection to the k leading left singular vectors of B. Then E = H − Ĥ
= Aᵀ(I − P)A ⪰ 0 has the non-zero eigenvalues of (I − P)AAᵀ(I − P), and for every s ≥ 0, in both norms,

    ‖E‖ ≤ ‖(I − P)(AAᵀ − sBBᵀ)(I − P)‖ + s‖(I − P)BBᵀ(I − P)‖ ≤ ‖AAᵀ − sBBᵀ‖ + s‖W − W_k‖.     (*)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.evaluation.theory.bound import NORMS, Bound, Norm, trivial_error
from dpfedvis.numerics.distances import CUTOFF, Float64
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix
from dpfedvis.numerics.mmd import self_similarity, similarity


def tail(eigenvalues: Float64, rank: int, norm: Norm) -> float:
    """‖H − H_k‖, from the eigenvalues of H in any order: the smallest error of any rank k."""
    checks.one_of("norm", norm, NORMS)
    rest = np.sort(np.abs(eigenvalues))[::-1][checks.count("rank", rank) :]
    if rest.size == 0:
        return 0.0
    return float(rest[0] if norm == "spectral" else np.linalg.norm(rest))


def thm2_printed(*, points: int, sample: int, rank: int, tail: float, largest: float, norm: Norm) -> Bound:
    """Thm 2 as printed, "for any sample of size c".

    Spectral ‖H − H_k‖₂ + 2nρ/√c, Frobenius ‖H − H_k‖_F + ρ(64k/c)^{1/4}.

    Neither holds for every sample: one that misses a cluster of n/2 equal points has error n/2. The source (Kumar,
    Mohri & Talwalkar 2009, after Drineas & Mahoney 2005) has "with probability at least 1 − δ", a further term with
    log(1/δ), and in the Frobenius norm a factor n, which is missing here; without it random samples fail too.

    Parameters
    ----------
    points, sample, rank : int
        n, c and k.
    tail : float
        ‖H − H_k‖ in this norm, see `tail`.
    largest : float
        ρ = max_i H_ii.
    """
    n, c, k = _counts(points, sample, rank)
    checks.one_of("norm", norm, NORMS)
    further = 2 * n * largest / math.sqrt(c) if norm == "spectral" else largest * (64 * k / c) ** 0.25
    return Bound("Thm 2", "printed", tail + further, norm, trivial=n * largest)


def thm2_corrected(
    *, points: int, sample: int, rank: int, tail: float, largest: float, failure: float, norm: Norm
) -> Bound:
    """With probability 1 − failure over a uniform sample without replacement, in both norms:

    ‖H − H_k‖ + (2nρ/√c)(√((n − c)/(n − 1)) + √(min(1, (n − c)/c) log(1/failure))).

    Proof. Take s = n/c in (*), and f = ‖AAᵀ − (n/c)BBᵀ‖_F, which bounds the spectral norm too. By Weyl's inequality,
    or in the Frobenius norm by Mirsky's, s‖W − W_k‖ ≤ ‖H − H_k‖ + f, since sBBᵀ and AAᵀ have the non-zero eigenvalues
    of sW and of H. Hence ‖E‖ ≤ ‖H − H_k‖ + 2f.

    (n/c)BBᵀ is n times the mean of a sample of the matrices a_i a_iᵀ, each of norm at most ρ, so that E f² is n² times
    the variance of such a mean, at most n²ρ²(n − c)/(c(n − 1)).

    Exchanging one sampled point moves f by at most Δ = (n/c)‖aaᵀ − bbᵀ‖_F ≤ (n/c)√2ρ. Reveal the sample point by point:
    given the past, two values of the next point leave samples that can be paired so as to differ in one point, so the
    conditional means of f have a range of at most Δ, and by Azuma and Hoeffding f exceeds its mean by Δ√(c log(1/
    failure)/2) with probability at most `failure`. The n − c points left out can be revealed instead, so c may be
    replaced by min(c, n − c). Together: f ≤ (nρ/√c)(√((n − c)/(n − 1)) + √(min(1, (n − c)/c) log(1/failure))).

    It needs no factor k^{1/4}, and falls like c^{−1/2} in the Frobenius norm, where the source has c^{−1/4}.
    """
    n, c, _ = _counts(points, sample, rank)
    checks.one_of("norm", norm, NORMS)
    left = n - c
    spread = math.sqrt(left / max(n - 1, 1))
    deviation = math.sqrt(min(1.0, left / c) * -math.log(checks.probability("failure", failure)))
    value = tail + 2 * n * largest / math.sqrt(c) * (spread + deviation)
    return Bound("Thm 2", "corrected", value, norm, 1 - failure, n * largest)


@dataclass(frozen=True)
class Spread:
    """Sums of squared kernel values, which are inner products of second moments in feature space.

    Parameters
    ----------
    records, landmarks : int
        n_x and n_y.
    own, cross, landmark : float
        Σ k(x, x')², Σ k(x, y)² and Σ k(y, y')² over all pairs, each point with itself included.
    """

    records: int
    landmarks: int
    own: float
    cross: float
    landmark: float

    @classmethod
    def of(cls, X: Array, Y: Array, kernel: Kernel) -> Spread:
        """Compute the sums in blocks, in float64.

        k² is also a mean of Gaussian kernels, of widths γ_b + γ_c; for one width, of 2γ.
        """
        squared = Kernel(tuple(one + other for one in kernel.gammas for other in kernel.gammas))
        X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)
        own, landmark = (len(Z) ** 2 * self_similarity(Z, squared, estimator="biased") for Z in (X, Y))
        return cls(len(X), len(Y), own, len(X) * len(Y) * similarity(X, Y, squared), landmark)

    @property
    def mmd(self) -> float:
        """MMD (not squared, biased) of records and landmarks under k²."""
        n, c = self.records, self.landmarks
        return math.sqrt(max(0.0, self.own / n**2 - 2 * self.cross / (n * c) + self.landmark / c**2))

    def gap(self, s: float) -> float:
        """‖AAᵀ − sBBᵀ‖_F."""
        return math.sqrt(max(0.0, self.own - 2 * s * self.cross + s * s * self.landmark))


def cut_off_norms(W: Array, *, rank: int | None = None, ridge: float = 0.0) -> dict[Norm, float]:
    """‖(I − P)BBᵀ(I − P)‖ of (*) for the estimate by `dpfedvis.numerics.distances.kernel_factor`.

    Without ridge these are norms of the eigenvalues of W that were cut off, by rank or by rounding. With a ridge λ, I
    − P becomes M = λ(BBᵀ + λI)⁻¹ on what was kept, also between 0 and I, so (*) holds with M^{½} on both sides,
    and M^{½}BBᵀM^{½} has the eigenvalues λw/(w + λ).
    """
    values = np.clip(np.linalg.eigvalsh(np.asarray(W, np.float64)), 0.0, None)[::-1]
    kept = values + ridge > CUTOFF * (values[0] + ridge)
    if rank is not None:
        kept[checks.count("rank", rank) :] = False
    rest = np.where(kept, ridge * values / np.maximum(values + ridge, np.finfo(np.float64).tiny), values)
    return {"spectral": float(rest.max()), "frobenius": float(np.linalg.norm(rest))}


def mmd_bound(X: Array, Y: Array, kernel: Kernel, *, norm: Norm, rank: int | None = None, ridge: float = 0.0) -> Bound:
    """‖K_XX − K_XY W_k⁺ K_YX‖ ≤ n_x·MMD_{k²}(X, Y) + (n_x/n_y)‖W − W_k‖, for any landmarks, learned or sampled.

    This is the aim of Thm 5: landmarks that match the records in MMD give a good estimate. The kernel is k², of width
    2γ, and the MMD is biased and not squared.

    Proof. Take A for the records alone in (*), and s = n_x/n_y. AAᵀ/n_x and BBᵀ/n_y are the means of φ(x)φ(x)ᵀ, whose
    inner products are ⟨φ(x)φ(x)ᵀ, φ(y)φ(y)ᵀ⟩ = k(x, y)²; the Frobenius norm of their difference is the MMD under k²,
    and it bounds the spectral norm too.

    Every s ≥ 0 gives a bound; the smallest of three is returned: s = n_x/n_y; s = Σk(x, y)²/Σk(y, y')², the best
    for a full pseudo-inverse; and s = 0, which gives ‖K_XX‖_F, so the bound is never above n_x.
    """
    checks.one_of("norm", norm, NORMS)
    spread = Spread.of(X, Y, kernel)
    Y = np.asarray(Y, np.float64)
    rest = cut_off_norms(kernel_matrix(Y, Y, kernel), rank=rank, ridge=ridge)[norm]
    choices = (spread.records / spread.landmarks, spread.cross / spread.landmark, 0.0)
    value, s = min((spread.gap(s) + s * rest, s) for s in choices)
    trivial = trivial_error(spread.records, norm)
    note = f"MMD under k² {spread.mmd:.4g}, s = {s:.4g}"
    return Bound("MMD of k²", "ours", value, norm, trivial=trivial, note=note)


def _counts(points: int, sample: int, rank: int) -> tuple[int, int, int]:
    n, c = checks.count("points", points), checks.count("sample", sample)
    k = checks.count("rank", rank)
    if c > n:
        raise InvalidParameter("sample", sample, f"at most the number of points, {n}")
    return n, c, k
