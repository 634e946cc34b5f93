"""Sums over sites, as the server gets them. Here the plain ones of a simulation; `secure_sums` has the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from accounting import Event
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.exact import Integers
from dpfedvis.protocol.ask import Ask, Reply
from dpfedvis.protocol.messages import Receipt, Refused, Send, Sent
from dpfedvis.protocol.uploads import too_large


class SumIncomplete(DpfedvisError):
    """A sum that lacks sites. What was published stays; the run can be resumed when they are back.

    Parameters
    ----------
    message : str
    events, receipts : sequences
        Of sites that were charged for it all the same.
    """

    def __init__(self, message: str, events: Sequence[Event] = (), receipts: Sequence[Receipt] = ()) -> None:
        super().__init__(message)
        self.events, self.receipts = tuple(events), tuple(receipts)


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum of sites' uploads: all that a server sees under trust `aggregate`.

    Parameters
    ----------
    values : array of int64, of the shape of an upload
    events : tuple of Event
        Of the sites in it.
    receipts : tuple of Receipt
    masked : tuple of arrays, or None
        What the receipts are for; None in a simulation.
    absent : mapping of str to str
        Sites that are not in it, and why.
    """

    values: Integers
    events: tuple[Event, ...]
    receipts: tuple[Receipt, ...]
    masked: tuple[Integers, ...] | None
    absent: Mapping[str, str]


class Sums(Protocol):
    """Protocol: a way to get sums."""

    def total(self, request: Send, shape: tuple[int, ...]) -> Sum:
        """Ask the sites for an upload of this shape; return the sum."""


@dataclass(frozen=True)
class PlainSums:
    """Sums of what all sites of one process send: equal to secure ones, bit for bit, since integers add up exactly."""

    ask: Ask

    def total(self, request: Send, shape: tuple[int, ...]) -> Sum:
        """Add up; a site that gives nothing that can be added stops it."""
        sent, wrong = [], {}
        for name, reply in zip(self.ask.sites, self.ask.each(request), strict=True):
            words = _unfit(reply, name, shape, len(self.ask.sites))
            if words:
                wrong[name] = words
            elif isinstance(reply, Sent):
                sent.append(reply)
        if wrong:
            raise SumIncomplete(
                "; ".join(f"{name} failed in round {request.round}: {why}" for name, why in wrong.items())
            )
        total: Integers = np.sum([each.values for each in sent], axis=0, dtype=np.int64)
        return Sum(total, tuple(each.event for each in sent), tuple(each.receipt for each in sent), None, {})


def _unfit(reply: Reply, name: str, shape: tuple[int, ...], sites: int) -> str:
    """Say why a reply cannot be added to a sum; empty if it can."""
    if isinstance(reply, Refused):
        return reply.words
    if not isinstance(reply, Sent) or reply.site != name:
        return "gave another reply than it was asked for"
    if not isinstance(reply.values, np.ndarray) or reply.values.dtype != np.int64:
        return "gave an upload that is not of integers"
    if reply.values.shape != shape:
        return f"gave an upload of shape {reply.values.shape}"
    return "gave values beyond what can be added up" if too_large(reply.values, sites) else ""
