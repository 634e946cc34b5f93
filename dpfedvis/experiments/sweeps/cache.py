"""What cells share on disk: made once, by whoever comes first, while the others wait."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.federation import FileDamaged
from dpfedvis.numerics.files import read_arrays, write_arrays

Arrays = dict[str, NDArray[Any]]


def shared(folder: Path | None, name: str, make: Callable[[], Arrays]) -> Arrays:
    """Return the arrays of this name, from disk if they are there, else made and left there.

    Parameters
    ----------
    folder : Path, optional
        Without one they are made each time.
    name : str
        Says everything that they depend on.
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
                path.unlink()  # a disk that was full, say; what is in it can be made again
        write_arrays(path, make())
        # What comes back is what later cells will read, so that the first is no different from them.
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
