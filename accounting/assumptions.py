"""ε of the same releases where an assumption of the statement does not hold.

Independent Gaussian noises compose by the root of the sum of μ²; one noise under a change of twice the size has 2μ.
Poisson-sampled releases have no μ, and have no number here where a factor on it would be needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from accounting.accountants import distinct, tightest
from accounting.composition import Composition
from accounting.events import Event, GaussianRelease, SampledGaussianRelease, Unprotected


def composed(events: Iterable[Event], delta: float) -> float:
    """ε end to end of events, at `delta`; the largest over clients."""
    by_client: dict[str, Composition] = {}
    for event in events:
        by_client.setdefault(event.client, Composition()).add(event)
    return max((tightest(each).epsilon(each, delta) for each in distinct(by_client.values())), default=0.0)


def without_own_share(events: Sequence[Event]) -> list[Event] | None:
    """Return the events of one run as another client faces them, where clients share the noise and none is taken to
    collude; None otherwise: what was planned for colluders holds against them.

    Each client adds noise of variance σ²/t, of t clients in the sum at least. One that sees the sum can take its own
    share off, and of the variance (t − 1)/t is left. So every σ of shared releases is lowered by the root of that. An
    event without a threshold is of a sum of all its clients.
    """
    clients: dict[tuple[str, int | None], set[str]] = {}
    for event in events:
        if _shared(event):
            clients.setdefault((event.what, event.round), set()).add(event.client)
    seen: list[Event] = []
    lowered = False
    for event in events:
        if isinstance(event, GaussianRelease) and _shared(event) and not event.colluders:
            among = event.threshold or len(clients[event.what, event.round])
            if among < 2:
                return None  # there is no other client
            event, lowered = _of_others(event, among), True
        seen.append(event)
    return seen if lowered else None


def against_a_client(events: Sequence[Event], delta: float) -> float | None:
    """Return ε end to end against one of the other clients, where clients share the noise; None where none do."""
    seen = without_own_share(events)
    return None if seen is None else composed(seen, delta)


def at_two_sites(events: Sequence[Event], delta: float) -> float | None:
    """Return ε for a record that two sites hold; None where there is one site, no finite ε, or no closed form.

    Under local trust it is in two uploads with noise of their own: √2·μ. Otherwise it moves one sum, with one noise,
    by up to twice as much: 2μ.
    """
    return None if len({event.client for event in events}) < 2 else _finite(held_by_two_sites(events), delta)


def of_rows(events: Sequence[Event], delta: float, rows: int) -> float | None:
    """Return ε for so many privacy units of one person at one site: rows·μ; None without a finite ε or closed form."""
    return _finite(several_rows(events, rows), delta)


def held_by_two_sites(events: Sequence[Event]) -> list[Event]:
    """Return the events as they are for a record that two sites hold; see `at_two_sites`."""

    def twice(event: Event) -> Iterable[Event]:
        if event.trust == "local":
            return event, event
        return (_with_noise(event, 1 / 2),) if isinstance(event, GaussianRelease) else (event,)

    return list(chain.from_iterable(map(twice, events)))


def several_rows(events: Sequence[Event], rows: int) -> list[Event]:
    """Return the events as they are for so many privacy units together: each moves a sum as far as one."""
    return [_with_noise(event, 1 / rows) if isinstance(event, GaussianRelease) else event for event in events]


def without_colluders(events: Sequence[Event]) -> list[Event] | None:
    """Return the events as a server faces them that no site works with, where noise was planned for some; else None.

    t sites at least are in a sum, and the noise of t − c of them is what ε counts. The noise of all t is larger by
    √(t/(t − c)): g²(ts² − 4/r²) is at least t/(t − c) times g²((t − c)s² − 4/r²). What a site adds of its own is not
    shared, and stays as it is.
    """
    if not any(isinstance(event, GaussianRelease) and event.colluders for event in events):
        return None
    return [
        _with_common_noise(event, each.threshold / each.shares)
        if isinstance(event, GaussianRelease) and (each := event.sharing) is not None
        else event
        for event in events
    ]


def _finite(events: Sequence[Event], delta: float) -> float | None:
    """ε of events; None if it is 0 or ∞, or if one of them was sampled."""
    if any(isinstance(event, Unprotected | SampledGaussianRelease) for event in events):
        return None
    epsilon = composed(events, delta)
    return epsilon if 0 < epsilon < math.inf else None


def _shared(event: Event) -> bool:
    return isinstance(event, GaussianRelease) and event.trust == "aggregate"


def _of_others(event: GaussianRelease, among: int) -> GaussianRelease:
    """Return the event with the noise of all of t clients but one.

    On a grid g each share has s² = ((σ/g)² + 4/r²)/t, for the smallest relative noise r ≥ 1/√2 of a value. t − 1 of
    them are worth g√((t − 1)s² − 4/r²), whose square is σ²(t − 1)/t − 4g²/(r²t).
    """
    left = event.sigma**2 * (among - 1) / among - 8 * (event.grid or 0.0) ** 2 / among
    return _with_noise(event, math.sqrt(max(left, 0.0)) / event.sigma or 1e-9)


def _with_common_noise(event: GaussianRelease, factor: float) -> GaussianRelease:
    """Return an event whose common noise has `factor` times its variance."""
    own = 0.0 if event.own is None else min(event.own / event.sigma, 1.0)
    return _with_noise(event, math.sqrt(factor * (1 - own**2) + own**2))


def _with_noise(event: GaussianRelease, factor: float) -> GaussianRelease:
    sigma = event.sigma * factor
    # The grid says only that integers were drawn; it must not be too coarse for the smaller noise.
    return replace(event, sigma=sigma, own=None, grid=None if event.grid is None else min(event.grid, sigma / 32))
