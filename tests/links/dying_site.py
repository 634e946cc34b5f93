"""A site that is killed once, at a place of its work: run as a program, with its folder and the place."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpfedvis.links import site_process
from dpfedvis.site.outbox import Outbox
from dpfedvis.site.run_account import RunAccount
from dpfedvis.site.sums import SiteSums


def dying(place: str, folder: Path) -> None:
    """Let this process die at a place such as "ledger after 3", the first time that it comes there."""
    what, when, number = place.split()
    mark, count = folder / "died", [0]

    def patched(honest: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            count[0] += 1
            now = count[0] == int(number) and not mark.exists()
            if now and when == "before":
                kill()
            result = honest(*arguments, **named)
            if now:
                kill()
            return result

        return call

    def kill() -> None:
        mark.write_text(place)
        os.kill(os.getpid(), signal.SIGKILL)

    owner, name = {"outbox": (Outbox, "keep"), "ledger": (RunAccount, "record"), "reply": (site_process, "send"),
                   "sums": (SiteSums, "_keep")}[what]  # fmt: skip
    setattr(owner, name, patched(getattr(owner, name)))


if __name__ == "__main__":
    folder = Path(sys.argv[2])
    dying(sys.argv[1], folder)
    sys.exit(site_process.main(folder))
