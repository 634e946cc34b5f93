"""What a private map can show, from public numbers alone, before anything is spent.

*Directions.* The second moments are in units of C², to which all records are clipped, so that their trace is at most 1.
Noise of standard deviation s on, and s/√2 off, the diagonal has eigenvalues up to e = s√(2m). A direction with a share
λ > e/2 of the variance is seen at λ + e²/4λ (Benaych-Georges & Nadakuditi 2011), so that it clears f·e, with f of
`dpfedvis.server.subspace.threshold`, where λ > e(f + √(f² − 1))/2. With a trace of at most 1 at most 1/λ of them can.

*Regions.* The counts of a map's settled rounds together have noise s. A landmark that holds all records is clear at
q·s < 1, with q of `dpfedvis.server.regions.quantile`; where that fails, no region of any data is. Of k landmarks that
share the records alike each is clear by itself at q·s < 1/k.

Where neither can be, the verdict is "no", whatever the data are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from accounting import Budget
from accounting.errors import AccountingError
from dpfedvis.errors import DpfedvisError
from dpfedvis.mechanisms import KMeans
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.releases import SINGLE_RELEASES
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.noise_plan import drawn_by
from dpfedvis.server.members import Members
from dpfedvis.server.private_map import Learner, landmarks_for
from dpfedvis.server.program import Program
from dpfedvis.server.regions import SETTLED, quantile
from dpfedvis.server.rounds import one_sweep
from dpfedvis.server.subspace import edge_of, hidden_below

Outlook = Literal["yes", "partly", "unlikely", "no"]
# Chosen on digits, Fashion-MNIST and a Gaussian blob (reports/verdict).
USUAL = 0.03  # most of the variance of usual data is in directions that have as much of it
SECOND = 0.1  # share of variance of the second direction of usual data
RARE = 0.4  # hardly any data have a direction with more: asked where no records are counted
ROOM = 1.25  # of an equal share over what is clear: then most landmarks are
LITTLE = 0.6  # below it hardly any landmark is
_MOST_FACTOR = 1e4
_UNITS = {
    ScaleHistogram.what: "of all records",
    Moments.what: "of the bound on norms",
    SecondMoments.what: "of the variance",
    GridCounts.what: "of all records",
}


@dataclass(frozen=True)
class Stage:
    """A release of the plan.

    Parameters
    ----------
    what : str
    uploads : int
    share : float
        Of μ².
    noise_multiplier : float
        σ over sensitivity.
    noise : float
        Standard deviation of the noise in each value of the average of all sites.
    unit : str
        What it is a part of.
    """

    what: str
    uploads: int
    share: float
    noise_multiplier: float
    noise: float
    unit: str


@dataclass(frozen=True)
class Way:
    """A change with which the map is forecast to show the data.

    Parameters
    ----------
    setting : str
    value : float or str
    sentence : str
    epsilon : float, optional
        The ε that goes with it, where it is another one.
    """

    setting: str
    value: float | str
    sentence: str
    epsilon: float | None = None


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a private map can show, from public numbers alone.

    Parameters
    ----------
    signal : {"yes", "partly", "unlikely", "no"}
        The predicted verdict; "no" holds for any data, the others for usual ones.
    sentence : str
    sites : int
    records : int, optional
        Of all sites together: their public number, or that which sums are divided by. None where the unit is a client.
    features : int
    epsilon, delta : float
    trust, unit : str
    threshold, colluders : int, optional
    stages : tuple of Stage
    least_direction : float
        Least share of the variance that a direction must have to stand above the noise.
    directions : int
        How many can, at most.
    landmarks : int
    count_noise : float, optional
        Noise in a landmark's share of the records, all settled rounds together; None if none are counted.
    least_share : float, optional
        Least share of the records that a landmark must hold to be clear by itself.
    regions : int, optional
        How many regions with equal shares of the records can be clear, at most.
    ways : tuple of Way
        The cheapest single changes with which it would be "yes".
    """

    signal: Outlook
    sentence: str
    sites: int
    records: int | None
    features: int
    epsilon: float
    delta: float
    trust: str
    unit: str
    threshold: int | None
    colluders: int | None
    stages: tuple[Stage, ...]
    least_direction: float
    directions: int
    landmarks: int
    count_noise: float | None
    least_share: float | None
    regions: int | None
    ways: tuple[Way, ...] = ()

    def __str__(self) -> str:
        return self.sentence

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return asdict(self)


