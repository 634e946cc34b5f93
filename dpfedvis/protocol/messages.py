"""Requests of the server and replies of a site: all that travels between them.

A run in order: `Describe`, `Agree`, `Begin`; then `Prepare`, `Perturb`, `Send` and `SendRows` as the contract says;
`Place` when a map is published; `ShowEvents` and `Forget` at any time. Every request but the first two names the
contract by its hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, cast

from accounting import Event, checks
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.rows import Rows
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.layouts import Layout
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.uploads import Values
from dpfedvis.protocol.views import RAW, View, ViewName

PLACEMENTS = ("anchored", "diffused", "weights", "transform")

# Codes of a refusal.
MALFORMED, NOT_AGREED, POLICY, BUDGET, NOT_PLANNED, ANSWERED, STORAGE, BUSY, RESTORED, FAILED, APPROVAL = (
    "malformed", "not-agreed", "policy", "budget", "not-planned", "answered", "storage", "busy", "restored", "failed",
    "approval",
)  # fmt: skip


class Typed:
    """A reply. It checks the types of its fields: a site may lie, and the server relies on them."""

    def __post_init__(self) -> None:
        for each in fields(cast(Any, self)):
            kind, value = _KINDS.get(str(each.type), object), getattr(self, each.name)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
                expected = f"of type {each.type}"
                raise InvalidParameter(f"{each.name} of {type(self).__name__}", value, expected)


@dataclass(frozen=True)
class Receipt(Typed):
    """A site's word that an event is in its ledger: its place there, and the hash of the chain up to it.

    Parameters
    ----------
    site : str
    contract : str
        Hash of the contract.
    sequence : int
    head : str
    values : str
        Hash of the upload that the receipt is for, or of all events of the run (`digest_of_events`); empty in a
        simulation.
    signature : str
        In hexadecimal digits; empty in a simulation, where a site signs once a run.
    """

    site: str
    contract: str
    sequence: int
    head: str
    values: str = ""
    signature: str = ""

    @property
    def signed(self) -> bytes:
        """The bytes that the signature is of."""
        return f"receipt|{self.contract}|{self.sequence}|{self.head}|{self.values}|{self.site}".encode()


def digest_of_events(events: Sequence[Event]) -> str:
    """Return the hash of a site's events of one run, whatever their order."""
    return hashlib.sha256("\n".join(sorted(each.to_json() for each in events)).encode()).hexdigest()


_KINDS: dict[str, type[Any] | tuple[type[Any], ...]] = {
    "str": str,
    "int": int,
    "int | None": (int, NoneType),
    "bool": bool,
    "Event": Event,
    "tuple[Event, ...]": tuple,
    "Receipt": Receipt,
    "Receipt | None": (Receipt, NoneType),
}


# Requests


@dataclass(frozen=True)
class Describe:
    """Ask for the public facts of a site.

    Parameters
    ----------
    hides_records : bool
        Whether the number of records is private in the run to come: it is then not told.
    rows_per_person : int, optional
        Where the privacy unit is a person: the number of persons times this one is told instead.
    """

    hides_records: bool = False
    rows_per_person: int | None = None


@dataclass(frozen=True)
class Agree:
    """Propose a contract.

    Parameters
    ----------
    contract : Contract
    receipts : tuple of Receipt
        The last that the server has of each site: a site finds by its own whether its ledger is an old copy.
    """

    contract: Contract
    receipts: tuple[Receipt, ...] = ()


@dataclass(frozen=True)
class Begin:
    """Show every member's signature of the contract, in the contract's order."""

    contract: str
    signatures: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Prepare:
    """Send the public facts of a view: uploads are then computed from it."""

    contract: str
    view: View


@dataclass(frozen=True, eq=False)
class Perturb:
    """Ask a site to perturb its records at home, once. Nothing but a receipt comes back."""

    contract: str
    mechanism: Mechanism
    public: PublicParameters


@dataclass(frozen=True, eq=False)
class Send:
    """Ask for one upload.

    Parameters
    ----------
    contract : str
    mechanism : Mechanism
    public : PublicParameters
    round : int
        From 1; 0 for a single release.
    landmarks : array of shape (n_y, m), optional
        Y; None for a single release, which needs none.
    view : str
        What it is computed from.
    """

    contract: str
    mechanism: Mechanism
    public: PublicParameters
    round: int = 0
    landmarks: Array | None = None
    view: ViewName = RAW


@dataclass(frozen=True, eq=False)
class SendRows:
    """Ask for one row a record: noisy if the contract has budget for rows, exact if it lists them as unprotected."""

    contract: str
    rows: Rows
    landmarks: Array


@dataclass(frozen=True, eq=False)
class Place:
    """Send the published map; the site places its own records in it at home.

    Parameters
    ----------
    contract : str
    published : PublishedMap
    layout : Layout
        How the map was laid out.
    placement : str or callable
        A short name of `PLACEMENTS`; a callable works in one process only.
    """

    contract: str
    published: PublishedMap
    layout: Layout
    placement: Any = PLACEMENTS[0]


@dataclass(frozen=True)
class ShowEvents:
    """Ask for the events of a run after a place in the site's ledger."""

    contract: str
    after: int = 0


@dataclass(frozen=True)
class Forget:
    """Tell that a run is over: what a site keeps only to resend it may go. Its ledger stays."""

    contract: str


PlainRequest = Describe | Agree | Begin | Prepare | Perturb | Send | SendRows | Place | ShowEvents | Forget


# Replies


@dataclass(frozen=True)
class Description(Typed):
    """Public facts of a site.

    Parameters
    ----------
    site : str
    key : str
        Its public key, in hexadecimal digits.
    records : int, optional
        None where it is private.
    features : int
    dtype : str
    labels : bool
        Whether its records have labels.
    preparation : str
        How they became numbers: hashes of schema and public features.
    epsilon : float, optional
        Largest ε of one run that its policy allows; None for any.
    """

    site: str
    key: str
    records: int | None
    features: int
    dtype: str = "float32"
    labels: bool = False
    preparation: str = ""
    epsilon: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon is not None:
            object.__setattr__(self, "epsilon", checks.positive(f"epsilon of {self.site}", self.epsilon))


@dataclass(frozen=True)
class Signed(Typed):
    """A site's signature of a contract."""

    site: str
    contract: str
    signature: str


@dataclass(frozen=True)
class Done(Typed):
    """What was asked for is done; nothing else comes back."""

    site: str


@dataclass(frozen=True)
class Perturbed(Typed):
    """Records were perturbed at home, under this event."""

    site: str
    event: Event
    receipt: Receipt


@dataclass(frozen=True, eq=False)
class Sent(Typed):
    """An upload, with the event that accounts for it and the receipt of the site's ledger."""

    site: str
    values: Values
    event: Event
    receipt: Receipt


@dataclass(frozen=True)
class Events(Typed):
    """Events of a run in a site's ledger, and its receipt for the last."""

    site: str
    events: tuple[Event, ...]
    receipt: Receipt | None


@dataclass(frozen=True)
class Refused(Typed):
    """A site does not do what was asked, for this reason in public words. Nothing was released."""

    site: str
    code: str
    words: str


PlainReply = Description | Signed | Done | Perturbed | Sent | Events | Refused
