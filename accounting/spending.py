"""How the budget was spent: ε after each release, and δ as a function of ε, from the ledger alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from accounting import Budget, Composition, Event, Ledger, tightest
from accounting.accountants import distinct

SAMPLED_STEPS = 16  # ε under Poisson sampling takes part of a second each time
_DELTAS = tuple(float(each) for each in np.geomspace(1e-2, 1e-10, 33))


@dataclass(frozen=True)
class Step:
    """What had been spent when all clients had made a release.

    Parameters
    ----------
    number : int
        From 1, in the order of the ledger.
    what, stage : str
    round : int, optional
        None where there was only one.
    in_scope, end_to_end : float
        ε so far, of what the budget's scope covers and of everything; the largest over clients.
    """

    number: int
    what: str
    stage: str
    round: int | None
    in_scope: float
    end_to_end: float

    @property
    def label(self) -> str:
        """Name of the release, with its round."""
        return self.what if self.round is None else f"{self.what}, round {self.round}"


def spending(events: Iterable[Event], budget: Budget | None, delta: float) -> tuple[Step, ...]:
    """Return ε after each release of all clients.

    Parameters
    ----------
    events : iterable of Event
        In the order of the ledger.
    budget : Budget, optional
        Its scope says what counts in `Step.in_scope`; without one, everything does.
    delta : float

    Notes
    -----
    Under Poisson sampling `SAMPLED_STEPS` steps are returned at most, the last among them.
    """
    groups: dict[tuple[str, str, int | None], list[Event]] = {}
    for event in events:
        groups.setdefault((event.what, event.stage, event.round), []).append(event)
    repeated = Counter((what, stage) for what, stage, _ in groups)
    inside: dict[str, Composition] = {}
    every: dict[str, Composition] = {}
    steps, shown = [], None
    for number, ((what, stage, round), group) in enumerate(groups.items(), 1):
        for event in group:
            every.setdefault(event.client, Composition()).add(event)
            if budget is None or budget.covers(event.stage):
                inside.setdefault(event.client, Composition()).add(event)
        if shown is None and any(each.sampled for each in every.values()):
            shown = {int(each) for each in np.linspace(number, len(groups), SAMPLED_STEPS)}
        if shown is None or number in shown:
            spent = (_largest(each.values(), delta) for each in (inside, every))
            steps.append(Step(number, what, stage, round if repeated[what, stage] > 1 else None, *spent))
    return tuple(steps)


def privacy_curve(ledger: Ledger) -> tuple[tuple[float, float], ...]:
    """Return (ε, δ) of what the budget's scope covers, ε rising; empty if nothing bounds it, or if it takes too long.

    Under Poisson sampling each point is a computation of its own: the statement then has a few of them.
    """
    compositions = distinct(ledger.composition(client) for client in ledger.clients)
    if not compositions or any(each.unprotected or each.sampled or each.empty for each in compositions):
        return ()
    return tuple((_largest(compositions, delta), delta) for delta in _DELTAS)


def _largest(compositions: Iterable[Composition] | Sequence[Composition], delta: float) -> float:
    return max((tightest(each).epsilon(each, delta) for each in distinct(compositions)), default=0.0)
