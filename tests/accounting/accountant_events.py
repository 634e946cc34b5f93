"""Events that accountants read, and the exact ε of a sampled one."""

from __future__ import annotations

import math

from accounting import GaussianRelease, SampledGaussianRelease, gaussian_epsilon

DELTA = 1e-5

# What numerical accountants add to the exact value: cells of a grid, or an error that PRV adds on purpose.
SLACK = 1e-9


def gaussian(sigma: float = 5.0, count: int = 1, sensitivity: float = 1.0, **changes: object) -> GaussianRelease:
    values = {"what": "gradient", "client": "a", "adjacency": "add-remove", **changes}
    return GaussianRelease(sensitivity=sensitivity, sigma=sigma, count=count, **values)


def sampled(rate: float, sigma: float = 1.0, count: int = 1) -> SampledGaussianRelease:
    return SampledGaussianRelease(
        what="batch", client="a", adjacency="add-remove", sensitivity=1.0, sigma=sigma, count=count, sampling_rate=rate
    )


def discrete(sigma: float = 5.0, count: int = 1, **changes: object) -> GaussianRelease:
    """Return releases on a grid."""
    return gaussian(sigma, count, **{"what": "counts", "grid": 0.01, "values": 1000, "noise": "discrete", **changes})


def exact_sampled_epsilon(rate: float, sigma: float, delta: float) -> float:
    """ε of one Poisson-sampled release, by hand.

    P = (1 − q) N(0, σ²) + q N(1, σ²) against Q = N(0, σ²): P − e^ε Q = q (N(1, σ²) − e^{ε′} Q) with
    e^{ε′} = 1 + (e^ε − 1)/q, so that δ(ε) = q δ_Gauss(ε′); the other order of P and Q is smaller for ε > 0.
    """
    return math.log1p(rate * math.expm1(gaussian_epsilon(1 / sigma, delta / rate)))
