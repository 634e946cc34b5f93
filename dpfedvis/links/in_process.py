"""Sites as objects of this process: for simulations, and for one machine that holds all records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.protocol import wire
from dpfedvis.protocol.ask import Reply, Request
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
    secure : bool
        Form sums by the secure protocol, as between processes. Plain sums of integers are the same, bit for bit.
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
        secure: bool = False,
        owned: Sequence[SiteLedger] = (),
    ) -> None:
        self.members, self._owned, self.secure = list(members), owned, secure
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

    def some(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        """Ask some sites; return their replies by name."""
        sites = {site.name: site for site in self.members}
        return {name: self._answer(sites[name], request) for name, request in requests.items()}

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
