"""What has left a site, when, to whom, and what is left of its budgets: for its owner."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.ledger_file import tables
from dpfedvis.site.policy import Policy


@dataclass(frozen=True)
class Left:
    """One release that left a site.

    Parameters
    ----------
    time : str
    run, what : str
    round : int, optional
    to : str
        Who can have seen what.
    values : int, optional
        Integers that left; None of rows, whose number the event does not tell.
    """

    time: str
    run: str
    what: str
    round: int | None
    to: str
    values: int | None


@dataclass(frozen=True)
class LedgerReport:
    """All that has left a site, and what it comes to.

    Parameters
    ----------
    left : tuple of Left
    epsilon, delta : float
        Of all runs together.
    runs : int
    lifetime_epsilon : float, optional
        What the policy allows over all runs.
    """

    left: tuple[Left, ...]
    epsilon: float
    delta: float
    runs: int
    lifetime_epsilon: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return {**vars(self), "left": [vars(each) for each in self.left]}


def report_of(path: Path, policy: Policy) -> LedgerReport:
    """Read the ledger of a site; its chain of hashes is checked while it is read."""
    with SiteLedger.read(path) as ledger:
        total = ledger.all_runs(policy.lifetime_delta)
    with tables(path, "ro") as file:
        rows = file.execute("SELECT time, client, what, round, body FROM events ORDER BY seq").fetchall()
    left = tuple(_left(*row) for row in rows)
    return LedgerReport(left, total.epsilon, policy.lifetime_delta, total.runs, policy.lifetime_epsilon)


def _left(time: str, client: str, what: str, round: int | None, body: str) -> Left:
    event = json.loads(body)
    values, to = int(event.get("values") or 0) or None, "the server"
    if what.endswith("rows"):
        return Left(time, client.partition("/")[0], what, round, "the server: a row a record, with noise", None)
    if values is not None and event.get("parties"):
        values //= event["parties"]  # the event counts the noise of all
        to = f"the server, as a sum of at least {event['threshold']} of {event['parties']} sites"
    return Left(time, client.partition("/")[0], what, round, to, values)
