"""Lower bounds on ε from counted guesses, each with its proof or citation and with what it assumes.

A game: a fair coin decides which of two neighbouring data sets is used, and an adversary who sees the uploads guesses
which. *False positives* are guesses of "in" where the coin said "out", *false negatives* the other way round.

`epsilon_from_gdp` and `epsilon_from_rates` need independent games; the former also reads them as games against
Gaussian noise. `epsilon_from_one_run` needs neither, and takes the coins alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc, betaln, ndtr, ndtri, xlog1py, xlogy

from accounting import Ledger, checks
from accounting.errors import InvalidParameter
from accounting.gdp import gaussian_epsilon, root
from attacks.shared.statistics import rate_above

_LARGEST = 60.0  # e^−60 is far below one over any number of games


@dataclass(frozen=True)
class Claim:
    """A claimed upper bound on ε at δ.

    Parameters
    ----------
    epsilon : float
        ``inf`` where nothing is claimed.
    delta : float
    mu : float, optional
        GDP parameter, where all releases are Gaussian; None otherwise, and then no bound assumes Gaussian noise.
    source : str
        Where the claim comes from.
    """

    epsilon: float
    delta: float
    mu: float | None = None
    source: str = "given"

    def __post_init__(self) -> None:
        checks.probability("delta", self.delta)
        if self.epsilon != math.inf:
            checks.nonnegative("epsilon", self.epsilon)
        if self.mu is not None:
            checks.positive("mu", self.mu)

    @property
    def exists(self) -> bool:
        """Whether anything is claimed at all."""
        return self.epsilon != math.inf

    @classmethod
    def of_ledger(cls, ledger: Ledger, delta: float) -> Claim:
        """Return the ledger's claim for all uploads of a client, the largest over clients.

        μ is √Σ (Δ/σ)² where all releases are Gaussian or discrete Gaussian; a sampled one has no μ.
        """
        if len(ledger) == 0:
            raise InvalidParameter("ledger", "empty", "that of a run with at least one release")
        totals = [ledger.composition(client, end_to_end=True) for client in ledger.clients]
        plain = all(not each.unprotected and not each.sampled for each in totals)
        mu = max(each.total_mu for each in totals) if plain else None
        return cls(ledger.spent(delta, end_to_end=True), delta, mu or None, "ledger")


def mu_from_gdp(false_positive: float, false_negative: float) -> float:
    """Smallest μ with which Gaussian differential privacy allows error rates as low as these.

    Under μ-GDP every test has Φ⁻¹(1 − FPR) − μ ≤ Φ⁻¹(FNR) (Dong, Roth & Su 2022, Def. 2.6), which is μ ≥ Φ⁻¹(1 − FPR) +
    Φ⁻¹(1 − FNR). The right side falls in both rates, so that upper bounds of the rates give a lower bound of μ.
    """
    return max(0.0, -float(ndtri(false_positive)) - float(ndtri(false_negative)))


def mu_from_errors(rate: float) -> float:
    """Smallest μ with which a fair coin can be guessed with so few errors: μ ≥ −2Φ⁻¹(rate).

    A guess errs with probability (FPR + FNR)/2. Under μ-GDP FNR ≥ Φ(Φ⁻¹(1 − FPR) − μ), and the sum of both is smallest
    where the curve has slope −1, at FPR = FNR = Φ(−μ/2).
    """
    return max(0.0, -2 * float(ndtri(rate)))


def epsilon_from_gdp(
    false_positives: int, games_out: int, false_negatives: int, games_in: int, delta: float, confidence: float
) -> float:
    """ε at δ of the smallest Gaussian mechanism that the counts allow, at this confidence.

    The larger of two bounds, each at 1 − α/2 of 1 − α: both rates by Clopper & Pearson at 1 − α/4, which holds for any
    threshold, and the rate of all errors, which is sharper where the threshold is in the middle, as it needs one
    interval for all games.
    """
    games, tail = games_in + games_out, 1 - checks.probability("confidence", confidence)
    positive = rate_above(false_positives, games_out, 1 - tail / 4)
    negative = rate_above(false_negatives, games_in, 1 - tail / 4)
    errors = rate_above(false_positives + false_negatives, games, 1 - tail / 2)
    return gaussian_epsilon(max(mu_from_gdp(positive, negative), mu_from_errors(errors)), delta)


def epsilon_from_rates(false_positive: float, false_negative: float, delta: float) -> float:
    """ε that error rates rule out for any mechanism: log((1 − δ − FNR)/FPR), or with the two exchanged.

    Under (ε, δ)-DP, 1 − FNR ≤ e^ε FPR + δ and 1 − FPR ≤ e^ε FNR + δ (Kairouz, Oh & Viswanath 2015, Thm 2.1). Upper
    bounds of the rates, such as those of `rate_above`, keep the inequality on the safe side.
    """
    delta = checks.probability("delta", delta)
    epsilon = 0.0
    for rate, other in ((false_positive, false_negative), (false_negative, false_positive)):
        if 1 - delta - other > rate:
            epsilon = max(epsilon, math.log((1 - delta - other) / rate))
    return epsilon


def one_run_p_value(games: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Largest probability of so many correct guesses if everything that was seen is (ε, δ)-DP.

    Steinke, Nasr & Jagielski 2023 ("Privacy Auditing with One (1) Training Run"), Thm 5.2. With W̌ ~ Binomial(r,
    e^ε/(e^ε + 1)), r guesses, m games and v correct guesses:

        P[W ≥ v] ≤ P[W̌ ≥ v] + m δ max_{i ≥ 1} (2/i) P[v − i ≤ W̌ < v].

    The coins of the games must be independent and fair. Nothing else is assumed: not that the games are independent
    of each other, nor anything about the noise or how the r games to guess were chosen.

    Parameters
    ----------
    games, guesses, correct : int
        m ≥ r ≥ v ≥ 0.
    epsilon, delta : float

    Returns
    -------
    float
    """
    games, guesses = checks.count("games", games), checks.count("guesses", guesses)
    correct = checks.at_least("correct", correct, 0)
    if not correct <= guesses <= games:
        raise InvalidParameter("correct, guesses, games", (correct, guesses, games), "in ascending order")
    epsilon, delta = checks.nonnegative("epsilon", epsilon), checks.probability("delta", delta)
    if correct == 0:
        return 1.0
    q = 1 / (1 + math.exp(-epsilon))
    tail = float(bdtrc(correct - 1, guesses, q))
    below = np.cumsum(_masses(guesses, q, correct))  # P[v − i ≤ W̌ < v] for i = 1, 2, …, v
    slope = float(np.max(below / np.arange(1, correct + 1)))
    return min(1.0, tail + 2 * games * delta * slope)


