"""The privacy statement: what a ledger allows to be said, and what it does not."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from accounting import (
    DiscreteGaussianRelease,
    Event,
    GaussianRelease,
    Ledger,
    PostProcessing,
    Reading,
    SampledGaussianRelease,
    Unprotected,
    gaussian_epsilon,
    nominal_mu,
    tightest,
)
from accounting.accountants import distinct
from accounting.audit_summary import Audited
from accounting.rounding import rounded_up
from accounting.spending import best_guess
from accounting.wording import markdown, not_covered, words

DEFAULT_DELTA = 1e-5
_CURVE = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


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
    sampling_rate: float | None
    share: float | None
    note: str


@dataclass(frozen=True)
class Statement:
    """What may be said about privacy. ``str(statement)`` is Markdown, by the template statement.md.

    Parameters
    ----------
    delta : float
    budget : dict, optional
    end_to_end : float
        ε of everything that left a client, at `delta`.
    in_scope : float
        ε of what the budget's scope covers.
    lines : tuple of Line
    accountants : dict of str to Reading
        ε in scope, by every accountant.
    curve : tuple of (float, float)
        (δ, ε) in scope.
    best_guess : float
        Largest share of right guesses; see `accounting.spending.best_guess`.
    against_a_client : float, optional
        ε end to end against another client that sees the sums and takes its own share of the noise off them, where
        clients share the noise; see `against_a_client`.
    nominal : float, optional
        ε that unprotected, data-dependent noise would be worth if its scale had been public. Not a guarantee.
    adjacency, unit : str
    facts : dict
        Public facts of the run.
    remarks : tuple of str
        What a reader should know before the rest, in whole sentences.
    audit : Audited, optional
        What an audit of the same code and settings found, in a run of its own.
    """

    delta: float
    budget: dict[str, Any] | None
    end_to_end: float
    in_scope: float
    lines: tuple[Line, ...]
    accountants: dict[str, Reading]
    curve: tuple[tuple[float, float], ...]
    best_guess: float
    against_a_client: float | None
    nominal: float | None
    adjacency: str
    unit: str
    facts: dict[str, Any]
    remarks: tuple[str, ...] = ()
    audit: Audited | None = None

    @cached_property
    def headline(self) -> str:
        """The one line that counts."""
        joint = ":" if self.end_to_end == math.inf else ""
        return f"End to end, ε = {rounded_up(self.end_to_end)}{joint} {self.words['at']}."

    @property
    def trusts(self) -> tuple[str, ...]:
        """Trust models of the protected releases, each once."""
        return tuple(dict.fromkeys(line.trust for line in self.lines if line.sigma is not None))

    @cached_property
    def words(self) -> dict[str, Any]:
        """The statement in sentences; see `accounting.wording.words`."""
        return words(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON; infinity becomes the string "inf"."""
        return {
            "headline": self.headline,
            "epsilon_end_to_end": _number(self.end_to_end),
            "epsilon_in_scope": _number(self.in_scope),
            "delta": self.delta,
            "budget": self.budget,
            "adjacency": self.adjacency,
            "unit": self.unit,
            "releases": [vars(line) for line in self.lines],
            "accountants": {
                name: {"epsilon": _number(each.epsilon), "is_bound": each.is_bound, "note": _note(each)}
                for name, each in self.accountants.items()
            },
            "curve": [[delta, _number(epsilon)] for delta, epsilon in self.curve],
            "nominal_epsilon": _number(self.nominal),
            "epsilon_against_a_client": _number(self.against_a_client),
            "best_guess": self.best_guess,
            "trusts": list(self.trusts),
            "words": self.words,
            "not_covered": not_covered(self.unit),
            "facts": self.facts,
            "remarks": list(self.remarks),
            "audit": None if self.audit is None else self.audit.to_dict(),
        }

    def with_audit(self, audit: Audited) -> Statement:
        """Return this statement with the result of an audit in it."""
        return replace(self, audit=audit)

    def to_json(self) -> str:
        """Return JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        return markdown(self.to_dict())


def state(
    ledger: Ledger,
    *,
    delta: float | None = None,
    facts: Mapping[str, Any] | None = None,
    remarks: Sequence[str] = (),
) -> Statement:
    """Return the statement that a ledger supports.

    Parameters
    ----------
    ledger : Ledger
    delta : float, optional
        By default that of the budget, or 1e-5 without one.
    facts : mapping, optional
        Public facts of the run, to be printed with it.
    remarks : sequence of str
        What a reader should know before the rest.
    """
    if delta is None:
        delta = ledger.budget.delta if ledger.budget is not None else DEFAULT_DELTA
    events = list(ledger.events())
    compositions = distinct(ledger.composition(client) for client in ledger.clients)
    curve = tuple((each, max((tightest(c).epsilon(c, each) for c in compositions), default=0.0)) for each in _CURVE)
    first = events[0] if events else None
    return Statement(
        delta=delta,
        budget=None if ledger.budget is None else ledger.budget.to_dict(),
        end_to_end=ledger.spent(delta, end_to_end=True),
        in_scope=ledger.spent(delta),
        lines=_lines(events),
        accountants=ledger.compare(delta),
        curve=curve,
        best_guess=best_guess(ledger),
        against_a_client=against_a_client(events, delta),
        nominal=nominal_epsilon(events, delta),
        adjacency=first.adjacency if first else "replace-one",
        unit=first.unit if first else "record",
        facts=dict(facts or {}),
        remarks=tuple(remarks),
    )


def against_a_client(events: list[Event], delta: float) -> float | None:
    """Return ε end to end against one of the other clients, where clients share the noise; None where none do.

    Each of P clients adds noise of variance σ²/P to the sum. One that sees the sum can take its own share off, and of
    the variance (P − 1)/P is left. So every σ of shared releases is lowered by the root of that, and the events are
    composed anew. For c clients that work together it would be (P − c)/P.
    """
    shared = [each for each in events if isinstance(each, GaussianRelease) and each.trust == "aggregate"]
    if not shared:
        return None
    clients: dict[tuple[str, int | None], int] = Counter((each.what, each.round) for each in shared)
    if min(clients.values()) < 2:
        return None  # there is no other client
    seen = []
    for event in events:
        if isinstance(event, GaussianRelease) and event.trust == "aggregate":
            among = clients[event.what, event.round]
            event = replace(event, sigma=event.sigma * math.sqrt((among - 1) / among))
        seen.append(event)
    with Ledger() as ledger:
        ledger.record(*seen)
        return ledger.spent(delta, end_to_end=True)


def nominal_epsilon(events: Sequence[Event], delta: float) -> float | None:
    """Largest nominal ε over clients; None unless the data-dependent noise carries a price in every landmark round."""
    by_client: dict[str, list[Unprotected]] = {}
    for event in events:
        if isinstance(event, Unprotected) and event.stage == "landmarks":
            by_client.setdefault(event.client, []).append(event)
    worst = None
    for own in by_client.values():
        mu = nominal_mu(own)
        if mu is None:
            return None
        worst = max(worst or 0.0, gaussian_epsilon(mu, delta))
    return worst


def _lines(events: list[Event]) -> tuple[Line, ...]:
    groups: dict[tuple[str, ...], list[Event]] = {}
    for event in events:
        groups.setdefault((event.what, event.stage, event.kind, event.trust, event.noise), []).append(event)
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
    what, stage, kind, trust, noise = key
    clients = {event.client for event in group}
    gaussian = [event for event in group if isinstance(event, GaussianRelease)]
    count = sum(event.count for event in gaussian) if gaussian else len(group)
    first = group[0]
    note = ""
    if isinstance(first, Unprotected):
        note = first.why
    elif isinstance(first, PostProcessing):
        note = f"computed from {first.of} alone"
    elif isinstance(first, DiscreteGaussianRelease):
        note = f"grid {first.granularity:g}"
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
        sampling_rate=first.sampling_rate if isinstance(first, SampledGaussianRelease) else None,
        share=None if squares is None or not gaussian else _share(gaussian, squares),
        note=note,
    )


def _share(group: list[GaussianRelease], squares: Mapping[str, float]) -> float:
    own = _squares(group) or {}
    return max(own[client] / squares[client] for client in own)


def _range(values: list[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


def _note(reading: Reading) -> str:
    """Return why an accountant has no ε, or that what it has is no bound."""
    return reading.reason or ("" if reading.is_bound else "approximation, not a bound")


def _number(value: float | None) -> float | str | None:
    return "inf" if value == math.inf else value
