"""Links: how bytes travel between a server and its sites. Nothing else knows it."""

from dpfedvis.links.in_process import InProcess
from dpfedvis.links.processes import Processes

__all__ = ["InProcess", "Processes"]
