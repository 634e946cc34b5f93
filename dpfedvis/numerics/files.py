"""Atomic files: arrays and text that are written completely or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dpfedvis.errors import DpfedvisError


class FileDamaged(DpfedvisError):
    """A file of an interrupted run that cannot be read. It is not recreated: that could spend the budget twice."""


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an NPZ file atomically; it is on disk when this returns."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        # One of numpy's keywords is a flag, not an array.
        np.savez(file, **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all of an NPZ file; raise `FileDamaged` if that fails."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except (OSError, EOFError, BadZipFile, TypeError, ValueError) as error:
        raise FileDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; it is on disk when this returns."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically; it is on disk when this returns."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
