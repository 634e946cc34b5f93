"""How the server's program speaks to sites, whatever carries the bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dpfedvis.protocol.messages import PlainReply, PlainRequest
from dpfedvis.protocol.sum_messages import SumReply, SumRequest

Request = PlainRequest | SumRequest
Reply = PlainReply | SumReply


class Ask(Protocol):
    """Protocol: a link, as the server's program sees it."""

    @property
    def sites(self) -> Sequence[str]:
        """Names of the sites."""

    @property
    def one_process(self) -> bool:
        """Whether the sites are objects of this process, so that Python objects can be sent."""

    @property
    def secure(self) -> bool:
        """Whether sums over sites are secure; without, they are formed in the clear, inside one process."""

    def each(self, request: Request) -> list[Reply]:
        """Ask every site; return their replies in the order of `sites`."""

    def some(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        """Ask some sites, each for something of its own; return their replies by name."""
