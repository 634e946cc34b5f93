"""The noise plan of a run: what each client will release, and with how much noise. Known before the first release."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import get_args

import numpy as np

from accounting import Budget, CalibratedPlan, GaussianRelease, InvalidParameter, PlannedRelease, calibrate, checks
from accounting.budget import Adjacency
from accounting.events import STAGES, Stage, Trust
from accounting.sharing import Sharing
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.rows import ROW_RELEASES, Rows, row_grid
from dpfedvis.numerics.kernels import Array

HOME = "records"  # the release of input perturbation
MEAN_CELLS = 2.0**12  # of a cell of a sum, in a mean over a client's records
MOST_NOISE = 2.0**46  # cells: the sampler has room for 2⁴⁹
LEAST_OWN = 1e-6  # of the common noise: by less a site's own ε is not missed, as calibration leaves that much room
MOST_OWN = 1e3  # times the common noise, which is taken out of what an event states: see `common_sigma`


@dataclass(frozen=True)
class Extra:
    """A single release besides the mechanism's: its share of μ², its stage, and its number of values at most."""

    share: float
    stage: Stage
    values: int


@dataclass(frozen=True)
class RunPlan:
    """Noise multipliers of all protected releases of a run, the same for every client.

    Parameters
    ----------
    multipliers : CalibratedPlan
        Calibrated for sensitivity 1: its sigmas are noise multipliers.
    noise : str
        Name of the noise source.
    """

    multipliers: CalibratedPlan
    noise: str

    def event(
        self,
        what: str,
        client: str,
        *,
        sensitivity: float,
        grid: float,
        values: int,
        largest: float | None = None,
        trust: Trust = "local",
        round: int | None = None,
    ) -> GaussianRelease:
        """Return the event of one release by one client.

        Parameters
        ----------
        what, client : str
        sensitivity : float
            Of this client.
        grid : float
            Width of a cell.
        values : int
            Number of integers drawn for what a record can change.
        largest : float, optional
            Largest sensitivity of all clients, where one noise must do for all; by default this client's.
        trust : {"local", "aggregate", "central"}
        round : int, optional
        """
        release = self.multipliers[what]
        planned = replace(release.planned, sensitivity=sensitivity, values=values)
        sigma = release.sigma * (sensitivity if largest is None else largest)
        own = replace(release, planned=planned, sigma=sigma)
        event = own.event(client, round=round, trust=trust, noise=self.noise, grid=grid)
        assert isinstance(event, GaussianRelease)
        return event


