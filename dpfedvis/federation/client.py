"""A client: it holds records, and returns only uploads, each with the event that accounts for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from accounting import DiscreteNoise, GaussianRelease, NoiseSource, PostProcessing, SeededNoise, Unprotected, checks
from accounting.noise import parameter
from dpfedvis.federation.door import Upload
from dpfedvis.federation.noise_plan import MEAN_CELLS, ClientPlan, drawn_by
from dpfedvis.mechanisms import Mechanism, PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.rows import Rows, noisy_rows
from dpfedvis.numerics.exact import Floats, Integers
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.random_streams import Streams

# Far above any feature; its square still fits float32.
LARGEST_VALUE = 1e15
NOISE_SOURCES = ("seeded", "discrete")


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
    noise : {"seeded", "discrete"}
    perturbed : array of shape (n_p, m), optional
        Records as perturbed before an interruption of this run (input perturbation), in cells.
    """

    def __init__(
        self,
        records: Array,
        plan: ClientPlan,
        mechanism: Mechanism,
        public: PublicParameters,
        streams: Streams,
        noise: str,
        perturbed: Integers | None = None,
    ) -> None:
        self.plan, self.mechanism, self.public = plan, mechanism, public
        self._records = within(records)
        self._streams, self._noise = streams, checks.one_of("noise", noise, NOISE_SOURCES)
        self._home: Upload | None = None
        prepared = mechanism.prepare(self._records)
        if mechanism.protection == "home":
            self._home = self._at_home(perturbed)
            # What follows is post-processing, in floats.
            prepared = self._home.floats.astype(records.dtype)
        self._local = PreparedRecords(prepared, plan.denominator)

    @property
    def home(self) -> Upload:
        """The perturbed records, which stay at the client, with the event of their perturbation."""
        if self._home is None:
            raise RuntimeError(f"{self.mechanism.name} perturbs no records")
        return self._home

    def _at_home(self, perturbed: Integers | None) -> Upload:
        cell = self.mechanism.grid(self.public, self._records).step
        event = self.plan.event(cell)
        if perturbed is None:
            integers = self.mechanism.at_home(self._records, self.public) >> self.plan.bits_dropped(cell)
            perturbed = self._noisy(integers, event)
        return Upload(perturbed, event)

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
        if self.mechanism.protection == "upload":
            return self._protected(local, Y, round)
        generator = self._streams.generator("message", self.mechanism.what, index, round)
        message = self.mechanism.message(local, Y, self.public, generator)
        place = {"round": round, "stage": self.mechanism.stage, "trust": self.mechanism.trust}
        common = {**self._facts(self.mechanism.what), **place}
        if self.mechanism.protection == "home":
            return Upload(message.values, PostProcessing(**common, of=self.home.event.what))
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
            Public norm to which the records are clipped first; needed for noisy rows.
        """
        if event is not None:
            integers = noisy_rows(rows, self._records, Y, checks.positive("tau_x", tau_x or 0.0))
            return Upload(self._noisy(integers, event), event)
        if self.mechanism.protection == "home":
            values = rows.of(self._local.records, Y)
            return Upload(values, PostProcessing(**self._facts(rows.what), stage="release", of=self.home.event.what))
        why = "one exact row for each record: the rows determine the records"
        return Upload(rows.of(self._records, Y), Unprotected(**self._facts(rows.what), stage="release", why=why))

    def _facts(self, what: str) -> dict[str, Any]:
        return {"what": what, "client": self.plan.name, "adjacency": self.public.adjacency}

    def _protected(self, local: PreparedRecords, Y: Array, round: int) -> Upload:
        """Sum in integers, and add the client's noise under the trust model."""
        mechanism, public, plan = self.mechanism, self.public, self.plan
        grid = mechanism.grid(public, Y)
        integers, cell = mechanism.total(local, Y, public, grid, plan.factor), mechanism.cell(public, grid)
        dropped = plan.bits_dropped(cell)
        if plan.mean:
            finer = MEAN_CELLS * 2.0**-dropped
            integers = np.trunc(integers / max(len(local.records), 1) * finer).astype(np.int64)
        elif dropped:
            integers = integers >> dropped
        event = plan.event(cell, round)
        Upload(integers, event).check(mechanism.shape(public))
        if mechanism.trust == "central":
            return Upload(integers, event)  # the curator adds the noise
        parties = drawn_by(mechanism.trust, plan.clients)
        return Upload(self._noisy(integers, event, parties, mechanism.relative_noise(public)), event)

    def _sampler(self, round: int) -> np.random.Generator:
        """Generator for sampling records. Secret if the noise is: amplification requires it."""
        if self._noise != "seeded":
            return np.random.default_rng()
        return self._streams.generator("sample", self.mechanism.what, self.plan.index, round)

    def _noisy(
        self, values: Integers, event: GaussianRelease, parties: int = 1, relative: Floats | None = None
    ) -> Integers:
        generator = self._streams.generator("noise", event.what, self.plan.index, event.round or 0)
        return add_noise(noise_source(self._noise, generator), values, event, parties, relative)


def within(records: Array) -> Array:
    """Return records whose features are within ±`LARGEST_VALUE`.

    An absurd value must not make a client fail: the failure would reveal it.
    """
    if float(np.abs(records).max(initial=0.0)) <= LARGEST_VALUE:
        return records
    inside: Array = np.clip(records, -LARGEST_VALUE, LARGEST_VALUE)
    return inside


def add_noise(
    source: NoiseSource, values: Integers, event: GaussianRelease, parties: int = 1, relative: Floats | None = None
) -> Integers:
    """Add the noise that an event states, or one of several parties' share of it.

    Parameters
    ----------
    source : NoiseSource
    values : array of int64
    event : GaussianRelease
        With its grid.
    parties : int
        Clients that share the noise.
    relative : array of the shape of `values`, optional
        Noise of each value relative to the largest.
    """
    assert event.grid is not None
    least = 1.0 if relative is None else float(relative.min())
    cells = parameter(event.sigma, event.grid, parties=parties, least=least)
    return source.add_integers(values, cells if relative is None else cells * relative)


def noise_source(name: str, generator: np.random.Generator) -> NoiseSource:
    """Return the noise source of this name."""
    return SeededNoise(generator) if name == "seeded" else DiscreteNoise()
