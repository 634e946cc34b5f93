"""Evidence about each client's coin: likelihood ratios over all of its uploads, of one stage or of many.

Works on anything with events and values: what a `Watcher` saw, or the uploads of a
`dpfedvis.runs.upload_reader.Recording`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from accounting import Event, GaussianRelease, Unprotected
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.uploads import Values, in_units

_EXACT = 1e-6  # stands in for no noise at all, as a share of the distance between the two hypotheses


class Seen(Protocol):
    """One upload: an array with its event, or with the events of all clients whose sum it is."""

    @property
    def events(self) -> Sequence[Event]: ...

    @property
    def integers(self) -> Values:
        """As it was released."""

    @property
    def values(self) -> Array:
        """In the units of its events."""


@dataclass(frozen=True)
class Watched:
    """An upload kept in memory.

    Parameters
    ----------
    events : tuple of Event
    integers : array
        As it was released: int64 of a protected upload.
    """

    events: tuple[Event, ...]
    integers: Values

    @property
    def values(self) -> Array:
        """The array in the units of its events."""
        return in_units(self.integers, self.events[0])


@dataclass
class Watcher:
    """A witness that keeps every upload in memory."""

    seen: list[Watched] = field(default_factory=list)

    def __call__(self, events: Sequence[Event], values: Values) -> None:
        """Keep a copy."""
        self.seen.append(Watched(tuple(events), values.copy()))


@dataclass(frozen=True)
class Prediction:
    """What one client would upload without noise, under each side of its coin.

    Parameters
    ----------
    inside, outside : arrays of the upload's shape
        Where only a weighted sum is seen, weighted as in the sum.
    noise_inside, noise_outside : float
        Scale of noise that the client adds itself, for uploads whose events state none; 0 for exact uploads.
    relative : array of the upload's shape, optional
        Noise of each value relative to the largest, if not equal.
    """

    inside: Array
    outside: Array
    noise_inside: float = 0.0
    noise_outside: float = 0.0
    relative: Array | None = None

    @property
    def whitened(self) -> Array:
        """in − out, each value over its relative noise: the sensitivity is that of its norm."""
        difference: Array = self.inside.astype(np.float64) - self.outside
        return difference if self.relative is None else difference / self.relative


class Predictor(Protocol):
    """The adversary's model of one client's upload; None skips the upload."""

    def __call__(self, event: Event) -> Prediction | None: ...


@dataclass(frozen=True)
class Evidence:
    """Likelihood ratios for each client's coin.

    Parameters
    ----------
    ratios : dict of str to float
        Log-likelihood ratio of "in" against "out" by client.
    distance : dict of str to float
        √Σ ‖in − out‖²/σ² over the protected uploads used: the μ that the canary has without any sensitivity bound.
    """

    ratios: dict[str, float]
    distance: dict[str, float]


def weigh(seen: Iterable[Seen], predict: Predictor) -> Evidence:
    """Return the log-likelihood ratios of all clients.

    With noise N(0, σ²I) the ratio of one upload u is ⟨u − (a + b)/2, a − b⟩/σ² for the predictions a and b; with
    relative noise r_i, all three are divided by it first. Ratios of
    several uploads add up, also where a later one depends on earlier ones, since each is conditional on what was seen
    before. In a sum of clients the others stand at the middle of their own two predictions: exact where the canaries
    are orthogonal, a weaker and still valid score otherwise. Post-processing is left out, as it tells nothing new.
    """
    ratios: defaultdict[str, float] = defaultdict(float)
    squares: defaultdict[str, float] = defaultdict(float)
    for upload in seen:
        predictions = [predict(event) for event in upload.events]
        pairs = [(event, each) for event, each in zip(upload.events, predictions, strict=True) if each is not None]
        if len(pairs) < len(upload.events):
            continue
        values = np.asarray(upload.values, dtype=np.float64)
        middle = np.sum([(each.inside.astype(np.float64) + each.outside) / 2 for _, each in pairs], axis=0)
        for event, each in pairs:
            difference = each.whitened
            if isinstance(event, GaussianRelease):
                left = values - middle if each.relative is None else (values - middle) / each.relative
                ratios[event.client] += float(np.vdot(left, difference)) / event.sigma**2
                squares[event.client] += float(np.vdot(difference, difference)) / event.sigma**2
            elif isinstance(event, Unprotected):
                ratios[event.client] += _unprotected_ratio(values, each, float(np.linalg.norm(difference)))
    return Evidence(dict(ratios), {client: math.sqrt(square) for client, square in squares.items()})


def _unprotected_ratio(values: Array, pair: Prediction, distance: float) -> float:
    """Log-likelihood ratio where the two sides may differ in the scale of their noise, too."""
    logs = []
    for mean, noise in ((pair.inside, pair.noise_inside), (pair.outside, pair.noise_outside)):
        scale = max(noise, _EXACT * distance)
        if scale == 0:
            return 0.0  # the two sides are the same
        residual = (values - mean) / scale
        logs.append(-0.5 * float(np.vdot(residual, residual)) - values.size * math.log(scale))
    return logs[0] - logs[1]
