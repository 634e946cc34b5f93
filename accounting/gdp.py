"""Privacy of Gaussian noise in closed form: from μ-GDP to (ε, δ) and back.

A release of L2 sensitivity Δ with noise N(0, σ²I) is exactly μ-GDP with μ = Δ/σ, and releases with μ_1, μ_2, …
compose, adaptively, to exactly μ² = Σ μ_t² (Dong, Roth & Su 2022, Cor. 3.3). The trade-off in terms of (ε, δ) is
(Balle & Wang 2018, Thm 8; Dong, Roth & Su 2022, Cor. 2.13)

    δ(ε) = Φ(a) − e^ε Φ(b),    a = −ε/μ + μ/2,    b = −ε/μ − μ/2.

This module exists because the formula as printed overflows at ε > 709 and cancels for small δ. As e^ε φ(b) = φ(a), it
equals φ(a) (M(−a) − M(−b)) with the Mills ratio M(x) = Φ(−x)/φ(x) = √(π/2) erfcx(x/√2): no large number appears, and
the difference loses at most a factor (|a| + 1)/μ of the machine precision. For small μ it is taken by the midpoint
rule, μ(1 − xM(x)) at x = ε/μ, since M′ = xM − 1; that is off by O(μ²) and loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import erfcx, erfinv, ndtr

from accounting import checks

_SMALL_MU = 1e-5
_LEAST, _TINY = 5e-324, 1e-280
_FAR = 1e4  # from here on M is taken by its expansion, whose error is 3/x² at most
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ at which a μ-GDP mechanism is (ε, δ)-DP, exactly.

    Parameters
    ----------
    mu : float
        GDP parameter, at least 0; ``inf`` for no noise at all.
    epsilon : float
        At least 0; ``inf`` is allowed.

    Returns
    -------
    float
        δ in [0, 1]; 0 where it is below the smallest float (see `gaussian_log_delta`).
    """
    return math.exp(gaussian_log_delta(mu, epsilon))


def gaussian_log_delta(mu: float, epsilon: float) -> float:
    """Natural logarithm of `gaussian_delta`, without underflow."""
    mu = mu if mu == math.inf else checks.nonnegative("mu", mu)
    epsilon = epsilon if epsilon == math.inf else checks.nonnegative("epsilon", epsilon)
    if mu == 0 or epsilon == math.inf:
        return -math.inf
    if mu == math.inf:
        return 0.0
    x = epsilon / mu
    a, b = mu / 2 - x, -mu / 2 - x
    log_density = -0.5 * a * a - _LOG_SQRT_2PI
    if a > 0 and mu > _SMALL_MU:
        # M(−a) would overflow here, while Φ(a) ≥ 1/2 is harmless.
        return math.log(float(ndtr(a)) - math.exp(log_density) * _mills(-b))
    return log_density + _log_difference(mu, x, -a, -b) if log_density > -math.inf else -math.inf


def _log_difference(mu: float, x: float, near: float, far: float) -> float:
    """log(M(near) − M(far)) for far − near = μ and x half way; M(x) = (1 − 1/x²)/x + O(x⁻⁵)."""
    if near > _FAR:
        return math.log(mu) - math.log(near) - math.log(far)
    if mu > _SMALL_MU:
        return math.log(_mills(near) - _mills(far))
    return math.log(mu) + math.log(1 - x * _mills(x))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Smallest ε at which a μ-GDP mechanism is (ε, δ)-DP.

    Parameters
    ----------
    mu : float
        GDP parameter, at least 0; ``inf`` for no noise at all.
    delta : float
        Strictly between 0 and 1.

    Returns
    -------
    float
        ε ≥ 0; ``inf`` for μ = ``inf``.

    Notes
    -----
    δ(ε) falls in ε, and δ(ε) ≤ Φ(a) ≤ exp(−a²/2) for a ≤ 0, so the root lies between 0 and
    μ²/2 + μ √(2 log(1/δ)).
    """
    mu = mu if mu == math.inf else checks.nonnegative("mu", mu)
    delta = checks.probability("delta", delta)
    if mu == math.inf:
        return math.inf
    if mu == 0 or _excess(mu, 0.0, delta) <= 0:
        return 0.0
    high = mu * (mu / 2 + math.sqrt(-2 * math.log(delta)))
    if high == math.inf:
        return math.inf
    return root(lambda epsilon: _excess(mu, epsilon, delta), 0.0, high)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest μ for which a μ-GDP mechanism is (ε, δ)-DP: what a budget buys.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float
        Strictly between 0 and 1.

    Returns
    -------
    float
        μ > 0.

    Notes
    -----
    δ grows in μ. By the tail bound of `gaussian_epsilon`, δ(μ₀) ≤ δ for the positive root μ₀ of
    μ²/2 + s μ = ε, s = √(2 log(1/δ)). And δ falls in ε, so that μ is at least that of ε = 0, where δ = erf(μ/(2√2)).
    Doubling the larger of the two finds the other end of the bracket.
    """
    epsilon = checks.nonnegative("epsilon", epsilon)
    delta = checks.probability("delta", delta)
    least = max(2 * math.sqrt(2) * float(erfinv(delta)), _LEAST)
    if epsilon == 0:
        return least
    spread = math.sqrt(-2 * math.log(delta))
    low = max(epsilon / ((spread + math.hypot(spread, math.sqrt(2) * math.sqrt(epsilon))) / 2), least)

    def excess(mu: float) -> float:
        return _excess(mu, epsilon, delta)

    if excess(low) >= 0:  # ε so large (1e30) that a is rounded off, or so small that it is nothing
        return low
    high = 2 * low
    while excess(high) < 0:
        low, high = high, 2 * high
    return root(excess, low, high)


def _excess(mu: float, epsilon: float, delta: float) -> float:
    """Something that grows with δ(ε) and is 0 where that is `delta`: a difference of logarithms, of 1 − δ near 1."""
    if delta <= 0.5:
        return gaussian_log_delta(mu, epsilon) - math.log(delta)
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    rest = float(ndtr(-a)) + math.exp(-0.5 * a * a - _LOG_SQRT_2PI) * _mills(-b)
    return math.log1p(-delta) - math.log(rest) if rest > 0 else math.inf


def root(function: Callable[[float], float], low: float, high: float, *, absolute: float = 1e-300) -> float:
    """Root of a monotone function between `low` and `high`, to machine precision or `absolute`.

    Where rounding leaves no change of sign, it is the end whose value is nearer to 0. Roots too small for the quick
    method are found by halving.
    """
    at_low, at_high = function(low), function(high)
    if at_low == 0 or at_high == 0 or (at_low > 0) == (at_high > 0):
        return low if abs(at_low) <= abs(at_high) else high
    if low >= 0 and high < _TINY:
        return _halved(function, low, high, rising=at_high > 0)
    from scipy.optimize import brentq  # takes longer to import than all else here together

    return float(brentq(function, low, high, xtol=absolute, rtol=4 * 2.0**-52, maxiter=2000))


def _halved(function: Callable[[float], float], low: float, high: float, *, rising: bool) -> float:
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if (function(middle) > 0) == rising else (middle, high)
    return high if rising else low


def _mills(x: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))
