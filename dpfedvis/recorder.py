"""The recorder of runs: a witness of the door.

It appends each array to ``uploads/values.bin`` and then a line of JSON with its place, its checksum and its events to
``uploads/index.jsonl``. A line counts only when it is whole, and its values were written before it, so that an
interruption cannot leave half an upload behind. Records never get here: they do not pass the door.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Event
from dpfedvis.errors import DpfedvisError
from dpfedvis.feddl import FedDLResult
from dpfedvis.federation.outbox import write_arrays
from dpfedvis.kernels import Array
from dpfedvis.mechanisms import Mechanism
from dpfedvis.trace import Round

UPLOADS, INDEX, VALUES = "uploads", "index.jsonl", "values.bin"
PUBLIC, LANDMARKS, EMBEDDING, LEDGER = "public.json", "landmarks.npz", "embedding.npz", "ledger.sqlite"
_ALIGNMENT = 64  # bytes, so that arrays can be used where they lie


class RecordingError(DpfedvisError):
    """A folder that holds no whole recorded run, or already holds one."""


class Recorder:
    """Writes what passes the door, and the landmarks of every round, to a folder.

    Parameters
    ----------
    folder : path-like
        Of the run; ``uploads/`` in it must not exist yet.
    rounds : int, optional
        Keep uploads and landmarks of the first so many rounds only. A server may forget what it likes, and 500 rounds
        of 500 landmarks of MNIST at 10 clients are 8 GB.
    """

    def __init__(self, folder: str | Path, *, rounds: int | None = None) -> None:
        self._folder, self._rounds = Path(folder), rounds
        uploads = self._folder / UPLOADS
        try:
            uploads.mkdir(parents=True)
        except FileExistsError:
            raise RecordingError(f"{self._folder} holds the uploads of another run; choose another folder") from None
        self._values = (uploads / VALUES).open("ab")
        self._index = (uploads / INDEX).open("a", encoding="utf-8")

    def __call__(self, events: Sequence[Event], values: Array) -> None:
        """Record an upload: the witness of the door."""
        if self._keeps(events[0].round):
            self._append(values, {"events": [event.to_dict() for event in events]})

    def landmarks(self, done: Round, Y: Array) -> None:
        """Record the landmarks after a round: a callback of FedDL."""
        if self._keeps(done.number):
            self._append(Y, {"landmarks": done.number})

    def finish(
        self,
        result: FedDLResult,
        chosen: Mechanism,
        facts: Mapping[str, Any],
        published: Mapping[str, Array] | None = None,
    ) -> None:
        """Write the public setting and the last landmarks; without them the recording does not count as one.

        Parameters
        ----------
        result : FedDLResult
        chosen : Mechanism
        facts : mapping
            Further public facts, ready for JSON: ``release``, ``bounds``, ``image_shape``.
        published : mapping of str to array, optional
            What the server published beside the landmarks, such as a billboard.
        """
        self.close()
        arrays = {"landmarks": result.landmarks, "start": result.start, **(published or {})}
        write_arrays(self._folder / LANDMARKS, arrays)
        setting = {**_shallow(result.setting), "kernel": list(result.setting.kernel.gammas)}
        clients = [
            {"name": each.terms.name, "denominator": each.terms.denominator, "weight": each.terms.weight}
            for each in result.clients
        ]
        public = {
            "setting": setting,
            "clients": clients,
            "mechanism": {"name": chosen.name, **_shallow(chosen)},
            "rounds_done": len(result.trace),
            **facts,
        }
        write_text(self._folder / PUBLIC, json.dumps(public, indent=2, allow_nan=False) + "\n")

    def close(self) -> None:
        """Bring everything to disk."""
        for file in (self._values, self._index):
            if not file.closed:
                file.flush()
                os.fsync(file.fileno())
                file.close()

    def _keeps(self, round: int | None) -> bool:
        return self._rounds is None or round is None or round <= self._rounds

    def _append(self, values: Array, entry: dict[str, Any]) -> None:
        block = np.ascontiguousarray(values)
        block = block.astype(block.dtype.newbyteorder("<"), copy=False)
        offset = self._values.tell()
        self._values.write(block.data)
        self._values.write(b"\0" * (-block.nbytes % _ALIGNMENT))
        self._values.flush()
        place = {
            "offset": offset,
            "dtype": block.dtype.str,
            "shape": list(block.shape),
            "crc32": zlib.crc32(block.data),
        }
        self._index.write(json.dumps({**entry, **place}, ensure_ascii=False) + "\n")
        self._index.flush()


def write_text(path: Path, text: str) -> None:
    """Write a text file so that it is there whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _shallow(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
