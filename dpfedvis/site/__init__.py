"""A site: beside the records, with its own policy, ledger, noise and identity. It trusts no server."""

from dpfedvis.protocol.messages import Refused
from dpfedvis.protocol.signatures import Identity
from dpfedvis.site.folder import accept_restored, clear_failure, open_site, write_site
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.policy import Policy
from dpfedvis.site.site import Site

__all__ = [
    "Identity",
    "Policy",
    "Refused",
    "Site",
    "SiteLedger",
    "accept_restored",
    "clear_failure",
    "open_site",
    "write_site",
]
