"""Messages of the secure sum, and the errors of a step that is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfedvis.errors import DpfedvisError

KEY, SIGNATURE = 32, 64  # bytes; a seed or share has as many as a key

Integers = NDArray[np.int64]
Labels = tuple[str, ...]


class SecureSumError(DpfedvisError):
    """A step of the secure sum is refused. Nothing was answered, and nothing changed."""

    sender = ""  # the site whose shares cannot be read, where it is that


class TooFewMembers(SecureSumError):
    """Fewer sites than the threshold at a stage; it can go on when more come."""

    def __init__(self, stage: str, found: int, needed: int) -> None:
        super().__init__(f"{stage}: {found} sites, of at least {needed}")
        self.stage, self.found, self.needed = stage, found, needed


class InvalidMessage(SecureSumError):
    """A message with wrong types, sizes or names: not on the roster, twice, or not as this stage has it."""


class NotAuthentic(SecureSumError):
    """A signature, key or ciphertext that is not what it should be."""


class OutOfOrder(SecureSumError):
    """Asked too early, too late, or about a label that is unknown or closed."""


class AlreadyAnswered(SecureSumError):
    """Asked again, with something else than the first time."""


class CannotOpen(SecureSumError):
    """The shares at hand do not give the secret that a site advertised."""


def raw(what: str, text: str, size: int | None = None) -> bytes:
    """Return the bytes of lower-case hexadecimal digits, which are the only text for them."""
    try:
        raw = bytes.fromhex(text)
    except (TypeError, ValueError):
        raw = b""
    if not raw or raw.hex() != text or len(raw) != (size or len(raw)):
        raise InvalidMessage(f"{what} is not in hexadecimal digits, or not of the right size")
    return raw


def check_asked(asked: str) -> None:
    """Refuse an empty question: sites that were asked for different things would be in one sum."""
    if not isinstance(asked, str) or not asked:
        raise InvalidMessage(f"the hash of what was asked for is {asked!r}, and must be text that is not empty")


def check_texts(texts: Mapping[str, str]) -> None:
    if not isinstance(texts, Mapping) or not all(isinstance(text, str) for text in (*texts, *texts.values())):
        raise InvalidMessage("text by the names of sites was expected")


# Messages. Keys, signatures, ciphertexts and shares are text, in hexadecimal digits.


@dataclass(frozen=True)
class Advert:
    """Public keys of a site for a batch of labels.

    Parameters
    ----------
    name : str
    labels : tuple of str
    channel : str
        X25519 key with which peers encrypt to this site.
    keys : tuple of str
        X25519 keys of the masks between two sites, one a label.
    commitments : tuple of str
        To the seeds of the self masks, one a label: a wrong share is found by them.
    signature : str
        Of all the rest, by the site's identity.
    """

    name: str
    labels: Labels
    channel: str
    keys: tuple[str, ...]
    commitments: tuple[str, ...]
    signature: str = ""

    def __post_init__(self) -> None:
        for each in ("labels", "keys", "commitments"):
            object.__setattr__(self, each, tuple(getattr(self, each)))
        if not len(self.labels) == len(self.keys) == len(self.commitments) > 0:
            raise InvalidMessage("an advert has at least one label, and a key and a commitment for each")
        if not all(isinstance(text, str) for text in (self.name, self.signature, *self.labels)):
            raise InvalidMessage("name, signature and labels of an advert are text")
        for key in (self.channel, *self.keys, *self.commitments):
            raw("a key of an advert", key, KEY)


@dataclass(frozen=True)
class Shares:
    """Shares of both secrets of a site for a batch of labels: one ciphertext for each peer, by name."""

    labels: Labels
    to: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))
        if not all(isinstance(label, str) for label in self.labels):
            raise InvalidMessage("labels of shares are text")
        check_texts(self.to)


@dataclass(frozen=True)
class Opened:
    """Shares that a site holds, by owner: of the mask seeds of survivors, and of the key seeds of the others."""

    masks: Mapping[str, str]
    keys: Mapping[str, str]

    def __post_init__(self) -> None:
        check_texts(self.masks)
        check_texts(self.keys)


@dataclass(frozen=True, eq=False)
class Total:
    """The sum over the survivors, modulo 2⁶⁴, as int64 of shape (n,); and their names."""

    values: Integers
    survivors: tuple[str, ...]
