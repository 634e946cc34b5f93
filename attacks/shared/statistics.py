"""How well scores tell members from others, with intervals, and the most that a privacy guarantee allows.

A test that calls "member" what scores above a threshold has a true positive rate (TPR) among members and a false
positive rate (FPR) among others. Under μ-GDP, TPR ≤ Φ(Φ⁻¹(FPR) + μ) (Dong, Roth & Su 2022, Def. 2.6), under (ε, δ)-DP
TPR ≤ min(e^ε FPR + δ, 1 − e^{−ε}(1 − δ − FPR)) (Kairouz, Oh & Viswanath 2015, Thm 2.1), whatever the test.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtrc, betaincinv, ndtr, ndtri

from accounting import Event, Ledger, checks, gaussian_epsilon
from accounting.accountants import distinct, tightest
from accounting.composition import Composition
from accounting.errors import InvalidParameter
from attacks.shared.gradients import Float64
from dpfedvis.errors import DpfedvisError

CONFIDENCE = 0.95
_CURVE = (1e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5)  # δ at which a limit without μ is known, beside its own


class NoScores(DpfedvisError):
    """Too few scores, or scores that are no numbers."""


@dataclass(frozen=True)
class Interval:
    """An estimate with a two-sided interval at confidence 95 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} ({self.low:.4g} to {self.high:.4g})"

    def to_dict(self) -> dict[str, float]:
        """Return the fields."""
        return asdict(self)


@dataclass(frozen=True)
class Limit:
    """The most that a guarantee allows.

    Parameters
    ----------
    mu : float, optional
        GDP parameter where all releases are Gaussian; ``inf`` for none; None where only (ε, δ) is known.
    epsilon, delta : float
    curve : tuple of (float, float)
        Further pairs (ε, δ) that hold too; used without μ.
    """

    mu: float | None
    epsilon: float
    delta: float
    curve: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of_mu(cls, mu: float, delta: float = 1e-5) -> Limit:
        """Return the limit of μ-GDP."""
        return cls(mu, gaussian_epsilon(mu, delta), delta)

    @classmethod
    def of_ledger(cls, ledger: Ledger, delta: float, *, rows: bool) -> Limit:
        """Return the limit for what left the clients, the loosest over clients; `rows` says whether rows count.

        Neighbours replace a record. What was accounted for under add-remove is doubled: replacing is taking away and
        adding. Then only μ is used, and where there is none, there is no limit.
        """
        by_client: defaultdict[str, list[Event]] = defaultdict(list)
        for event in ledger.events():
            if rows or event.stage != "release":
                by_client[event.client].append(event)
        twice = any(event.adjacency == "add-remove" for events in by_client.values() for event in events)
        totals = distinct(Composition(events) for events in by_client.values())
        inexact = [total for total in totals if total.sampled]
        if any(total.unprotected for total in totals) or (twice and inexact):
            return cls(math.inf, math.inf, delta)
        mu = (2 if twice else 1) * max((total.total_mu for total in totals if total not in inexact), default=0.0)
        if not inexact:
            return cls.of_mu(mu, delta)

        def epsilon(at: float) -> float:
            return max(gaussian_epsilon(mu, at), *(tightest(total).epsilon(total, at) for total in inexact))

        return cls(None, epsilon(delta), delta, tuple((epsilon(at), at) for at in _CURVE))

    def tpr(self, fpr: float) -> float:
        """Return the largest TPR at this FPR."""
        if self.mu is not None:
            return 1.0 if self.mu == math.inf else float(ndtr(ndtri(fpr) + self.mu))
        return min(
            min(1.0, math.exp(epsilon) * fpr + delta, 1 - math.exp(-epsilon) * (1 - delta - fpr))
            for epsilon, delta in self._pairs
        )

    def auc(self) -> float:
        """Return the largest area under the ROC curve: the integral of `tpr` over all FPR.

        For μ-GDP, ∫ Φ(Φ⁻¹(a) + μ) da = P[Z′ ≤ Z + μ] = Φ(μ/√2) for independent standard normal Z, Z′. For (ε, δ) the
        curve goes in lines from (0, δ) to (a, 1 − a), a = (1 − δ)/(1 + e^ε), and on to (1 − δ, 1). Above it lie a
        trapezoid a(1 − δ + a)/2 and a triangle a(1 − δ − a)/2, together a(1 − δ). Of several pairs the least is taken,
        which is a little more than the area under all of them.
        """
        if self.mu is not None:
            return float(ndtr(self.mu / math.sqrt(2)))
        return min(1 - (1 - delta) ** 2 / (1 + math.exp(epsilon)) for epsilon, delta in self._pairs)

    def accuracy(self) -> float:
        """Return the largest probability of a right guess on a fair coin: the largest of (1 − FPR + TPR)/2.

        For μ-GDP it is Φ(μ/2), at FPR = Φ(−μ/2). For (ε, δ) it is 1 − a at the corner (a, 1 − a) of the curve, see
        `auc`; of several pairs the least.
        """
        if self.mu is not None:
            return float(ndtr(self.mu / 2))
        return min(1 - (1 - delta) / (1 + math.exp(epsilon)) for epsilon, delta in self._pairs)

    @property
    def _pairs(self) -> tuple[tuple[float, float], ...]:
        return (self.epsilon, self.delta), *self.curve

    def to_dict(self) -> dict[str, Any]:
        """Return the fields; JSON has no infinity."""
        plain = {"mu": self.mu, "epsilon": self.epsilon, "delta": self.delta}
        return {name: "inf" if value == math.inf else value for name, value in plain.items()}


