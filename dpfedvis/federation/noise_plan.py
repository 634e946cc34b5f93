"""The noise plan of a run: what each client will release, and with how much noise. Known before the first release."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from accounting import (
    Budget,
    CalibratedPlan,
    DiscreteNoise,
    GaussianRelease,
    InvalidParameter,
    PlannedRelease,
    calibrate,
    checks,
)
from accounting.events import STAGES, Stage, Trust
from accounting.noise import grid_for
from dpfedvis.federation.client import ClientPlan
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters

HOME = "records"  # the release of input perturbation


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
        size: int,
        trust: Trust = "local",
        sigma: float | None = None,
    ) -> GaussianRelease:
        """Return the event of one release by one client.

        Parameters
        ----------
        what, client : str
        sensitivity : float
            Of this client, before rounding to the grid of discrete noise.
        size : int
            Number of values in the release.
        trust : {"local", "aggregate", "central"}
        sigma : float, optional
            Noise of the sum of all clients; by default the noise for this client alone.
        """
        release = self.multipliers[what]
        granularity = None
        if self.noise == "discrete":
            granularity = grid_for(sensitivity, size)
            sensitivity = DiscreteNoise(granularity).charged(sensitivity, size)
        planned = replace(release.planned, sensitivity=sensitivity, granularity=granularity)
        own = replace(release, planned=planned, sigma=release.sigma * sensitivity if sigma is None else sigma)
        event = own.event(client, trust=trust, noise=self.noise)
        assert isinstance(event, GaussianRelease)
        return event


def plan_run(
    budget: Budget | None,
    mechanism: Mechanism,
    rounds: int,
    sampling_rate: float | None,
    noise: str,
    extras: Mapping[str, tuple[float, Stage]],
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
    extras : mapping of str to (float, str)
        Other, single releases, with their share of μ² and their stage; the mechanism gets the rest.

    Returns
    -------
    RunPlan, or None if nothing is protected
    """
    for _, stage in extras.values():
        checks.one_of("stage", stage, STAGES)
    releases = [PlannedRelease(what, 1.0, 1, share, stage=stage) for what, (share, stage) in extras.items()]
    rest = 1 - math.fsum(share for share, _ in extras.values())
    if rest <= 0:
        raise InvalidParameter(f"the shares of {', '.join(extras)}", 1 - rest, "below 1 together")
    if mechanism.protection == "upload":
        count = mechanism.uploads(rounds)
        releases.append(
            PlannedRelease(mechanism.what, 1.0, count, rest, sampling_rate=sampling_rate, stage=mechanism.stage)
        )
    elif mechanism.protection == "home":
        releases.append(PlannedRelease(HOME, 1.0, 1, rest))
    elif releases:
        raise InvalidParameter("mechanism", mechanism.name, f"one with protection, for {', '.join(extras)}")
    if not releases:
        return None
    if budget is None:
        raise InvalidParameter(
            "budget", None, f"given: mechanism {mechanism.name!r} adds noise, which follows from the budget"
        )
    if budget.unit == "client" and (
        mechanism.protection != "upload" or budget.adjacency != "replace-one" or sampling_rate is not None
    ):
        raise InvalidParameter(
            "unit of the budget",
            budget.unit,
            "record here: unit client needs protected uploads, replace-one, and no sampling",
        )
    if noise == "discrete":
        releases = [replace(release, granularity=1.0) for release in releases]
    return RunPlan(calibrate(budget, releases), noise)


def client_plans(
    plan: RunPlan | None,
    mechanism: Mechanism,
    public: PublicParameters,
    names: Sequence[str],
    denominators: Sequence[float],
    weights: Sequence[float],
) -> list[ClientPlan]:
    """Return the noise plan for each client.

    Parameters
    ----------
    plan : RunPlan, optional
    mechanism : Mechanism
    public : PublicParameters
    names : sequence of str
    denominators, weights : sequences of float
        Public, one for each client.

    Notes
    -----
    If the privacy unit is a client, the sensitivity is that for n_p = 1. Proof: a client uploads a mean of g(x) over
    its records. A mean of g(x′) over any other records, however many, differs by at most max ‖g(x) − g(x′)‖, the
    sensitivity for a client with a single record.

    Under `local` trust each upload has its own noise, σ_p = z Δ_p with noise multiplier z. Otherwise the server sees
    only Σ_p ω_p m_p, which a record of client p moves by ω_p Δ_p; one σ must cover all clients: σ = z max_p ω_p Δ_p.
    """
    if mechanism.trust != "local" and mechanism.protection != "upload":
        raise InvalidParameter(f"trust of {mechanism.name}", mechanism.trust, "local: there is no noise to share")
    events: list[GaussianRelease | None] = [None] * len(names)
    if plan is not None and mechanism.protection != "none":
        if mechanism.protection == "home":
            # Neighbouring data differ in one row, and equal rows are rounded alike: only that row's values count.
            what, size = HOME, public.features
        else:
            what, size = mechanism.what, math.prod(mechanism.shape(public))
        whole = plan.multipliers.budget.unit == "client"
        deltas = [_sensitivity(mechanism, public, 1.0 if whole else denominator) for denominator in denominators]
        sigma = None
        if mechanism.trust != "local":
            if plan.noise == "discrete":
                raise InvalidParameter("noise", plan.noise, f"seeded or system with trust {mechanism.trust!r}")
            deltas = [weight * delta for weight, delta in zip(weights, deltas, strict=True)]
            largest = plan.event(what, names[0], sensitivity=max(deltas), size=size)
            sigma = largest.sigma
        events = [
            plan.event(what, name, sensitivity=delta, size=size, trust=mechanism.trust, sigma=sigma)
            for name, delta in zip(names, deltas, strict=True)
        ]
    return [
        ClientPlan(index, name, denominator, weight, len(names), event)
        for index, (name, denominator, weight, event) in enumerate(
            zip(names, denominators, weights, events, strict=True)
        )
    ]


def _sensitivity(mechanism: Mechanism, public: PublicParameters, denominator: float) -> float:
    delta = mechanism.sensitivity(public, denominator)
    if delta is None:
        raise InvalidParameter(
            f"sensitivity of {mechanism.name}", None, "a number, since the mechanism claims protection"
        )
    return delta
