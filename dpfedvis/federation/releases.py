"""Releases: the clients of a run as the server sees them, for any mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from accounting import checks
from accounting.noise import parameter
from dpfedvis.data import FederatedData
from dpfedvis.federation import ClientPlan, ClientWorkers, Door, Failure, Federation, Outbox, Policy, Streams
from dpfedvis.federation.noise_plan import RunPlan, client_plans, drawn_by
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True)
class Releases:
    """The clients of a run as the server sees them, for any mechanism.

    Parameters
    ----------
    fed : FederatedData
    plan : RunPlan, optional
        Noise multipliers; None if nothing is protected.
    door : Door
    streams : Streams
    denominators, weights : sequences of float
        Public: the divisor of each client's sums, before sampling, and ω_p.
    noise : str
        Name of the noise source.
    policy, workers, outbox
        As in `dpfedvis.federation.Federation`.
    """

    fed: FederatedData
    plan: RunPlan | None
    door: Door
    streams: Streams
    denominators: Sequence[float]
    weights: Sequence[float]
    noise: str
    policy: Policy = "fail"
    workers: ClientWorkers = field(default_factory=ClientWorkers)
    outbox: Outbox | None = None

    def with_data(self, fed: FederatedData) -> Releases:
        """Return the same clients with other data."""
        return replace(self, fed=fed)

    def client_plans(self, mechanism: Mechanism, public: PublicParameters) -> list[ClientPlan]:
        """Return the noise plan for each client."""
        rate = public.sampling_rate or 1.0
        names = [client.name for client in self.fed.clients]
        denominators = [rate * each for each in self.denominators]
        return client_plans(self.plan, mechanism, public, names, denominators, self.weights)

    def federation(self, mechanism: Mechanism, public: PublicParameters) -> Federation:
        """Return the clients, ready for their first round."""
        return Federation(
            [client.X for client in self.fed.clients],
            self.client_plans(mechanism, public),
            mechanism,
            public,
            self.door,
            self.streams,
            self.noise,
            self.policy,
            self.workers,
            self.outbox,
        )

    def once(self, mechanism: Mechanism, public: PublicParameters) -> tuple[Array, list[Failure]]:
        """Make one release over all records; return the average and the failed clients."""
        federation = self.federation(mechanism, single_release(public))
        try:
            return federation.average(np.zeros((1, self.fed.n_features)), 0), federation.failures
        finally:
            federation.close()

    def check(self, mechanism: Mechanism, public: PublicParameters) -> None:
        """Raise if the noise of an upload would have too few or too many cells of its grid, before anything is spent.

        Where kernel and grid are still to be learned, one stands in for the other: a grid as it follows from a kernel.
        """
        if self.plan is None or mechanism.protection != "upload":
            return
        grid = mechanism.grid(public, np.zeros((1, public.features)))
        event = self.client_plans(mechanism, public)[0].event(mechanism.cell(public, grid))
        relative = mechanism.relative_noise(public)
        parameter(
            event.sigma,
            checks.positive("grid", event.grid or 0.0),
            parties=drawn_by(mechanism.trust, len(self.weights)),
            least=1.0 if relative is None else float(relative.min()),
        )

    def variance(self, mechanism: Mechanism, public: PublicParameters) -> float:
        """Variance of the noise in each value of the average; 0 if uploads have no noise."""
        if self.plan is None or mechanism.protection != "upload":
            return 0.0
        plans = self.client_plans(mechanism, public)
        # A grid may follow from landmarks that are still to come: what rounding adds is then left out.
        known = public.grid is not None or mechanism.needs_norm
        cell = mechanism.cell(public, mechanism.grid(public, np.zeros((1, public.features)))) if known else 0.0
        sigmas = [plan.sigma(cell) for plan in plans]
        if mechanism.trust != "local":
            return sigmas[0] ** 2
        return math.fsum((weight * sigma) ** 2 for weight, sigma in zip(self.weights, sigmas, strict=True))


def single_release(public: PublicParameters) -> PublicParameters:
    """Return the parameters for one release over all records."""
    return replace(public, rounds=1, sampling_rate=None)
