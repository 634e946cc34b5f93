"""A client: it holds records, and gives away nothing but uploads with their events."""

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
from dpfedvis.federation.streams import Streams
from dpfedvis.kernels import Array
from dpfedvis.mechanisms import Local, Mechanism
from dpfedvis.setting import Setting

NOISE_SOURCES = ("seeded", "system", "discrete")


@dataclass(frozen=True)
class Terms:
    """What the plan of a run says to one client.

    Parameters
    ----------
    index : int
        Its number, which selects its random streams.
    name : str
    denominator : float
        Public denominator of its means.
    weight : float
        Its weight in the server's average.
    clients : int
        P.
    event : GaussianRelease, optional
        Event of one protected release, with its sensitivity and sigma; None without protection.
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
    terms : Terms
    mechanism : Mechanism
    setting : Setting
    streams : Streams
        Shared seed; the client uses its own streams only.
    noise : {"seeded", "system", "discrete"}
    perturbed : array of shape (n_p, m), optional
        Records as an earlier, interrupted run of this client perturbed them at home.
    """

    def __init__(
        self,
        records: Array,
        terms: Terms,
        mechanism: Mechanism,
        setting: Setting,
        streams: Streams,
        noise: str,
        perturbed: Array | None = None,
    ) -> None:
        self.terms, self.mechanism, self.setting = terms, mechanism, setting
        self._streams, self._noise = streams, checks.one_of("noise", noise, NOISE_SOURCES)
        prepared = mechanism.prepare(records) if perturbed is None else perturbed
        if mechanism.protection == "home" and perturbed is None:
            prepared = self._noisy(prepared, self._protected_event, 0)
        self._local = Local(prepared, terms.denominator)

    @property
    def home(self) -> Upload:
        """The records as they are used, with the event of their perturbation at home; they stay there."""
        return Upload(self._local.records, self._protected_event)

    def upload(self, Y: Array, round: int) -> Upload:
        """Compute, privatise and account for the upload of one round.

        Parameters
        ----------
        Y : array of shape (n_y, m)
        round : int

        Returns
        -------
        Upload
        """
        index, rate, local = self.terms.index, self.setting.sampling_rate, self._local
        if rate is not None:
            local = local.sample(rate, self._streams.generator("sample", self.mechanism.what, index, round))
        generator = self._streams.generator("message", self.mechanism.what, index, round)
        message = self.mechanism.message(local, Y, self.setting, generator)
        if self.mechanism.protection == "upload":
            return self._protected(message.values, round)
        common: dict[str, Any] = {
            "what": self.mechanism.what,
            "client": self.terms.name,
            "round": round,
            "stage": self.mechanism.stage,
            "adjacency": self.setting.adjacency,
            "trust": self.mechanism.trust,
        }
        if self.mechanism.protection == "home":
            return Upload(message.values, PostProcessing(**common, of=self._protected_event.what))
        delta = self.mechanism.sensitivity(self.setting, self.terms.denominator)
        priced = message.nominal_sigma is not None
        event = Unprotected(
            **common,
            why=self.mechanism.why,
            nominal_sensitivity=delta if priced else None,
            nominal_sigma=message.nominal_sigma,
        )
        return Upload(message.values, event)

    def _protected(self, values: Array, round: int) -> Upload:
        """Add the noise that the trust model asks of the client; under other models than `local`, weigh first."""
        event = replace(self._protected_event, round=round)
        if self.mechanism.trust == "local":
            return Upload(self._noisy(values, event, round), event)
        weighted = (self.terms.weight * values).astype(values.dtype, copy=False)
        if self.mechanism.trust == "central":
            return Upload(weighted, event)  # the curator adds the noise
        share = replace(event, sigma=event.sigma / math.sqrt(self.terms.clients))
        return Upload(self._noisy(weighted, share, round), event)

    def _noisy(self, values: Array, event: GaussianRelease, round: int) -> Array:
        generator = self._streams.generator("noise", event.what, self.terms.index, round)
        return noise_source(self._noise, generator, event).add(values, event.sigma)

    @property
    def _protected_event(self) -> GaussianRelease:
        if self.terms.event is None:
            raise RuntimeError(f"{self.terms.name} has no noise planned for {self.mechanism.name}")
        return self.terms.event


def noise_source(name: str, generator: np.random.Generator, event: GaussianRelease) -> NoiseSource:
    """Return the noise source of this name for one event."""
    if name == "seeded":
        return SeededNoise(generator)
    if name == "system":
        return SystemNoise()
    if not isinstance(event, DiscreteGaussianRelease):
        raise RuntimeError(f"{event.what} was not planned with discrete noise")
    return DiscreteNoise(event.granularity)
