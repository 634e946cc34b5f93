"""What an adversary can do with exactly what the clients uploaded, and audits of the ledger's claims.

>>> from attacks import reconstruct_from_distances

Nothing here is imported by the library; only the command line does.
"""

# `exposure` and `membership` are functions and folders of the same name: imported here, so that the function is found.
from attacks.auditing import audit
from attacks.exposure import exposure
from attacks.inversion import invert_gradient
from attacks.membership import membership
from attacks.reconstruction import reconstruct_from_coordinates, reconstruct_from_distances, reconstruct_from_kernel

__all__ = [
    "audit",
    "exposure",
    "invert_gradient",
    "membership",
    "reconstruct_from_coordinates",
    "reconstruct_from_distances",
    "reconstruct_from_kernel",
]
