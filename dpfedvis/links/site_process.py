"""A site as a process: reads requests from its standard input, and writes replies to its standard output."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from dpfedvis.links.processes import receive, send
from dpfedvis.protocol import wire
from dpfedvis.protocol.messages import BUSY, STORAGE, Refused
from dpfedvis.site.folder import open_site
from dpfedvis.site.ledger_file import LedgerBusy

_WAIT = 60.0  # seconds for a process of the same site to end, after its server was killed


def main(folder: Path) -> int:
    """Answer until the input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    if not folder.is_dir():
        return _serve(replies, _refusal(folder, STORAGE, "there is no such folder at this site"))
    # Replies have the output for themselves: whatever a library prints goes to the files of this site.
    logging.basicConfig(filename=folder / "log.txt", level=logging.WARNING)
    with (folder / "output.txt").open("a") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    try:
        site = open_site(folder, wait=_WAIT)
    except LedgerBusy:
        logging.warning("cannot open the site", exc_info=True)
        return _serve(replies, _refusal(folder, BUSY, "another process has the ledger of this site open"))
    except Exception:
        logging.warning("cannot open the site", exc_info=True)
        return _serve(replies, _refusal(folder, STORAGE, "this site cannot be opened; log.txt in its folder says why"))
    _serve(replies, site.answer)
    site.ledger.close()
    return 0


def _serve(replies: IO[bytes], answer: Callable[[bytes], bytes]) -> int:
    while (request := receive(sys.stdin.buffer)) is not None:
        send(replies, answer(request))
    return 1


def _refusal(folder: Path, code: str, words: str) -> Callable[[bytes], bytes]:
    reply = wire.encode(Refused(folder.name, code, words))
    return lambda request: reply


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
