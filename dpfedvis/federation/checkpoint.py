"""Snapshots of a run: enough to go on after an interruption."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Budget, Ledger
from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.files import FileDamaged, read_arrays, write_arrays
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.optimisers import State


class SnapshotMismatch(DpfedvisError):
    """The folder holds another run."""


@dataclass(frozen=True)
class Snapshot:
    """State of the server after a round.

    Parameters
    ----------
    rounds : int
        Rounds done.
    landmarks : array of shape (n_y, m)
    optimiser : dict of str to array
    trace : array of shape (rounds, columns)
        Numbers of each round so far.
    step : array of shape (n_y, m)
        The last step, which the trace still needs.
    failures : list of (str, int, str)
        Clients that failed so far: name, round and reason.
    """

    rounds: int
    landmarks: Array
    optimiser: State
    trace: Array
    step: Array
    failures: list[tuple[str, int, str]]

    def write(self, path: Path, mark: str) -> None:
        """Write to `path`, whole or not at all; `mark` tells the run."""
        state = {f"optimiser_{name}": value for name, value in self.optimiser.items()}
        head = {"mark": np.array(mark), "rounds": np.array(self.rounds)}
        body = {"landmarks": self.landmarks, "trace": self.trace, "step": self.step}
        body["failures"] = np.array(json.dumps(self.failures))
        write_arrays(path, {**head, **body, **state})

    @classmethod
    def read(cls, path: Path, mark: str) -> Snapshot | None:
        """Return the snapshot of this run; None if there is none, an error if it is another run's."""
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
            return cls(rounds, landmarks, state, stored["trace"], stored["step"], failures)
        except KeyError as error:
            raise FileDamaged(f"{path} is damaged: it has no {error}") from error
        except (TypeError, ValueError) as error:
            raise FileDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error


def claim(folder: Path, mark: str) -> None:
    """Make `folder` that of one run before anything is in it; an error if it is another run's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a trusted server's checkpoint holds exact uploads
    path = folder / "run.npz"
    if not path.exists():
        write_arrays(path, {"mark": np.array(mark)})
    stored = read_arrays(path)
    if "mark" not in stored:
        raise FileDamaged(f"{path} is damaged: it has no mark")
    _check_mark(path, str(stored["mark"]), mark)


def ledger_beside(folder: Path | None, ledger: Ledger | None, budget: Budget | None) -> Ledger:
    """Return the ledger of a run: the one given, or a new one, which is a file where there is a checkpoint."""
    if ledger is None:
        return Ledger(None if folder is None else folder / "ledger.sqlite", budget)
    if folder is not None and ledger.in_memory:
        raise InvalidParameter("ledger", "in memory", "a file with a checkpoint, or what it released is forgotten")
    return ledger


def read_or_make(path: Path | None, make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
    """Return the arrays at `path`; make and keep them if there are none, or only make them without a path.

    For what follows from released arrays by many operations, which another machine would round in another way: what
    comes after it must not depend on where a run goes on.
    """
    if path is None:
        return make()
    if not path.exists():
        write_arrays(path, make())
    return read_arrays(path)


def _check_mark(path: Path, found: str, mark: str) -> None:
    if found != mark:
        raise SnapshotMismatch(
            f"{path.parent} holds a run with other settings, clients or features; choose another folder"
        )


def digest(*facts: object) -> str:
    """Hash of public facts, by what they look like when printed."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def fingerprint(settings: Any, *facts: object) -> str:
    """Hash of a dataclass of settings and of further public facts, the same for the same run."""
    digest = hashlib.sha256()
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        else:
            digest.update(f"{field.name}={value!r};".encode())
    digest.update(repr(facts).encode())
    return digest.hexdigest()