@dataclass(frozen=True)
class SitePlan:
    """The noise plan for one client and one kind of upload.

    Parameters
    ----------
    index : int
        Number of the client; selects its random streams.
    name : str
    denominator : float
        Public number that its sums are divided by.
    weight : float
        Weight in the server's average.
    clients : int
        Number of clients P.
    run : RunPlan, optional
        None without protection.
    what : str
        Name of the protected release.
    trust : {"local", "aggregate", "central"}
    sensitivity, largest : float
        How far a record moves what the server sees, by this client and by the one that moves it most; before what
        rounding adds.
    scale : float
        What a cell of the mechanism's total is worth in what the server sees.
    factor : float
        What each record's part is multiplied by: the client's weight relative to the largest, for one common grid.
    mean : bool
        Whether the client divides by the number of its records, which is private: the unit is a client.
    values : int
        Number of integers drawn for what a record can change, by all clients that share one noise.
    sharing : Sharing, optional
        How they share it.
    own : RunPlan, optional
        Of a site whose ε is smaller than that of the run, where the noise is shared.
    strictest : RunPlan, optional
        That of the site with the smallest ε, where there is one: it decides how coarse uploads must be.
    rounded, all_rounded : float
        How many values of an upload were rounded one by one, and how many there are. A value with less noise than the
        largest, r of it, counts 1/r²: as a part of the noise its cell is 1/r wide.
    of_records : float
        The same for what each record adds (`Mechanism.rounded`); it does not grow when the upload is made coarser.
    """

    index: int
    name: str
    denominator: float
    weight: float
    clients: int
    run: RunPlan | None = None
    what: str = ""
    trust: Trust = "local"
    sensitivity: float = 0.0
    largest: float = 0.0
    scale: float = 1.0
    factor: float = 1.0
    mean: bool = False
    values: int = 1
    sharing: Sharing | None = None
    own: RunPlan | None = None
    strictest: RunPlan | None = None
    rounded: float = 0
    all_rounded: float = 1
    of_records: float = 0

    def event(self, cell: float, round: int | None = None) -> GaussianRelease:
        """Return the event of one upload whose total has cells of this worth (`Mechanism.cell`).

        Values that are rounded one by one differ by a cell more than over the reals: Δ + g√rounded. All are if the
        upload is made coarser.
        """
        added = self._added(cell)
        event = self._planned.event(
            self.what,
            self.name,
            sensitivity=self.sensitivity + added,
            largest=self.largest + added,
            grid=cell * self.scale * 2.0 ** self.bits_dropped(cell),
            values=self.values,
            trust=self.trust,
            round=round,
        )
        if self.sharing is None:
            return event
        own = self._own_noise(cell)
        if own <= LEAST_OWN * event.sigma:
            return replace(event, **asdict(self.sharing))
        if own > MOST_OWN * event.sigma:
            raise InvalidParameter(
                f"noise of {self.name}, for its own ε", own, f"at most {MOST_OWN:g} times the common {event.sigma:g}"
            )
        return replace(event, **asdict(self.sharing), sigma=math.hypot(event.sigma, own), own=own)

    def _own_noise(self, cell: float) -> float:
        """Return the noise that this client must add beyond its share of the common one; 0 without an ε of its own."""
        if self.own is None:
            return 0.0
        needed = self.own.multipliers[self.what].sigma * (self.sensitivity + self._added(cell))
        return math.sqrt(max(needed**2 - self.sigma(cell) ** 2, 0.0)) * (1 + 1e-12)  # up, against rounding

    def variance_alone(self, cell: float) -> float:
        """Return the variance of the noise that this client adds to an upload: its share, and what is its own."""
        return self.sigma(cell) ** 2 / self.shares + self._own_noise(cell) ** 2

    @property
    def shares(self) -> int:
        """How many clients' noise makes up that of the event."""
        return 1 if self.sharing is None else self.sharing.shares

    def sigma(self, cell: float) -> float:
        """Return the noise of such an upload, where it is shared the common one.

        A cell of 0, before the grid is known, leaves out what rounding adds.
        """
        return self._planned.multipliers[self.what].sigma * (self.largest + self._added(cell))

    @property
    def _planned(self) -> RunPlan:
        if self.run is None:
            raise RuntimeError(f"the noise plan has no {self.what or 'release'} for {self.name}")
        return self.run

    def bits_dropped(self, cell: float) -> int:
        """Return how many low bits of each value are dropped, so that its noise fits the sampler: public, mostly 0."""
        moved = self.largest / (cell * self.scale) + math.sqrt(self.of_records) if cell else 0.0
        cells = (self.strictest or self._planned).multipliers[self.what].sigma * moved
        return max(0, math.ceil(math.log2(cells / MOST_NOISE))) if cells else 0

    def _added(self, cell: float) -> float:
        """What rounding adds to the sensitivity."""
        dropped = self.bits_dropped(cell)
        rounded = self.all_rounded if dropped else self.rounded
        return cell * self.scale * (math.sqrt(self.of_records) + 2.0**dropped * math.sqrt(rounded))


def plan_run(
    budget: Budget | None,
    mechanism: Mechanism,
    rounds: int,
    sampling_rate: float | None,
    noise: str,
    extras: Mapping[str, Extra],
    values: int,
    *,
    retries: int = 0,
) -> RunPlan | None:
    """Calibrate all releases of a run to one budget.

    Parameters
    ----------
    budget : Budget, optional
    mechanism : Mechanism
    rounds : int
    sampling_rate : float, optional
    noise : str
        Name of the noise source.
    extras : mapping of str to Extra
        Other, single releases; the mechanism gets the rest of μ².
    values : int
        Number of values of the mechanism's upload at most.
    retries : int
        Uploads of the mechanism that may be repeated.

    Returns
    -------
    RunPlan, or None if nothing is protected
    """
    for extra in extras.values():
        checks.one_of("stage", extra.stage, STAGES)
    releases = [
        PlannedRelease(what, 1.0, 1, extra.share, stage=extra.stage, values=extra.values)
        for what, extra in extras.items()
    ]
    rest = 1 - math.fsum(extra.share for extra in extras.values())
    if rest <= 0:
        raise InvalidParameter(f"the shares of {', '.join(extras)}", 1 - rest, "below 1 together")
    if mechanism.protection == "upload":
        count = mechanism.uploads(rounds) + retries
        releases.append(
            PlannedRelease(
                mechanism.what, 1.0, count, rest, sampling_rate=sampling_rate, stage=mechanism.stage, values=values
            )
        )
    elif mechanism.protection == "home":
        releases.append(PlannedRelease(HOME, 1.0, 1, rest, values=values))
    elif releases:
        raise InvalidParameter("mechanism", mechanism.name, f"one with protection, for {', '.join(extras)}")
    if not releases:
        return None
    if budget is None:
        raise InvalidParameter(
            "budget", None, f"given: mechanism {mechanism.name!r} adds noise, which follows from the budget"
        )
    # As many rows leave as there are records, which other units and neighbours hide.
    rows = sorted(set(extras) & ROW_RELEASES) + [HOME] * (mechanism.protection == "home")
    if rows and budget.adjacency != "replace-one":
        raise InvalidParameter("adjacency", budget.adjacency, f"replace-one for {', '.join(rows)}")
    if rows and budget.unit == "person":
        raise InvalidParameter("unit of the budget", budget.unit, f"record for {', '.join(rows)}, one for each record")
    if budget.unit == "client" and (rows or budget.adjacency != "replace-one" or sampling_rate is not None):
        raise InvalidParameter(
            "unit of the budget",
            budget.unit,
            "record here: unit client needs protected uploads, replace-one, and no sampling",
        )
    return RunPlan(calibrate(budget, releases), noise)


