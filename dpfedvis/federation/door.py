"""The door: the only way from a client to the server.

An upload is an array with the event that accounts for it. The door checks the array, writes the event to the ledger,
and only then returns the array. A release above the budget is refused. So the ledger is always complete: a crash can
lose an upload, but not the record of what it cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from accounting import Event, GaussianRelease, Ledger
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.kernels import Array

Values = Array | Integers


class BadUpload(DpfedvisError):
    """An upload of the wrong shape or type, or with values that are not finite."""

    def __init__(self, client: str, what: str, round: int | None, reason: str) -> None:
        place = "" if round is None else f" in round {round}"
        super().__init__(f"{client}: {what}{place} {reason}")
        self.client, self.what, self.round, self.reason = client, what, round, reason


class ReleasedTwice(DpfedvisError):
    """A client tried to make a release a second time; nothing was released or spent."""

    def __init__(self, client: str, what: str, round: int | None) -> None:
        place = "" if round is None else f" of round {round}"
        super().__init__(
            f"{client} has already released its {what}{place}, and the bytes to resend are no longer stored; "
            "nothing was released or spent"
        )
        self.client, self.what, self.round = client, what, round


@dataclass(frozen=True)
class Upload:
    """An array and the event that accounts for it.

    Parameters
    ----------
    values : array
        Integers on the event's grid; floats where nothing is protected, or records were perturbed before.
    event : Event
    resent : bool
        Whether the same bytes may have been released before an interruption. If their event is in the ledger, it covers
        them.
    """

    values: Values
    event: Event
    resent: bool = False

    @property
    def _types(self) -> tuple[type[np.generic], ...]:
        return (np.int64,) if isinstance(self.event, GaussianRelease) else (np.float32, np.float64)

    @property
    def floats(self) -> Array:
        """The values in their units: integers of a protected upload times the width of a cell."""
        return in_units(self.values, self.event)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `BadUpload` unless the array has this shape, and is int64, or finite floats if it is unprotected."""
        values, event = self.values, self.event
        reason = ""
        if not isinstance(values, np.ndarray):
            reason = f"is a {type(values).__name__}, not an array"
        elif values.dtype not in self._types:
            reason = f"has dtype {values.dtype}, not {' or '.join(each.__name__ for each in self._types)}"
        elif values.shape != shape:
            reason = f"has shape {values.shape}, not {shape}"
        elif not np.isfinite(values).all():
            reason = "has values that are not finite"
        if reason:
            raise BadUpload(event.client, event.what, event.round, reason)


def in_units(values: Values, event: Event) -> Array:
    """Return what was uploaded in the units of its event: integers times the width of a cell, or floats as they are."""
    grid = event.grid if isinstance(event, GaussianRelease) else None
    floats: Array = values if grid is None else values * grid  # type: ignore[assignment]  # floats have no grid
    return floats


_Place = tuple[str, str, int | None]


def _place(event: Event) -> _Place:
    return event.client, event.what, event.round


class Witness(Protocol):
    """Called with everything that the server sees, e.g. to record a run."""

    def __call__(self, events: Sequence[Event], values: Values) -> None: ...


class Door:
    """Passes uploads to the server after recording their events in the ledger.

    Parameters
    ----------
    ledger : Ledger
    witness : Witness, optional
        Called with everything that the server sees.
    once : bool
        Whether the ledger belongs to one run, in which a client releases each quantity once per round. A second release
        then raises `ReleasedTwice`, even within the budget.
    """

    def __init__(self, ledger: Ledger, witness: Witness | None = None, *, once: bool = False) -> None:
        self.ledger = ledger
        self._witness, self._once = witness, once
        self._seen, self._released = 0, set[_Place]()

    def account(self, uploads: Sequence[Upload]) -> None:
        """Write the events of uploads to the ledger, except those that already cover resent bytes (`Upload.resent`).

        Called alone for perturbed records, which stay at the client but determine its later uploads.
        """
        known: Counter[str] = Counter()
        if any(upload.resent for upload in uploads):
            known.update(event.to_json() for event in self.ledger.events())
        new = [u.event for u in uploads if not (u.resent and known[u.event.to_json()])]
        if self._once:
            self._refuse_twice(new)
        if new:
            self.ledger.record(*new)
            self._released.update(map(_place, new))
            self._seen += len(new)

    def release(self, uploads: Sequence[Upload], shape: tuple[int, ...]) -> list[Array]:
        """Pass each client's upload to the server.

        Parameters
        ----------
        uploads : sequence of Upload
        shape : tuple of int
            Required shape; checked before anything is spent.

        Returns
        -------
        list of arrays
            In their units.
        """
        self._admit(uploads, shape)
        for upload in uploads:
            upload.check(shape)
            if self._witness is not None:
                self._witness([upload.event], upload.values)
        return [upload.floats for upload in uploads]

    def release_sum(
        self,
        uploads: Sequence[Upload],
        shape: tuple[int, ...],
        curate: Callable[[Integers], Integers] | None = None,
    ) -> Array:
        """Pass only the sum of all uploads to the server: a simulation of secure aggregation.

        Parameters
        ----------
        uploads, shape
            As in `release`.
        curate : callable, optional
            Applied to the exact sum by a trusted server, before anyone sees it.

        Returns
        -------
        array
            The sum, in its units.
        """
        first = uploads[0].event
        grids = {upload.event.grid for upload in uploads if isinstance(upload.event, GaussianRelease)}
        if len(grids) != 1:
            raise BadUpload("the sum", first.what, first.round, f"has clients on different grids: {grids}")
        self._admit(uploads, shape)
        total: Integers = np.sum([upload.values for upload in uploads], axis=0, dtype=np.int64)
        if curate is not None:
            total = curate(total)
        if self._witness is not None:
            self._witness([upload.event for upload in uploads], total)
        return in_units(total, first)

    def _refuse_twice(self, events: Sequence[Event]) -> None:
        if self._seen != len(self.ledger):  # others have written to the ledger
            recorded = list(self.ledger.events())
            self._released, self._seen = set(map(_place, recorded)), len(recorded)
        for event in events:
            if _place(event) in self._released:
                raise ReleasedTwice(event.client, event.what, event.round)

    def _admit(self, uploads: Sequence[Upload], shape: tuple[int, ...]) -> None:
        for upload in uploads:
            upload.check(shape)
        self.account(uploads)
