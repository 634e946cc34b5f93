"""Lemma 1: how far Gaussian noise on the records moves their kernel matrix.

Every function takes `failure`, the probability that the bound is exceeded, so that all forms are compared at the same
level. Lemma 1 counts ordered pairs, so its t is log(n(n − 1)/failure).
"""

from __future__ import annotations

import math
from statistics import fmean

from accounting import checks
from dpfedvis.evaluation.theory.bound import NORMS, Bound, Form, Norm
from dpfedvis.numerics.kernels import Kernel


def lemma1_printed(
    *, records: int, features: int, kernel: Kernel, sigma: float, diameter: float, failure: float, norm: Norm
) -> Bound:
    """Lemma 1 as printed: √2 n γ (σ²ξ² + √2 Dσξ), ξ² = m + √(2mt) + 2t.

    Two errors. The proof squares 2σ²ξ² + 2√2 Dσξ and takes 2 out of the square instead of 4; and ξ² lacks a factor √2
    in its middle term, so its tail bound for χ²_m is too small (m = 784, t = 8: 1.0e-3
    instead of 3.4e-4). n ≥ 3 equal records exceed it with a probability that tends to 1 as m grows.

    Parameters
    ----------
    records, features : int
        n and m.
    sigma : float
        Standard deviation of the noise in each feature.
    diameter : float
        D, the largest distance of two records.
    """
    t = _t(records, failure)
    square = features + math.sqrt(2 * features * t) + 2 * t
    value = math.sqrt(2) * _sum_of_entries(records, kernel, sigma, diameter, square) / 2
    return _bound("printed", value, records, failure, norm)


def lemma1_corrected(
    *, records: int, features: int, kernel: Kernel, sigma: float, diameter: float, failure: float, norm: Norm
) -> Bound:
    """Lemma 1 corrected: 2 n γ (σ²ξ² + √2 Dσξ), ξ² = m + 2√(mt) + 2t.

    Proof. ‖e_i − e_j‖²/(2σ²) is χ² with m degrees of freedom, above ξ² with probability at most e^{−t} (Laurent &
    Massart 2000, Lemma 1). With h = √2 σξ all pairs have ‖e_i − e_j‖ ≤ h, but for a probability of n(n − 1)/2 ·
    e^{−t}. As |e^{−a} − e^{−b}| ≤ |a − b| for a, b ≥ 0, an entry moves by at most γ|‖x_i − x_j + e_i − e_j‖² − ‖x_i −
    x_j‖²| ≤ γ(h² + 2Dh) = 2γ(σ²ξ² + √2 Dσξ), and a matrix of n² such entries by n times that in the Frobenius norm,
    hence also in the spectral one. For a mean of kernels γ is the mean of the widths.
    """
    t = _t(records, failure)
    square = features + 2 * math.sqrt(features * t) + 2 * t
    value = _sum_of_entries(records, kernel, sigma, diameter, square)
    return _bound("corrected", value, records, failure, norm)


def perturbation(
    *,
    records: int,
    features: int,
    kernel: Kernel,
    sigma: float,
    failure: float,
    norm: Norm,
    diameter: float = math.inf,
) -> Bound:
    """Our form of Lemma 1: with the exact χ² quantile, and also without a diameter.

    Proof. Let q be the quantile that χ²_m exceeds with probability failure/(n(n − 1)/2), so that h = σ√(2q) bounds all
    ‖e_i − e_j‖ with probability 1 − failure. The distance of two records then changes by at most h, and r ↦ e^{−γr²}
    has slope at most √(2γ/e), so an entry moves by at most √(2γ/e)·h, whatever the data; also by γ(h² + 2Dh), as in
    Lemma 1, and by 1, since kernel values lie in (0, 1]. The diagonal does not move. With b the smallest of these, the
    Frobenius norm is at most √(n(n − 1))·b, and the spectral norm at most the largest absolute row sum, (n − 1)·b.
    """
    # Imported here because scipy.stats is slow to load.
    from scipy.stats import chi2

    n, m, sigma, failure = _checked(records, features, sigma, failure)
    checks.one_of("norm", norm, NORMS)
    if n == 1 or sigma == 0:
        entry = 0.0
    else:
        h = sigma * math.sqrt(2 * float(chi2.isf(2 * failure / (n * (n - 1)), m)))
        slope = fmean(math.sqrt(2 * gamma / math.e) for gamma in kernel.gammas)
        square = kernel.mean_gamma * (h * h + 2 * diameter * h)
        entry = min(1.0, slope * h, square)
    value = entry * (math.sqrt(n * (n - 1)) if norm == "frobenius" else n - 1)
    return _bound("ours", value, n, failure, norm, "exact χ² quantile")


def _sum_of_entries(records: int, kernel: Kernel, sigma: float, diameter: float, square: float) -> float:
    """2nγ(σ²ξ² + √2 Dσξ)."""
    sigma = checks.nonnegative("sigma", sigma)
    diameter = checks.nonnegative("diameter", diameter)
    return 2 * records * kernel.mean_gamma * (sigma**2 * square + math.sqrt(2 * square) * diameter * sigma)


def _t(records: int, failure: float) -> float:
    records = checks.at_least("records", records, 2)
    return math.log(records * (records - 1) / checks.probability("failure", failure))


def _checked(records: int, features: int, sigma: float, failure: float) -> tuple[int, int, float, float]:
    return (
        checks.count("records", records),
        checks.count("features", features),
        checks.nonnegative("sigma", sigma),
        checks.probability("failure", failure),
    )


def _bound(form: Form, value: float, records: int, failure: float, norm: Norm, note: str = "") -> Bound:
    # Entries of both matrices lie in (0, 1], so their difference has norm at most n in either norm.
    statement = "Lemma 1" if form != "ours" else "perturbation"
    return Bound(statement, form, value, norm, 1 - failure, float(records), note=note)
