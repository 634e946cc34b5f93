"""Loaded by every interpreter of a machine that is to fail.

DPFEDVIS_DIES="SendMasked after"    ends it, with all that it started, around one kind of request
DPFEDVIS_SPEAKS="dpfedvis 0"        lets it speak another version of the protocol
"""

import os
import signal
import sys
from pathlib import Path

if "DPFEDVIS_DIES" in os.environ and any("worker_process" in word for word in sys.orig_argv):
    from dpfedvis.links.nvflare_job import SitePart
    from dpfedvis.protocol import wire

    kind, when = os.environ["DPFEDVIS_DIES"].split()
    answered = SitePart._answered

    def die(kit: Path) -> None:
        mark = kit / "died"
        if not mark.exists():
            mark.write_text(f"{kind} {when}")
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(self: SitePart, kit: Path, request: bytes) -> bytes:
        struck = type(wire.decode(request)).__name__ == kind
        if struck and when == "before":
            die(kit)
        reply = answered(self, kit, request)
        if struck and when == "after":
            die(kit)
        return reply

    SitePart._answered = dying  # type: ignore[method-assign]

if "DPFEDVIS_SPEAKS" in os.environ and any("worker_process" in word for word in sys.orig_argv):
    from dpfedvis.protocol import wire

    wire.MAGIC = f"{os.environ['DPFEDVIS_SPEAKS']}\n".encode()
