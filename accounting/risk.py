"""What μ and δ(ε) mean for a person: how often an adversary who guesses can be right.

The adversary sees everything that left, knows all other records, and tests "this record" against its neighbour: another
in its place under replace-one, none under add-remove. It calls a false positive what it takes for "this record" and is
not. Its best rate of true positives at each rate of false ones is the *trade-off curve* (Dong, Roth & Su 2022).

**Gaussian releases.** By definition of μ-GDP no test does better than the best one of N(0, 1) against N(μ, 1), which is
a threshold (Neyman & Pearson). Above c it has false positives α = Φ(−c) and true ones Φ(μ − c) = Φ(Φ⁻¹(α) + μ). Their
difference is largest at c = μ/2, where both hypotheses have one density: the advantage Φ(μ/2) − Φ(−μ/2) = 2Φ(μ/2) − 1.
With even odds a guess is right with probability (1 + advantage)/2 = Φ(μ/2). Both are attained by a single release.

**Any releases.** (ε, δ)-DP says P(S) ≤ e^ε Q(S) + δ for every event S, and the same with P and Q exchanged. So TPR ≤
δ(ε) + e^ε α for every ε; and, applied to the complement of S with P and Q exchanged, 1 − α ≤ e^ε(1 − TPR) + δ(ε), which
is TPR ≤ 1 − e^{−ε}(1 − α − δ(ε)). The curve is the smallest of these over ε (Wasserman & Zhou 2010), and every ε gives
a valid bound. Total variation is δ(0), which is the advantage. Poisson-sampled releases have no μ; their δ(ε) is that
of their privacy loss distribution, the larger of both directions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from accounting import checks
from accounting.accountants import google
from accounting.accountants.base import quiet
from accounting.budget import Adjacency, Budget, Unit
from accounting.composition import Composition
from accounting.errors import AccountingError, CannotAccount, InvalidParameter
from accounting.exactness import TAIL, charged_epsilon
from accounting.gdp import gaussian_epsilon

FALSE_POSITIVES = (0.001, 0.01, 0.05)  # rates at which statements give the rate of true ones
CURVE = tuple(float(f"{each:.4g}") for each in (*np.geomspace(1e-4, 0.1, 25), *np.linspace(0.125, 1, 36)))


def advantage(mu: float) -> float:
    """Return the largest true positive rate less the false positive rate, 2Φ(μ/2) − 1.

    Parameters
    ----------
    mu : float
        GDP parameter, at least 0; ``inf`` for no noise.
    """
    return math.erf(_mu(mu) / (2 * math.sqrt(2)))


def right_guesses(mu: float) -> float:
    """Return how many of 100 guesses are right at most, 100 Φ(μ/2): this record or its neighbour, with even odds."""
    return 100 * float(ndtr(_mu(mu) / 2))


def true_positive_rate(mu: float, false_positive_rate: float) -> float:
    """Return the largest rate of true positives at a rate α of false ones, Φ(Φ⁻¹(α) + μ).

    Parameters
    ----------
    mu : float
    false_positive_rate : float
        From 0 to 1.
    """
    mu, alpha = _mu(mu), checks.between("false_positive_rate", false_positive_rate, 0.0, 1.0)
    if mu == math.inf:
        return 1.0
    return float(ndtr(ndtri(alpha) + mu))


def trade_off(mu: float, false_positive_rates: Sequence[float] = CURVE) -> tuple[tuple[float, float], ...]:
    """Return (α, largest rate of true positives) at each rate α of false ones."""
    return tuple((float(alpha), true_positive_rate(mu, alpha)) for alpha in false_positive_rates)


def group(mu: float, k: int) -> float:
    """Return the GDP parameter for k records of one person, kμ.

    One of k steps between neighbours turns N(0, 1) into N(μ, 1) at most, so that k of them lead to N(kμ, 1) (Dong, Roth
    & Su 2022, Thm 2.14). A release whose sum the k records all move in one direction attains it.
    """
    return _mu(mu) * checks.count("k", k)


def repeated(mu: float, runs: int) -> float:
    """Return the GDP parameter of so many equal runs on the same records, √runs·μ (Dong, Roth & Su 2022, Cor. 3.3)."""
    return _mu(mu) * math.sqrt(checks.count("runs", runs))


def mu_for(
    *,
    advantage: float | None = None,
    true_positive_rate: float | None = None,
    false_positive_rate: float | None = None,
) -> float:
    """Return the μ that has this risk: the inverse of `advantage`, or of `true_positive_rate`.

    Parameters
    ----------
    advantage : float, optional
        Strictly between 0 and 1.
    true_positive_rate, false_positive_rate : float, optional
        Both, instead: true positives above false ones.
    """
    goal = Goal(advantage, true_positive_rate, false_positive_rate)
    if goal.advantage is not None:
        return 2 * float(ndtri((1 + goal.advantage) / 2))
    assert goal.true_positive_rate is not None
    assert goal.false_positive_rate is not None
    return float(ndtri(goal.true_positive_rate) - ndtri(goal.false_positive_rate))


def budget(delta: float, *, adjacency: Adjacency = "replace-one", unit: Unit = "record", **goal: Any) -> Budget:
    """Return the budget that has this risk, for Gaussian releases without sampling.

    Noise on a grid is charged inside it; what that leaves of the risk is within 1e-6 of the goal.

    Parameters
    ----------
    delta : float
        At which ε is stated; the risk does not depend on it.
    adjacency, unit
        As in `accounting.Budget`.
    **goal
        As in `mu_for`.

    Examples
    --------
    >>> f"{budget(1e-5, advantage=0.1).epsilon:.4g}"
    '0.9298'
    """
    return Budget(gaussian_epsilon(mu_for(**goal), delta), delta, adjacency, unit)


@dataclass(frozen=True)
class Goal:
    """A risk to calibrate to: an advantage, or true positives at a rate of false ones; one of the two.

    Parameters
    ----------
    advantage : float, optional
    true_positive_rate, false_positive_rate : float, optional
    """

    advantage: float | None = None
    true_positive_rate: float | None = None
    false_positive_rate: float | None = None

    def __post_init__(self) -> None:
        rates = (self.true_positive_rate, self.false_positive_rate)
        if (self.advantage is None) == (rates == (None, None)) or (self.advantage is None and None in rates):
            expected = "an advantage, or true positives with false positives"
            raise InvalidParameter("risk to calibrate to", (self.advantage, *rates), expected)
        if self.advantage is not None:
            checks.probability("advantage", self.advantage)
        if self.true_positive_rate is not None and self.false_positive_rate is not None:
            checks.probability("true_positive_rate", self.true_positive_rate)
            checks.probability("false_positive_rate", self.false_positive_rate)
            if self.true_positive_rate <= self.false_positive_rate:
                expected = f"above the rate of false positives, {self.false_positive_rate:g}: any guess reaches that"
                raise InvalidParameter("true_positive_rate", self.true_positive_rate, expected)

    @property
    def mu(self) -> float:
        """μ that has this risk."""
        return mu_for(**vars(self))

    def excess(self, curve: TradeOff) -> float:
        """Return how far releases are above this risk; negative below it."""
        if self.advantage is not None:
            return curve.advantage - self.advantage
        assert self.true_positive_rate is not None
        assert self.false_positive_rate is not None
        return curve.true_positive_rate(self.false_positive_rate) - self.true_positive_rate


@dataclass(frozen=True)
class TradeOff:
    """What an adversary can do with one client's releases, at most.

    Parameters
    ----------
    mu : float, optional
        Where releases are Gaussian and not sampled; ``inf`` where one is unprotected.
    deviation : float
        Λ: how far the logarithm of a probability of the real, integer releases is from that of the Gaussian ones.
    tail : float
        Mass of what the sampler never draws.
    deltas : tuple of (float, float)
        (ε, δ) of sampled releases.

    Notes
    -----
    By `accounting.exactness`, R(S) ≤ e^Λ I(S) and I(S) ≤ e^Λ R(S) + tail for the real R and the Gaussian I. So real
    false positives α allow the Gaussian test e^Λ α + tail, and its true positives are multiplied by e^Λ at most.
    The real total variation is larger by twice the distance of R and I, which is at most e^Λ − 1 + tail.
    """

    mu: float | None
    deviation: float = 0.0
    tail: float = 0.0
    deltas: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, composition: Composition) -> TradeOff:
        """Read one client's releases."""
        if composition.unprotected:
            return cls(math.inf)
        deviation = charged_epsilon(composition.values) / 2
        if deviation > 1:
            return cls(math.inf)  # nothing is left of the guarantee
        tail = TAIL * composition.values
        if not composition.sampled:
            return cls(math.sqrt(composition.mu2), deviation, tail)
        return cls(None, deviation, tail, _deltas(composition))

    @property
    def advantage(self) -> float:
        """Largest true positive rate less the false one."""
        inner = advantage(self.mu) if self.mu is not None else self.deltas[0][1]
        return min(1.0, inner + 2 * (math.expm1(self.deviation) + self.tail))

    @property
    def right_guesses(self) -> float:
        """How many of 100 guesses are right at most, with even odds."""
        return 50 * (1 + self.advantage)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return the largest rate of true positives at a rate of false ones."""
        alpha = checks.between("false_positive_rate", false_positive_rate, 0.0, 1.0)
        inner = min(1.0, math.exp(self.deviation) * alpha + self.tail)
        if self.mu is not None:
            found = true_positive_rate(self.mu, inner)
        else:
            found = min(
                min(delta + math.exp(epsilon) * inner, 1 - math.exp(-epsilon) * (1 - inner - delta))
                for epsilon, delta in self.deltas
            )
        return min(1.0, max(inner, found) * math.exp(self.deviation))


@dataclass(frozen=True)
class Risk:
    """The risk of several clients' releases, as a statement gives it: the largest over clients, at each rate.

    Parameters
    ----------
    mu : float, optional
        None where a release was sampled.
    advantage : float
    true_positives : tuple of (float, float)
        (False positive rate, true positive rate) at `FALSE_POSITIVES`.
    curve : tuple of (float, float)
        The same at `CURVE`.
    """

    mu: float | None
    advantage: float
    true_positives: tuple[tuple[float, float], ...]
    curve: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, compositions: Iterable[Composition]) -> Risk:
        """Return the risk of clients that hold disjoint records; that of no release if there are none."""
        # Of equal releases once: a privacy loss distribution takes part of a second.
        once = list({each.groups: each for each in compositions}.values())
        read = [TradeOff.of(each) for each in once] or [TradeOff(0.0)]
        known = [each.mu for each in read if each.mu is not None]

        def most(alpha: float) -> tuple[float, float]:
            return alpha, max(each.true_positive_rate(alpha) for each in read)

        return cls(
            mu=max(known) if len(known) == len(read) else None,
            advantage=max(each.advantage for each in read),
            true_positives=tuple(map(most, FALSE_POSITIVES)),
            curve=tuple(map(most, CURVE)),
        )

    @classmethod
    def largest(cls, risks: Sequence[Risk]) -> Risk:
        """Return the largest of risks that hold for different records, at each rate; without μ if one has none.

        Which is the largest may depend on the rate: trade-off curves can cross.
        """
        if not risks:
            raise InvalidParameter("risks", risks, "at least one")
        known = [each.mu for each in risks if each.mu is not None]
        return cls(
            mu=max(known) if len(known) == len(risks) else None,
            advantage=max(each.advantage for each in risks),
            true_positives=_largest([each.true_positives for each in risks]),
            curve=_largest([each.curve for each in risks]),
        )

    @property
    def right_guesses(self) -> float:
        """How many of 100 guesses are right at most, with even odds."""
        return 50 * (1 + self.advantage)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers but for the curve, ready for JSON; infinity becomes the string "inf"."""
        return {
            "mu": "inf" if self.mu == math.inf else self.mu,
            "right_guesses_of_100": self.right_guesses,
            "advantage": self.advantage,
            "true_positive_rates": [list(each) for each in self.true_positives],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Risk:
        """Inverse of `to_dict`, without a curve."""
        mu = None if values["mu"] is None else float(values["mu"])
        rates = tuple((float(fpr), float(tpr)) for fpr, tpr in values["true_positive_rates"])
        return cls(mu, float(values["advantage"]), rates)


def _largest(curves: Sequence[tuple[tuple[float, float], ...]]) -> tuple[tuple[float, float], ...]:
    """Return the largest true positive rate at each false positive rate that all curves have."""
    read = [dict(each) for each in curves]
    common = [alpha for alpha in read[0] if all(alpha in each for each in read)]
    return tuple((alpha, max(each[alpha] for each in read)) for alpha in common)


def _mu(mu: float) -> float:
    return mu if mu == math.inf else checks.nonnegative("mu", mu)


def _deltas(composition: Composition) -> tuple[tuple[float, float], ...]:
    """(ε, δ) of sampled releases on a grid of ε, from 0 on."""
    try:
        with quiet():
            return google.delta_curve(composition)
    except AccountingError:
        raise
    except (ArithmeticError, ValueError, RuntimeError, MemoryError, IndexError) as error:  # of the library
        raise CannotAccount(f"pld has no trade-off curve for these releases ({error})") from error
