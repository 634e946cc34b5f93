"""Signatures (Ed25519): who signed which contract or receipt."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from accounting.errors import InvalidParameter
from dpfedvis.numerics.files import OWNERS, make_folder, write_bytes


@dataclass(frozen=True)
class Identity:
    """The key pair of a site.

    Parameters
    ----------
    secret : bytes
        The private key, 32 bytes; by default a new one.
    """

    secret: bytes = field(default_factory=lambda: Ed25519PrivateKey.generate().private_bytes_raw(), repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != 32:
            raise InvalidParameter("length of the private key", len(self.secret), "32 bytes")

    @classmethod
    def kept(cls, path: Path) -> Identity:
        """Return the key pair in a file; a new one is written to it if there is none."""
        if not path.exists():
            make_folder(path.parent)
            write_bytes(path, cls().secret, OWNERS)
        return cls(path.read_bytes())

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.secret)

    @cached_property
    def public(self) -> str:
        """The public key, in hexadecimal digits."""
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> str:
        """Return the signature of a message, in hexadecimal digits."""
        return self._key.sign(message).hex()


@lru_cache(maxsize=4096)
def verify(key: str, signature: str, message: bytes) -> bool:
    """Whether a signature is of this message and by this public key, both in hexadecimal digits."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True
