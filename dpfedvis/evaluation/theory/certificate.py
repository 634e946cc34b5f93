"""Certificates: bounds on an error that the server can compute from the uploads alone.

For kernels they rest on E = K − C W⁺ Cᵀ being a Schur complement of the kernel matrix of landmarks and records, so
that E ⪰ 0 and ‖E‖₂ ≤ ‖E‖_F ≤ tr E. The landmarks may be noisy or depend on the data; C and W only have to be kernel
values of the same landmarks. With noise in the *records*, the certificate is for the noisy records' kernel matrix;
with noise in the *rows* C, see `noisy_rows`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.evaluation.theory.bound import NORMS, Bound, Norm, trivial_error
from dpfedvis.evaluation.theory.empirical import KernelError, Norms, norms
from dpfedvis.numerics.distances import CUTOFF, Float64, KernelFactor, gram_frame, nystrom_factor
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix, squared_distances

_ULP = float(np.finfo(np.float64).eps)
BLOCK = 1000


def entry_error(kernel: Kernel, features: int, radius: float) -> float:
    """Largest error of a kernel value in float64, from ‖x‖² + ‖y‖² − 2x·y with norms up to `radius`.

    Each of the three sums of m products carries at most (m + 2) ulps of (‖x‖ + ‖y‖)² ≤ 4·radius², and a Gaussian of
    values changes by at most γ times that. Centre the points first: the error grows with their distance from 0.
    """
    return _ULP * (2 + 4 * (features + 4) * max(kernel.gammas) * radius**2)


def rounding(W: Array, *, entry_error: float, ridge: float = 0.0) -> float:
    """The allowance a for rounding: K − FFᵀ + aK + N ⪰ 0 with N ⪰ 0 and N_ii ≤ a, for F of `kernel_factor`.

    Proof. Let hats mark what float64 holds, α = 1e-9·λ_max(Ŵ + ridge·I) the cut below which `kernel_factor` drops
    eigenvalues, and F = ĈM with MMᵀ the inverse of Ŵ + ridge·I on what was kept.

    *Landmarks.* θ bounds ‖Ŵ − W‖ and the backward error of the eigenproblem, so Ŵ + θI ⪰ W. On the kept eigenvectors
    1/λ ≤ (1 + θ/α)/(λ + θ), so that MMᵀ ⪯ (1 + θ/α)(Ŵ + ridge·I + θI)⁻¹ ⪯ (1 + θ/α)(W + ridge·I)⁻¹, and C MMᵀ Cᵀ ⪯
    (1 + θ/α) C W⁺ Cᵀ ⪯ (1 + θ/α)K by the exact Schur complement. The cut is needed: without it θ/α is of order 1 for
    nearly equal landmarks, and K̂ may exceed K.

    *Records.* The product ĈM is wrong in column j by at most n_y ulps of ‖Ĉ_i‖λ_j^{−½}, which is an error of n_y ulps
    of ‖Ĉ_i‖ ≤ √n_y in each direction of Ĉ_i itself. So F = (C + δ)M, where the rows of δ have norm at most d =
    √n_y·entry_error + n_y² ulps. With t = d/√α, and FFᵀ ⪯ (1 + t)CMMᵀCᵀ + (1 + 1/t)δMMᵀδᵀ, the last matrix, N, has
    diagonal entries of at most (1 + 1/t)d²/α = t(1 + t).

    Hence a = max((1 + t)(1 + θ/α) − 1, t(1 + t)) will do.

    Parameters
    ----------
    W : array of shape (n_y, n_y)
    entry_error : float
        See `entry_error`.
    ridge : float
    """
    W = np.asarray(W, np.float64)
    count = len(W)
    largest = float(np.linalg.eigvalsh((W + W.T) / 2)[-1]) + checks.nonnegative("ridge", ridge)
    alpha = CUTOFF * largest
    theta = count * (checks.nonnegative("entry_error", entry_error) + _ULP * largest)
    t = (math.sqrt(count) * entry_error + count**2 * _ULP) / math.sqrt(alpha)
    return max((1 + t) * (1 + theta / alpha) - 1, t * (1 + t))


def kernel_certificate(factor: KernelFactor, *, norm: Norm, allowance: float = 0.0) -> Bound:
    """‖K − FFᵀ‖ ≤ Σ_i max(0, 1 − ‖F_i‖²), plus 2a n_x (spectral) or 4a n_x (Frobenius) for rounding.

    Proof. By `rounding`, G = E + aK + N ⪰ 0 with N ⪰ 0, so ‖G‖_F ≤ tr G = tr E + a n_x + tr N ≤ tr E + 2a n_x.
    Frobenius: ‖E‖_F ≤ ‖G‖_F + ‖aK + N‖_F, where the last is at most another 2a n_x. Spectral: the largest
    eigenvalue of E is at most that of G, and the smallest at least −‖aK + N‖₂ ≥ −2a n_x. In exact arithmetic a = 0.

    It holds for W⁺, for W_k⁺ and for (W + λI)⁻¹: each smaller inverse makes FFᵀ smaller in the PSD order and E larger.
    """
    checks.one_of("norm", norm, NORMS)
    n = len(factor.left)
    extra = (2 if norm == "spectral" else 4) * n * checks.nonnegative("allowance", allowance)
    note = f"of which {extra:.2g} allows for rounding" if extra else ""
    return Bound("certificate", "ours", factor.certificate + extra, norm, trivial=trivial_error(n, norm), note=note)


def noisy_rows(left: Float64, eigenvalues: Float64, *, sigma: float, failure: float, norm: Norm) -> Bound:
    """Certificate for rows that carry noise: K̂ = F̃F̃ᵀ from C̃ = C + N, N of independent N(0, σ²), known σ.

    With probability 1 − failure over N,

        ‖K − F̃F̃ᵀ‖ ≤ n_x − max(0, ‖F̃‖_F − g_F)² + 2‖F̃‖₂g + g₂g,    g = g₂ (spectral) or g_F (Frobenius).

    Proof. F̃ = C̃M = F + G with M = VΛ^{−½}, V orthonormal (n_y × r) and G = NVΛ^{−½}. NV is n_x × r of independent
    N(0, σ²), since V does not depend on N. So ‖G‖₂ ≤ ‖NV‖₂λ_r^{−½} ≤ g₂ = σ(√n_x + √r + √(2 log(2/failure)))λ_r^{−½}
    (Davidson & Szarek 2001, Thm II.13), but for failure/2; and ‖G‖²_F = σ²Σ_j χ²_j/λ_j with χ²_j of n_x degrees of
    freedom, each at most its failure/(2r) quantile q: g_F = σ√(qΣ1/λ_j), which bounds ‖G‖₂ too, so that g₂ may be
    lowered to it. The error of exact rows is at most n_x − ‖F‖²_F and ‖F‖_F ≥ ‖F̃‖_F − g_F. And FFᵀ − F̃F̃ᵀ = GGᵀ −
    F̃Gᵀ − GF̃ᵀ, whose norms are at most those of the last terms.

    The bound grows with 1/λ_r: choose a rank at which that is small.

    Parameters
    ----------
    left : array of shape (n_x, r)
        F̃.
    eigenvalues : array of shape (r,)
        λ_j, the kept eigenvalues of W, positive. W must not depend on the noise of the rows.
    sigma : float
        Of the noise in each entry of the rows.
    """
    from scipy.stats import chi2

    checks.one_of("norm", norm, NORMS)
    sigma, failure = checks.nonnegative("sigma", sigma), checks.probability("failure", failure)
    (n, rank), values = left.shape, np.asarray(eigenvalues, np.float64)
    if values.shape != (rank,) or not (values > 0).all():
        raise InvalidParameter("eigenvalues", values, f"{rank} positive numbers")
    g2 = sigma * (math.sqrt(n) + math.sqrt(rank) + math.sqrt(2 * math.log(2 / failure))) / math.sqrt(values.min())
    quantile = float(chi2.isf(failure / (2 * rank), n))
    g_f = sigma * math.sqrt(quantile * float((1 / values).sum()))
    g2 = min(g2, g_f)
    size, largest = float(np.linalg.norm(left)), float(np.linalg.norm(left, 2))
    g = g2 if norm == "spectral" else g_f
    value = n - max(0.0, size - g_f) ** 2 + 2 * largest * g + g2 * g
    return Bound("certificate, noisy rows", "ours", value, norm, 1 - failure, trivial_error(n, norm))


@dataclass(frozen=True)
class GramCertificate:
    """Bounds on the error of Gram distances, from the records' distances to the landmarks alone.

    Parameters
    ----------
    coordinates : array of shape (n, r)
        ẑ, in float64.
    heights : array of shape (n,)
        h_i, the distance of record i from the kept part of the landmarks' affine span.
    """

    coordinates: Float64
    heights: Float64

    def bounds(self) -> tuple[Bound, Bound]:
        """‖D − D̂‖ in the spectral and in the Frobenius norm, from u_ij = √(D̂²_ij + (h_i + h_j)²) − D̂_ij, in blocks.

        Proof. With o_i the part of x_i orthogonal to the span, D²_ij = D̂²_ij + ‖o_i − o_j‖² and ‖o_i‖ = h_i, so that
        0 ≤ D_ij − D̂_ij ≤ u_ij. The Frobenius norm is then at most that of u without its diagonal, and the spectral
        norm at most that, and at most the largest row sum of u. This is for exact arithmetic: float32 estimates have
        rounding errors of about 1e-7 of the distances, which may exceed it.
        """
        squares, rows = 0.0, [0.0]
        for start in range(0, len(self.heights), BLOCK):
            part = slice(start, start + BLOCK)
            apart = np.asarray(squared_distances(self.coordinates[part], self.coordinates), np.float64)
            reach = self.heights[part, None] + self.heights
            # √(a + b²) − √a without cancellation; 0 if both vanish.
            total = np.sqrt(apart + reach**2) + np.sqrt(apart)
            over = reach**2 / np.maximum(total, np.finfo(np.float64).tiny)
            over[np.arange(len(over)), start + np.arange(len(over))] = 0.0
            squares += float(np.vdot(over, over))
            rows.append(float(over.sum(axis=1).max()))
        frobenius = math.sqrt(squares)
        return (
            Bound("certificate, Gram", "ours", min(frobenius, max(rows)), "spectral"),
            Bound("certificate, Gram", "ours", frobenius, "frobenius"),
        )


def gram_certificate(B: Array, W: Array) -> GramCertificate:
    """Return the certificate for records at distances B from landmarks with distances W.

    Heights follow from ‖x_i − ȳ‖² = mean_j B²_ij − ½ mean W² and Pythagoras: h_i² = ‖x_i − ȳ‖² − ‖ẑ_i‖².

    Parameters
    ----------
    B, W : arrays of shape (n, n_y) and (n_y, n_y)
    """
    frame = gram_frame(W)
    squares = np.square(B, dtype=np.float64)
    coordinates: Float64 = (squares - frame.offset) @ frame.matrix
    distances = squares.mean(axis=1) - 0.5 * float(frame.offset.mean())
    heights: Float64 = np.sqrt(np.maximum(0.0, distances - np.vecdot(coordinates, coordinates)))
    return GramCertificate(coordinates, heights)


@dataclass(frozen=True)
class RowsCase:
    """A case with exact landmarks and noisy rows.

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
    """Draw noise of `sigma`, and choose the rank among 1, 2, 4, … with the smallest Frobenius certificate.

    The choice depends on the noise, so each rank gets an equal share of `failure` (a union bound).
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
