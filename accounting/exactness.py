"""What integers cost: the distance of a real release on a grid from the Gaussian one that is accounted.

A release on a grid is a vector of integers v plus discrete Gaussian integers of parameter s, P(k) ∝ exp(−k²/2s²). To
accountants it is a Gaussian release of noise √(s² − 4), in cells of the grid. This module says why, and what is left to
charge.

**Discrete Gaussians compose like Gaussians.** *Lemma.* Let s > 2, ρ_a(x) = exp(−x²/2a²), S_a(y) = Σ_j ρ_a(j − y) over
all integers j, and η = 1.1e-34. Round a real y to the integer k with probability ρ_2(k − y)/S_2(y). For an integer v,
rounding v + N(0, s² − 4) gives every k the probability that v + discrete Gaussian(s) gives it, up to a factor
e^{±2.1η}.

*Proof.* Poisson summation: S_a(y) = a√(2π) (1 + 2Σ_{j≥1} e^{−2π²a²j²} cos 2πjy). As 2e^{−8π²} < 1.03e-34, S_2(y) =
2√(2π)(1 + θ) with |θ| ≤ η, and S_s(0) = s√(2π)(1 + θ′) with 0 ≤ θ′ ≤ η. Variances of Gaussians add, so that

    ∫ φ_{√(s²−4)}(y − v) ρ_2(k − y) dy / (2√(2π)) = ρ_s(k − v) / (s√(2π)).

Dividing by 1 + θ(y) inside the integral changes it by a factor between 1/(1 + η) and 1/(1 − η). The discrete Gaussian
has ρ_s(k − v)/S_s(0), since v is an integer, which is the right side over 1 + θ′. ∎

So one value is within e^{±2.1η} of a post-processing of v + N(0, s² − 4), and D independent values, also of releases
that follow each other adaptively or are made from Poisson samples, are within e^{±2.1ηD} of a post-processing of
(sampled) Gaussian releases. Noise of parameter s_i at value i gives μ² = max Σ_i Δv_i²/(s_i² − 4).

**Shared noise.** The sum of P ≥ 2 discrete Gaussians of parameter s is one of parameter √P·s up to a factor e^{±τ/2} a
value, τ = 10 Σ_{k<P} exp(−2π²s²k/(k + 1)) (Kairouz, Liu & Steinke 2021): see `shared_deviation`.

**The sampler** (`accounting.sampler`) gives every integer within `REACH`·s its probability up to a factor e^{±ρ}, ρ <
26·2⁻⁵³, and gives the others none; they have the mass `TAIL` at most.

**The charge.** `DEVIATION` = 32·2⁻⁵³ is above the sum of the three for each integer drawn. Let D integers be drawn, Λ =
D·DEVIATION, and let R(S), R′(S) be the real probabilities of a set S of outputs for two neighbours, I(S) and I′(S)
those of the Gaussian mechanism. A real output is one where all noise is within reach, so R(S) ≤ e^Λ I(S) and R(S) ≥
e^{−Λ}(I(S) − D·TAIL). If the Gaussian mechanism is (ε₀, δ₀)-DP, then

    R(S) ≤ e^Λ I(S) ≤ e^Λ (e^{ε₀} I′(S) + δ₀) ≤ e^{ε₀ + 2Λ} R′(S) + e^Λ δ₀ + e^{ε₀ + Λ} D·TAIL,

so that the real one has ε = ε₀ + 2Λ at δ = e^Λ δ₀ + D·TAIL·(1 + e^ε). Beyond ε = `MOST_EPSILON` the last term is not
covered by any δ of use, and no ε is given: a sampler of finite memory cannot have one.

Where P parties each draw noise and only the sum is seen, the pmf of the sum is within e^{±Pρ}: D counts the integers of
all parties.
"""

from __future__ import annotations

import math

from accounting import checks
from accounting.errors import CannotAccount

REACH = 36  # noise beyond so many parameters s is never drawn
DEVIATION = 2.0**-48  # of the logarithm of a probability, for each integer drawn: sampler, lemma and shared noise
TAIL = 1e-281  # mass beyond REACH: at most 2e^{−36²/2} < 7.8e-282, the discrete Gaussian being sub-Gaussian
MOST_EPSILON = 500.0

_DOWN = 1 - 2.0**-50  # against rounding


def charged_epsilon(values: int) -> float:
    """2Λ: what the integers of releases add to ε.

    Parameters
    ----------
    values : int
        How many integers were drawn; 0 for continuous noise, which is not charged. Rounded up to a power of two inside,
        so that the charge changes rarely.
    """
    return 2 * _deviation(checks.at_least("values", values, 0))


def inner_delta(values: int, delta: float) -> float:
    """δ that is left for the Gaussian mechanism, if ε is at most `MOST_EPSILON`: (δ − D·TAIL(1 + e^ε)) e^{−Λ}.

    Raises
    ------
    CannotAccount
        If nothing is left: δ is below 1.5e-64 for each integer, or Λ is in the hundreds.
    """
    values, delta = checks.at_least("values", values, 0), checks.probability("delta", delta)
    if values == 0:
        return delta
    deviation = _deviation(values)
    tail = deviation / DEVIATION * (TAIL * (1 + math.exp(MOST_EPSILON)))
    left = (delta * _DOWN - tail) * math.exp(-deviation) * _DOWN if deviation < MOST_EPSILON else 0.0
    if left <= 0:
        raise CannotAccount(
            f"δ = {delta:g} is too small for {min(values, 2**1000):g} integers of noise: their tails weigh more"
        )
    return left


def shared_deviation(parameter: float, parties: int) -> float:
    """τ of the sum of so many discrete Gaussians of one parameter: its pmf is within e^{±τ/2} of the ideal one.

    At s ≥ 4 every term is below e^{−16π²} < 3e-69, so that up to 10⁶ parties τ is below 3e-62, which `DEVIATION`
    covers. Terms beyond the first thousand are counted as the thousandth, which is larger.
    """
    parameter, parties = checks.positive("parameter", parameter), checks.count("parties", parties)
    square = 2 * math.pi * math.pi * parameter * parameter
    terms = [math.exp(-square * (k / (k + 1))) for k in range(1, min(parties, 1000))]
    return 10 * (math.fsum(terms) + min(max(0, parties - 1000), 2.0**1000) * (terms[-1] if terms else 0.0))


def _deviation(values: int) -> float:
    """Λ of so many integers, rounded up to a power of two."""
    if values == 0:
        return 0.0
    power = (values - 1).bit_length()
    return math.ldexp(DEVIATION, power) if power < 1000 else math.inf
