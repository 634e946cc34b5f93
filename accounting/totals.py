"""Running totals of a ledger: what each client has released, in all and inside the budget's scope."""

from __future__ import annotations

from collections.abc import Iterable

from accounting.budget import Budget
from accounting.chain import MOST, Repeated
from accounting.composition import Composition, squares
from accounting.events import Event


class Totals:
    """What was released, by client.

    Parameters
    ----------
    budget : Budget, optional
        Its scope decides what is covered; without one everything is.

    Attributes
    ----------
    all, covered : dict of str to Composition
        End to end, and inside the budget's scope.
    released : set of (str, str, bool)
        Client, quantity, and whether it is covered.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget
        self.all: dict[str, Composition] = {}
        self.covered: dict[str, Composition] = {}
        self.released: set[tuple[str, str, bool]] = set()

    def covers(self, event: Event) -> bool:
        """Whether an event is inside the budget's scope."""
        return self._budget is None or self._budget.covers(event.stage)

    def add(self, event: Event) -> None:
        """Add one event."""
        for composition in self._compositions(event):
            composition.add(event)

    def add_rows(self, rows: Iterable[Repeated]) -> None:
        """Add the events of rows, with the same sums as if they were added one by one.

        After an error from `rows` the totals are of no use.
        """
        shares: dict[Repeated, _Share] = {}
        for row in rows:
            share = shares.get(row)
            if share is None and len(shares) >= MOST:
                self.add(row.event)  # they are all different: remembering them would only fill the memory
                continue
            if share is None:
                share = shares[row] = _Share(row.event, self._compositions(row.event))
            share.times += 1
            # Sums of floats depend on their order; counts do not, and wait.
            for composition in share.plain_to:
                composition.mu2 += share.plain
            for composition in share.sampled_to:
                composition.sampled_mu2 += share.sampled
        for share in shares.values():
            for composition in share.compositions:
                composition.count(share.event, share.times)

    def _compositions(self, event: Event) -> list[Composition]:
        covered = self.covers(event)
        self.released.add((event.client, event.what, covered))
        found = [self.all.setdefault(event.client, Composition())]
        if covered:
            found.append(self.covered.setdefault(event.client, Composition()))
        return found


class _Share:
    """What a release adds to compositions each time."""

    __slots__ = ("compositions", "event", "plain", "plain_to", "sampled", "sampled_to", "times")

    def __init__(self, event: Event, compositions: list[Composition]) -> None:
        self.event, self.compositions, self.times = event, compositions, 0
        self.plain, self.sampled = squares(event)
        self.plain_to = compositions if self.plain else []
        self.sampled_to = compositions if self.sampled else []
        for composition in compositions:
            composition.check(event)
            composition.count(event, 0)  # sets the meaning, and keeps groups in the order of their first release