def site_plans(
    plan: RunPlan | None,
    mechanism: Mechanism,
    public: PublicParameters,
    names: Sequence[str],
    denominators: Sequence[float],
    weights: Sequence[float],
    sharing: Sharing | None = None,
    own: Sequence[RunPlan | None] | None = None,
) -> list[SitePlan]:
    """Return the noise plan for each client.

    Parameters
    ----------
    plan : RunPlan, optional
    mechanism : Mechanism
    public : PublicParameters
    names : sequence of str
    denominators, weights : sequences of float
        Public, one for each client.
    sharing : Sharing, optional
        Under trust `aggregate`; by default one of all clients, of whom none colludes.
    own : sequence of RunPlan or None, optional
        Of each client that takes part with a smaller ε.

    Notes
    -----
    If the privacy unit is a client, the sensitivity is that for n_p = 1. Proof: a client uploads a mean of g(x) over
    its records. A mean of g(x′) over any other records, however many, differs by at most max ‖g(x) − g(x′)‖, the
    sensitivity for a client with a single record. A client without records uploads 0, which differs by max ‖g(x)‖, the
    sensitivity for adding a record. The mean is rounded value by value, which is charged.

    If it is a person with at most k records, the sensitivity is k times that of one record, the larger of replacing
    and adding it. Proof: exchange the records of one person, a ≤ k, for those of another, b ≤ k. That replaces
    min(a, b) records and adds or removes the others: at most k changes of a sum over records, whose denominator is
    public; the triangle inequality adds them up. What rounding adds for a record is multiplied as well. An upload in
    which one record more changes the part of others (pairs of records, local steps) has no sensitivity for adding one,
    and is refused.

    Under `local` trust each upload has its own noise, σ_p = z Δ_p with noise multiplier z. Otherwise the server sees
    only Σ_p ω_p m_p, which a record of client p moves by ω_p Δ_p; one σ must cover all clients: σ = z max_p ω_p Δ_p.
    All clients then need one grid. A client's sum over records counts ω_p/n_p; the largest of these scales the grid,
    and each record's part is multiplied by the client's own relative to it before it is rounded. With ω_p = n_p/n
    all are equal, and the uploads are plain sums.

    A client with a smaller ε has a larger multiplier z_p of its own. Under `local` trust its noise is z_p Δ_p. Under
    `aggregate` the noise that others leave is the common σ², and the client adds what is missing itself: own² = (z_p
    D_p)² − σ². It is honest wherever its records are to be protected, so that this part is always in the sum. On the
    grid it draws one discrete Gaussian of parameter s_p with (t − c − 1)s² + s_p² = (σ² + own²)/g² + 4; that is no
    smaller than the others' s, so that the sum is as near to one Gaussian as `accounting.exactness` says. Others count
    none of it: the client may be one of those that collude against them. Under `central` trust there is one noise, for
    the smallest ε.
    """
    check_trust(mechanism)
    plans = [
        SitePlan(index, name, denominator, weight, len(names))
        for index, (name, denominator, weight) in enumerate(zip(names, denominators, weights, strict=True))
    ]
    if plan is None or mechanism.protection == "none":
        return plans
    own = [None] * len(names) if own is None else own
    strictest = max((each for each in own if each is not None), key=_strictness, default=None)
    alone = {"local": [each or plan for each in own], "central": [strictest or plan] * len(names)}
    runs = alone.get(mechanism.trust, [plan] * len(names))
    if mechanism.protection == "home":
        # Neighbouring data differ in one row: only its values count.
        delta = _sensitivity(mechanism, public, 1.0)
        values = public.features
        common = partial(replace, what=HOME, sensitivity=delta, largest=delta)
        return [common(each, run=run, values=values, all_rounded=values) for each, run in zip(plans, runs, strict=True)]
    size, shared = math.prod(mechanism.shape(public)), mechanism.trust != "local"
    shared_by = (sharing or Sharing(len(names), len(names), 0)) if mechanism.trust == "aggregate" else None
    budget = plan.multipliers.budget
    additive, whole = mechanism.additive(public), budget.unit == "client"
    deltas, scales = [], []
    for each in plans:
        divided = 1.0 if whole else each.denominator
        if whole:
            delta = _sensitivity_of_client(mechanism, public)
        elif budget.unit == "person":
            delta = budget.rows * _sensitivity_of_any_change(mechanism, public, divided)
        else:
            delta = _sensitivity(mechanism, public, divided)
        scale = 1 / divided if additive else 1.0
        deltas.append(each.weight * delta if shared else delta)
        scales.append(each.weight * scale if shared else scale)
    largest = max(scales)
    factors = [scale / largest if shared else 1.0 for scale in scales]
    relative = mechanism.relative_noise(public)
    every = float(size) if relative is None else math.fsum((1 / np.square(relative)).ravel().tolist())
    # Of each record, in cells of the sum; and of the whole upload, in its own.
    mean = additive and whole
    of_records = mechanism.rounded(public) * (MEAN_CELLS**2 if mean else 1.0) * budget.rows**2
    of_upload = every if mean or (not additive and min(factors) < 1) else 0.0
    return [
        replace(
            each,
            run=run,
            what=mechanism.what,
            trust=mechanism.trust,
            sensitivity=delta,
            largest=max(deltas) if shared else delta,
            scale=(largest if shared else scale) / (MEAN_CELLS if mean else 1.0),
            factor=factor,
            mean=mean,
            values=size * drawn_by(mechanism.trust, len(names)),
            sharing=shared_by,
            own=smaller if mechanism.trust == "aggregate" else None,
            strictest=strictest if shared else None,
            rounded=of_upload,
            all_rounded=every,
            of_records=of_records,
        )
        for each, delta, scale, factor, run, smaller in zip(plans, deltas, scales, factors, runs, own, strict=True)
    ]