def epsilon_from_one_run(games: int, guesses: int, correct: int, delta: float, confidence: float) -> float:
    """ε up to which `one_run_p_value` rejects at this confidence; 0 if it rejects nothing."""
    level = 1 - checks.probability("confidence", confidence)

    def excess(epsilon: float) -> float:
        return math.log(max(one_run_p_value(games, guesses, correct, epsilon, delta), 1e-300)) - math.log(level)

    # What is (ε, δ)-DP is so for every larger ε as well, so that rejecting one ε rejects all below it.
    if excess(0.0) >= 0:
        return 0.0
    if excess(_LARGEST) < 0:
        return _LARGEST
    return root(excess, 0.0, _LARGEST)


@lru_cache(maxsize=64)
def planned_guesses(games: int, mu: float, delta: float, confidence: float) -> int:
    """Number r of guesses with which the one-run bound is expected to be largest, from the claim alone.

    Under the claim the log-likelihood ratio over μ is N(±μ/2, 1), so that among the games where it exceeds c in
    absolute value a share Φ(μ/2 − c)/(Φ(μ/2 − c) + Φ(−μ/2 − c)) is guessed right. Fewer guesses are surer and count
    less.
    """
    best, chosen = -1.0, games
    candidates = sorted({max(1, round(games * 2.0 ** (-step / 2))) for step in range(2 * int(math.log2(games)) + 1)})
    for guesses in candidates:
        expected = math.floor(guesses * _expected_accuracy(guesses / games, mu))
        epsilon = epsilon_from_one_run(games, guesses, expected, delta, confidence)
        if epsilon >= best:
            best, chosen = epsilon, guesses
    return chosen


def _expected_accuracy(share: float, mu: float) -> float:
    """Accuracy on the games with the largest |log-likelihood ratio|, a share of all, under the claim."""

    def right_and_wrong(c: float) -> tuple[float, float]:
        return float(ndtr(mu / 2 - c)), float(ndtr(-mu / 2 - c))

    if share >= 1:
        return right_and_wrong(0.0)[0]
    c = root(lambda c: share - sum(right_and_wrong(c)), 0.0, mu / 2 + 40)
    right, wrong = right_and_wrong(c)
    return right / (right + wrong) if right > 0 else 1.0


def _masses(trials: int, q: float, below: int) -> NDArray[np.float64]:
    """P[W̌ = below − i] for i = 1, …, below, where W̌ ~ Binomial(trials, q)."""
    k = np.arange(below - 1, -1, -1, dtype=np.float64)
    log_choose = -np.log1p(trials) - betaln(trials - k + 1, k + 1)
    masses: NDArray[np.float64] = np.exp(log_choose + xlogy(k, q) + xlog1py(trials - k, -q))
    return masses
