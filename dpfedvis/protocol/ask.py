"""How the server's program speaks to sites, whatever carries the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from accounting import Event
from dpfedvis.numerics.exact import Integers
from dpfedvis.protocol.messages import Receipt, Refused, Reply, Request


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of all sites' uploads: all that a server sees under trust `aggregate`.

    Parameters
    ----------
    values : array of int64, optional
        None if a site refused: the sum is then not formed.
    events, receipts : tuples
        Of the sites in it.
    refusals : tuple of Refused
    """

    values: Integers | None
    events: tuple[Event, ...]
    receipts: tuple[Receipt, ...]
    refusals: tuple[Refused, ...] = ()


class Ask(Protocol):
    """Protocol: a link, as the server's program sees it."""

    @property
    def sites(self) -> Sequence[str]:
        """Names of the sites."""

    @property
    def one_process(self) -> bool:
        """Whether the sites are objects of this process, so that Python objects can be sent."""

    def each(self, request: Request) -> list[Reply]:
        """Ask every site; return their replies in the order of `sites`."""

    def total(self, request: Request) -> Sum:
        """Ask every site for an upload; return only the sum."""
