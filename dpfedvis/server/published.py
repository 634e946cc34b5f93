"""What a program leaves, as an object and as bytes."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Any

from accounting import Ledger
from accounting.errors import AccountingError
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol import wire
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.density import Density
from dpfedvis.protocol.messages import Receipt
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.server.feddl import FedDLResult
from dpfedvis.server.round_log import Tally, as_array, from_array
from dpfedvis.server.session import Failure
from dpfedvis.server.verdict import Verdict

_MOST_HEADER = 2**30  # bytes of JSON: some millions of events


@dataclass(frozen=True, eq=False)
class Published:
    """What a program leaves; nothing of it needs a record.

    Parameters
    ----------
    feddl : FedDLResult
    landmarks : array of shape (n_y, m)
        In the units of the records.
    rows : tuple of arrays of shape (n_p, width)
        Of each site; empty without a release of rows.
    row_noise : float
        Standard deviation of the noise in a row.
    map : PublishedMap, optional
    density : Density, optional
    remarks : tuple of str
    verdict : Verdict, optional
        What of a private map is signal.
    label : str
        Of the contract.
    receipts : tuple of Receipt
        The last of each site, signed with its key: what its ledger holds.
    """

    feddl: FedDLResult
    landmarks: Array
    rows: tuple[Array, ...] = ()
    row_noise: float = 0.0
    map: PublishedMap | None = None
    density: Density | None = None
    remarks: tuple[str, ...] = ()
    verdict: Verdict | None = None
    label: str = ""
    receipts: tuple[Receipt, ...] = ()

    @property
    def contract(self) -> Contract:
        """What the sites signed."""
        return self.feddl.contract

    def to_bytes(self) -> bytes:
        """Return it as JSON and arrays; the mirror as its events."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        feddl = {each.name: getattr(self.feddl, each.name) for each in fields(self.feddl)}
        ledger: Ledger = feddl.pop("ledger")
        feddl["events"], feddl["budget"] = tuple(ledger.events()), ledger.budget
        # As an array, since JSON has no NaN.
        feddl["trace"] = as_array(list(self.feddl.trace))
        feddl["failures"] = tuple(astuple(each) for each in self.feddl.failures)
        return wire.encode({**own, "feddl": feddl})

    @classmethod
    def of_bytes(cls, data: bytes) -> Published:
        """Inverse of `to_bytes`; its ledger is in memory."""
        own: dict[str, Any] = wire.decode(data, most_header=_MOST_HEADER)
        try:
            feddl: dict[str, Any] = own.pop("feddl")
            ledger = Ledger(budget=feddl.pop("budget"))
            if events := feddl.pop("events"):
                ledger.record(*events)
            feddl["trace"] = tuple(from_array(feddl["trace"]))
            feddl["failures"] = tuple(Failure(*each) for each in feddl["failures"])
            found = cls(FedDLResult(**feddl, ledger=ledger), **own)
            # Regions name landmarks by number: those that were published.
            if (verdict := found.verdict) is not None and len(verdict.drawn) not in (0, len(found.landmarks)):
                raise ValueError("the verdict is on another number of landmarks")
            return found
        except (TypeError, KeyError, ValueError, AttributeError, IndexError, AccountingError) as error:
            raise wire.Malformed("these bytes are not what a program has left") from error


wire.register(Density, Tally)
