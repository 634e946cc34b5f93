"""Clients, the server's average of their uploads, and the door between them."""

from dpfedvis.federation.client import NOISE_SOURCES, Client
from dpfedvis.federation.door import BadUpload, Door, ReleasedTwice, Upload, Witness
from dpfedvis.federation.federation import ClientFailed, ClientWorkers, Federation, Policy
from dpfedvis.federation.noise_plan import ClientPlan
from dpfedvis.federation.outbox import Outbox
from dpfedvis.federation.pool import Failure, Pool
from dpfedvis.numerics.files import FileDamaged
from dpfedvis.numerics.random_streams import Streams

__all__ = [
    "NOISE_SOURCES",
    "BadUpload",
    "Client",
    "ClientFailed",
    "ClientPlan",
    "ClientWorkers",
    "Door",
    "Failure",
    "Federation",
    "FileDamaged",
    "Outbox",
    "Policy",
    "Pool",
    "ReleasedTwice",
    "Streams",
    "Upload",
    "Witness",
]