def forecast(program: Program, members: Members, *, ways: bool = True) -> Forecast:
    """Return the forecast of a program with ``release="none"``.

    Parameters
    ----------
    program : Program
    members : Members
        Public facts of the sites; they need not be there.
    ways : bool
        Look for ways out where it is not "yes".
    """
    found = _forecast(program, members)
    if not ways or found.signal == "yes":
        return found
    return replace(found, ways=_ways(program, members))


def _forecast(program: Program, members: Members) -> Forecast:
    learner = program.learner(members)
    contract = learner.contract(members, "plan")
    edge, size = _edge(learner, contract)
    least = hidden_below(edge, size)
    count = learner.landmarks or landmarks_for(_unit_noise(program, members))
    noise = _count_noise(learner, contract, count)
    clear = None if noise is None else quantile(count) * noise
    signal = _outlook(least, clear, count)
    budget = learner.budget
    whole = budget.unit == "client"
    facts: dict[str, Any] = {
        "sites": members.count,
        "records": None if whole else round(math.fsum(each.denominator for each in contract.members)),
        "features": members.features,
        "least_direction": least,
        "directions": _at_most(1, least, size),
        "landmarks": count,
        "regions": None if clear is None else _at_most(1, clear**2 * count, count),
    }
    return Forecast(
        signal=signal,
        sentence=_said(signal, facts, budget, learner.mechanism.trust),
        epsilon=budget.epsilon,
        delta=budget.delta,
        trust=learner.mechanism.trust,
        unit=budget.unit,
        threshold=contract.threshold,
        colluders=contract.colluders,
        stages=_stages(learner, contract, count),
        count_noise=noise,
        least_share=clear,
        **facts,
    )


def _outlook(least: float, clear: float | None, landmarks: int) -> Outlook:
    """Return the predicted verdict.

    Parameters
    ----------
    least : float
        Least share of the variance that a direction must have.
    clear : float, optional
        Least share of the records that a landmark must hold.
    landmarks : int
    """
    if least > 1 and (clear is None or clear > 1):
        return "no"
    room = math.inf if clear is None else 1 / (landmarks * clear)
    if least <= USUAL and room >= ROOM:
        return "partly" if clear is None else "yes"
    hardly = least > RARE if clear is None else least > SECOND and room < LITTLE
    return "unlikely" if hardly else "partly"


def _at_most(whole: float, part: float, most: int) -> int:
    """Return how many parts fit into the whole, and no more than `most`."""
    return most if part * most <= whole else math.floor(whole / part)


def _edge(learner: Learner, contract: Contract) -> tuple[float, int]:
    """Return the edge of the noise in the second moments, in units of C², and how many values they are of."""
    size = _seen(contract)
    release = SecondMoments(trust=learner.mechanism.trust)
    return edge_of(math.sqrt(contract.planned_variance(release, learner.public_for(size))), size), size


def _seen(contract: Contract) -> int:
    """Return how many values of a record its second moments are of: the contract has room for their triangle."""
    values = contract.extras[SecondMoments.what].values // drawn_by(contract.trust, len(contract.members))
    return math.isqrt(2 * values)


def _unit_noise(program: Program, members: Members) -> float:
    """Noise in a mean over all records of vectors of norm 1, in one upload: what the number of landmarks follows from.

    That of k-means; another mechanism's releases are as many, so that one in its place has as much.
    """
    learner = program.learner(members)
    uploads = learner.mechanism.uploads(learner.rounds)
    counting = replace(learner, mechanism=replace(one_sweep(learner.mechanism), sweeps=uploads))
    counted = counting.contract(members, "plan")
    return math.sqrt(counted.planned_variance(counted.mechanism, counting.public_for(2)))


def _count_noise(learner: Learner, contract: Contract, landmarks: int) -> float | None:
    if not isinstance(learner.mechanism, KMeans):
        return None
    public = replace(learner.public_for(2), landmarks=landmarks)
    rounds = max(1, math.ceil(learner.mechanism.uploads(learner.rounds) * SETTLED))
    return math.sqrt(contract.planned_variance(learner.mechanism, public) / rounds)


