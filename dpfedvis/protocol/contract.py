"""The contract of a run: the public numbers from which the server and every site derive the same noise plan.

A site believes no σ of the server's. It reads here what will be released and how often, composes the whole of it by
itself, and signs only if the total is within its policy and budgets. All sites sign the same bytes; their hash stands
in every request and receipt.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from accounting import Budget, checks
from accounting.errors import InvalidParameter
from accounting.events import Trust
from accounting.sharing import Sharing
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.releases import SINGLE_RELEASES
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.noise_plan import Extra, RunPlan, SitePlan, check_trust, plan_run, site_plans

VERSION = 2
MOST_MEMBERS = 100_000
MOST_RETRIES = 1000
LEAST_WEIGHT = 1e-12
LONGEST_NAME = 500
_OPTIONAL = ("threshold", "colluders")
_INTEGERS = ("version", "rounds", "seed", "features", "values", "retries", *_OPTIONAL)


@dataclass(frozen=True)
class Member:
    """A site of the run.

    Parameters
    ----------
    name : str
    denominator : float
        Public number that its sums are divided by, before sampling: n_p, or a stand-in where that is private.
    weight : float
        ω_p in the server's average.
    key : str
        Its public key (Ed25519), in hexadecimal digits.
    epsilon : float, optional
        ε of this site, where its policy allows less than the budget of the run: it adds more noise.
    """

    name: str
    denominator: float
    weight: float
    key: str = ""
    epsilon: float | None = None

    def __post_init__(self) -> None:
        checks.text("name of a site", self.name)
        checks.positive(f"denominator of {self.name}", self.denominator)
        checks.between(f"weight of {self.name}", self.weight, LEAST_WEIGHT, 1.0)
        if self.epsilon is not None:  # a float: 1 and 1.0 mean the same, and have different bytes
            object.__setattr__(self, "epsilon", checks.positive(f"epsilon of {self.name}", self.epsilon))


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What will be released in a run, by whom, and under which budget.

    Parameters
    ----------
    run : str
        Name of the run, unique.
    budget : Budget, optional
        None if nothing is protected.
    mechanism : Mechanism
        How landmarks are learned, with its settings.
    rounds : int
        S.
    noise : {"seeded", "discrete"}
    seed : int
        Of all public randomness; with seeded noise of all randomness.
    features : int
        m.
    members : tuple of Member
    extras : mapping of str to Extra
        Single releases, by name.
    values : int
        Integers drawn for one upload of the mechanism at most.
    sampling_rate : float, optional
    tau_x : float, optional
        Norm that records are clipped to for noisy rows.
    unprotected : tuple of str
        Names of what is released without noise.
    threshold, colluders : int, optional
        Under trust `aggregate`, fewest sites t in a sum, and how many c may work together; see `accounting.sharing`.
    retries : int
        Sums of the mechanism that may be repeated, with noise of their own: budget is set aside for them.
    preparation : str
        How records became numbers, by hashes of schema and public features: the same at all sites.
    derived : str
        Hash of numbers that each site draws from the public seed: sites whose libraries differ refuse.
    version : int
    """

    run: str
    budget: Budget | None
    mechanism: Mechanism
    rounds: int
    noise: str
    seed: int
    features: int
    members: tuple[Member, ...]
    extras: Mapping[str, Extra] = field(default_factory=dict)
    values: int = 1
    sampling_rate: float | None = None
    tau_x: float | None = None
    unprotected: tuple[str, ...] = ()
    threshold: int | None = None
    colluders: int | None = None
    retries: int = 0
    preparation: str = ""
    derived: str = ""
    version: int = VERSION

    def __post_init__(self) -> None:
        checks.text("run", self.run)
        # A ledger of all runs calls a site RUN/SITE; and the owner of a site reads the name on a terminal.
        if "/" in self.run or not self.run.isprintable() or len(self.run) > LONGEST_NAME:
            raise InvalidParameter("run", self.run[:80], f"printable, without a slash, at most {LONGEST_NAME} letters")
        self._check_integers()
        if self.version != VERSION:
            raise InvalidParameter("version of the protocol", self.version, f"{VERSION}, which this code speaks")
        checks.count("rounds", self.rounds)
        checks.count("features", self.features)
        checks.at_least("seed", self.seed, 0)
        checks.whole("number of sites", len(self.members), 1, MOST_MEMBERS)
        names = [member.name for member in self.members]
        if len(set(names)) < len(names):
            raise InvalidParameter("names of the sites", names, "distinct")
        keys = [member.key for member in self.members if member.key]
        if len(set(keys)) < len(keys):
            raise InvalidParameter("keys of the sites", keys, "distinct")
        total = math.fsum(member.weight for member in self.members)
        if not abs(total - 1) <= 1e-9:
            raise InvalidParameter("sum of the weights", total, "1")
        if self.mechanism.what in SINGLE_RELEASES:
            raise InvalidParameter("name of the upload", self.mechanism.what, "not that of a single release")
        check_trust(self.mechanism)
        self._check_sharing()
        # In one order, so that all sites derive the same numbers to the last bit.
        object.__setattr__(self, "extras", dict(sorted(self.extras.items())))
        if not self.derived:
            object.__setattr__(self, "derived", derived(self.seed))

    def _check_integers(self) -> None:
        """Refuse floats and bools: 4 and 4.0 mean the same, and have different bytes, which a site would both sign."""
        for name in _INTEGERS:
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, _integer(name, value))
        for what, extra in self.extras.items():
            _integer(f"values of {what}", extra.values)
        if self.budget is not None and self.budget.rows_per_person is not None:
            _integer("rows_per_person", self.budget.rows_per_person)

    def _check_sharing(self) -> None:
        if self.trust == "aggregate":
            sharing = Sharing.of(len(self.members), self.threshold, self.colluders)
            object.__setattr__(self, "threshold", sharing.threshold)
            object.__setattr__(self, "colluders", sharing.colluders)
        elif self.threshold is not None or self.colluders is not None:
            given = (self.threshold, self.colluders)
            raise InvalidParameter("threshold and colluders", given, f"left out under trust {self.trust}")
        checks.whole("retries", self.retries, 0, MOST_RETRIES)
        if self.retries and self.trust != "aggregate":
            raise InvalidParameter("retries", self.retries, f"0 under trust {self.trust}: only sums are repeated")

    @property
    def sharing(self) -> Sharing | None:
        """How the noise of sums is shared; None where it is not."""
        if self.trust != "aggregate" or self.threshold is None or self.colluders is None:
            return None
        return Sharing(len(self.members), self.threshold, self.colluders)

    @property
    def trust(self) -> Trust:
        """Trust model of all releases."""
        return self.mechanism.trust

    @cached_property
    def names(self) -> list[str]:
        """Names of the sites, in order."""
        return [member.name for member in self.members]

    @cached_property
    def places(self) -> dict[str, int]:
        """The number of each site, by name: it selects its random streams."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def plan(self) -> RunPlan | None:
        """The noise multipliers of all protected releases; None if there are none."""
        return self._planned(self.budget)

    def _planned(self, budget: Budget | None) -> RunPlan | None:
        facts = (budget, self.mechanism, self.rounds, self.sampling_rate, self.noise, self.extras, self.values)
        return plan_run(*facts, retries=self.retries)

    def budget_of(self, site: str) -> Budget | None:
        """Return the budget of one site: with its own ε, where that is smaller."""
        epsilon = self.members[self.places[site]].epsilon
        if self.budget is None or epsilon is None or epsilon >= self.budget.epsilon:
            return self.budget
        return replace(self.budget, epsilon=epsilon)

    def plan_of(self, site: str) -> RunPlan | None:
        """Return the noise multipliers of one site: those of the run, or of its own ε."""
        return self._own_plans[self.places[site]] or self.plan

    @cached_property
    def _own_plans(self) -> list[RunPlan | None]:
        """The noise multipliers of each site that has an ε of its own."""
        budgets = [self.budget_of(each.name) for each in self.members]
        made = {each: self._planned(each) for each in set(budgets) if each != self.budget}
        return [made.get(each) for each in budgets]

    @cached_property
    def noise_ratio(self) -> float:
        """Noise of an average of all sites, relative to that without smaller ε of single sites; of equal uploads."""
        base, own = self.plan, self._own_plans
        if base is None or not any(own):
            return 1.0
        first = base.multipliers.releases[0]
        sigmas = [(each or base).multipliers[first.planned.what].sigma for each in own]
        squares = [(sigma / first.sigma) ** 2 for sigma in sigmas]
        if self.trust == "central":
            return math.sqrt(max(squares))
        common = 0.0 if self.sharing is None else self.sharing.parties / self.sharing.shares - len(squares)
        return math.sqrt((common + math.fsum(squares)) / (common + len(squares)))

    @cached_property
    def epsilon(self) -> float:
        """ε of all protected releases of a site together, at the budget's δ; 0 if there are none."""
        return 0.0 if self.plan is None else self.plan.multipliers.epsilon

    def epsilon_of(self, site: str) -> float:
        """ε of all protected releases of one site; see `epsilon`."""
        plan = self.plan_of(site)
        return 0.0 if plan is None else plan.multipliers.epsilon

    @cached_property
    def counts(self) -> dict[str, int]:
        """How often each release is made by a site, by name."""
        counts = dict.fromkeys((*self.extras, *self.unprotected), 1)
        return counts | {self.mechanism.what: self.mechanism.uploads(self.rounds) + self.retries}

    def site_plans(self, mechanism: Mechanism, public: PublicParameters) -> list[SitePlan]:
        """Return the noise plan of each site for one kind of upload."""
        # All sites of one process ask for the same: the last answer is kept.
        asked, kept = self.__dict__.get("_last", (None, []))
        if asked is not None and asked[0] is mechanism and asked[1] is public:
            found: list[SitePlan] = kept
            return found
        rate = public.sampling_rate or 1.0
        denominators = [rate * member.denominator for member in self.members]
        weights = [member.weight for member in self.members]
        sharing, own = self.sharing, self._own_plans
        plans = site_plans(self.plan, mechanism, public, self.names, denominators, weights, sharing, own)
        self.__dict__["_last"] = ((mechanism, public), plans)
        return plans

    def planned_variance(self, mechanism: Mechanism, public: PublicParameters) -> float:
        """Variance of the noise in each value of the average of all sites; 0 if uploads have no noise."""
        if self.plan is None or mechanism.protection != "upload":
            return 0.0
        plans = self.site_plans(mechanism, public)
        # A grid may follow from landmarks that are still to come: what rounding adds is then left out.
        known = public.grid is not None or mechanism.needs_norm
        cell = mechanism.cell(public, mechanism.grid(public, np.zeros((1, public.features)))) if known else 0.0
        if mechanism.trust == "central":
            return plans[0].sigma(cell) ** 2
        if mechanism.trust == "aggregate":
            return math.fsum(plan.variance_alone(cell) for plan in plans)
        return math.fsum((plan.weight * plan.sigma(cell)) ** 2 for plan in plans)


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidParameter(name, value, "a whole number, and no float")
    return int(value)


def derived(seed: int) -> str:
    """Return a hash of numbers drawn from the public seed, by every kind of draw that sites make from it."""
    generator = Streams(seed).generator("derived")
    drawn = [generator.standard_normal(64), generator.random(64), generator.permutation(1000).astype(np.float64)]
    return hashlib.sha256(b"".join(each.astype("<f8").tobytes() for each in drawn)).hexdigest()
