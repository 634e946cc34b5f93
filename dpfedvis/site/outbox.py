"""The outbox: the last upload of each release, to be sent again after an interruption.

The same bytes reveal nothing new, so a run resumes without spending twice, for any noise source. Each upload is bound
to its event, release and round by a keyed hash: edited bytes are found and do not leave.
"""

from __future__ import annotations

import hmac
import json
from pathlib import Path

import numpy as np

from accounting.errors import AccountingError
from accounting.events import from_dict
from dpfedvis.numerics.files import FileDamaged, read_arrays, write_arrays
from dpfedvis.protocol.uploads import Upload


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
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, what: str, round: int, upload: Upload) -> None:
        """Store an upload in the place of the last of this release; it is on disk when this returns."""
        if self._folder is None:
            self._kept[what] = (round, upload)
            return
        event = json.dumps(upload.event.to_dict())
        tag = self._tag(what, round, event, upload.values)
        arrays = {"event": np.array(event), "values": upload.values, "tag": np.array(tag)}
        write_arrays(self._path(what, round), arrays)
        for path in self._folder.glob(f"{_slug(what)}-{'[0-9]' * 9}.npz"):
            if path != self._path(what, round):
                path.unlink()

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
            event, values, tag = str(stored["event"]), stored["values"], str(stored["tag"])
            upload = Upload(values, from_dict(json.loads(event)))
        except (KeyError, TypeError, ValueError, AccountingError) as error:
            raise FileDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error
        if not hmac.compare_digest(tag, self._tag(what, round, event, values)):
            raise FileDamaged(f"{path} is damaged or was edited: it is not what was to be sent")
        return upload

    def clear(self) -> None:
        """Delete all uploads: the run is over."""
        self._kept.clear()
        if self._folder is not None and self._folder.exists():
            for path in self._folder.glob("*.npz"):
                path.unlink()

    def _tag(self, what: str, round: int, event: str, values: np.ndarray) -> str:
        head = json.dumps([self._run, what, round, event, values.dtype.str, list(values.shape)]).encode()
        return hmac.digest(self._key, head + np.ascontiguousarray(values).tobytes(), "sha256").hex()

    def _path(self, what: str, round: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{_slug(what)}-{round:09d}.npz"


def _slug(what: str) -> str:
    return what.replace(" ", "-")
