"""How many rounds S of Algorithm 1 a budget is best spent on, from public numbers alone.

*What a round costs.* S releases of one budget need √S times the noise of one: s√S in each value of the average
gradient, where s is the noise of a single round. Over S plain steps of size η the noise alone moves a landmark of d
coordinates by S·η·s·√d (root mean square): √S from adding up, √S from the budget.

*What a round gives.* Let L be the Lipschitz constant of the gradient, f₀ how far the squared MMD can still fall, and
η ≤ 1/L. By the descent lemma E f(Y⁺) ≤ E f(Y) − (η/2)E‖∇f‖² + (Lη²/2)·n_y d s²S, since the noise has mean 0. Summed
over S rounds (Ghadimi & Lan 2013), with T = Sη,

    mean E‖∇f‖² ≤ 2f₀/T + L·n_y d s²·T.

Only T counts: half the step in twice the rounds comes to the same. The bound is least at T = √(2f₀/(L n_y d))/s, where
noise alone moves a landmark by T·s·√d = √(2f₀/(L n_y)), which is 0.59·√f₀/√γ, since L is 5.8γ/n_y (unbiased, many
landmarks). So the best S is where noise has moved the landmarks by a fixed part of the kernel's width 1/√γ, whatever n,
n_y, d, γ, ε and trust are. With step 1/L and the tight sensitivity it is

    S = (reach/0.59)·n·μ/(f·√(n_y d)),

with f = √P for noise at each site, and about 1 for a sum of all. The bound leaves the size of `reach` open, since f₀ is
private and worst cases seldom occur. It was chosen on public data (reports/gradient): from afar, and from a start that
has mean and variances of the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from accounting import Budget, checks
from dpfedvis.mechanisms import GradientUpload, KMeans, Mechanism, VariableUpload
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.protocol.contract import Contract

WITHOUT_CHOICE = 50  # rounds at most where nothing is chosen
MOST_CHOSEN = 100  # a round takes time, and the last ones give little
FROM_AFAR, FROM_NEARBY = 1.0, 0.3  # how far noise may move a landmark, in widths 1/√γ of the kernel


def rounds_for(moved: Callable[[int], float], reach: float, most: int = MOST_CHOSEN) -> int:
    """Return the largest S from 1 to `most` up to which noise moves landmarks by no more than `reach`; at least 1.

    Parameters
    ----------
    moved : callable
        How far the noise of S rounds alone moves a landmark, in widths of the kernel; a function of public numbers.
    reach : float
    most : int
    """
    checks.count("most rounds", most)
    return next((rounds for rounds in range(1, most) if moved(rounds + 1) > reach), most)


def moved_by(noise: float, public: PublicParameters, mechanism: Mechanism) -> float:
    """Return η·s·√d in widths of the kernel: how far one round's noise moves a landmark if it is the only round.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise in each value of the server's average, if there is but one round.
    public : PublicParameters
        Its step is that of the server.
    mechanism : Mechanism
        Uploads of landmarks are steps already.
    """
    step = 1.0 if isinstance(mechanism, VariableUpload) else public.step_size
    return step * noise * math.sqrt(public.features * public.kernel.mean_gamma)


def added_up(rounds: int, decay: float = 0.0) -> float:
    """Return how far S steps of noise lead, in units of one step under the noise of one round: S for plain steps.

    Under momentum the noise of a round moves Y again in each later one: (1 − β^t)/(1 − β) times in t rounds.
    """
    if decay == 0.0:
        return float(rounds)
    return math.sqrt(rounds * math.fsum(((1 - decay**t) / (1 - decay)) ** 2 for t in range(1, rounds + 1)))


def chooses(mechanism: Mechanism, budget: Budget | None) -> bool:
    """Whether the number of rounds is chosen: where each round of gradients or local steps has noise of a budget."""
    per_round = isinstance(mechanism, GradientUpload | VariableUpload)
    return budget is not None and per_round and mechanism.protection == "upload"


def rounds_of_map(
    once: Contract,
    counted: Contract,
    public: PublicParameters,
    landmarks_for: Callable[[float], int],
) -> int:
    """Return S for a private map, whose landmarks start with the records' mean and variances.

    Parameters
    ----------
    once : Contract
        Of one round.
    counted : Contract
        The same with `KMeans` of one sweep: its noise is that of a mean of vectors of norm 1.
    public : PublicParameters
        Of the landmarks; their number does not matter.
    landmarks_for : callable
        Number of landmarks from that noise.
    """
    unit = math.sqrt(counted.planned_variance(counted.mechanism, public))

    def moved(rounds: int) -> float:
        landmarks = max(2, landmarks_for(unit * math.sqrt(rounds)))
        seen = with_largest_step(public, landmarks)
        noise = math.sqrt(once.planned_variance(once.mechanism, seen))
        return rounds * moved_by(noise, seen, once.mechanism)

    return rounds_for(moved, FROM_NEARBY)


def with_largest_step(public: PublicParameters, landmarks: int) -> PublicParameters:
    """Return the public parameters of so many landmarks with the step 1/L."""
    made = replace(public, landmarks=landmarks)
    return replace(made, step_size=1 / made.smoothness)


def one_sweep(mechanism: Mechanism) -> KMeans:
    """Return k-means of one sweep under the same trust."""
    return KMeans(trust=mechanism.trust, sweeps=1)
