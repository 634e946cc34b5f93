"""Thm 1: the motion of the landmarks in S rounds of Q local steps, bounded and measured.

It is (1/(SQ)) Σ_s Σ_t ‖Y^{s,t} − Y^{s,t−1}‖², where Y^{s,t} is the mean of the clients' Y_p^{s,t}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.evaluation.theory.bound import Bound
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.mmd import gradient, self_similarity, similarity, smoothness

WEIGHTS_SUM = 1e-9


@dataclass(frozen=True)
class Smoothness:
    """Lipschitz constants L_p of the clients' gradients, with the weights ω_p of the average.

    Parameters
    ----------
    constants : tuple of float
        L_p.
    weights : tuple of float
        ω_p, with sum 1: the weights of the server's average. Alg. 1 uses 1/P and the theorem n_p/n, which agree only
        for clients of equal size.
    """

    constants: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        for constant in self.constants:
            checks.positive("smoothness", constant)
        if len(self.constants) != len(self.weights) or not math.isclose(sum(self.weights), 1, abs_tol=WEIGHTS_SUM):
            raise InvalidParameter("weights", self.weights, f"{len(self.constants)} numbers of sum 1")
        for weight in self.weights:
            checks.nonnegative("weight", weight)

    @classmethod
    def of_kernel(cls, kernel: Kernel, landmarks: int, weights: Sequence[float]) -> Smoothness:
        """The constants of the MMD, valid for any data: the same L for every client (`mmd.smoothness`)."""
        return cls((smoothness(kernel, landmarks),) * len(weights), tuple(weights))

    @property
    def mean(self) -> float:
        """L = Σ ω_p L_p."""
        return math.fsum(w * c for w, c in zip(self.weights, self.constants, strict=True))

    @property
    def largest(self) -> float:
        """max_p L_p."""
        return max(self.constants)

    @property
    def spread(self) -> float:
        """ρ_L = Σ ω_p L_p² / L², at least 1."""
        return math.fsum(w * (c / self.mean) ** 2 for w, c in zip(self.weights, self.constants, strict=True))


def dissimilarity(kernel: Kernel, landmarks: int) -> float:
    """Return ζ with ‖∇f_p(Y) − ∇f_q(Y)‖_F ≤ ζ for all clients, data and Y: 8√(γ/(2e))/√n_y.

    The parts in Y alone are the same. The data's part is a mean over records of matrices of norm at most
    4√(γ/(2e))/√n_y (see `accounting.sensitivity.gradient`), and two such means are at most twice that apart. For a
    mean of kernels, the mean of these.
    """
    landmarks = checks.count("landmarks", landmarks)
    parts = [8 * math.sqrt(gamma / (2 * math.e)) for gamma in kernel.gammas]
    return math.fsum(parts) / len(parts) / math.sqrt(landmarks)


def thm1_printed(*, constants: Smoothness, zeta: float, rounds: int, local_steps: int, decrease: float) -> Bound:
    """Thm 1 as printed, for the step size 1/L.

    4(F(Y⁰) − F(Y^S))/(SQL) + 12ρ_L ζ²(Q + 1)(2Q + 1)/(L²(1 − 3(Q − 1)²(ρ_L + max L_p²/L²))).

    Its last step divides by 1 − 3(Q − 1)²(…), which must be positive. But ρ_L ≥ 1 and max L_p ≥ L, so it is at most
    1 − 6(Q − 1)²: the theorem holds for Q = 1 only, and its printed value is negative for Q ≥ 2.

    Parameters
    ----------
    zeta : float
        ζ, the largest difference of two clients' gradients at one Y.
    rounds, local_steps : int
        S and Q.
    decrease : float
        F(Y⁰) − F(Y^S).
    """
    rounds, steps = checks.count("rounds", rounds), checks.count("local_steps", local_steps)
    zeta, mean = checks.nonnegative("zeta", zeta), constants.mean
    ratio = constants.spread + (constants.largest / mean) ** 2
    denominator = 1 - 3 * (steps - 1) ** 2 * ratio
    if denominator <= 0:
        why = f"its denominator 1 − 3(Q − 1)²(ρ_L + max L_p²/L²) is {denominator:.4g} for Q = {steps}"
        return Bound("Thm 1", "printed", None, precondition=why)
    drift = 12 * constants.spread * (zeta / mean) ** 2 * (steps + 1) * (2 * steps + 1) / denominator
    return Bound("Thm 1", "printed", 4 * decrease / (rounds * steps * mean) + drift)


def thm1_corrected(
    *,
    constants: Smoothness,
    zeta: float,
    rounds: int,
    local_steps: int,
    decrease: float,
    step_size: float | None = None,
) -> Bound:
    """Thm 1 for every Q and every step below 2/L.

    With c = 1/η − L/2 (L/2 for η = 1/L), a = η(L + max L_p) and d_t = ηζ((1 + a)^t − 1)/a:

        Q = 1:  (F(Y⁰) − F(Y^S))/(cS)
        Q > 1:  2(F(Y⁰) − F(Y^S))/(cSQ) + (L²/(c²Q)) Σ_{t<Q} d_t²

    Proof. Let g = Σ ω_p ∇f_p(Y_p^{t−1}), so that Y^t − Y^{t−1} = −ηg, and e = ∇F(Y^{t−1}) − g. F has an L-Lipschitz
    gradient, so F(Y^t) − F(Y^{t−1}) ≤ ⟨g + e, −ηg⟩ + (L/2)‖ηg‖² = −c‖Y^t − Y^{t−1}‖² + ⟨e, Y^t − Y^{t−1}⟩.

    The clients drift apart by d_t at most: ‖Y_p^t − Y^t‖ grows in a step by η‖∇f_p(Y_p) − Σ_q ω_q ∇f_q(Y_q)‖ ≤
    η(L_p d + ζ + Σ_q ω_q L_q d), through ∇f_p(Y) and ∇F(Y), which are at most ζ apart. So d_t ≤ (1 + a)d_{t−1} + ηζ
    from d_0 = 0, whose solution is the above. And ‖e‖ ≤ Σ ω_p L_p d_{t−1} = L d_{t−1}.

    For Q = 1, d_0 = 0 and e = 0; sum over rounds. Otherwise ⟨e, v⟩ ≤ (c/2)‖v‖² + ‖e‖²/(2c), and sum over all steps;
    each round starts from d_0 = 0.

    So heterogeneity costs nothing for Q = 1, where the printed form has 72ρ_L ζ²/L², and the first term is half the
    printed one. For Q ≥ 2 the drift grows like (1 + a)^{2Q}, which is soon vacuous.
    """
    rounds, steps = checks.count("rounds", rounds), checks.count("local_steps", local_steps)
    zeta, mean = checks.nonnegative("zeta", zeta), constants.mean
    step = 1 / mean if step_size is None else checks.positive("step_size", step_size)
    gain = 1 / step - mean / 2
    if gain <= 0:
        return Bound("Thm 1", "corrected", None, precondition=f"the step {step:.4g} is not below 2/L = {2 / mean:.4g}")
    if steps == 1:
        return Bound("Thm 1", "corrected", decrease / (gain * rounds))
    growth = step * (mean + constants.largest)
    try:
        drifts = [step * zeta * math.expm1(t * math.log1p(growth)) / growth for t in range(steps)]
        drift = (mean / gain) ** 2 / steps * math.fsum(d * d for d in drifts)
    except OverflowError:
        drift = math.inf if zeta else 0.0
    return Bound("Thm 1", "corrected", 2 * decrease / (gain * rounds * steps) + drift)


@dataclass(frozen=True)
class Motion:
    """The left-hand side of Thm 1, measured: the motion of the mean of the clients' landmarks.

    Parameters
    ----------
    mean_square : float
        (1/(SQ)) Σ ‖Y^{s,t} − Y^{s,t−1}‖².
    decrease : float
        F(Y⁰) − F(Y^S).
    dissimilarity : float
        Largest ‖∇f_p − ∇f_q‖ at any Y^{s,t} of the run: its ζ, which the server cannot know.
    """

    mean_square: float
    decrease: float
    dissimilarity: float


def motion(
    clients: Sequence[Array],
    weights: Sequence[float],
    Y: Array,
    kernel: Kernel,
    *,
    rounds: int,
    local_steps: int,
    step_size: float,
) -> Motion:
    """Run S rounds of Q local steps of Alg. 1 without noise from Y, shape (n_y, m), and measure the motion.

    Parameters
    ----------
    clients : sequence of arrays of shape (n_p, m)
    weights : sequence of float
        ω_p, of the average and of F.
    """
    rounds, local_steps = checks.count("rounds", rounds), checks.count("local_steps", local_steps)
    start, moved, apart = Y, 0.0, 0.0
    omega = np.asarray(weights, np.float64)
    for _ in range(rounds):
        local = [Y] * len(clients)
        for _ in range(local_steps):
            at_mean = [gradient(X, Y, kernel) for X in clients]
            apart = max(apart, max(float(np.linalg.norm(g - h)) for g in at_mean for h in at_mean))
            local = [Z - step_size * gradient(X, Z, kernel) for X, Z in zip(clients, local, strict=True)]
            before, Y = Y, np.tensordot(omega, np.stack(local), 1)
            moved += float(np.sum((Y - before) ** 2))
    decrease = _objective(clients, omega, start, kernel) - _objective(clients, omega, Y, kernel)
    return Motion(moved / (rounds * local_steps), decrease, apart)


def _objective(clients: Sequence[Array], weights: Array, Y: Array, kernel: Kernel) -> float:
    """F(Y) without its constant term, which depends on the records alone."""
    cross = sum(w * similarity(X, Y, kernel) for w, X in zip(weights, clients, strict=True))
    return float(self_similarity(Y, kernel) - 2 * cross)
