"""Sites as objects of this process: for simulations, and for one machine that holds all records."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.numerics.exact import Integers
from dpfedvis.protocol import wire
from dpfedvis.protocol.ask import Sum
from dpfedvis.protocol.messages import MALFORMED, Refused, Reply, Request, Sent
from dpfedvis.protocol.uploads import too_large
from dpfedvis.server import Program, Published
from dpfedvis.site import Site, SiteLedger


class InProcess:
    """A link to sites of this process.

    Parameters
    ----------
    members : sequence of Site
    jobs : int
        Sites that work at the same time. It changes no result. With one, BLAS can use all cores.
    through_bytes : bool
        Send every message as bytes, as another link would; for tests.
    owned : sequence of SiteLedger
        Ledgers that `close` closes.
    """

    one_process = True

    def __init__(
        self,
        members: Sequence[Site],
        *,
        jobs: int = 1,
        through_bytes: bool = False,
        owned: Sequence[SiteLedger] = (),
    ) -> None:
        self.members, self._owned = list(members), owned
        if not self.members:
            raise InvalidParameter("members", members, "one site or more")
        self._jobs, self._through_bytes = min(checks.count("jobs", jobs), len(self.members)), through_bytes

    @property
    def sites(self) -> Sequence[str]:
        """Names of the sites."""
        return [site.name for site in self.members]

    def run(self, program: Program, **watched: Any) -> Published:
        """Run a program here."""
        return program.run(self, **watched)

    def each(self, request: Request) -> list[Reply]:
        """Ask every site; return their replies in order."""
        if self._jobs == 1:
            return [self._answer(site, request) for site in self.members]
        with ThreadPoolExecutor(self._jobs) as threads:
            return list(threads.map(lambda site: self._answer(site, request), self.members))

    def total(self, request: Request) -> Sum:
        """Ask every site for an upload; return only the sum. A stand-in for a secure sum: it sees every upload."""
        return add_up(self.each(request))

    def close(self) -> None:
        """Close the ledgers that belong to the link."""
        for ledger in self._owned:
            ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, site: Site, request: Request) -> Reply:
        if not self._through_bytes:
            reply: Reply = site.answer(request)
            return reply
        reply = wire.decode(site.answer(wire.encode(request)))
        return reply


def add_up(replies: Sequence[Reply]) -> Sum:
    """Return the sum of uploads, unless a site refused."""
    sent = [each for each in replies if isinstance(each, Sent)]
    refusals = [each for each in replies if isinstance(each, Refused)]
    refusals += [
        Refused(each.site, MALFORMED, "gave another reply than it was asked for")
        for each in replies
        if not isinstance(each, Sent | Refused)
    ]
    for each in sent:
        if not isinstance(each.values, np.ndarray) or each.values.dtype != np.int64:
            refusals.append(Refused(each.site, MALFORMED, "gave an upload that is not of integers"))
        elif each.values.shape != sent[0].values.shape:
            refusals.append(Refused(each.site, MALFORMED, f"gave an upload of shape {each.values.shape}"))
        elif too_large(each.values, len(sent)):
            refusals.append(Refused(each.site, MALFORMED, "gave values beyond what can be added up"))
    if refusals:
        return Sum(None, (), (), tuple(refusals))
    total: Integers = np.stack([each.values for each in sent]).sum(axis=0, dtype=np.int64)
    return Sum(total, tuple(each.event for each in sent), tuple(each.receipt for each in sent))
