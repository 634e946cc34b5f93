"""The outbox: uploads stored until the server has used them.

An upload is stored here before its event is written to the ledger. After an interruption the same bytes are resent.
They reveal nothing new, so a run resumes without spending twice, for any noise source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from accounting.errors import AccountingError
from accounting.events import from_dict
from dpfedvis.federation.door import Upload
from dpfedvis.numerics.files import FileDamaged, read_arrays, write_arrays


class Outbox:
    """A folder with one file per release and round.

    Parameters
    ----------
    folder : path-like
        Created if it does not exist.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def get_or_create(self, what: str, round: int, make: Callable[[], list[Upload]]) -> list[Upload]:
        """Return the stored uploads of a round, marked as resent; create and store them if there are none."""
        kept = self.find(what, round)
        if kept is not None:
            return [replace(upload, resent=True) for upload in kept]
        made = make()
        self.keep(what, round, made)
        return made

    def keep(self, what: str, round: int, uploads: Sequence[Upload]) -> None:
        """Store the uploads of a round, and delete those of earlier rounds."""
        events = json.dumps([upload.event.to_dict() for upload in uploads])
        arrays = {f"values_{i}": upload.values for i, upload in enumerate(uploads)}
        write_arrays(self._path(what, round), {"events": np.array(events), **arrays})
        for path in self._folder.glob(f"{_slug(what)}-{'[0-9]' * 6}.npz"):
            if path != self._path(what, round):
                path.unlink()

    def find(self, what: str, round: int) -> list[Upload] | None:
        """Return the stored uploads of a round, or None."""
        path = self._path(what, round)
        if not path.exists():
            return None
        stored = read_arrays(path)
        try:
            events = [from_dict(event) for event in json.loads(str(stored["events"]))]
            return [Upload(stored[f"values_{i}"], event) for i, event in enumerate(events)]
        except (KeyError, TypeError, ValueError, AccountingError) as error:
            raise FileDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error

    def _path(self, what: str, round: int) -> Path:
        return self._folder / f"{_slug(what)}-{round:06d}.npz"


def _slug(what: str) -> str:
    return what.replace(" ", "-")
