"""Calibration: from a budget and a plan of releases to the noise of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accounting import checks
from accounting.accountants import Accountant, tightest
from accounting.accountants.closed import zcdp_rho
from accounting.budget import Budget
from accounting.composition import Composition
from accounting.errors import InvalidParameter
from accounting.events import (
    DISCRETE,
    STAGES,
    DiscreteGaussianRelease,
    Event,
    GaussianRelease,
    SampledGaussianRelease,
    Stage,
    Trust,
)

# Relative increase of the noise, so that rounding in a sum of many events cannot exceed the budget.
_MARGIN = 1e-9


@dataclass(frozen=True)
class PlannedRelease:
    """One kind of release that a run will make.

    Parameters
    ----------
    what : str
        Its name, unique in a plan.
    sensitivity : float
        L2 sensitivity, under the budget's adjacency and unit; for discrete noise with the rounding included.
    count : int
        How often it is made (S rounds).
    share : float
        Share of μ² that all `count` of them get together. The shares of a plan sum to 1.
    sampling_rate : float, optional
        Poisson sampling rate of the records behind each release.
    granularity : float, optional
        Grid of the discrete Gaussian; None for continuous noise.
    stage : str
        Part of a run; see `accounting.events.Event`.
    """

    what: str
    sensitivity: float
    count: int = 1
    share: float = 1.0
    sampling_rate: float | None = None
    granularity: float | None = None
    stage: Stage = "landmarks"

    def __post_init__(self) -> None:
        if not (isinstance(self.what, str) and self.what):
            raise InvalidParameter("what", self.what, "a non-empty string")
        checks.one_of("stage", self.stage, STAGES)
        checks.positive(f"sensitivity of {self.what}", self.sensitivity)
        checks.count(f"count of {self.what}", self.count)
        checks.rate(f"share of {self.what}", self.share)
        if self.sampling_rate is not None:
            checks.rate(f"sampling_rate of {self.what}", self.sampling_rate)
        if self.granularity is not None:
            checks.positive(f"granularity of {self.what}", self.granularity)
            if self.sampling_rate is not None:
                raise InvalidParameter("sampling_rate", self.sampling_rate, "None with discrete noise")

    @property
    def unit_sigma(self) -> float:
        """sigma at which this release uses up its share of μ = 1, ignoring sampling."""
        return self.sensitivity * math.sqrt(self.count / self.share)


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
    ) -> Event:
        """Return the event that accounts for `count` of these releases by one client.

        The noise source is by default ``"discrete"`` for a release on a grid, and ``"seeded"`` otherwise.
        """
        if noise is None:
            noise = "seeded" if self.planned.granularity is None else DISCRETE
        values: dict[str, Any] = {
            "what": self.planned.what,
            "client": client,
            "round": round,
            "stage": self.planned.stage,
            "adjacency": self.budget.adjacency,
            "unit": self.budget.unit,
            "trust": trust,
            "noise": noise,
            "sensitivity": self.planned.sensitivity,
            "sigma": self.sigma,
            "count": count,
        }
        if self.planned.sampling_rate is not None:
            return SampledGaussianRelease(**values, sampling_rate=self.planned.sampling_rate)
        if self.planned.granularity is not None:
            return DiscreteGaussianRelease(**values, granularity=self.planned.granularity)
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
        return Composition(release.event("planned", count=release.planned.count) for release in self.releases)

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
    the μ of the budget (for the discrete Gaussian its zCDP counterpart √(2ρ)). With Poisson sampling c is larger, and a
    numerical accountant finds it.

    Examples
    --------
    >>> plan = calibrate(Budget(1.0, 1e-5), PlannedRelease("gradient", sensitivity=1.0, count=50))
    >>> round(plan["gradient"].sigma, 4)
    26.3795
    """
    releases = (plan,) if isinstance(plan, PlannedRelease) else tuple(plan)
    _check(budget, releases)
    if any(release.granularity is not None for release in releases):
        strength = math.sqrt(2 * zcdp_rho(budget.epsilon, budget.delta))
    else:
        strength = budget.mu
    calibrated = _at(budget, releases, strength / (1 + _MARGIN))
    if any(release.sampling_rate is not None for release in releases):
        return _amplified(calibrated)
    return calibrated


def _at(budget: Budget, releases: Sequence[PlannedRelease], strength: float) -> CalibratedPlan:
    return CalibratedPlan(
        budget,
        tuple(CalibratedRelease(release, release.unit_sigma / strength, budget) for release in releases),
    )


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
