"""Checkpoints: what a run needs to resume after an interruption."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Budget, Ledger
from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.files import FileDamaged, make_folder, read_arrays, write_arrays
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.optimisers import State
from dpfedvis.server.round_log import Tally


class SnapshotMismatch(DpfedvisError):
    """The folder holds a different run."""


@dataclass(frozen=True)
class Snapshot:
    """The server's state after a round.

    Parameters
    ----------
    rounds : int
        Rounds done.
    landmarks : array of shape (n_y, m)
    optimiser : dict of str to array
    trace : array of shape (rounds, columns)
        Numbers of the rounds so far.
    step : array of shape (n_y, m)
        The last step, for the trace of the next round.
    failures : list of (str, int, str)
        Failed sites so far: name, round and reason.
    tally : Tally, optional
        Counts so far.
    """

    rounds: int
    landmarks: Array
    optimiser: State
    trace: Array
    step: Array
    failures: list[tuple[str, int, str]]
    tally: Tally | None = None

    def write(self, path: Path, mark: str) -> None:
        """Write to `path`, atomically; `mark` identifies the run."""
        state = {f"optimiser_{name}": value for name, value in self.optimiser.items()}
        head = {"mark": np.array(mark), "rounds": np.array(self.rounds)}
        body = {"landmarks": self.landmarks, "trace": self.trace, "step": self.step}
        body["failures"] = np.array(json.dumps(self.failures))
        tally = {} if self.tally is None else {f"tally_{name}": value for name, value in vars(self.tally).items()}
        write_arrays(path, {**head, **body, **state, **tally})

    @classmethod
    def read(cls, path: Path, mark: str) -> Snapshot | None:
        """Return the snapshot of this run, or None; raise `SnapshotMismatch` if it is another run's."""
        if not path.exists():
            return None
        stored = read_arrays(path)
        try:
            _check_mark(path, str(stored["mark"]), mark)
            prefix = "optimiser_"
            state = {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
            failures = [
                (str(client), int(round), str(why)) for client, round, why in json.loads(str(stored["failures"]))
            ]
            rounds, landmarks = int(stored["rounds"]), stored["landmarks"]
            kept = {each.name: stored[f"tally_{each.name}"] for each in fields(Tally) if f"tally_{each.name}" in stored}
            tally = Tally(**kept) if kept else None
            return cls(rounds, landmarks, state, stored["trace"], stored["step"], failures, tally)
        except KeyError as error:
            raise FileDamaged(f"{path} is damaged: it has no {error}") from error
        except (TypeError, ValueError) as error:
            raise FileDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error


def claim(folder: Path, mark: str, run: str | None = None) -> str:
    """Reserve `folder` for this run, and return its name: that in the folder, or else `run`, or else a new one.

    Raises
    ------
    SnapshotMismatch
        If the folder is another run's.
    """
    make_folder(folder)  # private: sites of a simulation may keep uploads below it
    path = folder / "run.npz"
    if not path.exists():
        write_arrays(path, {"mark": np.array(mark), "run": np.array(run or uuid.uuid4().hex)})
    stored = read_arrays(path)
    if not stored.keys() >= {"mark", "run"}:
        raise FileDamaged(f"{path} is damaged: it has no mark")
    _check_mark(path, str(stored["mark"]), mark)
    return str(stored["run"])


def ledger_for(folder: Path | None, ledger: Ledger | None, budget: Budget | None) -> Ledger:
    """Return the given ledger, or a new one: a file in the checkpoint's folder, or in memory without a checkpoint."""
    if ledger is None:
        return Ledger(None if folder is None else folder / "ledger.sqlite", budget)
    if folder is not None and ledger.in_memory:
        raise InvalidParameter("ledger", "in memory", "a file with a checkpoint, to remember what was released")
    return ledger


def read_or_make(path: Path | None, make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
    """Return the arrays stored at `path`; compute and store them first if needed. Without a path, just compute them.

    For long computations on released arrays, which another machine would round differently: later stages must not
    depend on where a run was resumed.
    """
    if path is None:
        return make()
    if not path.exists():
        write_arrays(path, make())
    return read_arrays(path)


def _check_mark(path: Path, found: str, mark: str) -> None:
    if found != mark:
        raise SnapshotMismatch(
            f"{path.parent} holds a run with different settings, clients or features; choose another folder"
        )


def digest(*facts: object) -> str:
    """Hash of public facts, by their repr."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def fingerprint(settings: Any, *facts: object) -> str:
    """Hash of a dataclass of settings and further public facts: the identity of a run."""
    digest = hashlib.sha256()
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        else:
            digest.update(f"{field.name}={value!r};".encode())
    digest.update(repr(facts).encode())
    return digest.hexdigest()
