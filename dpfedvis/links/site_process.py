"""A site as a process: reads requests from its standard input, and writes replies to its standard output."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from dpfedvis.links.processes import receive, send
from dpfedvis.site.folder import open_site

_WAIT = 60.0  # seconds for a process of the same site to end, after its server was killed


def main(folder: Path) -> int:
    """Answer until the input ends."""
    # Replies have the output for themselves: whatever a library prints goes to the log of this site.
    logging.basicConfig(filename=folder / "log.txt", level=logging.WARNING)
    replies = os.fdopen(os.dup(1), "wb")
    with (folder / "output.txt").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    site = open_site(folder, wait=_WAIT)
    while (request := receive(sys.stdin.buffer)) is not None:
        send(replies, site.answer(request))
    site.ledger.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
