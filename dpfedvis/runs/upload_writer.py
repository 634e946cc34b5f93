"""The recorder: a witness that writes all uploads of a run.

It appends each array to ``uploads/values.bin`` and then a line of JSON with its place, its checksum and its events to
``uploads/index.jsonl``. Values are written before their line, and only whole lines count, so that an interruption
leaves no half upload. Records are never written here.

A resumed run resends some uploads, the same bytes; they are recorded once. A round is on disk here before FedDL's
snapshot of it, so that whatever is missing, even after a power cut, is resent.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from accounting import Event, Ledger
from accounting.events import from_dict, from_json
from dpfedvis.errors import DpfedvisError
from dpfedvis.mechanisms import Mechanism
from dpfedvis.numerics.files import write_arrays, write_text
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.uploads import Values
from dpfedvis.server.feddl import FedDLResult
from dpfedvis.server.round_log import Round

UPLOADS, INDEX, VALUES = "uploads", "index.jsonl", "values.bin"
PUBLIC, LANDMARKS, EMBEDDING, LEDGER = "public.json", "landmarks.npz", "embedding.npz", "ledger.sqlite"
_ALIGNMENT = 64  # bytes, so that arrays can be used where they lie


class RecordingError(DpfedvisError):
    """The folder holds no complete recorded run, or already holds one."""


class Recorder:
    """Writes all uploads, and the landmarks of every round, to a folder.

    Parameters
    ----------
    folder : path-like
        Of the run; ``uploads/`` in it must not exist yet, unless `resume` is set.
    rounds : int, optional
        Keep uploads and landmarks of the first so many rounds only. A server may forget what it likes, and 500 rounds
        of 500 landmarks of MNIST at 10 clients are 8 GB.
    resume : Ledger, optional
        Resume an interrupted recording, without its half-written tail; it must agree with this ledger of the run.
    """

    def __init__(self, folder: str | Path, *, rounds: int | None = None, resume: Ledger | None = None) -> None:
        self._folder, self._rounds = Path(folder), rounds
        uploads = self._folder / UPLOADS
        try:
            uploads.mkdir(parents=True, exist_ok=resume is not None)
        except FileExistsError:
            raise RecordingError(f"{self._folder} holds the uploads of another run; choose another folder") from None
        # What is recorded, by what it is, with its checksum.
        self._recorded: dict[str, int] = {}
        if resume is not None:
            entries, size = _whole_entries(uploads)
            self._check_accounted(entries, resume)
            _cut(uploads, entries, size)
            self._recorded = {_key(entry): entry["crc32"] for entry in entries}
        self._values = (uploads / VALUES).open("ab")
        self._index = (uploads / INDEX).open("a", encoding="utf-8")

    def __call__(self, events: Sequence[Event], values: Values) -> None:
        """Record an upload: called as a witness."""
        if self._keeps(events[0].round):
            entry = {"events": [event.to_dict() for event in events]}
            known = self._recorded.get(_key(entry))
            if known is not None and known != zlib.crc32(_block(values).data):
                place = f"{events[0].what} of {', '.join(event.client for event in events)}"
                raise RecordingError(f"{self._folder}: {place} is already recorded with other values")
            if known is None:
                self._append(values, entry)

    def landmarks(self, done: Round, Y: Array) -> None:
        """Record the landmarks after a round, and sync the round to disk: a callback of FedDL."""
        if self._keeps(done.number):
            entry = {"landmarks": done.number}
            # Another machine may round differently; readers take the last, at which the next uploads are computed.
            if self._recorded.get(_key(entry)) != zlib.crc32(_block(Y).data):
                self._append(Y, entry)
            self._sync()

    def finish(
        self,
        result: FedDLResult,
        chosen: Mechanism,
        facts: Mapping[str, Any],
        published: Mapping[str, Array] | None = None,
    ) -> None:
        """Write public parameters and last landmarks; without them the recording is incomplete.

        Parameters
        ----------
        result : FedDLResult
        chosen : Mechanism
        facts : mapping
            Further public facts, ready for JSON: ``release``, ``bounds``, ``image_shape``.
        published : mapping of str to array, optional
            What the server published beside the landmarks, such as a private map.
        """
        self.close()
        arrays = {"landmarks": result.landmarks, "start": result.start, **(published or {})}
        write_arrays(self._folder / LANDMARKS, arrays)
        grid = result.public.grid
        parameters = {
            **_shallow(result.public),
            "kernel": list(result.public.kernel.gammas),
            "grid": None if grid is None else _shallow(grid),
        }
        # Where the unit of the budget is a whole client, its number of records is private.
        hidden = result.plan is not None and result.plan.multipliers.budget.unit == "client"
        clients = [
            {"name": plan.name, "denominator": None if hidden else plan.denominator, "weight": plan.weight}
            for plan in result.plans
        ]
        public = {
            "parameters": parameters,
            "clients": clients,
            "mechanism": {"name": chosen.name, **_shallow(chosen)},
            "rounds_done": len(result.trace),
            **facts,
        }
        write_text(self._folder / PUBLIC, json.dumps(public, indent=2, allow_nan=False) + "\n")

    def close(self) -> None:
        """Sync everything to disk, and close the files."""
        if not self._index.closed:
            self._sync()
            self._values.close()
            self._index.close()

    def _sync(self) -> None:
        for file in (self._values, self._index):
            file.flush()
            os.fsync(file.fileno())

    def _check_accounted(self, entries: Sequence[Mapping[str, Any]], ledger: Ledger) -> None:
        """Raise unless recording and ledger agree on all uploads that will not be resent."""
        known = list(ledger.events())
        recorded = {from_dict(each).to_json() for entry in entries for each in entry.get("events", ())}
        if unknown := recorded - {event.to_json() for event in known}:
            event = from_json(min(unknown))
            raise RecordingError(
                f"{self._folder / LEDGER} has no entry for the {event.what} of {event.client}, which was released; "
                "a run cannot resume without its complete ledger"
            )
        # Of each quantity only the uploads of the last round are kept to be resent.
        last = {event.what: event.round or 0 for event in sorted(known, key=lambda event: event.round or 0)}
        for event in known:
            done = event.round is not None and event.round < last[event.what] and self._keeps(event.round)
            if done and event.to_json() not in recorded:
                raise RecordingError(
                    f"{self._folder / UPLOADS} is damaged: it has lost the {event.what} of {event.client} in round "
                    f"{event.round}"
                )

    def _keeps(self, round: int | None) -> bool:
        return self._rounds is None or round is None or round <= self._rounds

    def _append(self, values: Values, entry: dict[str, Any]) -> None:
        block = _block(values)
        offset = self._values.tell()
        self._values.write(block.data)
        self._values.write(b"\0" * (-block.nbytes % _ALIGNMENT))
        self._values.flush()
        checksum = zlib.crc32(block.data)
        place = {"offset": offset, "dtype": block.dtype.str, "shape": list(block.shape), "crc32": checksum}
        self._index.write(json.dumps({**entry, **place}, ensure_ascii=False) + "\n")
        self._index.flush()
        self._recorded[_key(entry)] = checksum


def _whole_entries(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the whole entries of an ``uploads/`` folder, and how many bytes of the index they take.

    Raises
    ------
    RecordingError
        If something before a whole entry is damaged.
    """
    index, values = folder / INDEX, folder / VALUES
    if not (index.exists() and values.exists()):
        return [], 0
    lines = index.read_bytes().splitlines(keepends=True)
    with values.open("rb") as file:
        found = [_whole(line, file) for line in lines]
    entries = [entry for entry in found if entry is not None]
    if found[: len(entries)] != entries:
        raise RecordingError(f"line {found.index(None) + 1} of {index}, or what it tells of, is damaged")
    return entries, sum(map(len, lines[: len(entries)]))


