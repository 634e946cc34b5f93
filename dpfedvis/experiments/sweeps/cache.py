"""Arrays that cells share on disk: computed once, by the first, while the others wait."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.numerics.files import FileDamaged, read_arrays, write_arrays

Arrays = dict[str, NDArray[Any]]


def shared(folder: Path | None, name: str, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of this name from disk, after computing and storing them if needed.

    Parameters
    ----------
    folder : Path, optional
        Without one they are computed each time.
    name : str
        Must identify everything that they depend on.
    make : callable
    """
    if folder is None:
        return make()
    path = folder / f"{name}.npz"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f"{name}.lock"):
        if path.exists():
            try:
                return read_arrays(path)
            except FileDamaged:
                path.unlink()  # after a full disk, say; it can be recomputed
        write_arrays(path, make())
        # Read back, so that the first cell gets exactly what later ones get.
        return read_arrays(path)


def as_bytes(text: str) -> NDArray[np.uint8]:
    """Return text as an array, to keep it beside others."""
    return np.frombuffer(text.encode(), np.uint8)


def as_text(values: NDArray[np.uint8]) -> str:
    """Return text that was kept as an array."""
    return values.tobytes().decode()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file unlocks it
