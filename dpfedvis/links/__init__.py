"""Links: how bytes travel between a server and its sites. Nothing else knows it."""

from dpfedvis.links.in_process import InProcess
from dpfedvis.links.nvflare import NVFlare
from dpfedvis.links.processes import Processes

Link = InProcess | Processes | NVFlare

__all__ = ["InProcess", "Link", "NVFlare", "Processes"]
