"""What a site computes for a request: exact integers, their noise, and the event, all from the contract."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Event, GaussianRelease, PostProcessing, Unprotected, checks
from accounting.budget import Adjacency, Unit
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms import Mechanism, PreparedRecords
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.releases import SINGLE_RELEASES
from dpfedvis.mechanisms.rows import noisy_rows
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Floats, Integers
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.projections import SpectralBall
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import MALFORMED, NOT_PLANNED, Perturb, Send, SendRows
from dpfedvis.protocol.noise import add_noise, noise_cells, noise_source
from dpfedvis.protocol.noise_plan import MEAN_CELLS, SitePlan, drawn_by, row_event
from dpfedvis.protocol.uploads import Upload
from dpfedvis.protocol.views import RAW
from dpfedvis.site.policy import Refusal
from dpfedvis.site.views import LARGEST_VALUE

MOST_NUMBER = 1e40  # of a request


class Computation:
    """The uploads of one site in one run.

    Parameters
    ----------
    contract : Contract
    site : str
    records : array of shape (n, m)
    taking_part : int64 array of shape (any,), optional
        Which of them take part; all by default.

    Attributes
    ----------
    records : array of shape (any, m)
        Those that take part.
    views : dict of str to array
        What uploads are computed from, by name.
    view_hashes : dict of str to str
        Of the public facts that each view follows from.
    cells : int
        Of the density's grid, for all classes.
    """

    def __init__(
        self, contract: Contract, site: str, records: Array, taking_part: NDArray[np.int64] | None = None
    ) -> None:
        self._contract, self._site, self.taking_part = contract, site, taking_part
        self.records = records if taking_part is None else records[taking_part]
        self._place, self._streams = contract.places[site], Streams(contract.seed)
        self.views: dict[str, Array] = {RAW: self.records}
        self.view_hashes: dict[str, str] = {}
        self.cells = 0
        self._home: Upload | None = None
        self._prepared: tuple[Array, Mechanism, float, PreparedRecords] | None = None

    @property
    def home(self) -> Upload:
        """The perturbed records, which stay at the site, with the event of their perturbation."""
        if self._home is None:
            raise Refusal(NOT_PLANNED, "records were not perturbed")
        return self._home

    def keep_home(self, upload: Upload) -> None:
        """Take these for the records of the run: perturbed now, or before an interruption."""
        self._home = upload

    # What a request may ask for, and the event of it: from public facts alone

    def planned(self, request: Send) -> Event:
        """Return the event of an upload; refuse one that is not in the contract."""
        self._check(request)
        chosen, public = request.mechanism, request.public
        facts = self._facts(chosen, request.round)
        if chosen.protection == "home":
            return PostProcessing(**facts, of=self.home.event.what)
        if chosen.protection == "none":
            return Unprotected(**facts, why=chosen.why)
        Y = np.zeros((1, public.features)) if request.landmarks is None else request.landmarks
        plan = self._contract.site_plans(chosen, public)[self._place]
        try:
            event = plan.event(chosen.cell(public, chosen.grid(public, Y)), request.round)
            noise_cells(event, plan.shares, chosen.relative_noise(public))
        except InvalidParameter:
            raise Refusal(NOT_PLANNED, "the noise has too few or too many cells of this grid") from None
        return event

    def planned_perturbation(self, request: Perturb) -> GaussianRelease:
        """Return the event of perturbing the records; refuse it if it is not in the contract."""
        chosen, public = request.mechanism, request.public
        if chosen != self._contract.mechanism or chosen.protection != "home":
            raise Refusal(NOT_PLANNED, "the contract has no perturbation of records")
        check_numbers(chosen)
        self._check_public(public, self._contract.sampling_rate)
        if public.features != self._contract.features:
            raise Refusal(MALFORMED, "the records have other features")
        plan = self._contract.site_plans(chosen, public)[self._place]
        return plan.event(chosen.grid(public, np.zeros((1, public.features))).step)

    def planned_rows(self, request: SendRows) -> Event:
        """Return the event of rows; refuse those that are not in the contract."""
        rows, Y, contract = request.rows, request.landmarks, self._contract
        if not isinstance(Y, np.ndarray) or Y.ndim != 2 or Y.shape[1] != contract.features:
            raise Refusal(MALFORMED, "the landmarks have another shape")
        if not float(np.abs(Y).max(initial=0.0)) <= LARGEST_VALUE:
            raise Refusal(MALFORMED, "the landmarks are not finite numbers, or too large")
        check_numbers(rows)
        if rows.what in contract.extras and contract.plan is not None:
            plan = contract.plan_of(self._site) or contract.plan
            event = row_event(plan, rows, Y, checks.positive("tau_x", contract.tau_x or 0.0), self._site)
            if event.values > contract.plan.multipliers[rows.what].planned.values:
                raise Refusal(NOT_PLANNED, f"{rows.what} have more values than the contract says")
            return event
        facts: dict[str, Any] = {
            "what": rows.what,
            "client": self._site,
            "adjacency": self._adjacency,
            "unit": self._unit,
            "stage": "release",
        }
        if contract.mechanism.protection == "home":
            return PostProcessing(**facts, of=self.home.event.what)
        if rows.what not in contract.unprotected:
            raise Refusal(NOT_PLANNED, f"{rows.what} are not in the contract")
        return Unprotected(**facts, why="one exact row for each record: the rows determine the records")

    def _check_public(self, public: PublicParameters, rate: float | None) -> None:
        agreed = (self._adjacency, rate, self._contract.seed)
        if (public.adjacency, public.sampling_rate, public.public_seed) != agreed:
            raise Refusal(NOT_PLANNED, "adjacency, sampling rate or seed are not those of the contract")
        if self._contract.plan is None:
            return  # nothing is protected
        check_numbers(public)
        # With more bits a squared distance could be rounded below 0, and a kernel value be far above 1.
        if public.grid is not None and not public.grid.exact_for(public.features):
            raise Refusal(MALFORMED, "the grid is too fine for so many features")

    def _check(self, request: Send) -> None:
        """Refuse what is not in the contract, or what its sensitivity does not cover."""
        contract, chosen, public = self._contract, request.mechanism, request.public
        if contract.plan is not None:
            check_numbers(chosen)
        single = chosen.what in contract.counts and SINGLE_RELEASES.get(chosen.what) is type(chosen)
        if not single and (chosen != contract.mechanism or type(chosen) is not type(contract.mechanism)):
            raise Refusal(NOT_PLANNED, "this release is not in the contract")
        if chosen.trust != contract.trust:
            raise Refusal(NOT_PLANNED, "the contract has another trust model")
        first, last = (0, 0) if single else (1, contract.counts[chosen.what])
        if not first <= request.round <= last:
            raise Refusal(NOT_PLANNED, f"round {request.round} of {chosen.what} is not in the contract")
        self._check_public(public, None if single else contract.sampling_rate)
        view = self.views.get(request.view)
        if view is None or view.shape[1] != public.features:
            raise Refusal(MALFORMED, f"the view {str(request.view)[:20]} was not prepared, or has other features")
        if public.landmarks < 2 and public.estimator == "unbiased" and not single:
            raise Refusal(MALFORMED, "the unbiased estimator needs two landmarks")
        if (request.view == "density") != (chosen.what == "density"):
            raise Refusal(NOT_PLANNED, f"{chosen.what} is not computed from the view {request.view}")
        # With fewer, whether counting fails would depend on where records are.
        if isinstance(chosen, GridCounts) and chosen.cells != self.cells:
            raise Refusal(MALFORMED, "the density has another number of cells than its grid")
        centre = chosen.centre if isinstance(chosen, SecondMoments) else None
        # Another shape would be added to records where it happens to fit their number.
        if centre is not None and (centre.shape != (public.features,) or not np.isfinite(centre).all()):
            raise Refusal(MALFORMED, "the centre has another shape, or is not finite")
        if chosen.protection == "home" and request.view != RAW:
            raise Refusal(NOT_PLANNED, "perturbed records have no other view")
        self._check_landmarks(request, single)
        if chosen.protection == "upload":
            self._check_size(chosen, public)

    def _check_landmarks(self, request: Send, single: bool) -> None:
        chosen, public, Y = request.mechanism, request.public, request.landmarks
        if Y is None:
            if not single:
                raise Refusal(MALFORMED, "there are no landmarks")
            return
        if not isinstance(Y, np.ndarray) or Y.shape != (public.landmarks, public.features):
            raise Refusal(MALFORMED, "the landmarks have another shape")
        if Y.dtype not in (np.float32, np.float64) or not float(np.abs(Y).max(initial=0.0)) <= LARGEST_VALUE:
            raise Refusal(MALFORMED, "the landmarks are not finite numbers, or too large")
        if chosen.protection != "upload":
            return
        grid = chosen.grid(public, Y)
        if not np.array_equal(grid.snap(Y), Y):
            raise Refusal(MALFORMED, "the landmarks are not on the grid")
        bounds = chosen.projection
        if isinstance(bounds, SpectralBall) and not bounds.contains(Y.astype(np.float64)):
            raise Refusal(MALFORMED, "the landmarks are outside the set on which the sensitivity rests")

    def _check_size(self, chosen: Mechanism, public: PublicParameters) -> None:
        """Refuse an upload of more values than the contract pays for."""
        plan = self._contract.plan
        if plan is None or chosen.what not in {each.planned.what for each in plan.multipliers.releases}:
            raise Refusal(NOT_PLANNED, f"the contract has no noise for {chosen.what}")
        drawn = math.prod(chosen.shape(public)) * drawn_by(chosen.trust, len(self._contract.members))
        if drawn > plan.multipliers[chosen.what].planned.values:
            raise Refusal(NOT_PLANNED, f"{chosen.what} has more values than the contract says")

    # Uploads

    def upload(self, request: Send) -> Upload:
        """Compute an upload, add its noise, and attach its event."""
        chosen, public, round = request.mechanism, request.public, request.round
        Y = np.zeros((1, public.features)) if request.landmarks is None else request.landmarks
        plan = self._contract.site_plans(chosen, public)[self._place]
        local = self._local(request, plan)
        if public.sampling_rate is not None:
            local = local.sample(public.sampling_rate, self._sampler(chosen.what, round))
        if chosen.protection == "upload":
            return self._protected(chosen, public, plan, local, Y, round)
        generator = self._streams.generator("message", chosen.what, self._place, round)
        message = chosen.message(local, Y, public, generator)
        facts = self._facts(chosen, round)
        if chosen.protection == "home":
            return Upload(message.values, PostProcessing(**facts, of=self.home.event.what))
        priced = message.nominal_sigma is not None
        event = Unprotected(
            **facts,
            why=chosen.why,
            nominal_sensitivity=chosen.sensitivity(public, plan.denominator) if priced else None,
            nominal_sigma=message.nominal_sigma,
        )
        return Upload(message.values, event)

    def perturbed(self, request: Perturb) -> Upload:
        """Perturb the records, once."""
        event, chosen, public = self.planned_perturbation(request), request.mechanism, request.public
        cell = chosen.grid(public, np.zeros((1, public.features))).step
        plan = self._contract.site_plans(chosen, public)[self._place]
        integers = chosen.at_home(self.records, public) >> plan.bits_dropped(cell)
        return Upload(self._noisy(integers, event), event)

    def rows(self, request: SendRows) -> Upload:
        """Compute a row for each record: noisy, of perturbed records, or exact, as the contract says."""
        event, rows, Y = self.planned_rows(request), request.rows, request.landmarks
        if isinstance(event, GaussianRelease):
            noisy = noisy_rows(rows, self.records, Y, checks.positive("tau_x", self._contract.tau_x or 0.0))
            return Upload(self._noisy(noisy, event), event)
        perturbed = isinstance(event, PostProcessing)
        records = self.home.floats.astype(self.records.dtype) if perturbed else self.records
        return Upload(rows.of(records, Y), event)

    def _local(self, request: Send, plan: SitePlan) -> PreparedRecords:
        """Return the records as the mechanism takes them; the last are kept, since rounds follow each other."""
        view, chosen = self.views[request.view], request.mechanism
        budget, kept = self._contract.budget, self._prepared
        # Where the unit is a whole site its number of records is private, and the contract does not have it.
        whole = budget is not None and budget.unit == "client"
        denominator = float(max(len(view), 1)) if whole else plan.denominator
        if kept is not None and kept[0] is view and kept[1] == chosen and kept[2] == denominator:
            return kept[3]
        # What follows a perturbation at home is post-processing, in floats.
        home = chosen.protection == "home"
        records = self.home.floats.astype(view.dtype) if home else chosen.prepare(view)
        prepared = PreparedRecords(records, denominator)
        self._prepared = (view, chosen, denominator, prepared)
        return prepared

    def _protected(
        self,
        chosen: Mechanism,
        public: PublicParameters,
        plan: SitePlan,
        local: PreparedRecords,
        Y: Array,
        round: int,
    ) -> Upload:
        """Sum in integers, and add the site's noise under the trust model."""
        grid = chosen.grid(public, Y)
        integers, cell = chosen.total(local, Y, public, grid, plan.factor), chosen.cell(public, grid)
        dropped = plan.bits_dropped(cell)
        if plan.mean:
            finer = MEAN_CELLS * 2.0**-dropped
            integers = np.trunc(integers / max(len(local.records), 1) * finer).astype(np.int64)
        elif dropped:
            integers = integers >> dropped
        event = plan.event(cell, round)
        Upload(integers, event).check(chosen.shape(public))
        if chosen.trust == "central":
            return Upload(integers, event)  # the curator adds the noise
        return Upload(self._noisy(integers, event, plan.shares, chosen.relative_noise(public)), event)

    @property
    def _adjacency(self) -> Adjacency:
        budget = self._contract.budget
        return "replace-one" if budget is None else budget.adjacency

    @property
    def _unit(self) -> Unit:
        return "record" if self._contract.budget is None else self._contract.budget.unit

    def _facts(self, chosen: Mechanism, round: int) -> dict[str, Any]:
        facts = {"what": chosen.what, "client": self._site, "adjacency": self._adjacency, "unit": self._unit}
        return {**facts, "round": round, "stage": chosen.stage, "trust": chosen.trust}

    def _sampler(self, what: str, round: int) -> np.random.Generator:
        """Generator for sampling records. Secret if the noise is: amplification requires it."""
        if self._contract.noise != "seeded":
            return np.random.default_rng()
        return self._streams.generator("sample", what, self._place, round)

    def _noisy(
        self, values: Integers, event: GaussianRelease, parties: int = 1, relative: Floats | None = None
    ) -> Integers:
        generator = self._streams.generator("noise", event.what, self._place, event.round or 0)
        return add_noise(noise_source(self._contract.noise, generator), values, event, parties, relative)


def check_numbers(given: Any) -> None:
    """Refuse numbers of a request beyond 1e±40, in it and in its parts.

    Within that range no product or quotient with a record's features overflows, so that no sum has NaN, and whether one
    can be formed does not depend on records.
    """
    for each in fields(given) if is_dataclass(given) else ():
        value = getattr(given, each.name)
        parts = value if isinstance(value, tuple) else (value,)
        for part in parts:
            if is_dataclass(part):
                check_numbers(part)
            elif isinstance(part, np.ndarray):
                _check_range(float(np.abs(part).max(initial=0.0)), least=0.0)
            elif isinstance(part, float | int) and part:
                _check_range(abs(part))


def _check_range(size: float, least: float = 1 / MOST_NUMBER) -> None:
    if not least <= size <= MOST_NUMBER:
        raise Refusal(MALFORMED, f"a number of the request is not between {1 / MOST_NUMBER:g} and {MOST_NUMBER:g}")
