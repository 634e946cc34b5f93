"""The left-hand side of Thm 1: Alg. 1 without noise, with the motion of the mean of the clients' landmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accounting import checks
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.mmd import gradient, self_similarity, similarity


@dataclass(frozen=True)
class Motion:
    """How far Y moved.

    Parameters
    ----------
    mean_square : float
        (1/(SQ)) Σ ‖Y^{s,t} − Y^{s,t−1}‖².
    decrease : float
        F(Y⁰) − F(Y^S).
    dissimilarity : float
        Largest ‖∇f_p − ∇f_q‖ at a Y^{s,t} that was met: ζ for this run, which the server cannot know.
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
    """Run S rounds of Q local steps from Y, shape (n_y, m), and measure.

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
    """F(Y) without its constant, the records' similarity to themselves."""
    cross = sum(w * similarity(X, Y, kernel) for w, X in zip(weights, clients, strict=True))
    return float(self_similarity(Y, kernel) - 2 * cross)
