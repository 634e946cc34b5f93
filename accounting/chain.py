"""The hash chain of a ledger's rows, followed while they are read.

A row's hash covers the hash before it, its time and its body, and so its place. Rows of one release in other rounds
differ in the round alone. So a body is parsed and checked when it is the first of its kind; a later one must be, letter
by letter, that body with the number of its round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from accounting.errors import AccountingError, LedgerCorrupted
from accounting.events import Event, from_json, in_round

_START = "0" * 64
_ROUND = ',"round":'
MOST = 2**15  # kinds of body that are remembered: some 50 MB

Row = tuple[int, int | None, str, str, str, str, str, str, str]
COLUMNS = "seq, round, time, body, hash, client, stage, what, kind"


def digest(previous: str, time: str, body: str) -> str:
    """Return the hash of a row. No part has a line break, so that different parts never give the same text."""
    return hashlib.sha256(f"{previous}\n{time}\n{body}".encode()).hexdigest()


def genesis(created: str, budget: str | None) -> str:
    """Return the hash before the first row."""
    return digest(_START, created, budget or "")


def facts_of(event: Event) -> list[str]:
    """Return the columns that repeat parts of the body beside its round, for readers who use SQL only."""
    return [event.client, event.stage, event.what, event.kind]


class Repeated:
    """A release whose rows differ in the round alone.

    Parameters
    ----------
    event : Event
        The first of them.
    before, after : str
        The body on either side of the round.
    """

    __slots__ = ("after", "before", "event", "facts")

    def __init__(self, event: Event, before: str, after: str) -> None:
        self.event, self.before, self.after = event, before, after
        self.facts = facts_of(event)

    def at(self, round: int | None) -> Event:
        """Return the event of a round."""
        return in_round(self.event, round)


class Reader:
    """Finds the release that a row is of.

    Parameters
    ----------
    path : str
        Of the ledger, for errors.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.latest: dict[str, Repeated] = {}  # by client: most of its rows are of what it released last
        self._known: dict[tuple[str, str], Repeated] = {}

    def find(self, sequence: int, facts: Sequence[str], round: int | None, body: str) -> Repeated:
        """Return the release of a row, parsed and checked if it is new.

        Raises
        ------
        LedgerCorrupted
            If the body cannot be read, or if the columns differ from it.
        """
        shown = "null" if round is None else str(round) if type(round) is int and round >= 0 else None
        before, mark, rest = body.partition(_ROUND) if isinstance(body, str) else ("", "", "")
        digits, comma, after = rest.partition(",")
        known = self._known.get((before, after))
        if known is None or digits != shown or known.facts != facts:
            known = Repeated(self._parsed(sequence, facts, round, body), before + mark, comma + after)
            # In a canonical body `,"round":` is the key: a quotation mark in a string is escaped.
            if digits != shown or known.event.to_json() != body or len(self._known) >= MOST:
                return known
            self._known[before, after] = known
        self.latest[facts[0]] = known
        return known

    def _parsed(self, sequence: int, facts: Sequence[str], round: int | None, body: str) -> Event:
        try:
            event = from_json(body)
        except (AccountingError, TypeError, ValueError) as error:
            raise LedgerCorrupted(f"{self.path}: event {sequence} cannot be read ({error})") from error
        if (facts, round) != (facts_of(event), event.round):
            raise LedgerCorrupted(f"{self.path}: the columns of event {sequence} differ from its body")
        return event


class Chain:
    """A place in the chain: `count` rows, the last of them with hash `head`. Moves on as rows are followed."""

    def __init__(self, reader: Reader, count: int, head: str) -> None:
        self._reader, self.count, self.head = reader, count, head

    def follow(self, rows: Iterable[Row]) -> Iterator[Repeated]:
        """Check rows one by one and yield what they are of; `count` and `head` move when all are followed.

        Raises
        ------
        LedgerCorrupted
            At the first row that is wrong.
        """
        # With local names and without calls: this loop decides how long it takes to open a ledger.
        sha256, latest, find, count, head = (
            hashlib.sha256,
            self._reader.latest,
            self._reader.find,
            self.count,
            self.head,
        )
        for sequence, round, time, body, stored, *facts in rows:
            count += 1
            found = latest.get(facts[0])
            if (
                found is None
                or found.facts != facts
                or round.__class__ is not int
                or round < 0
                or body != f"{found.before}{round}{found.after}"
            ):
                found = find(sequence, facts, round, body)
            head = sha256(f"{head}\n{time}\n{body}".encode()).hexdigest()  # `digest`
            if head != stored or sequence != count:
                raise LedgerCorrupted(
                    f"{self._reader.path}: event {count}{' or the budget' * (count == 1)} is missing or was changed "
                    f"(row {sequence})"
                )
            yield found
        self.count, self.head = count, head
