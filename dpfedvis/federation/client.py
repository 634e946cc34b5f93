"""A client: it holds records, and returns only uploads, each with the event that accounts for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accounting import (
    DiscreteGaussianRelease,
    DiscreteNoise,
    GaussianRelease,
    NoiseSource,
    PostProcessing,
    SeededNoise,
    SystemNoise,
    Unprotected,
    checks,
)
from dpfedvis.federation.door import Upload
from dpfedvis.mechanisms import Mechanism, PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.rows import Rows
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.projections import clip_norms
from dpfedvis.numerics.random_streams import Streams

# Far above any record's norm; its square still fits float32.
LARGEST_NORM = 1e15
NOISE_SOURCES = ("seeded", "system", "discrete")


@dataclass(frozen=True)
class ClientPlan:
    """The noise plan for one client.

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
    event : GaussianRelease, optional
        Event of one protected release, with sensitivity and sigma; None without protection.
    """

    index: int
    name: str
    denominator: float
    weight: float
    clients: int
    event: GaussianRelease | None


class Client:
    """One client of an in-process federation.

    Parameters
    ----------
    records : array of shape (n_p, m)
    plan : ClientPlan
    mechanism : Mechanism
    public : PublicParameters
    streams : Streams
        From the shared seed; a client uses only its own streams.
    noise : {"seeded", "system", "discrete"}
    perturbed : array of shape (n_p, m), optional
        Records as perturbed before an interruption of this run (input perturbation).
    """

    def __init__(
        self,
        records: Array,
        plan: ClientPlan,
        mechanism: Mechanism,
        public: PublicParameters,
        streams: Streams,
        noise: str,
        perturbed: Array | None = None,
    ) -> None:
        self.plan, self.mechanism, self.public = plan, mechanism, public
        # An absurd value must not make a client fail: the failure would reveal it. The bound is public.
        records = clip_norms(records, LARGEST_NORM)
        self._records = records
        self._streams, self._noise = streams, checks.one_of("noise", noise, NOISE_SOURCES)
        prepared = mechanism.prepare(records) if perturbed is None else perturbed
        if mechanism.protection == "home" and perturbed is None:
            prepared = self._noisy(prepared, self._protected_event, 0)
        self._local = PreparedRecords.of(prepared, plan.denominator)

    @property
    def home(self) -> Upload:
        """The perturbed records, which stay at the client, with the event of their perturbation."""
        return Upload(self._local.records, self._protected_event)

    def upload(self, Y: Array, round: int) -> Upload:
        """Compute the upload of one round, add noise, and attach its event.

        Parameters
        ----------
        Y : array of shape (n_y, m)
        round : int

        Returns
        -------
        Upload
        """
        index, rate, local = self.plan.index, self.public.sampling_rate, self._local
        if rate is not None:
            local = local.sample(rate, self._sampler(round))
        generator = self._streams.generator("message", self.mechanism.what, index, round)
        message = self.mechanism.message(local, Y, self.public, generator)
        if self.mechanism.protection == "upload":
            return self._protected(message.values, round)
        place = {"round": round, "stage": self.mechanism.stage, "trust": self.mechanism.trust}
        common = {**self._facts(self.mechanism.what), **place}
        if self.mechanism.protection == "home":
            return Upload(message.values, PostProcessing(**common, of=self._protected_event.what))
        delta = self.mechanism.sensitivity(self.public, self.plan.denominator)
        priced = message.nominal_sigma is not None
        event = Unprotected(
            **common,
            why=self.mechanism.why,
            nominal_sensitivity=delta if priced else None,
            nominal_sigma=message.nominal_sigma,
        )
        return Upload(message.values, event)

    def rows(self, rows: Rows, Y: Array, event: GaussianRelease | None, tau_x: float | None = None) -> Upload:
        """Release a row for each record.

        Parameters
        ----------
        rows : Rows
        Y : array of shape (n_y, m)
        event : GaussianRelease, optional
            Event of the noisy release. Without one the rows are exact: post-processing if the records were perturbed,
            unprotected otherwise.
        tau_x : float, optional
            Public norm to which the records are clipped first.
        """
        if event is not None:
            records = self._records if tau_x is None else clip_norms(self._records, tau_x)
            return Upload(self._noisy(rows.of(records, Y), event, 0), event)
        if self.mechanism.protection == "home":
            values = rows.of(self._local.records, Y)
            return Upload(values, PostProcessing(**self._facts(rows.what), stage="release", of=self.home.event.what))
        why = "one exact row for each record: the rows determine the records"
        return Upload(rows.of(self._records, Y), Unprotected(**self._facts(rows.what), stage="release", why=why))

    def _facts(self, what: str) -> dict[str, Any]:
        return {"what": what, "client": self.plan.name, "adjacency": self.public.adjacency}

    def _protected(self, values: Array, round: int) -> Upload:
        """Add the client's noise under the trust model; multiply by the weight first unless trust is `local`."""
        event = replace(self._protected_event, round=round)
        Upload(values, event).check(self.mechanism.shape(self.public))
        if self.mechanism.trust == "local":
            return Upload(self._noisy(values, event, round), event)
        weighted = (self.plan.weight * values).astype(values.dtype, copy=False)
        if self.mechanism.trust == "central":
            return Upload(weighted, event)  # the curator adds the noise
        share = replace(event, sigma=event.sigma / math.sqrt(self.plan.clients))
        return Upload(self._noisy(weighted, share, round), event)

    def _sampler(self, round: int) -> np.random.Generator:
        """Generator for sampling records. Secret if the noise is: amplification requires it."""
        if self._noise != "seeded":
            return np.random.default_rng()
        return self._streams.generator("sample", self.mechanism.what, self.plan.index, round)

    def _noisy(self, values: Array, event: GaussianRelease, round: int) -> Array:
        generator = self._streams.generator("noise", event.what, self.plan.index, round)
        return noise_source(self._noise, generator, event).add(values, event.sigma)

    @property
    def _protected_event(self) -> GaussianRelease:
        if self.plan.event is None:
            raise RuntimeError(f"the noise plan has no {self.mechanism.name} release for {self.plan.name}")
        return self.plan.event


def noise_source(name: str, generator: np.random.Generator, event: GaussianRelease) -> NoiseSource:
    """Return the noise source of this name for one event."""
    if name == "seeded":
        return SeededNoise(generator)
    if name == "system":
        return SystemNoise()
    if not isinstance(event, DiscreteGaussianRelease):
        raise RuntimeError(f"the noise plan has no discrete noise for {event.what}")
    return DiscreteNoise(event.granularity)
