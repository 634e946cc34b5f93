"""Whom a statement gives a risk for, and against whom: one line each, from the events of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from accounting.assumptions import held_by_two_sites, several_rows, without_colluders, without_own_share
from accounting.composition import Composition
from accounting.events import Event, SampledGaussianRelease, Unprotected
from accounting.risk import Risk

Key = Literal["unit", "server alone", "another client", "rows", "two sites", "all runs"]


@dataclass(frozen=True)
class RiskLine:
    """A risk, for whom and against whom.

    Parameters
    ----------
    key : {"unit", "server alone", "another client", "rows", "two sites", "all runs"}
        One privacy unit against whom ε holds; against the server without a colluder; against another client that takes
        its own noise off; a person with `number` rows where the unit is a record; what two sites hold;
        all `number` runs on the same records.
    number : int
        Of rows or runs; else 1.
    risk : Risk
    """

    key: Key
    number: int
    risk: Risk

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the curve, ready for JSON."""
        return {"key": self.key, "number": self.number, **self.risk.to_dict()}


def risk_of(events: Iterable[Event]) -> Risk:
    """Return the risk of everything that left, the largest over clients, who hold disjoint records."""
    by_client: dict[str, Composition] = {}
    for event in events:
        by_client.setdefault(event.client, Composition()).add(event)
    return Risk.of(by_client.values())


def risk_lines(events: Sequence[Event], rows: int | None) -> tuple[RiskLine, ...]:
    """Return the risks of a run: of one unit first, then where an assumption or the adversary is another.

    Parameters
    ----------
    events : sequence of Event
        Of one run, or of several merged.
    rows : int, optional
        Rows of a person, where the unit is a record and the budget says so; 2 otherwise.

    Notes
    -----
    Sampled releases have no μ, and no line for several rows or two sites.
    """
    lines = [RiskLine("unit", 1, risk_of(events))]
    if not events or any(isinstance(event, Unprotected) for event in events):
        return tuple(lines)
    if (seen := without_colluders(events)) is not None:
        lines.append(RiskLine("server alone", 1, risk_of(seen)))
    if (seen := without_own_share(events)) is not None:
        lines.append(RiskLine("another client", 1, risk_of(seen)))
    if any(isinstance(event, SampledGaussianRelease) for event in events):
        return tuple(lines)
    if events[0].unit == "record":
        number = max(2, rows or 2)
        lines.append(RiskLine("rows", number, risk_of(several_rows(events, number))))
    if len({event.client for event in events}) > 1:
        lines.append(RiskLine("two sites", 1, risk_of(held_by_two_sites(events))))
    return tuple(lines)
