"""What all runs on some records cost together: of each run its site that spent most, all of them composed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from accounting import Budget, Composition, Event, Ledger, gaussian_epsilon, gaussian_mu
from accounting.assumptions import at_two_sites, composed, without_own_share
from accounting.release_lines import lines_of
from accounting.statement import Statement, state

_EVERY = "every record"  # whose spending a composition over runs is


def state_of(events: Mapping[str, Sequence[Event]], data: str, delta: float) -> Statement:
    """Return what may be said of the events of several runs together, at `delta`."""
    facts = {
        "data": data,
        "runs": len(events),
        "clients": max((len({event.client for event in own}) for own in events.values()), default=0),
    }
    with Ledger() as whole:
        whole.record(*merged(events))
        found = state(whole, delta=delta, facts=facts)
    # What depends on how many sites there were is read before they are merged into one.
    found = replace(
        found,
        lines=lines_of([event for own in events.values() for event in own]),
        at_two_sites=at_two_sites(_at_two(events), delta),
    )
    faced = {run: without_own_share(own) for run, own in events.items()}
    if all(each is None for each in faced.values()):
        return found
    seen = merged({run: faced[run] or own for run, own in events.items()})
    return replace(found, against_a_client=composed(seen, delta))


def forecast(spent: float, budget: Budget | None, delta: float) -> tuple[float, float]:
    """Return what was spent, and what it would be with a run of this budget; exact for Gaussian noise.

    It keeps a run without room from beginning. What holds is that each event is checked when it is charged.
    """
    if budget is None or budget.scope == "landmarks" or math.isinf(spent):
        return spent, math.inf
    before = gaussian_mu(spent, delta) if spent > 0 else 0.0
    return spent, gaussian_epsilon(math.hypot(before, budget.mu), delta)


def by_run(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Return the events of each run, with the clients' own names."""
    found: dict[str, list[Event]] = {}
    for event in events:
        run, _, client = event.client.partition("/")
        found.setdefault(run, []).append(replace(event, client=client))
    return found


def merged(events: Mapping[str, Sequence[Event]]) -> list[Event]:
    """Return the most that a record can have been in: of each run the events of the client that spent most."""
    found: list[Event] = []
    for own in events.values():
        by_client: dict[str, list[Event]] = {}
        for event in own:
            by_client.setdefault(event.client, []).append(event)
        found += [replace(event, client=_EVERY) for event in max(by_client.values(), key=_cost)]
    return found


def _cost(events: Sequence[Event]) -> tuple[int, float]:
    composition = Composition(events)
    return composition.unprotected, composition.total_mu


def _at_two(events: Mapping[str, Sequence[Event]]) -> list[Event]:
    """Return the most that a record can have been in, at each of two sites; at one if no run had two."""
    one = merged(events)
    several = any(len({event.client for event in own}) > 1 for own in events.values())
    return [*one, *(replace(event, client="another site") for event in one if several)]
