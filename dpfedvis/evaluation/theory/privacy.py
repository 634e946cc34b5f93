"""Thm 4 and Thm 6: how much noise the paper asks for, and how much is needed.

Sensitivities and accountants are those of `accounting`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting import checks, gaussian_epsilon, gaussian_mu, sensitivity
from accounting.accountants.closed import theorem_sigma
from dpfedvis.evaluation.theory.bound import Bound
from dpfedvis.numerics.kernels import Kernel


def thm4_printed(*, tau_x: float, epsilon: float, delta: float) -> Bound:
    """Thm 4 as printed: (ε, δ)-DP "if δ ≥ 2cτ_X/ε, where c² > 2 ln(1.25/δ)". It asks for no noise.

    The noise σ does not occur, so short enough records would be private without noise. The value is σ = 0 if the
    printed condition holds, and None otherwise.
    """
    tau_x, epsilon, delta = _input(tau_x, epsilon, delta)
    least = 2 * math.sqrt(2 * math.log(1.25 / delta)) * tau_x / epsilon
    if delta <= least:
        return Bound("Thm 4", "printed", None, precondition=f"δ = {delta:g} is not above 2cτ_X/ε = {least:.4g}")
    return Bound("Thm 4", "printed", 0.0, note="asks for no noise, so the records would be released as they are")


def thm4_classical(*, tau_x: float, epsilon: float, delta: float) -> Bound:
    """Thm 4 read with σ for δ on the left: σ = 2τ_X √(2 ln(1.25/δ))/ε, for ε < 1 only (Dwork & Roth 2014, Thm A.1)."""
    tau_x, epsilon, delta = _input(tau_x, epsilon, delta)
    if epsilon >= 1:
        return Bound("Thm 4", "corrected", None, precondition=f"ε = {epsilon:g} is not below 1", note="classical")
    sigma = 2 * tau_x * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    return Bound("Thm 4", "corrected", sigma, note="classical")


def thm4_corrected(*, tau_x: float, epsilon: float, delta: float) -> Bound:
    """σ = 2τ_X/μ(ε, δ), for every ε and δ: the Gaussian mechanism in closed form (Balle & Wang 2018, Thm 8).

    τ_X must be a public number to which records are clipped. The theorem takes the maximum over the records, which
    depends on the data and may differ for a neighbour.
    """
    tau_x, epsilon, delta = _input(tau_x, epsilon, delta)
    return Bound("Thm 4", "corrected", sensitivity.input(tau_x=tau_x) / gaussian_mu(epsilon, delta), note="exact")


@dataclass(frozen=True)
class Constants:
    """Public bounds that Thm 6's Δ needs.

    Parameters
    ----------
    tau_x, tau_y, upsilon : float
        On ‖x‖, on the spectral norm of Y, and on ‖x − y‖.
    """

    tau_x: float
    tau_y: float
    upsilon: float


def thm6_delta_printed(*, kernel: Kernel, records: int, landmarks: int, constants: Constants) -> Bound:
    """Δ as printed, for replace-one and gradients at the same Y.

    There it holds. It does not hold for Alg. 1 as printed, where a client uploads the gradient at its own Y_p^s, which
    local steps moved depending on the records: see `local_gradient`.
    """
    value = sensitivity.gradient(
        gamma=kernel.gammas,
        records=records,
        landmarks=landmarks,
        bound="theorem",
        tau_x=constants.tau_x,
        tau_y=constants.tau_y,
        upsilon=constants.upsilon,
    )
    return Bound("Thm 6 Δ", "printed", value, note="for gradients at a Y that does not depend on the client's records")


def thm6_delta_corrected(*, kernel: Kernel, records: int, landmarks: int) -> Bound:
    """Δ* = 8√(γ/(2e))/(n_p√n_y), attained, without any constant of the data (`accounting.sensitivity.gradient`)."""
    value = sensitivity.gradient(gamma=kernel.gammas, records=records, landmarks=landmarks)
    return Bound(
        "Thm 6 Δ", "corrected", value, note="for gradients at a Y that does not depend on the client's records"
    )


def local_gradient(*, delta: float, smoothness: float, step_size: float, local_steps: int) -> float:
    """Sensitivity of ∇f_p(Y_p^Q), the gradient after Q local steps: Δ(1 + ηL)^Q.

    Proof. After Q steps the two runs are e_Q ≤ Δ((1 + ηL)^Q − 1)/L apart (`accounting.sensitivity.variable`). The
    gradients there differ by at most Δ for the data, plus L e_Q for the place.
    """
    delta, smoothness = checks.positive("delta", delta), checks.positive("smoothness", smoothness)
    growth = checks.positive("step_size", step_size) * smoothness
    return delta * math.exp(checks.count("local_steps", local_steps) * math.log1p(growth))


def thm6_sigma_printed(*, delta_f: float, rounds: int, epsilon: float, delta: float) -> Bound:
    """σ = Δ√(8S log(e + ε/δ))/ε, after Thm 4.3 of Kairouz, Oh & Viswanath (2015), with the exact ε of that σ.

    The theorem claims every ε > 0. S releases with this σ are exactly μ-GDP with μ = ε/√(8 log(e + ε/δ)), and no
    analysis gets below about μ²/2, which exceeds ε once ε > 16 log(e + ε/δ). So the precondition is computed: the exact
    ε of this σ must not exceed the requested one.
    """
    value = theorem_sigma(sensitivity=delta_f, rounds=rounds, epsilon=epsilon, delta=delta)
    exact = gaussian_epsilon(delta_f * math.sqrt(rounds) / value, delta)
    if exact > epsilon:
        why = f"its σ = {value:.4g} has ε = {exact:.4g}, not the ε = {epsilon:.4g} that it claims"
        return Bound("Thm 6 σ", "printed", None, precondition=why)
    return Bound("Thm 6 σ", "printed", value, note=f"exact ε {exact:.4g}")


def thm6_sigma_corrected(*, delta_f: float, rounds: int, epsilon: float, delta: float) -> Bound:
    """σ = Δ√S/μ(ε, δ): S Gaussian releases compose to exactly μ-GDP (Dong, Roth & Su 2022, Cor. 3.3)."""
    delta_f, rounds = checks.positive("delta_f", delta_f), checks.count("rounds", rounds)
    return Bound("Thm 6 σ", "corrected", delta_f * math.sqrt(rounds) / gaussian_mu(epsilon, delta))


def _input(tau_x: float, epsilon: float, delta: float) -> tuple[float, float, float]:
    return checks.positive("tau_x", tau_x), checks.positive("epsilon", epsilon), checks.probability("delta", delta)
