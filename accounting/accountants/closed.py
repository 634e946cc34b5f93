"""Accountants in closed form: exact GDP, zCDP, the paper's theorem, basic and advanced composition."""

from __future__ import annotations

import math
from collections.abc import Callable

from accounting import checks
from accounting.composition import Composition
from accounting.errors import CannotAccount
from accounting.gdp import gaussian_epsilon, gaussian_log_delta, root


def gdp(composition: Composition, delta: float) -> float:
    """Exact ε of Gaussian releases: μ² = Σ (Δ/σ)², then δ(ε) in closed form (Dong, Roth & Su 2022)."""
    return gaussian_epsilon(math.sqrt(composition.mu2), delta)


def zcdp(composition: Composition, delta: float) -> float:
    """ε through zero-concentrated DP: ρ = Σ (Δ/σ)²/2."""
    return zcdp_epsilon(composition.mu2 / 2, delta)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """ε of a ρ-zCDP mechanism at δ.

    ρ-zCDP is (α, αρ)-RDP for every α > 1, and (α, τ)-RDP gives ε = τ + (log(1/δ) + (α − 1) log(1 − 1/α) − log α)/(α −
    1) (Canonne, Kamath & Steinke 2020, Prop. 12). Every α gives a valid bound, so an inexact search for the
    best one is harmless.
    """
    rho = checks.nonnegative("rho", rho)
    log_inverse = -math.log(checks.probability("delta", delta))
    if rho == 0:
        return 0.0

    def bound(log_gap: float) -> float:
        gap = math.exp(log_gap)
        alpha = 1 + gap
        return alpha * rho + (log_inverse - gap * math.log1p(1 / gap) - math.log(alpha)) / gap

    centre = 0.5 * (math.log(log_inverse) - math.log(rho))
    return max(0.0, _minimum(bound, centre - 6, centre + 6))


def theorem(composition: Composition, delta: float) -> float:
    """ε of Thm 6 of the paper: σ² = 8 S Δ² log(e + ε/δ)/ε² (Kairouz, Oh & Viswanath 2015, Thm 4.3), solved for ε.

    Gaussian composition depends on Σ (Δ/σ)² alone, so for releases of different noise that sum replaces S (Δ/σ)².

    The theorem is stated for every ε > 0, but it is false for large ones: it gives ε of the order of μ√(8 log(1/δ)),
    below the μ²/2 that no analysis can undercut once ε is above about 16 log(e + ε/δ). There it raises.
    """
    log_mu2 = math.log(composition.mu2)

    def excess(log_epsilon: float) -> float:
        epsilon = math.exp(log_epsilon)
        return 2 * log_epsilon - math.log(8 * math.log(math.e + epsilon / delta)) - log_mu2

    low = 0.5 * (math.log(8) + log_mu2)  # the logarithm in the formula is at least 1
    high = low + 1
    while excess(high) < 0:
        high += 1
    epsilon = math.exp(root(excess, low - 1e-9, high, absolute=1e-13))
    if gaussian_log_delta(math.sqrt(composition.mu2), epsilon) > math.log(delta):
        raise CannotAccount(f"theorem: Thm 6 is false here: its ε = {epsilon:.6g} is below the exact value")
    return epsilon


def theorem_sigma(*, sensitivity: float, rounds: int, epsilon: float, delta: float) -> float:
    """σ that Thm 6 asks for: √(8 S log(e + ε/δ)) Δ/ε."""
    sensitivity = checks.positive("sensitivity", sensitivity)
    rounds = checks.count("rounds", rounds)
    epsilon, delta = checks.positive("epsilon", epsilon), checks.probability("delta", delta)
    spread = math.sqrt(8 * math.log(math.e + epsilon / delta)) if epsilon / delta < math.inf else math.inf
    return checks.normal("sigma", sensitivity / epsilon * math.sqrt(checks.product(rounds, 1.0)) * spread)


def basic(composition: Composition, delta: float) -> float:
    """Basic composition (Dwork & Roth 2014): each of k releases at (ε_i, δ/k) by its exact curve, and ε = Σ ε_i."""
    return math.fsum(count * epsilon for epsilon, count in _each(composition, delta / composition.releases))


def advanced(composition: Composition, delta: float) -> float:
    """Advanced composition: ε = √(2 log(1/δ′) Σ ε_i²) + Σ ε_i (e^{ε_i} − 1) with δ′ = Σ δ_i = δ/2.

    Dwork, Rothblum & Vadhan 2010, Thm III.3; the martingale argument does not need equal ε_i.
    """
    each = _each(composition, delta / (2 * composition.releases))
    if any(epsilon > 700 for epsilon, _ in each):
        return math.inf
    squares = math.fsum(count * epsilon**2 for epsilon, count in each)
    drift = math.fsum(count * epsilon * math.expm1(epsilon) for epsilon, count in each)
    return math.sqrt(2 * math.log(2 / delta) * squares) + drift


def _each(composition: Composition, delta: float) -> list[tuple[float, int]]:
    """(ε, count) of each group of single releases at `delta`."""
    if delta == 0:
        raise CannotAccount(f"δ, split over {composition.releases} releases, is no float")
    return [(gaussian_epsilon(1 / noise, delta), count) for noise, count in composition.gaussian.items()]


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Smallest value that a bounded search finds between `low` and `high`."""
    from scipy.optimize import minimize_scalar  # slow to import

    found = minimize_scalar(function, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
    return float(found.fun)
