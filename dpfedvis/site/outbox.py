"""The outbox: the last upload of each release, to be sent again after an interruption.

The same bytes reveal nothing new, so a run resumes without spending twice, for any noise source. Each upload is bound
to its event, release and round by a keyed hash: edited bytes are found and do not leave.
"""

from __future__ import annotations

import hmac
import json
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np

from accounting.errors import AccountingError
from accounting.events import from_dict
from dpfedvis.numerics.files import OWNERS, FileDamaged, make_folder, read_arrays, write_arrays
from dpfedvis.protocol.uploads import Upload

OUTBOX = "outbox"  # folder of a site in which each run has one
_HEAD = "head"


class Outbox:
    """Uploads of one run at one site.

    Parameters
    ----------
    key : bytes
        Of the hash; secret.
    run : str
    folder : Path, optional
        One file a release; None keeps uploads in memory.
    """

    def __init__(self, key: bytes, run: str, folder: Path | None = None) -> None:
        self._key, self._run, self._folder = key, run, folder
        self._kept: dict[str, tuple[int, Upload]] = {}

    def keep(self, what: str, round: int, upload: Upload, head: tuple[int, str] | None = None) -> None:
        """Store an upload in the place of the last of this release; it is on disk when this returns.

        With it goes the place and hash that the ledger had come to before: see `heads`.
        """
        if self._folder is None:
            self._kept[what] = (round, upload)
            return
        event, before = json.dumps(upload.event.to_dict()), json.dumps(head)
        tag = self._tag(what, round, event, before, upload.values)
        make_folder(self._folder)
        facts = {"event": event, _HEAD: before, "tag": tag}
        arrays = {"values": upload.values, **{name: np.array(text) for name, text in facts.items()}}
        write_arrays(self._path(what, round), arrays, OWNERS)
        self._delete(what, but=self._path(what, round))

    def find(self, what: str, round: int) -> Upload | None:
        """Return the upload of this release and round, or None if it is not kept.

        Raises
        ------
        FileDamaged
            If it is not what was stored.
        """
        if self._folder is None:
            number, upload = self._kept.get(what, (-1, None))
            return upload if number == round else None
        path = self._path(what, round)
        if not path.exists():
            return None
        stored = read_arrays(path)
        try:
            event, before, tag = (str(stored[name]) for name in ("event", _HEAD, "tag"))
            values = stored["values"]
            upload = Upload(values, from_dict(json.loads(event)))
        except (KeyError, TypeError, ValueError, AccountingError) as error:
            raise FileDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error
        if not hmac.compare_digest(tag, self._tag(what, round, event, before, values)):
            raise FileDamaged(f"{path} is damaged or was edited: it is not what was to be sent")
        return upload

    def drop(self, what: str) -> None:
        """Delete the upload of a release that need not be sent again as it is."""
        self._kept.pop(what, None)
        self._delete(what)

    def clear(self) -> None:
        """Delete all uploads: the run is over."""
        self._kept.clear()
        if self._folder is not None and self._folder.exists():
            for path in (*self._folder.glob("*.npz"), *self._folder.glob("*.npz.tmp")):
                path.unlink()
            with suppress(OSError):
                self._folder.rmdir()

    def _delete(self, what: str, but: Path | None = None) -> None:
        """Delete uploads of a release, and drafts of them that a process left when it was killed."""
        if self._folder is not None:
            for path in self._folder.glob(f"{_slug(what)}-{'[0-9]' * 9}.npz*"):
                if path != but:
                    path.unlink()

    def _tag(self, what: str, round: int, event: str, before: str, values: np.ndarray) -> str:
        head = json.dumps([self._run, what, round, event, before, values.dtype.str, list(values.shape)]).encode()
        return hmac.digest(self._key, head + np.ascontiguousarray(values).tobytes(), "sha256").hex()

    def _path(self, what: str, round: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{_slug(what)}-{round:09d}.npz"


def heads(folder: Path) -> Iterator[tuple[int, str]]:
    """Return the places and hashes that a site's ledger had come to before each upload that is kept in its outboxes."""
    for path in sorted((folder / OUTBOX).glob("*/*.npz")):
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                head = json.loads(str(stored[_HEAD]))
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            continue  # `Outbox.find` names a damaged file when it is asked for
        if head is not None:
            yield int(head[0]), str(head[1])


def _slug(what: str) -> str:
    return what.replace(" ", "-")
