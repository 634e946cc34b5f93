"""What the server holds the replies of sites against: the events that follow from the contract, and their receipts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accounting import Event, GaussianRelease, PostProcessing, Unprotected
from dpfedvis.mechanisms.rows import Rows
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import Receipt, Send, Sent
from dpfedvis.protocol.noise_plan import row_event
from dpfedvis.protocol.signatures import verify
from dpfedvis.protocol.uploads import BadUpload, Values, digest_of, too_large
from dpfedvis.protocol.wire import label_of

Kind = tuple[type[Event], str]  # of an event without noise, and its name


class Replies:
    """Checks of replies under one contract.

    Parameters
    ----------
    contract : Contract
    signed : bool
        Whether every receipt must be signed; sites of a simulation sign once a run.
    """

    def __init__(self, contract: Contract, *, signed: bool) -> None:
        self.contract, self._signed, self.label = contract, signed, label_of(contract)

    def planned(self, event: Event, name: str) -> bool:
        """Whether an event is one that the contract plans for this site."""
        known = isinstance(event, GaussianRelease) and event.client == name and event.count == 1
        return known and 0 <= (event.round or 0) <= self.contract.counts.get(event.what, -1)

    def expected(self, request: Send) -> Sequence[GaussianRelease | Kind]:
        """Return the event that each site must state, as the contract has it; its kind if it has no noise."""
        chosen, public = request.mechanism, request.public
        if chosen.protection != "upload":
            kind = PostProcessing if chosen.protection == "home" else Unprotected
            return [(kind, chosen.what)] * len(self.contract.members)
        Y = np.zeros((1, public.features)) if request.landmarks is None else request.landmarks
        cell = chosen.cell(public, chosen.grid(public, Y))
        return [plan.event(cell, request.round) for plan in self.contract.site_plans(chosen, public)]

    def expected_rows(self, rows: Rows, Y: Array, site: str) -> GaussianRelease | Kind:
        contract = self.contract
        if rows.what in contract.extras and contract.plan is not None and contract.tau_x is not None:
            return row_event(contract.plan_of(site) or contract.plan, rows, Y, contract.tau_x, site)
        return (PostProcessing if contract.mechanism.protection == "home" else Unprotected), rows.what

    def check_sent(self, reply: Sent, name: str, round: int, expected: GaussianRelease | Kind) -> None:
        """Name a site whose upload is another's, of another round or on another grid, or too large to be added."""
        if reply.site != name:
            raise BadUpload(name, reply.event.what, round, "is of another site or round")
        self.check_event(reply.event, name, round, expected)
        if too_large(reply.values, len(self.contract.members)):
            raise BadUpload(name, reply.event.what, round, "has values beyond what can be added up")
        self.check_receipt(reply.receipt, name, reply.event, reply.values)

    def check_event(self, event: Event, name: str, round: int | None, expected: GaussianRelease | Kind) -> None:
        if (event.client, event.round or 0) != (name, round or 0):
            raise BadUpload(name, event.what, round, "is of another site or round")
        stated = (type(event), event.what) if isinstance(expected, tuple) else event
        if stated != expected:
            raise BadUpload(name, event.what, round, "states another sensitivity, noise or grid than the contract")

    def check_receipt(self, receipt: Receipt, name: str, event: Event, values: Values | None = None) -> None:
        if (receipt.site, receipt.contract) != (name, self.label):
            raise BadUpload(name, event.what, event.round, "has the receipt of another site or contract")
        key = self.contract.members[self.contract.places[name]].key
        # Sites of a simulation sign once a run.
        unsigned = not self._signed and not receipt.signature
        if not unsigned and not verify(key, receipt.signature, receipt.signed):
            raise BadUpload(name, event.what, event.round, "has a receipt with a wrong signature")
        if not unsigned and values is not None and receipt.values != digest_of(values):
            raise BadUpload(name, event.what, event.round, "has the receipt of another upload")
