"""One client's releases as accountants read them: counts by noise multiplier."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from accounting.errors import CannotAccount
from accounting.events import (
    Event,
    GaussianRelease,
    PostProcessing,
    SampledGaussianRelease,
    Unprotected,
)


class Composition:
    """A running total of one client's releases; adding an event costs O(1).

    Attributes
    ----------
    gaussian : Counter of float
        Noise multiplier → number of releases.
    sampled : Counter of (float, float)
        (Noise multiplier, sampling rate) → number of releases.
    unprotected : int
        Number of releases without a guarantee.
    values : int
        Integers of noise drawn for releases on a grid, in total.
    mu2, sampled_mu2 : float
        Σ (sensitivity/sigma)² of each kind; for `sampled` ignoring sampling.

    Notes
    -----
    A release on a grid counts as the Gaussian one that it is worth; `values` says what accountants add for the
    difference (`accounting.exactness`).
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.gaussian: Counter[float] = Counter()
        self.sampled: Counter[tuple[float, float]] = Counter()
        self.unprotected = self.values = 0
        self.mu2 = self.sampled_mu2 = 0.0
        self._meaning: tuple[str, str] | None = None
        for event in events:
            self.add(event)

    @property
    def groups(self) -> tuple[object, ...]:
        """Everything that an accountant reads: compositions with equal groups have equal ε."""
        return frozenset(self.gaussian.items()), frozenset(self.sampled.items()), self.unprotected, self.values

    def check(self, event: Event) -> None:
        """Raise unless the event has the adjacency and unit of those before it: else no single ε describes them."""
        meaning = (event.adjacency, event.unit)
        if self._meaning not in (None, meaning):
            raise CannotAccount(
                f"events with different (adjacency, unit) cannot be added: {self._meaning} and {meaning}"
            )

    def add(self, event: Event) -> None:
        """Add one event, which must pass `check`."""
        self.check(event)
        self.count(event)
        plain, sampled = squares(event)
        self.mu2 += plain
        self.sampled_mu2 += sampled

    def count(self, event: Event, times: int = 1) -> None:
        """Add an event to the counts alone, `times` times: the sums of `squares` are left to the caller."""
        if isinstance(event, Unprotected):
            self.unprotected += times
        elif isinstance(event, PostProcessing):
            pass  # its source was counted
        elif isinstance(event, SampledGaussianRelease):
            self.sampled[_rounded_down(event.noise_multiplier), event.sampling_rate] += times * event.count
            self.values += times * event.values * event.count
        elif isinstance(event, GaussianRelease):
            self.gaussian[event.noise_multiplier] += times * event.count
            self.values += times * event.values * event.count
        else:
            raise CannotAccount(f"unknown kind of event: {event!r}")
        self._meaning = (event.adjacency, event.unit)

    def copy(self) -> Composition:
        """Return an independent copy."""
        other = Composition()
        other.gaussian, other.sampled = self.gaussian.copy(), self.sampled.copy()
        other.unprotected, other.values = self.unprotected, self.values
        other.mu2, other.sampled_mu2 = self.mu2, self.sampled_mu2
        other._meaning = self._meaning
        return other

    def plus(self, other: Composition) -> Composition:
        """Return the releases of both; they must have one adjacency and unit."""
        both = self.copy()
        if self._meaning is not None and other._meaning not in (None, self._meaning):
            raise CannotAccount(
                f"events with different (adjacency, unit) cannot be added: {self._meaning} and {other._meaning}"
            )
        both.gaussian.update(other.gaussian)
        both.sampled.update(other.sampled)
        both.unprotected, both.values = self.unprotected + other.unprotected, self.values + other.values
        both.mu2, both.sampled_mu2 = self.mu2 + other.mu2, self.sampled_mu2 + other.sampled_mu2
        both._meaning = self._meaning or other._meaning
        return both

    def scaled(self, factor: float) -> Composition:
        """Return the same releases with every sigma multiplied by `factor`."""
        other = self.copy()
        other.gaussian = Counter({noise * factor: count for noise, count in self.gaussian.items()})
        other.sampled = Counter({(noise * factor, q): count for (noise, q), count in self.sampled.items()})
        other.mu2, other.sampled_mu2 = self.mu2 / factor**2, self.sampled_mu2 / factor**2
        return other

    @property
    def meaning(self) -> tuple[str, str] | None:
        """Adjacency and unit of the releases; None before the first."""
        return self._meaning

    @property
    def empty(self) -> bool:
        """Whether nothing was released."""
        return not (self.gaussian or self.sampled or self.unprotected)

    @property
    def total_mu(self) -> float:
        """√Σ (sensitivity/sigma)² over both kinds, ignoring sampling."""
        return math.sqrt(self.mu2 + self.sampled_mu2)

    @property
    def releases(self) -> int:
        """Number of protected releases."""
        return sum(self.gaussian.values()) + sum(self.sampled.values())


def squares(event: Event) -> tuple[float, float]:
    """Return what an event adds to `Composition.mu2` and to `Composition.sampled_mu2`."""
    if isinstance(event, SampledGaussianRelease):
        return 0.0, event.mu**2
    return (event.mu**2, 0.0) if isinstance(event, GaussianRelease) else (0.0, 0.0)


def _rounded_down(noise_multiplier: float) -> float:
    """Round to twelve digits, towards less noise, so that equal noise at clients of different size is one group."""
    return float(f"{noise_multiplier * (1 - 1e-11):.12g}")


class SampledGroup(NamedTuple):
    """Releases that are repeated: their group in `Composition.sampled`, and the integers drawn for each of them."""

    noise_multiplier: float
    sampling_rate: float
    values: int = 0


def group_of(event: Event) -> SampledGroup | None:
    """Return the group that an event belongs to, if it is sampled."""
    if isinstance(event, SampledGaussianRelease):
        return SampledGroup(_rounded_down(event.noise_multiplier), event.sampling_rate, event.values)
    return None
