"""Releases as a statement lists them: one line for everything that all clients released under one name, in one way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accounting.events import Event, GaussianRelease, PostProcessing, SampledGaussianRelease, Unprotected
from accounting.sharing import Sharing


@dataclass(frozen=True)
class Line:
    """One kind of release: everything that all clients released under one name, in one way.

    `share` is its part of all that the client which spent most on it spent, in μ²; None where that has no meaning.
    """

    what: str
    stage: str
    kind: str
    trust: str
    noise: str
    clients: int
    per_client: int
    sensitivity: tuple[float, float] | None
    sigma: tuple[float, float] | None
    grid: tuple[float, float] | None
    sampling_rate: float | None
    share: float | None
    note: str
    sharings: tuple[Sharing | None, ...]


def lines_of(events: Sequence[Event]) -> tuple[Line, ...]:
    """Return the lines, in the order in which releases were first made."""
    groups: dict[tuple[str, ...], list[Event]] = {}
    for event in events:
        on_grid = "grid" if isinstance(event, GaussianRelease) and event.grid is not None else ""
        groups.setdefault((event.what, event.stage, event.kind, event.trust, event.noise, on_grid), []).append(event)
    squares = _squares(events)
    return tuple(_line(key, group, squares) for key, group in groups.items())


def _squares(events: Sequence[Event]) -> dict[str, float] | None:
    """μ² of each client, where all that it released is Gaussian and not sampled."""
    total: dict[str, float] = {}
    for event in events:
        if isinstance(event, (Unprotected, SampledGaussianRelease)):
            return None
        if isinstance(event, GaussianRelease):
            spent = event.count * (event.sensitivity / event.sigma) ** 2
            total[event.client] = total.get(event.client, 0.0) + spent
    return total


def _line(key: tuple[str, ...], group: list[Event], squares: Mapping[str, float] | None) -> Line:
    what, stage, kind, trust, noise, _ = key
    clients = {event.client for event in group}
    gaussian = [event for event in group if isinstance(event, GaussianRelease)]
    count = sum(event.count for event in gaussian) if gaussian else len(group)
    first = group[0]
    note = ""
    if isinstance(first, Unprotected):
        note = first.why
    elif isinstance(first, PostProcessing):
        note = f"computed from {first.of} alone"
    elif isinstance(first, GaussianRelease) and first.grid is not None:
        note = f"grid {first.grid:g}"
    return Line(
        what=what,
        stage=stage,
        kind=kind,
        trust=trust,
        noise=noise,
        clients=len(clients),
        per_client=round(count / len(clients)),
        sensitivity=_range([event.sensitivity for event in gaussian]),
        sigma=_range([event.sigma for event in gaussian]),
        grid=_range([event.grid for event in gaussian if event.grid is not None]),
        sampling_rate=first.sampling_rate if isinstance(first, SampledGaussianRelease) else None,
        share=None if squares is None or not gaussian else _share(gaussian, squares),
        note=note,
        sharings=tuple(dict.fromkeys(event.sharing for event in gaussian)) if trust == "aggregate" else (),
    )


def _share(group: list[GaussianRelease], squares: Mapping[str, float]) -> float:
    own = _squares(group) or {}
    return max(own[client] / squares[client] for client in own)


def _range(values: list[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None
