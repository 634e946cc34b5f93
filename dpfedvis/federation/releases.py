"""Single releases: every client uploads once, and the server sees the average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dpfedvis.data import FederatedData
from dpfedvis.federation import ClientWorkers, Door, Failure, Federation, Outbox, Policy, Streams, Terms
from dpfedvis.federation.noise_plan import RunPlan, terms_of_clients
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True)
class Releases:
    """The clients of a run as they face the server, whatever mechanism is asked of them.

    Parameters
    ----------
    fed : FederatedData
    plan : RunPlan, optional
        Noise multipliers; None if nothing is protected.
    door : Door
    streams : Streams
    denominators, weights : sequences of float
        Public: what each client divides its sums by, before sampling, and ω_p.
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
        """The same clients with other data of theirs."""
        return replace(self, fed=fed)

    def terms(self, mechanism: Mechanism, public: PublicParameters) -> list[Terms]:
        """What the plan means for each client."""
        rate = public.sampling_rate or 1.0
        names = [client.name for client in self.fed.clients]
        denominators = [rate * each for each in self.denominators]
        return terms_of_clients(self.plan, mechanism, public, names, denominators, self.weights)

    def federation(self, mechanism: Mechanism, public: PublicParameters) -> Federation:
        """Return the clients, ready for their first round."""
        return Federation(
            [client.X for client in self.fed.clients],
            self.terms(mechanism, public),
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
        """Ask every client once, over all its records; return the average, and who failed."""
        federation = self.federation(mechanism, single(public))
        try:
            return federation.average(np.zeros((1, self.fed.n_features)), 0), federation.failures
        finally:
            federation.close()

    def variance(self, mechanism: Mechanism, public: PublicParameters) -> float:
        """Variance of the noise in each value of the average of one upload; 0 where uploads carry none of their own."""
        terms = self.terms(mechanism, public) if mechanism.protection == "upload" else []
        sigmas = [term.event.sigma for term in terms if term.event is not None]
        if not sigmas:
            return 0.0
        if mechanism.trust != "local":
            return sigmas[0] ** 2
        return math.fsum((weight * sigma) ** 2 for weight, sigma in zip(self.weights, sigmas, strict=True))


def single(public: PublicParameters) -> PublicParameters:
    """Facts for a release over all records, once."""
    return replace(public, rounds=1, sampling_rate=None)
