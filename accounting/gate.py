"""Whether releases fit a budget: O(1) where there is a closed form, else by few numerical evaluations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from accounting.accountants import tightest
from accounting.budget import Budget
from accounting.composition import Composition, SampledGroup
from accounting.errors import CannotAccount
from accounting.exactness import MOST_EPSILON, charged_epsilon, inner_delta
from accounting.gdp import gaussian_mu

_MOST = 2**20  # most releases to look ahead
_SAFE = 1 - 1e-12


class Gate:
    """Decides whether a composition is within a budget.

    Gaussian releases are compared by Σ (Δ/σ)² with what the budget allows, which is exact and costs O(1). On a grid the
    budget allows less the more integers are drawn (`accounting.exactness`). Poisson-sampled releases need a numerical
    accountant, and one evaluation takes a third of a second. So the gate keeps the largest compositions that are known
    to fit, and first compares counts with those.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._frontiers: list[Composition] = []
        self._allowed: dict[int, float] = {}

    def allowed_mu2(self, values: int = 0) -> float:
        """Σ (Δ/σ)² that the budget allows to Gaussian releases for which so many integers are drawn."""
        power = (values - 1).bit_length() + 1 if values else 0  # as the charge rounds it
        if power not in self._allowed:
            self._allowed[power] = _allowed_mu2(self.budget, values)
        return self._allowed[power]

    def fits(self, composition: Composition, growing: SampledGroup | None = None) -> bool:
        """Whether the composition's ε is at most the budget's.

        Parameters
        ----------
        composition : Composition
        growing : SampledGroup, optional
            The sampled release that is likely to be repeated.
        """
        if composition.unprotected:
            return False
        if composition.sampled:
            return self._within_frontier(composition) or self._push_frontier(composition, growing)
        return composition.mu2 <= self.allowed_mu2(composition.values)

    def room(self, composition: Composition) -> float:
        """Largest μ of one more Gaussian release that still fits after `composition`; 0 if nothing does."""
        if not self.fits(composition):
            return 0.0
        if composition.sampled:
            return self._searched_room(composition)
        return math.sqrt(self.allowed_mu2(composition.values) - composition.mu2)

    def _exactly_fits(self, composition: Composition) -> bool:
        try:
            return tightest(composition).epsilon(composition, self.budget.delta) <= self.budget.epsilon
        except CannotAccount:
            return False

    def _within_frontier(self, composition: Composition) -> bool:
        return any(
            composition.mu2 <= known.mu2
            and composition.values <= known.values
            and all(count <= known.sampled[group] for group, count in composition.sampled.items())
            for known in self._frontiers
        )

    def _push_frontier(self, composition: Composition, growing: SampledGroup | None) -> bool:
        """Check a composition; if it fits, find how often it fits: as a whole, and with more of the growing group only.

        A run repeats either a cycle of several releases or one of them; this covers both.
        """
        if not self._exactly_fits(composition):
            return False
        self._frontiers.append(self._farthest(lambda extra: _multiplied(composition, 1 + extra)))
        if growing is not None and not (composition.mu2 == 0 and len(composition.sampled) == 1):
            self._frontiers.append(self._farthest(lambda extra: _extended(composition, growing, extra)))
        return True

    def _farthest(self, grown: Callable[[int], Composition]) -> Composition:
        """Return the last composition of a growing series that fits; the first one is known to."""
        extra, step = 0, 1
        while step <= _MOST and self._exactly_fits(grown(step)):
            extra, step = step, 2 * step
        while step - extra > 1:
            middle = (extra + step) // 2
            if self._exactly_fits(grown(middle)):
                extra = middle
            else:
                step = middle
        return grown(extra)

    def _searched_room(self, composition: Composition) -> float:
        low, high = 0.0, math.sqrt(self.allowed_mu2(composition.values))
        for _ in range(12):
            middle = (low + high) / 2
            trial = composition.copy()
            trial.mu2 += middle**2
            low, high = (middle, high) if self._exactly_fits(trial) else (low, middle)
        return low


def _allowed_mu2(budget: Budget, values: int) -> float:
    """Slightly below the root, so that rounding cannot put what fits above the budget; 0 if nothing fits."""
    epsilon = budget.epsilon - charged_epsilon(values)
    if values and not 0 < epsilon <= budget.epsilon <= MOST_EPSILON:
        return 0.0
    try:
        mu = gaussian_mu(epsilon, inner_delta(values, budget.delta))
    except CannotAccount:
        return 0.0
    return mu * mu * _SAFE


def _multiplied(composition: Composition, factor: int) -> Composition:
    """Return the composition with every release made `factor` times as often."""
    other = composition.copy()
    other.sampled = Counter({group: factor * count for group, count in composition.sampled.items()})
    other.mu2, other.sampled_mu2 = factor * composition.mu2, factor * composition.sampled_mu2
    other.values = factor * composition.values
    return other


def _extended(composition: Composition, group: SampledGroup, extra: int) -> Composition:
    """Return the composition with `extra` more releases of one sampled group."""
    other = composition.copy()
    other.sampled[group.noise_multiplier, group.sampling_rate] += extra
    other.sampled_mu2 += extra / group.noise_multiplier**2
    other.values += extra * group.values
    return other
