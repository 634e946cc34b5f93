"""Requests and replies of a secure sum, around the messages of `dpfedvis.protocol.secure_sum`.

In order: `Advertise` and `ShareKeys`, ahead for many sums; then, for each sum, `SendMasked`, `Confirm` and `Unmask`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accounting import Event
from dpfedvis.numerics.exact import Integers
from dpfedvis.protocol.messages import Receipt, Send, Typed
from dpfedvis.protocol.secure_sum import Advert, Opened, Shares


def release_of(what: str, round: int) -> str:
    """Return the name of a release. The label of its sum is this, a bar, and the number of its batch of keys."""
    return f"{what}|{round}"


def unreadable(sender: str) -> str:
    """Return the words with which a site refuses shares that it cannot read: by them the server knows the sender."""
    return f"the secure sum: the shares from {sender!r} cannot be read"


# Requests


@dataclass(frozen=True)
class Advertise:
    """Ask for keys for the sums of these labels."""

    contract: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class ShareKeys:
    """Show the keys of all sites; ask for encrypted shares of this site's secrets for the others."""

    contract: str
    adverts: tuple[Advert, ...]


@dataclass(frozen=True, eq=False)
class SendMasked:
    """Ask for one upload behind masks.

    Parameters
    ----------
    send : Send
        What is to be uploaded.
    label : str
    shares : mapping of str to str
        Shares of the other sites' secrets, for this site, by sender.
    """

    send: Send
    label: str
    shares: Mapping[str, str]

    @property
    def contract(self) -> str:
        """Hash of the contract."""
        return self.send.contract


@dataclass(frozen=True)
class Confirm:
    """Ask for a signature of the list of the sites that are in a sum."""

    contract: str
    label: str
    survivors: tuple[str, ...]


@dataclass(frozen=True)
class Unmask:
    """Show the signatures of that list; ask for the shares that open the sum."""

    contract: str
    label: str
    signatures: Mapping[str, str]


SumRequest = Advertise | ShareKeys | SendMasked | Confirm | Unmask


# Replies


@dataclass(frozen=True)
class Advertised(Typed):
    """Signed keys of a site."""

    site: str
    advert: Advert


@dataclass(frozen=True)
class Shared(Typed):
    """Encrypted shares of a site's secrets."""

    site: str
    shares: Shares


@dataclass(frozen=True, eq=False)
class Masked(Typed):
    """An upload behind masks, shape (n,), with its event and receipt, and the hash of what it answers.

    The receipt is for the masked values.
    """

    site: str
    values: Integers
    event: Event
    receipt: Receipt
    asked: str


@dataclass(frozen=True)
class Confirmed(Typed):
    """A site's signature of the list of survivors."""

    site: str
    signature: str


@dataclass(frozen=True)
class Unmasked(Typed):
    """Shares that open a sum."""

    site: str
    opened: Opened


SumReply = Advertised | Shared | Masked | Confirmed | Unmasked