def _stages(learner: Learner, contract: Contract, landmarks: int) -> tuple[Stage, ...]:
    plan, mechanism, trust = contract.plan, learner.mechanism, learner.mechanism.trust
    assert plan is not None
    found = []
    for what in (*contract.extras, mechanism.what):
        features = _seen(contract) if what == SecondMoments.what else contract.features
        public = replace(learner.public_for(features), landmarks=landmarks)
        single: Any = SINGLE_RELEASES.get(what)  # a dataclass, which a protocol cannot say
        release = mechanism if single is None else single(trust=trust)
        unit = _UNITS.get(what, "of all records" if isinstance(mechanism, KMeans) else "of one value")
        noise = math.sqrt(contract.planned_variance(release, public))
        multiplier = plan.multipliers[what]
        found.append(Stage(what, contract.counts[what], multiplier.planned.share, multiplier.sigma, noise, unit))
    return tuple(found)


def _ways(program: Program, members: Members) -> tuple[Way, ...]:
    """Find the least change of each setting with which the forecast is "yes", where there is one."""
    settings = program.settings
    budget, mechanism = settings.budget, settings.mechanism
    assert budget is not None

    def good(asked: Program, of: Members) -> bool:
        try:
            return _forecast(asked, of).signal == "yes"
        except (AccountingError, DpfedvisError, ArithmeticError, ValueError):
            return False  # no plan with these numbers

    def with_budget(factor: float, trust: str) -> Program:
        larger = replace(budget, epsilon=budget.epsilon * factor)
        return Program(replace(settings, budget=larger, mechanism=replace(mechanism, trust=trust)))  # type: ignore[type-var]  # frozen

    found = []
    trust = mechanism.trust
    if factor := _least(lambda each: good(with_budget(each, trust), members), 500 / budget.epsilon):
        epsilon = _up(budget.epsilon * factor)
        found.append(Way("epsilon", epsilon, f"ε = {epsilon:g}"))
    if trust == "local" and members.count > 2:
        factor = 1.0 if good(with_budget(1.0, "aggregate"), members) else None
        factor = factor or _least(lambda each: good(with_budget(each, "aggregate"), members), 500 / budget.epsilon)
        if factor:
            epsilon = _up(budget.epsilon * factor) if factor > 1 else budget.epsilon
            more = f" with ε = {epsilon:g}" if factor > 1 else ""
            found.append(Way("trust", "aggregate", f"trust aggregate{more}", epsilon if factor > 1 else None))
    if budget.unit != "client" and all(each.records is not None for each in members.sites):
        total = sum(each.records or 0 for each in members.sites)
        if factor := _least(lambda each: good(program, _scaled(members, each)), _MOST_FACTOR):
            records = int(_up(total * factor))
            found.append(Way("records", records, f"{records:,} records"))
    if settings.image is None and (features := _fewer(program, members, good)):
        found.append(Way("features", features, f"{features} features"))
    return tuple(found)


def _least(good: Callable[[float], bool], most: float) -> float | None:
    """Return the least factor above 1, to 2 %, for which something is good; None if there is none up to `most`."""
    low, high = 1.0, 2.0
    while not good(high):
        low, high = high, 2 * high
        if low >= most:
            return None
    while high > 1.02 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def _fewer(program: Program, members: Members, good: Callable[[Program, Members], bool]) -> int | None:
    """Return the largest smaller number of features that is good, if there is one."""
    low, high = 2, members.features
    if high <= low or not good(program, _of_features(members, low)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(program, _of_features(members, middle)) else (low, middle)
    return low


def _scaled(members: Members, factor: float) -> Members:
    return Members(tuple(replace(each, records=round((each.records or 0) * factor)) for each in members.sites))


def _of_features(members: Members, features: int) -> Members:
    return Members(tuple(replace(each, features=features) for each in members.sites))


def _up(value: float) -> float:
    """Round up to two digits."""
    unit: float = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.12g}")


_HEADS: dict[Outlook, str] = {
    "yes": "Usual data of this size can be seen",
    "partly": "Some of usual data of this size can be seen",
    "unlikely": "Data of this size are unlikely to be seen",
    "no": "No data of this size can be seen: whatever they are, the map would show noise",
}


def _said(signal: Outlook, facts: dict[str, Any], budget: Budget, trust: str) -> str:
    records = f"{facts['sites']} sites" if facts["records"] is None else f"{facts['records']:,} records"
    least = facts["least_direction"]
    direction = (
        "no direction can stand above the noise"
        if least > 1
        else f"a direction stands above the noise with {100 * least:.2g} % of the variance"
    )
    regions = facts["regions"]
    clear = (
        "" if regions is None else f", and at most {regions} equal regions do" if regions else ", and no region does"
    )
    what = f"ε = {budget.epsilon:g}, trust {trust}, {records}, {facts['features']} features"
    return f"{_HEADS[signal]} ({what}): {direction}{clear}."
