"""OpenML: fetching a named data set into the cache."""

import os
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.catalogue import CatalogueEntry, data_folders
from dpfedvis.data.errors import DataUnavailable

TIMEOUT = 60.0


def fetch(entry: CatalogueEntry) -> dict[str, NDArray[Any]]:
    """Fetch the arrays of a data set from OpenML; raise with advice if that fails.

    Parameters
    ----------
    entry : CatalogueEntry

    Returns
    -------
    dict
        Arrays in the layout of the data files: X, y, class_names and, for grouped data, groups.
    """
    if entry.openml is None:
        raise DataUnavailable(unavailable(entry, "it cannot be fetched automatically"))
    print(f"fetching {entry.name} from OpenML ({entry.openml}), once ...", file=sys.stderr, flush=True)
    from sklearn.datasets import fetch_openml

    try:
        with warnings.catch_warnings(), _socket_timeout(TIMEOUT):
            warnings.simplefilter("ignore")  # the one retry warns
            data, target = fetch_openml(
                data_id=entry.openml,
                return_X_y=True,
                as_frame=False,
                parser="liac-arff",  # the other parser needs pandas
                cache=False,
                n_retries=1,
            )
    except (OSError, HTTPException, ValueError) as error:
        raise DataUnavailable(unavailable(entry, f"fetching it failed ({_one_line(error)})")) from error
    return arrange(entry, data, target)


def arrange(entry: CatalogueEntry, data: NDArray[Any], target: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Convert OpenML's arrays, shapes (n, m) and (n,), to the layout of the data files.

    OpenML omits the column that names the individual. As in the original, each individual has `group_size`
    consecutive rows; raise if such a block has more than one class.
    """
    expected = (entry.records, entry.features)
    names, codes = np.unique(np.asarray(target).astype(np.str_), return_inverse=True)
    if data.shape != expected or len(names) != entry.classes:
        raise DataUnavailable(
            f"OpenML sent {entry.name} as {data.shape} with {len(names)} classes; "
            f"expected {expected} with {entry.classes}"
        )
    X = np.asarray(data, dtype=np.float64)
    if entry.scale == 255:
        X = X.astype(np.uint8)
    arrays: dict[str, NDArray[Any]] = {"X": X, "y": codes.astype(np.uint8), "class_names": names}
    if entry.group_size is not None:
        runs = codes.reshape(-1, entry.group_size)
        if (runs != runs[:, :1]).any():
            raise DataUnavailable(f"in OpenML's {entry.name} the rows of one individual are not consecutive")
        arrays["groups"] = np.arange(len(X)) // entry.group_size
    return arrays


def save(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an NPZ file atomically: to a temporary name in the same folder, then rename.

    Neither a crash nor a second process can produce a half-written file under the real name.
    """
    contents: dict[str, Any] = dict(arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez_compressed(stream, **contents)
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def unavailable(entry: CatalogueEntry, why: str) -> str:
    """Return the error message: what was tried, and what to do."""
    looked = " and ".join(str(folder) for folder in data_folders())
    return (
        f"data set {entry.name!r} was not found in {looked}, and {why}; "
        f"set DPFEDVIS_DATA to a folder that holds {entry.file}"
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """Set a socket timeout; scikit-learn's own call has none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
