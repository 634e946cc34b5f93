"""Does the ledger have what was released? Checks without chance: events, rounds, integers and grids."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from accounting import Budget, Event, GaussianRelease, Ledger
from attacks.auditing.evidence import Seen
from attacks.auditing.findings import Checked, Finding


def check_ledger(
    seen: Sequence[Seen], ledger: Ledger, budget: Budget, delta: float, rounds: Mapping[str, int]
) -> list[Checked]:
    """Compare what was seen with the ledger.

    Parameters
    ----------
    seen : sequence of Seen
    ledger : Ledger
    budget : Budget
        What was asked for.
    delta : float
    rounds : mapping of str to int
        By name of the upload: how many rounds the server took, so that each client must have as many events.
    """
    events = list(ledger.events())
    return [_all(found) for found in (
        _recorded(seen, events),
        _complete(events, rounds),
        _as_asked(events, budget),
        _spent(ledger, budget, delta),
        _integers(seen),
        _drawn(seen),
    )]  # fmt: skip


def _recorded(seen: Iterable[Seen], events: Iterable[Event]) -> Iterable[Finding]:
    """Every upload that the server saw is in the ledger, as often as it was seen."""
    known = Counter(event.to_json() for event in events)
    for upload in seen:
        for event in upload.events:
            known[event.to_json()] -= 1
            if known[event.to_json()] < 0:
                yield _finding("ledger", event, "was released and is not in the ledger")


def _complete(events: Iterable[Event], rounds: Mapping[str, int]) -> Iterable[Finding]:
    """Every client has an event for every round that the server took."""
    found: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for event in events:
        found[event.what, event.client][event.round or 0] += 1
    for (what, client), numbers in found.items():
        missing = set(range(1, rounds.get(what, 0) + 1)) - set(numbers)
        if missing:
            words = f"The ledger has no {what} of {client} in round {min(missing)}, which was released."
            yield Finding("ledger", f"{what}, round {min(missing)}", 0.0, words)


def _as_asked(events: Iterable[Event], budget: Budget) -> Iterable[Finding]:
    for event in events:
        if (event.adjacency, event.unit) != (budget.adjacency, budget.unit):
            words = (
                f"is stated per {event.unit}, {event.adjacency}; the budget is for {budget.unit}, {budget.adjacency}"
            )
            yield _finding("ledger", event, words)


def _spent(ledger: Ledger, budget: Budget, delta: float) -> Iterable[Finding]:
    spent = ledger.spent(delta, end_to_end=True)
    if spent > budget.epsilon * (1 + 1e-9):
        words = f"The ledger says ε = {spent:.6g}, more than the budget's {budget.epsilon:g}."
        yield Finding("ledger", "budget", 0.0, words)


def _integers(seen: Iterable[Seen]) -> Iterable[Finding]:
    """What is protected leaves as int64, on a grid that the event names."""
    for upload in seen:
        event = upload.events[0]
        if isinstance(event, GaussianRelease):
            if event.grid is None:
                yield _finding("grid", event, "names no grid")
            elif upload.integers.dtype != np.int64:
                yield _finding("grid", event, f"left as {upload.integers.dtype}, not as integers of its grid")


def _drawn(seen: Iterable[Seen]) -> Iterable[Finding]:
    """The event counts every integer of noise that was drawn, by all parties."""
    for upload in seen:
        event = upload.events[0]
        parties = len(upload.events) if event.trust == "aggregate" else 1
        if isinstance(event, GaussianRelease) and event.values < upload.integers.size * parties:
            words = f"charges {event.values} integers of noise; {upload.integers.size * parties} were drawn"
            yield _finding("ledger", event, words)


def _all(found: Iterable[Finding]) -> Checked:
    """Keep the first: more of one kind say no more."""
    return Checked(0, tuple(list(found)[:1]))


def _finding(check: str, event: Event, words: str) -> Finding:
    where = event.what if event.round is None else f"{event.what}, round {event.round}"
    return Finding(check, where, 0.0, f"Upload {where} of {event.client} {words}.")