def _strictness(plan: RunPlan) -> float:
    """How much noise a plan asks for: all its multipliers grow together."""
    return plan.multipliers.releases[0].sigma


def row_event(plan: RunPlan, rows: Rows, Y: Array, tau_x: float, site: str) -> GaussianRelease:
    """Return the event of a site's noisy rows, of records clipped to norm `tau_x`."""
    grid = rows.cell(row_grid(tau_x, Y))
    return plan.event(rows.what, site, sensitivity=row_sensitivity(rows, Y, tau_x), grid=grid, values=rows.width(Y))


def row_sensitivity(rows: Rows, Y: Array, tau_x: float) -> float:
    """How far one record moves its row, with the rounding of each of its values; replace-one."""
    exact = rows.sensitivity(tau_x, len(Y), "replace-one")
    return exact + rows.cell(row_grid(tau_x, Y)) * math.sqrt(rows.width(Y))


def check_trust(mechanism: Mechanism) -> None:
    """Raise unless sites that share a sum have noise to share."""
    if mechanism.trust != "local" and mechanism.protection != "upload":
        raise InvalidParameter(f"trust of {mechanism.name}", mechanism.trust, "local: there is no noise to share")


def drawn_by(trust: Trust, clients: int) -> int:
    """How many clients draw noise for one sum that is seen: each of its integers is charged."""
    return clients if trust == "aggregate" else 1


def _sensitivity_of_any_change(mechanism: Mechanism, public: PublicParameters, denominator: float) -> float:
    """Δ for replacing, adding or removing one record, whichever is larger."""
    both = [replace(public, adjacency=each) for each in get_args(Adjacency)]
    try:
        return max(_sensitivity(mechanism, each, denominator) for each in both)
    except InvalidParameter:
        raise InvalidParameter(
            "unit of the budget",
            "person",
            f"record for the {mechanism.what}, in which one record more changes the part of others (a scale histogram "
            "is not needed with a schema, public bounds or tau_x)",
        ) from None


def _sensitivity_of_client(mechanism: Mechanism, public: PublicParameters) -> float:
    """Δ of one record, for replacing or adding it."""
    replacing = _sensitivity(mechanism, public, 1.0)
    try:
        return max(replacing, _sensitivity(mechanism, replace(public, adjacency="add-remove"), 1.0))
    except InvalidParameter:
        # Of histogram and variable, Δ for replacing is twice the bound on one record's part, which covers adding it.
        return replacing


def _sensitivity(mechanism: Mechanism, public: PublicParameters, denominator: float) -> float:
    delta = mechanism.sensitivity(public, denominator)
    if delta is None:
        raise InvalidParameter(
            f"sensitivity of {mechanism.name}", None, "a number, since the mechanism claims protection"
        )
    return delta
