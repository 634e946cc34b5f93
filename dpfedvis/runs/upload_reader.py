"""Recorded runs: what an honest-but-curious server has after a run, and no more.

`dpfedvis.runs.upload_writer.Recorder` writes them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from accounting import Event, Ledger
from accounting.errors import AccountingError
from accounting.events import from_dict
from dpfedvis.mechanisms import Mechanism, mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.protocol.uploads import Values, in_units
from dpfedvis.runs.upload_writer import (
    EMBEDDING,
    INDEX,
    LANDMARKS,
    LEDGER,
    PUBLIC,
    UPLOADS,
    VALUES,
    Recorder,
    RecordingError,
)

__all__ = ["RecordedClient", "RecordedUpload", "Recorder", "Recording", "RecordingError"]


@dataclass(frozen=True)
class RecordedClient:
    """What is public about a client.

    Parameters
    ----------
    name : str
    denominator : float, optional
        Of its means: n_p, or q·n̄ under sampling; None where it is private, under a budget for whole clients.
    weight : float
        ω_p in the server's average.
    """

    name: str
    denominator: float | None
    weight: float

    @property
    def stated_denominator(self) -> float:
        """The denominator, or an error where it is private."""
        if self.denominator is None:
            raise RecordingError(f"the number of records of {self.name} is private in this run")
        return self.denominator


@dataclass(frozen=True)
class _Block:
    """Where an array lies in the file of values."""

    path: Path
    offset: int
    dtype: str
    shape: tuple[int, ...]
    crc32: int

    def read(self) -> Array:
        count = int(np.prod(self.shape, dtype=np.int64))
        if count == 0:
            return np.empty(self.shape, self.dtype)
        try:
            values: Array = np.memmap(self.path, np.dtype(self.dtype), "r", self.offset, self.shape)
        except (OSError, ValueError, TypeError) as error:
            raise RecordingError(f"{self.path} is damaged at byte {self.offset} ({error})") from error
        if zlib.crc32(values.data) != self.crc32:
            raise RecordingError(f"{self.path} is damaged at byte {self.offset}: wrong checksum")
        return values.view(np.ndarray)


@dataclass(frozen=True)
class RecordedUpload:
    """One recorded upload.

    Parameters
    ----------
    events : tuple of Event
        One; or one for each client where the server saw only their sum.
    """

    events: tuple[Event, ...]
    _block: _Block

    @property
    def values(self) -> Array:
        """The array in its units, read from disk each time: the integers of a protected upload times their grid."""
        return in_units(self._block.read(), self.events[0])

    @property
    def integers(self) -> Values:
        """The array as it was released, read-only: int64 of a protected upload."""
        return self._block.read()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `values`, without reading them."""
        return self._block.shape

    @property
    def what(self) -> str:
        """Name of the quantity, as in the ledger."""
        return self.events[0].what

    @property
    def stage(self) -> str:
        """Part of the run, as in the ledger."""
        return self.events[0].stage

    @property
    def round(self) -> int | None:
        """Number of the round; None for rows."""
        return self.events[0].round

    @property
    def clients(self) -> tuple[str, ...]:
        """Whose upload it is, or whose sum."""
        return tuple(event.client for event in self.events)


class _Landmarks(Mapping[int, Array]):
    """Y after each recorded round, read when asked for, in the space of the records; 0 is the start."""

    def __init__(self, start: Array, blocks: Mapping[int, _Block], published: Mapping[str, Array]) -> None:
        self._start, self._blocks, self._published = start, blocks, published

    def __getitem__(self, round: int) -> Array:
        learned = self.learned(round)
        if "axes" not in self._published:
            return learned
        points: Array = self._published["centre"] + learned @ self._published["axes"].T
        return points

    def learned(self, round: int) -> Array:
        """Y in the space that it was learned in."""
        return self._start if round == 0 else self._blocks[round].read()

    def __iter__(self) -> Iterator[int]:
        return iter((0, *self._blocks))

    def __len__(self) -> int:
        return 1 + len(self._blocks)


