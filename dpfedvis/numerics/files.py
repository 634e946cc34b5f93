"""Atomic files: arrays and text that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dpfedvis.errors import DpfedvisError

OWNERS = 0o600  # mode of a file that its owner alone may read


class FileDamaged(DpfedvisError):
    """A file of an interrupted run that cannot be read. It is not recreated: that could spend the budget twice."""


def write_arrays(path: Path, arrays: dict[str, np.ndarray], mode: int | None = None) -> None:
    """Write an NPZ file atomically; it is on disk when this returns."""
    with _replaced(path, mode) as file:
        # One of numpy's keywords is a flag, not an array.
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all of an NPZ file; raise `FileDamaged` if that fails."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except (OSError, EOFError, BadZipFile, TypeError, ValueError) as error:
        raise FileDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error


def write_text(path: Path, text: str, mode: int | None = None) -> None:
    """Write a text file atomically; it is on disk when this returns."""
    write_bytes(path, text.encode(), mode)


def write_bytes(path: Path, data: bytes, mode: int | None = None) -> None:
    """Write a file atomically; it is on disk when this returns."""
    with _replaced(path, mode) as file:
        file.write(data)


def draft_of(path: Path) -> Path:
    """Return where a file is written before it takes its place; a process that is killed leaves it there."""
    return path.with_name(path.name + ".tmp")


def make_folder(path: Path) -> None:
    """Make a folder, readable by its owner only, and those above it; they are on disk when this returns."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in reversed(missing):
        _sync(each.parent)


@contextmanager
def _replaced(path: Path, mode: int | None) -> Iterator[IO[bytes]]:
    """Open a draft that takes the place of a file when all of it is on disk; so is its name in the end."""
    draft = draft_of(path)
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode or 0o666), "wb") as file:
            if mode is not None:  # a draft that was left may have another one
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Bring the names in a folder to disk: without, a power cut can undo that a file took its place."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
