"""The privacy statement: what a ledger allows to be said, and what it does not."""

from __future__ import annotations

import json
import math
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
from dpfedvis.reporting.audited import Audited

DEFAULT_DELTA = 1e-5
_CURVE = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
_TRUST = {
    "local": "nobody: each client adds the whole noise itself",
    "aggregate": "the secure sum: the server is trusted to see nothing but sums (simulated here)",
    "central": "the server: it sees exact uploads and adds the noise",
}
_NOT_COVERED = (
    "The number of clients and, under replace-one, the number of records of each are treated as public.",
    "Labels leave a client in a density by class only, which is then among the releases; scores computed from private "
    "labels are not covered.",
    "Choices made by looking at results on the same records (tuning) cost privacy that no ledger sees.",
    "That a client failed in a round, and how, is seen by the server.",
    "Sensitivities hold in exact arithmetic; floating-point rounding is not charged, except for discrete noise.",
)


@dataclass(frozen=True)
class Line:
    """One kind of release: everything that all clients released under one name, in one way."""

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
    note: str


@dataclass(frozen=True)
class Statement:
    """What may be said. ``str(statement)`` is Markdown.

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
    nominal: float | None
    adjacency: str
    unit: str
    facts: dict[str, Any]
    remarks: tuple[str, ...] = ()
    audit: Audited | None = None

    @cached_property
    def headline(self) -> str:
        """The one line that counts."""
        if self.end_to_end == math.inf:
            return "End to end, ε = ∞: something left the clients without protection."
        return f"End to end, ε = {self.end_to_end:.4g} at δ = {self.delta:g}, for one {self.unit}, {self.adjacency}."

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
                name: {"epsilon": _number(each.epsilon), "is_bound": each.is_bound, "reason": each.reason}
                for name, each in self.accountants.items()
            },
            "curve": [[delta, _number(epsilon)] for delta, epsilon in self.curve],
            "nominal_epsilon": _number(self.nominal),
            "not_covered": list(_NOT_COVERED),
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
        return "\n".join(_markdown(self)) + "\n"


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
        nominal=nominal_epsilon(events, delta),
        adjacency=first.adjacency if first else "replace-one",
        unit=first.unit if first else "record",
        facts=dict(facts or {}),
        remarks=tuple(remarks),
    )


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
    return tuple(_line(key, group) for key, group in groups.items())


def _line(key: tuple[str, ...], group: list[Event]) -> Line:
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
        note=note,
    )


def _markdown(statement: Statement) -> list[str]:
    lines = ["# Privacy statement", "", f"**{statement.headline}**", ""]
    budget = statement.budget
    if budget is not None:
        lines.append(
            f"Budget: ε = {budget['epsilon']:g}, δ = {budget['delta']:g}, {budget['adjacency']}, per {budget['unit']}, "
            f"scope {budget['scope']}. Spent within that scope: ε = {_shown(statement.in_scope)}."
        )
        if budget["scope"] == "landmarks":
            lines.append("That scope covers the learning of the landmarks only, which is the paper's claim (Thm 6).")
    else:
        lines.append("There was no budget.")
    if any(line.noise == "seeded" for line in statement.lines):
        lines.append("The noise was seeded: **this run is a simulation**, not a release.")
    if statement.nominal is not None:
        lines.append(
            "Noise whose scale depends on the data guarantees nothing. Had its scale been public, it would have been "
            f"worth ε = {_shown(statement.nominal)} at δ = {statement.delta:g}."
        )
    lines += [line for remark in statement.remarks for line in ("", remark)]
    lines += ["", "## What left the clients", ""]
    lines += [
        "| release | stage | protection | clients | per client | Δ | σ | note |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in statement.lines:
        sampled = f", sampled at {line.sampling_rate:g}" if line.sampling_rate is not None else ""
        lines.append(
            f"| {line.what} | {line.stage} | {line.kind}{sampled} ({line.noise}) | {line.clients} | {line.per_client} "
            f"| {_shown_range(line.sensitivity)} | {_shown_range(line.sigma)} | {line.note} |"
        )
    trusts = dict.fromkeys(line.trust for line in statement.lines if line.sigma is not None)
    lines += ["", "## Who is trusted", ""]
    lines += [f"- {trust}: {_TRUST[trust]}" for trust in trusts] or ["- Everybody who sees what left the clients."]
    lines += [
        "",
        f"## ε in scope at δ = {statement.delta:g}, by accountant",
        "",
        "| accountant | ε | |",
        "|---|---|---|",
    ]
    for name, reading in statement.accountants.items():
        note = reading.reason or ("" if reading.is_bound else "approximation, not a bound")
        lines.append(f"| {name} | {'-' if reading.epsilon is None else _shown(reading.epsilon)} | {note} |")
    lines += ["", "## δ(ε) in scope", "", "| δ | ε |", "|---|---|"]
    lines += [f"| {delta:g} | {_shown(epsilon)} |" for delta, epsilon in statement.curve]
    if statement.audit is not None:
        lines += ["", *statement.audit.markdown()]
    lines += ["", "## What is not covered", ""] + [f"- {sentence}" for sentence in _NOT_COVERED]
    if statement.facts:
        lines += ["", "## Public facts of the run", ""]
        lines += [f"- {name}: {value}" for name, value in statement.facts.items()]
    return lines


def _range(values: list[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


def _shown_range(values: tuple[float, float] | None) -> str:
    if values is None:
        return "-"
    low, high = (f"{value:.4g}" for value in values)
    return low if low == high else f"{low} to {high}"


def _shown(value: float) -> str:
    return "∞" if value == math.inf else f"{value:.6g}"


def _number(value: float | None) -> float | str | None:
    return "inf" if value == math.inf else value
