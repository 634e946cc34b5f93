"""The door: the one place where anything leaves a client.

An upload is an array together with the event that accounts for it. The door checks the array, writes the event to the
ledger, and only then hands the array over; a release that would break the budget does not pass. So the ledger is
complete by construction, and a crash can lose an upload but never the memory of a spend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from accounting import Event, Ledger
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.kernels import Array


class BadUpload(DpfedvisError):
    """An upload that is not what was agreed on: the wrong shape or type, or not finite."""

    def __init__(self, client: str, what: str, round: int | None, reason: str) -> None:
        place = "" if round is None else f" in round {round}"
        super().__init__(f"{client}: {what}{place} {reason}")
        self.client, self.what, self.round, self.reason = client, what, round, reason


class ReleasedTwice(DpfedvisError):
    """A client was to make a release a second time; nothing passed, and nothing was spent."""

    def __init__(self, client: str, what: str, round: int | None) -> None:
        place = "" if round is None else f" of round {round}"
        super().__init__(
            f"{client} has released its {what}{place} already, and the bytes to send again are not kept any more; "
            "nothing was released or spent"
        )
        self.client, self.what, self.round = client, what, round


@dataclass(frozen=True)
class Upload:
    """An array and the event that accounts for it.

    Parameters
    ----------
    values : array
    event : Event
    again : bool
        Whether these very bytes may have been released before an interruption, so that an event that stands in the
        ledger already covers them.
    """

    values: Array
    event: Event
    resent: bool = False

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `BadUpload` unless the array is finite float32 or float64 of this shape."""
        values, event = self.values, self.event
        reason = ""
        if not isinstance(values, np.ndarray):
            reason = f"is a {type(values).__name__}, not an array"
        elif values.dtype not in (np.float32, np.float64):
            reason = f"has dtype {values.dtype}, not float32 or float64"
        elif values.shape != shape:
            reason = f"has shape {values.shape}, not {shape}"
        elif not np.isfinite(values).all():
            reason = "has values that are not finite"
        if reason:
            raise BadUpload(event.client, event.what, event.round, reason)


_Place = tuple[str, str, int | None]


def _place(event: Event) -> _Place:
    return event.client, event.what, event.round


class Witness(Protocol):
    """Sees what the server sees, such as a recorder of runs."""

    def __call__(self, events: Sequence[Event], values: Array) -> None: ...


class Door:
    """Lets uploads through, in exchange for an entry in the ledger.

    Parameters
    ----------
    ledger : Ledger
    witness : Witness, optional
        Called with everything that passes.
    once : bool
        Whether the ledger is that of one run, in which a client releases each quantity once a round. A second time is
        refused then (`ReleasedTwice`), whatever the budget would say.
    """

    def __init__(self, ledger: Ledger, witness: Witness | None = None, *, once: bool = False) -> None:
        self.ledger = ledger
        self._witness, self._once = witness, once
        self._seen, self._released = 0, set[_Place]()

    def account(self, uploads: Sequence[Upload]) -> None:
        """Write the events of uploads to the ledger, except for the same bytes released again (`Upload.again`).

        By itself it is for what stays at home but shapes what leaves later.
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
        """Let each client's upload through by itself.

        Parameters
        ----------
        uploads : sequence of Upload
        shape : tuple of int
            Agreed shape; checked before anything is spent and again on the other side.

        Returns
        -------
        list of arrays
        """
        self._admit(uploads, shape)
        for upload in uploads:
            upload.check(shape)
            if self._witness is not None:
                self._witness([upload.event], upload.values)
        return [upload.values for upload in uploads]

    def release_sum(
        self,
        uploads: Sequence[Upload],
        shape: tuple[int, ...],
        curate: Callable[[Array], Array] | None = None,
    ) -> Array:
        """Let only the sum of all uploads through: a stand-in for secure aggregation, which is simulated here.

        Parameters
        ----------
        uploads, shape
            As in `release`.
        curate : callable, optional
            What a trusted server does to the exact sum before anyone sees it.

        Returns
        -------
        array
            The sum, in float64.
        """
        self._admit(uploads, shape)
        total: Array = np.sum([upload.values for upload in uploads], axis=0, dtype=np.float64)
        if curate is not None:
            total = curate(total)
        if self._witness is not None:
            self._witness([upload.event for upload in uploads], total)
        return total

    def _refuse_twice(self, events: Sequence[Event]) -> None:
        if self._seen != len(self.ledger):  # not all of it is from this door
            recorded = list(self.ledger.events())
            self._released, self._seen = set(map(_place, recorded)), len(recorded)
        for event in events:
            if _place(event) in self._released:
                raise ReleasedTwice(event.client, event.what, event.round)

    def _admit(self, uploads: Sequence[Upload], shape: tuple[int, ...]) -> None:
        for upload in uploads:
            upload.check(shape)
        self.account(uploads)
