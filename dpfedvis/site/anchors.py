"""Anchors: what the ledger of a site must hold, and whether the site has failed.

They are kept beside the ledger, so that an older copy, or an empty one, is found, also after a restart.
"""

from __future__ import annotations

import json
from pathlib import Path

from dpfedvis.numerics.files import FileDamaged, make_folder, write_text
from dpfedvis.protocol.messages import RESTORED
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.outbox import heads
from dpfedvis.site.policy import Refusal

_NAME = "anchors.json"
Head = tuple[int, str]  # a place in the ledger, and the hash of its chain there


class Anchors:
    """What a ledger must hold, and what it was found to lack.

    Parameters
    ----------
    ledger : SiteLedger
    folder : Path, optional
        Of the site; None keeps nothing beyond this process.
    """

    def __init__(self, ledger: SiteLedger, folder: Path | None = None) -> None:
        self._ledger, self._folder = ledger, folder
        self._head: Head | None = None
        self._lacking: set[Head] = set()
        self._accepted: set[Head] = set()
        self.failed = False
        if self._path is not None and self._path.exists():
            self._read(self._path)

    def expect(self, sequence: int, head: str) -> None:
        """Note that the ledger once had this hash at this place."""
        if sequence <= 0 or (sequence, head) in self._accepted | self._lacking:
            return
        if not self._ledger.holds(sequence, head):
            self._lacking.add((sequence, head))
            self._write()

    def check(self) -> None:
        """Refuse to go on with a ledger that lacks what this site has released."""
        self.collect()
        if self._lacking:
            raise Refusal(
                RESTORED,
                "the ledger of this site is older than what it has released: its owner must say that it was restored "
                "(dpfedvis.site.accept_restored)",
            )

    def keep(self) -> None:
        """Keep the place and hash that the ledger has come to."""
        if self._ledger.head != self._head:
            self._head = self._ledger.head
            self._write()

    def accept(self) -> None:
        """Take the ledger as it is: its owner says that what it lacks was accounted for."""
        self.collect()
        self._accepted |= self._lacking
        self._lacking.clear()
        self._head = self._ledger.head
        self._write()

    def fail(self, *, keep: bool) -> None:
        """Note that the site failed while it computed with records; keep it until its owner has looked."""
        self.failed = True
        if keep:
            self._write()

    def clear_failure(self) -> None:
        """Let the site go on."""
        self.failed = False
        self._write()

    def collect(self) -> None:
        """Find what the ledger lacks of all that is kept beside it."""
        if self._head is not None:
            self.expect(*self._head)
        if self._folder is not None:
            for sequence, head in heads(self._folder):
                self.expect(sequence, head)

    @property
    def _path(self) -> Path | None:
        return None if self._folder is None else self._folder / _NAME

    def _read(self, path: Path) -> None:
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            self._head = None if kept["head"] is None else (int(kept["head"][0]), str(kept["head"][1]))
            self._lacking, self._accepted = (
                {(int(sequence), str(head)) for sequence, head in kept[name]} for name in ("lacking", "accepted")
            )
            self.failed = bool(kept["failed"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error

    def _write(self) -> None:
        if self._path is not None:
            make_folder(self._path.parent)
            kept = {"head": self._head, "failed": self.failed}
            found = {"lacking": sorted(self._lacking), "accepted": sorted(self._accepted)}
            write_text(self._path, json.dumps({**kept, **found}) + "\n")
