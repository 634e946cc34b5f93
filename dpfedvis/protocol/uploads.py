"""Uploads: arrays with the events that account for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from accounting import Event, GaussianRelease
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.kernels import Array

Values = Array | Integers
MOST_VALUE = 2**62  # of a sum of integers


class BadUpload(DpfedvisError):
    """An upload of the wrong shape or type, off its grid, or with values that are not finite."""

    def __init__(self, site: str, what: str, round: int | None, reason: str) -> None:
        place = "" if round is None else f" in round {round}"
        super().__init__(f"{site}: {what}{place} {reason}")
        self.site, self.what, self.round, self.reason = site, what, round, reason


@dataclass(frozen=True)
class Upload:
    """An array and the event that accounts for it.

    Parameters
    ----------
    values : array
        Integers on the event's grid; floats where nothing is protected, or records were perturbed before.
    event : Event
    """

    values: Values
    event: Event

    @property
    def floats(self) -> Array:
        """The values in their units: integers of a protected upload times the width of a cell."""
        return in_units(self.values, self.event)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `BadUpload` unless the array has this shape, and is int64, or finite floats if it is unprotected."""
        values, event = self.values, self.event
        types = (np.int64,) if isinstance(event, GaussianRelease) else (np.float32, np.float64)
        reason = ""
        if not isinstance(values, np.ndarray):
            reason = f"is a {type(values).__name__}, not an array"
        elif values.dtype not in types:
            reason = f"has dtype {values.dtype}, not {' or '.join(each.__name__ for each in types)}"
        elif values.shape != shape:
            reason = f"has shape {values.shape}, not {shape}"
        elif not np.isfinite(values).all():
            reason = "has values that are not finite"
        if reason:
            raise BadUpload(event.client, event.what, event.round, reason)


def digest_of(values: Values) -> str:
    """Return the hash of an upload's values, with their type and shape."""
    head = f"{values.dtype.str}|{values.shape}|".encode()
    return hashlib.sha256(head + np.ascontiguousarray(values).tobytes()).hexdigest()


def in_units(values: Values, event: Event) -> Array:
    """Return what was uploaded in the units of its event: integers times the width of a cell, or floats as they are."""
    grid = event.grid if isinstance(event, GaussianRelease) else None
    floats: Array = values if grid is None else values * grid  # type: ignore[assignment]  # floats have no grid
    return floats


def too_large(values: Values, sites: int) -> bool:
    """Whether so many uploads with values like these could leave int64 when they are added up."""
    if not isinstance(values, np.ndarray) or values.dtype != np.int64 or not values.size:
        return False
    most = MOST_VALUE // sites
    return int(values.max()) > most or int(values.min()) < -most


class Witness(Protocol):
    """Called with everything that the server sees, e.g. to record a run."""

    def __call__(self, events: Sequence[Event], values: Values) -> None: ...