def _cut(folder: Path, entries: Sequence[Mapping[str, Any]], size: int) -> None:
    """Cut off what an interruption left half-written after the whole entries."""
    end = entries[-1]["offset"] + _nbytes(entries[-1]) if entries else 0
    for name, length in ((VALUES, end + -end % _ALIGNMENT), (INDEX, size)):
        with (folder / name).open("ab") as file:
            file.truncate(length)


def _whole(line: bytes, values: BinaryIO) -> dict[str, Any] | None:
    """Return what a line says if it and its values are whole."""
    try:
        entry: dict[str, Any] = json.loads(line)
        values.seek(entry["offset"])
        block = values.read(_nbytes(entry))
        whole = line.endswith(b"\n") and len(block) == _nbytes(entry) and zlib.crc32(block) == entry["crc32"]
        _key(entry)
    except (ValueError, KeyError, TypeError):
        return None
    return entry if whole else None


def _nbytes(entry: Mapping[str, Any]) -> int:
    return int(np.prod(entry["shape"], dtype=np.int64)) * int(np.dtype(entry["dtype"]).itemsize)


def _key(entry: Mapping[str, Any]) -> str:
    """What an entry is of: its events, or the landmarks of a round."""
    name = "events" if "events" in entry else "landmarks"
    return json.dumps({name: entry[name]}, sort_keys=True, ensure_ascii=False)


def _block(values: Values) -> Values:
    """Values as they are written."""
    block = np.ascontiguousarray(values)
    return block.astype(block.dtype.newbyteorder("<"), copy=False)


def _shallow(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