def rate_above(errors: int, games: int, confidence: float) -> float:
    """Upper end of the one-sided Clopper–Pearson interval: a rate that is exceeded with probability 1 − confidence.

    Parameters
    ----------
    errors, games : int
        0 ≤ errors ≤ games, games ≥ 1.
    confidence : float

    Returns
    -------
    float
        The p at which P[Binomial(games, p) ≤ errors] = 1 − confidence; 1 if every game was an error (Clopper & Pearson
        1934).
    """
    games, errors = checks.count("games", games), checks.at_least("errors", errors, 0)
    confidence = checks.probability("confidence", confidence)
    if errors > games:
        raise InvalidParameter("errors", errors, f"at most the number of games, {games}")
    return 1.0 if errors == games else float(betaincinv(errors + 1, games - errors, confidence))


def rate(hits: int, trials: int) -> Interval:
    """Return a rate with its two-sided Clopper–Pearson interval, for independent trials."""
    half = (1 + CONFIDENCE) / 2
    return Interval(hits / trials, 1 - rate_above(trials - hits, trials, half), rate_above(hits, trials, half))


def auc(members: npt.ArrayLike, others: npt.ArrayLike) -> Interval:
    """Return P[member scores above other] + ½ P[tie], with DeLong's interval (DeLong, DeLong & Clarke-Pearson 1988).

    The variance comes from ranks, O(n log n). Where it is 0 (the scores are apart, or all the same) the normal interval
    would have no width, and the exact binomial interval of min(n, n′) disjoint pairs stands in.
    """
    inside, outside = as_scores(members), as_scores(others)
    m, n = len(inside), len(outside)
    ranks = _ranks(np.concatenate([inside, outside]))
    # Share of others below each member, and of members above each other: the placements of DeLong.
    below = (ranks[:m] - _ranks(inside)) / n
    above = 1 - (ranks[m:] - _ranks(outside)) / m
    value = float(below.mean())
    variance = float(below.var(ddof=1)) / m + float(above.var(ddof=1)) / n
    if variance < 1e-24:
        pairs = min(m, n)
        spread = rate(round(pairs * value), pairs)
        return Interval(value, spread.low, spread.high)
    reach = float(ndtri((1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return Interval(value, max(0.0, value - reach), min(1.0, value + reach))


def exceeds(hits: int, trials: int, allowed: float) -> float:
    """Return the p-value of "the rate is at most `allowed`": P[Binomial(trials, allowed) ≥ hits]. Exact."""
    checks.count("trials", trials)
    if hits == 0 or allowed >= 1:
        return 1.0
    return float(bdtrc(hits - 1, trials, allowed)) if allowed > 0 else 0.0


def conformal_threshold(calibration: npt.ArrayLike, fpr: float) -> float:
    """Return a threshold that a further non-member exceeds with probability at most `fpr`.

    The k-th largest of n calibration scores, k = ⌊fpr (n + 1)⌋: a new score of the same distribution is equally likely
    to take each of n + 1 ranks, so that it is above with probability at most k/(n + 1). Infinite for k = 0: too few
    scores to speak of so small a rate.
    """
    scores = np.sort(as_scores(calibration))[::-1]
    k = math.floor(checks.probability("fpr", fpr) * (len(scores) + 1) + 1e-9)
    return math.inf if k == 0 else float(scores[k - 1])


def _ranks(values: Float64) -> Float64:
    """Ranks from 1, equal values sharing the mean of theirs; scipy.stats has it too, and takes long to import."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Float64 = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


def as_scores(values: npt.ArrayLike | Iterable[float]) -> Float64:
    """Return scores as a vector of at least two numbers, or raise."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or len(scores) < 2 or np.isnan(scores).any():
        raise NoScores(f"scores must be at least two numbers in a row, got shape {scores.shape}")
    return scores