@dataclass(frozen=True, eq=False)
class Recording:
    """What an honest-but-curious server has after a run.

    The seed of a simulation is not among it: `PublicParameters.public_seed` is for public randomness, such as the
    frequencies of a mean embedding. An attack that redraws noise from it attacks the simulation, not the protocol.

    Parameters
    ----------
    folder : Path
    public : PublicParameters
        Kernel, n_y, m, S, Q, η and the rest that everyone knows.
    mechanism : Mechanism
    clients : tuple of RecordedClient
    uploads : tuple of RecordedUpload
        In the order of upload.
    trajectory : mapping of int to array of shape (n_y, m)
        Y after each recorded round; 0 is the start. Uploads of round s were computed at ``trajectory[s - 1]``.
    landmarks : array of shape (n_y, m)
        The last Y, which rows refer to. Both are in the space of the records. A private map's are learned in a subspace
        of `public.features` dimensions, whose ``centre`` and ``axes`` are in `published`; `seen` has them there.
    published : dict of str to array
        What the server published beside the landmarks, by name.
    embedding : array of shape (n, 2), optional
    labels : array of shape (n,), optional
        Map or clusters, where the server made them.
    facts : dict
        Further public facts: ``release``, ``bounds``, ``image_shape``, ``rounds_done``.
    """

    folder: Path
    public: PublicParameters
    mechanism: Mechanism
    clients: tuple[RecordedClient, ...]
    uploads: tuple[RecordedUpload, ...]
    trajectory: _Landmarks
    landmarks: Array
    published: dict[str, Array]
    embedding: Array | None
    labels: NDArray[np.int64] | None
    facts: dict[str, Any]

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Read a run directory."""
        folder = Path(folder)
        if not folder.is_dir():
            raise RecordingError(f"{folder} holds no finished run: there is no such folder")
        if not (folder / PUBLIC).is_file():
            raise RecordingError(f"{folder} holds no finished run: it has no {PUBLIC}")
        try:
            facts = json.loads((folder / PUBLIC).read_text(encoding="utf-8"))
            known = facts.pop("parameters")
            grid = None if known.get("grid") is None else Grid(**known["grid"])
            public = PublicParameters(**{**known, "kernel": Kernel(tuple(known["kernel"])), "grid": grid})
            clients = tuple(RecordedClient(**each) for each in facts.pop("clients"))
            chosen = _mechanism(facts.pop("mechanism"))
            uploads, blocks = _entries(folder / UPLOADS)
            with np.load(folder / LANDMARKS, allow_pickle=False) as stored:
                arrays = dict(stored)
            start, landmarks = arrays.pop("start"), arrays.pop("landmarks")
            landmarks = arrays.pop("points", landmarks)
            embedding, labels = _made(folder / EMBEDDING)
        except (OSError, EOFError, BadZipFile, KeyError, TypeError, ValueError, AccountingError) as error:
            if isinstance(error, RecordingError):
                raise
            raise RecordingError(f"{folder} holds a damaged run ({type(error).__name__}: {error})") from error
        trajectory = _Landmarks(start, blocks, arrays)
        return cls(folder, public, chosen, clients, uploads, trajectory, landmarks, arrays, embedding, labels, facts)

    def ledger(self) -> Ledger:
        """Open the ledger for reading; close it after use (``with recording.ledger() as ledger``)."""
        return Ledger.read(self.folder / LEDGER)

    def of(self, what: str, *, round: int | None = None, client: str | None = None) -> tuple[RecordedUpload, ...]:
        """Return the uploads of one quantity, of all rounds and clients or of those that match."""
        return tuple(
            upload
            for upload in self.uploads
            if upload.what == what
            and (round is None or upload.round == round)
            and (client is None or client in upload.clients)
        )

    @cached_property
    def rows(self) -> tuple[RecordedUpload, ...]:
        """Rows that clients released, one vector a record; empty if there are none."""
        return tuple(upload for upload in self.uploads if upload.stage == "release" and len(upload.shape) == 2)

    def seen(self, upload: RecordedUpload) -> Array:
        """Return the landmarks that an upload was computed at, in the space that they were learned in."""
        if upload.round is None:
            return self.landmarks
        return self.trajectory.learned(max(upload.round - 1, 0))


def _mechanism(facts: dict[str, Any]) -> Mechanism:
    from dpfedvis.mechanisms import MECHANISMS

    name = facts.pop("name")
    return MECHANISMS[name](**facts) if name in MECHANISMS else mechanism(name)


def _entries(folder: Path) -> tuple[tuple[RecordedUpload, ...], dict[int, _Block]]:
    uploads, landmarks = [], {}
    with (folder / INDEX).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                place = (entry["offset"], entry["dtype"], tuple(entry["shape"]), entry["crc32"])
            except (ValueError, KeyError, TypeError) as error:
                raise RecordingError(f"line {number} of {folder / INDEX} is damaged ({error})") from error
            block = _Block(folder / VALUES, *place)
            if "landmarks" in entry:
                landmarks[int(entry["landmarks"])] = block
            else:
                uploads.append(RecordedUpload(tuple(from_dict(each) for each in entry["events"]), block))
    return tuple(uploads), landmarks


def _made(path: Path) -> tuple[Array | None, NDArray[np.int64] | None]:
    if not path.exists():
        return None, None
    with np.load(path, allow_pickle=False) as stored:
        return stored.get("embedding"), stored.get("labels")
