"""What an adversary can do with what passed the door, and how the claims of the ledger are checked from outside.

>>> from attacks import reconstruct_from_distances

Nothing here is imported by the library; only the command line does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# At once, not when asked for: each module has its function's name, and importing it later would put it in its place.
from attacks.audit import audit
from attacks.exposure import exposure
from attacks.membership import membership

if TYPE_CHECKING:
    from attacks.inversion import invert_gradient
    from attacks.reconstruction import reconstruct_from_coordinates, reconstruct_from_distances, reconstruct_from_kernel

_HOMES = {
    "invert_gradient": "attacks.inversion",
    "reconstruct_from_coordinates": "attacks.reconstruction",
    "reconstruct_from_distances": "attacks.reconstruction",
    "reconstruct_from_kernel": "attacks.reconstruction",
}

__all__ = [
    "audit",
    "exposure",
    "invert_gradient",
    "membership",
    "reconstruct_from_coordinates",
    "reconstruct_from_distances",
    "reconstruct_from_kernel",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
