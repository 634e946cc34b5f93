"""The theorems that are not about K̂, on the data of a study: Thm 1 with the measured motion, Thm 4 and Thm 6."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from dpfedvis.evaluation.theory.bound import Bound
from dpfedvis.evaluation.theory.convergence import Smoothness, dissimilarity, motion, thm1_corrected, thm1_printed
from dpfedvis.evaluation.theory.privacy import (
    Constants,
    thm4_classical,
    thm4_corrected,
    thm4_printed,
    thm6_delta_corrected,
    thm6_delta_printed,
    thm6_sigma_corrected,
    thm6_sigma_printed,
)
from dpfedvis.evaluation.theory.study import CLIENTS, Study
from dpfedvis.numerics.distances import Float64

DELTA = 1e-5
ROUNDS = 20
RELEASES = 50
LOCAL_STEPS = (1, 5)
EPSILONS = (0.5, 1.0, 300.0)


class _Run(TypedDict):
    constants: Smoothness
    zeta: float
    rounds: int
    local_steps: int
    decrease: float


@dataclass(frozen=True)
class TheoremCase:
    """A quantity and the theorem's bounds on it.

    Parameters
    ----------
    what : str
    truth : float, optional
        Measured, or exact.
    bounds : tuple of Bound
    """

    what: str
    truth: float | None
    bounds: tuple[Bound, ...]


def other_theorems(study: Study) -> list[TheoremCase]:
    """Evaluate Thm 1, Thm 4 and Thm 6 for the smallest number of landmarks of a study.

    τ_X, τ_Y and Υ of Thm 6 are measured here, for illustration; a run must fix them in advance.
    """
    landmarks, X = min(study.settings.landmarks), study.X
    rng = np.random.default_rng([study.settings.seed, landmarks])
    Y = X[rng.permutation(len(X))[:landmarks]] + 0.1 * X.std() * rng.normal(size=(landmarks, X.shape[1]))
    return [
        *(_convergence(study, Y, rng, steps) for steps in LOCAL_STEPS),
        *(_input(X, epsilon) for epsilon in EPSILONS),
        *_gradient(study, Y),
    ]


def _convergence(study: Study, Y: Float64, rng: np.random.Generator, steps: int) -> TheoremCase:
    kernel = study.kernel
    # Sorted along one direction before the split, so that clients differ.
    order = np.argsort(study.X @ rng.normal(size=study.X.shape[1]))
    clients = [part for part in np.array_split(study.X[order], min(CLIENTS, len(study.X) // 2)) if len(part)]
    weights = [len(part) / len(study.X) for part in clients]
    constants = Smoothness.of_kernel(kernel, len(Y), weights)
    seen = motion(clients, weights, Y, kernel, rounds=ROUNDS, local_steps=steps, step_size=1 / constants.mean)
    given: _Run = {
        "constants": constants,
        "zeta": seen.dissimilarity,
        "rounds": ROUNDS,
        "local_steps": steps,
        "decrease": seen.decrease,
    }
    limit = f"measured ζ {seen.dissimilarity:.4g}, at most {dissimilarity(kernel, len(Y)):.4g} for any data"
    return TheoremCase(
        f"Thm 1, Q = {steps}: mean squared motion, {ROUNDS} rounds of 1/L, {len(clients)} unlike clients; {limit}",
        seen.mean_square,
        (thm1_corrected(**given), thm1_printed(**given)),
    )


def _input(X: Float64, epsilon: float) -> TheoremCase:
    tau_x = float(np.linalg.norm(X, axis=1).max())
    exact = thm4_corrected(tau_x=tau_x, epsilon=epsilon, delta=DELTA)
    classical = thm4_classical(tau_x=tau_x, epsilon=epsilon, delta=DELTA)
    printed = thm4_printed(tau_x=tau_x, epsilon=epsilon, delta=DELTA)
    return TheoremCase(
        f"Thm 4: σ on records for ε = {epsilon:g}, δ = {DELTA:g}, τ_X = {tau_x:.4g}",
        exact.value,
        (exact, classical, printed),
    )


def _gradient(study: Study, Y: Float64) -> list[TheoremCase]:
    X, kernel = study.X, study.kernel
    records = len(X) // min(CLIENTS, len(X))
    longest = float(np.linalg.norm(X, axis=1).max())
    constants = Constants(longest, float(np.linalg.norm(Y, 2)), longest + float(np.linalg.norm(Y, axis=1).max()))
    tight = thm6_delta_corrected(kernel=kernel, records=records, landmarks=len(Y))
    printed = thm6_delta_printed(kernel=kernel, records=records, landmarks=len(Y), constants=constants)
    found = [TheoremCase(f"Thm 6: Δ for n_p = {records}, n_y = {len(Y)}", tight.value, (tight, printed))]
    for epsilon in EPSILONS:
        exact = thm6_sigma_corrected(delta_f=1.0, rounds=RELEASES, epsilon=epsilon, delta=DELTA)
        asked = thm6_sigma_printed(delta_f=1.0, rounds=RELEASES, epsilon=epsilon, delta=DELTA)
        what = f"Thm 6: σ/Δ for ε = {epsilon:g}, δ = {DELTA:g}, S = {RELEASES}"
        found.append(TheoremCase(what, exact.value, (exact, asked)))
    return found
