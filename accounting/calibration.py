"""Calibration: from a budget or a risk, and a plan of releases, to the noise of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accounting import checks
from accounting.accountants import Accountant, tightest
from accounting.budget import Adjacency, Budget, Unit
from accounting.composition import Composition
from accounting.errors import CannotAccount, InvalidParameter
from accounting.events import (
    STAGES,
    Event,
    GaussianRelease,
    SampledGaussianRelease,
    Stage,
    Trust,
)
from accounting.exactness import MOST_EPSILON, charged_epsilon, inner_delta
from accounting.gdp import gaussian_mu, root
from accounting.risk import Goal, TradeOff

# Relative increase of the noise, so that rounding in a sum of many events cannot exceed the budget.
_MARGIN = 1e-9
_MOST_GAIN = 7.0  # natural logarithm: what sampling is taken to give at most


@dataclass(frozen=True)
class PlannedRelease:
    """One kind of release that a run will make.

    Parameters
    ----------
    what : str
        Its name, unique in a plan.
    sensitivity : float
        L2 sensitivity, under the budget's adjacency and unit.
    count : int
        How often it is made (S rounds).
    share : float
        Share of μ² that all `count` of them get together. The shares of a plan sum to 1.
    sampling_rate : float, optional
        Poisson sampling rate of the records behind each release.
    values : int
        Integers of noise drawn for one release on a grid (see `accounting.GaussianRelease`); 0 for continuous noise.
    stage : str
        Part of a run; see `accounting.events.Event`.
    """

    what: str
    sensitivity: float
    count: int = 1
    share: float = 1.0
    sampling_rate: float | None = None
    values: int = 0
    stage: Stage = "landmarks"

    def __post_init__(self) -> None:
        checks.text("what", self.what)
        checks.one_of("stage", self.stage, STAGES)
        checks.positive(f"sensitivity of {self.what}", self.sensitivity)
        checks.count(f"count of {self.what}", self.count)
        checks.rate(f"share of {self.what}", self.share)
        if self.sampling_rate is not None:
            checks.rate(f"sampling_rate of {self.what}", self.sampling_rate)
        checks.at_least(f"values of {self.what}", self.values, 0)

    @property
    def unit_sigma(self) -> float:
        """sigma at which this release uses up its share of μ = 1, ignoring sampling."""
        return self.sensitivity * math.sqrt(checks.product(self.count, 1 / self.share))


@dataclass(frozen=True)
class CalibratedRelease:
    """A planned release and the noise that the budget buys for it."""

    planned: PlannedRelease
    sigma: float
    budget: Budget

    @property
    def noise_multiplier(self) -> float:
        """sigma / sensitivity."""
        return self.sigma / self.planned.sensitivity

    @property
    def mu(self) -> float:
        """GDP parameter of all `count` releases, ignoring sampling."""
        return math.sqrt(self.planned.count) / self.noise_multiplier

    def event(
        self,
        client: str,
        *,
        round: int | None = None,
        count: int = 1,
        trust: Trust = "local",
        noise: str | None = None,
        grid: float | None = None,
    ) -> Event:
        """Return the event that accounts for `count` of these releases by one client.

        The noise source is ``"seeded"`` by default. A release with planned values needs its grid, any other has none.
        """
        if self.planned.values and grid is None:
            raise InvalidParameter("grid", grid, f"given for {self.planned.what}, which is planned as integers")
        if grid is not None and not self.planned.values:
            raise InvalidParameter("grid", grid, f"None for {self.planned.what}, which is planned without integers")
        values: dict[str, Any] = {
            "what": self.planned.what,
            "client": client,
            "round": round,
            "stage": self.planned.stage,
            "adjacency": self.budget.adjacency,
            "unit": self.budget.unit,
            "trust": trust,
            "noise": "seeded" if noise is None else noise,
            "sensitivity": self.planned.sensitivity,
            "sigma": self.sigma,
            "count": count,
            "grid": grid,
            "values": self.planned.values,
        }
        if self.planned.sampling_rate is not None:
            return SampledGaussianRelease(**values, sampling_rate=self.planned.sampling_rate)
        return GaussianRelease(**values)


@dataclass(frozen=True)
class CalibratedPlan:
    """Every release of a run with its sigma; composed, they stay within the budget."""

    budget: Budget
    releases: tuple[CalibratedRelease, ...]

    def __getitem__(self, what: str) -> CalibratedRelease:
        for release in self.releases:
            if release.planned.what == what:
                return release
        raise KeyError(f"{what!r} is not among {[release.planned.what for release in self.releases]}")

    @property
    def composition(self) -> Composition:
        """What one client spends in the whole run."""
        return Composition(
            # What a grid costs does not depend on its width.
            release.event("a", count=release.planned.count, grid=release.sigma / 32 if release.planned.values else None)
            for release in self.releases
        )

    @property
    def accountant(self) -> Accountant:
        """The accountant that the plan was calibrated with."""
        return tightest(self.composition)

    @property
    def epsilon(self) -> float:
        """ε of the whole plan at the budget's δ: at most the budget's."""
        return self.accountant.epsilon(self.composition, self.budget.delta)


def calibrate(budget: Budget, plan: PlannedRelease | Sequence[PlannedRelease]) -> CalibratedPlan:
    """Find the noise with which a plan spends all of a budget and no more.

    Parameters
    ----------
    budget : Budget
    plan : PlannedRelease or sequence of PlannedRelease
        The releases of one client over a whole run, with shares of μ² that sum to 1.

    Returns
    -------
    CalibratedPlan
        Its ε is at most the budget's, and within 1e-6 of it (closed form) or 1e-3 (PLD, RDP), relative.

    Notes
    -----
    All sigmas are σ_i = unit_sigma_i / c for one number c, so (Δ_i/σ_i)² count_i = c² share_i. Without sampling c is
    the μ of the budget; where integers are drawn, of what is left of it after their charge (`accounting.exactness`).
    With Poisson sampling c is larger, and a numerical accountant finds it.

    Examples
    --------
    >>> plan = calibrate(Budget(1.0, 1e-5), PlannedRelease("gradient", sensitivity=1.0, count=50))
    >>> round(plan["gradient"].sigma, 4)
    26.3795
    """
    releases = (plan,) if isinstance(plan, PlannedRelease) else tuple(plan)
    _check(budget, releases)
    calibrated = _at(budget, releases, _strength(budget, releases) / (1 + _MARGIN))
    if any(release.sampling_rate is not None for release in releases):
        return _amplified(calibrated)
    return calibrated


def calibrate_to_risk(
    goal: Goal,
    delta: float,
    plan: PlannedRelease | Sequence[PlannedRelease],
    *,
    adjacency: Adjacency = "replace-one",
    unit: Unit = "record",
) -> CalibratedPlan:
    """Find the noise with which an adversary has this risk and no more; its budget is the ε that this is at `delta`.

    Parameters
    ----------
    goal : accounting.risk.Goal
        An advantage, or a rate of true positives at one of false ones.
    delta : float
    plan : PlannedRelease or sequence of PlannedRelease
        As in `calibrate`.
    adjacency, unit
        As in `accounting.Budget`.

    Notes
    -----
    Without sampling and grid the noise follows from `Goal.mu` in closed form. Otherwise it is searched between half and
    a thousand times that strength: a grid takes a little of it, sampling gives more.

    Examples
    --------
    >>> goal = Goal(advantage=0.1)
    >>> plan = calibrate_to_risk(goal, 1e-5, PlannedRelease("gradient", sensitivity=1.0, count=50))
    >>> f"{plan['gradient'].sigma:.4g}, ε = {plan.epsilon:.4g}"
    '28.13, ε = 0.9317'
    """
    releases = (plan,) if isinstance(plan, PlannedRelease) else tuple(plan)
    nominal = Budget(1.0, delta, adjacency, unit)
    _check(nominal, releases)

    def at(log_strength: float) -> CalibratedPlan:
        return _at(nominal, releases, goal.mu * math.exp(log_strength))

    def excess(log_strength: float) -> float:
        return goal.excess(TradeOff.of(at(log_strength).composition))

    if all(release.sampling_rate is None and not release.values for release in releases):
        found = -_MARGIN
    else:
        if excess(low := -math.log(2)) > 0:
            raise CannotAccount("the integers of these releases alone have more than this risk")
        high = 0.0
        while high < _MOST_GAIN and excess(high) <= 0:
            low, high = high, high + 1
        found = root(excess, low, high, absolute=1e-7)
        while excess(found) > 0:
            found -= 1e-7  # step to the safe side of the root
    composition = at(found).composition
    return _at(
        Budget(tightest(composition).epsilon(composition, delta), delta, adjacency, unit),
        releases,
        goal.mu * math.exp(found),
    )


def _strength(budget: Budget, releases: Sequence[PlannedRelease]) -> float:
    """μ that the budget buys, less what the integers of the plan are charged."""
    values = sum(release.count * release.values for release in releases)
    if not values:
        return budget.mu
    if budget.epsilon > MOST_EPSILON:
        raise InvalidParameter("the budget's epsilon", budget.epsilon, f"at most {MOST_EPSILON:g} for noise on a grid")
    charge = charged_epsilon(values)
    if budget.epsilon <= charge:
        raise InvalidParameter("the budget's epsilon", budget.epsilon, f"above the charge of {charge:g} for the grid")
    try:
        delta = inner_delta(values, budget.delta)
    except CannotAccount as error:
        raise InvalidParameter("the budget's delta", budget.delta, f"larger ({error})") from None
    return gaussian_mu(budget.epsilon - charge, delta)


def _at(budget: Budget, releases: Sequence[PlannedRelease], strength: float) -> CalibratedPlan:
    sigmas = [checks.normal(f"sigma of {each.what}", each.unit_sigma / strength) for each in releases]
    pairs = zip(releases, sigmas, strict=True)
    return CalibratedPlan(budget, tuple(CalibratedRelease(release, sigma, budget) for release, sigma in pairs))


def _amplified(unsampled: CalibratedPlan) -> CalibratedPlan:
    """Lower the noise of a plan that was calibrated without sampling, as far as the numerical accountant allows."""
    budget = unsampled.budget
    releases = [release.planned for release in unsampled.releases]
    strength = unsampled.releases[0].planned.unit_sigma / unsampled.releases[0].sigma
    factor = unsampled.accountant.sigma_factor(unsampled.composition, budget.epsilon, budget.delta)
    while (plan := _at(budget, releases, strength / factor)).epsilon > budget.epsilon:
        factor *= 1 + 1e-6  # the root is found to within 1e-7; step to its safe side
    return plan


def _check(budget: Budget, releases: tuple[PlannedRelease, ...]) -> None:
    if not isinstance(budget, Budget):
        raise InvalidParameter("budget", budget, "a Budget")
    if not releases or not all(isinstance(release, PlannedRelease) for release in releases):
        raise InvalidParameter("plan", releases, "at least one PlannedRelease")
    names = [release.what for release in releases]
    if len(set(names)) < len(names):
        raise InvalidParameter("plan", names, "made of releases with different names")
    total = math.fsum(release.share for release in releases)
    if abs(total - 1) > 1e-9:
        raise InvalidParameter("the sum of the plan's shares", total, "1")
    sampled = any(release.sampling_rate is not None for release in releases)
    if sampled and budget.unit != "record":
        raise InvalidParameter("the budget's unit", budget.unit, "record under Poisson sampling of records")
    if sampled and budget.adjacency != "add-remove":
        raise InvalidParameter("the budget's adjacency", budget.adjacency, "add-remove under Poisson sampling")
