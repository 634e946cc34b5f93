"""`load`: named data sets and files."""

import difflib
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.catalogue import CATALOGUE, CatalogueEntry, cache_dir, find_file
from dpfedvis.data.checks import Missing, as_labels, as_matrix, check_missing, read_only, refuse_bad
from dpfedvis.data.errors import DataUnavailable, InvalidData, MissingValues, UnknownDataset, UnreadableFile
from dpfedvis.data.files import ENDINGS, read
from dpfedvis.data.openml import fetch, save, unavailable
from dpfedvis.data.own_files import file_sha256, load_files
from dpfedvis.data.records import Dataset, number_labels
from dpfedvis.data.schema import Schema
from dpfedvis.data.tables import RawTable


@dataclass(frozen=True)
class _Origin:
    source: str
    sha256: str


def load(
    name_or_path: str | Path | Sequence[str | Path],
    *,
    schema: Schema | str | Path | None = None,
    label_column: str | None = None,
    client_column: str | None = None,
    missing: Missing = "refuse",
    download: bool = True,
    records: int | None = None,
) -> Dataset:
    """Load a data set by name, or from files.

    Names are ``digits`` (carried by scikit-learn), ``mnist``, ``fashion-mnist``, ``coil20`` and
    ``mice-protein``: searched in ``$DPFEDVIS_DATA``, then in the cache, then fetched from OpenML.
    Their pixels are scaled to [0, 1]. Your own files are scaled by a schema, or not at all; their labels stay text.

    Parameters
    ----------
    name_or_path : str, Path or sequence of them
        A name, or a file ending in .csv, .csv.gz, .npz, .npy or .parquet; several files, or a pattern such as
        ``hospitals/*.csv``, are one client each.
    schema : Schema or path-like, optional
        What each column is, publicly (`Schema`).
    label_column, client_column : str, optional
        Columns of a CSV or Parquet file, or keys of an NPZ file (default there ``y``, ``groups``).
    missing : {"refuse", "client-mean", "public-value"}
        ``refuse`` raises if there are NaN values. Under the other rules `Dataset.X` keeps them, and
        `FederatedData.from_dataset` fills them at each client.
    download : bool
        Whether to fetch from OpenML if needed.
    records : int, optional
        Take only this many, from the start.

    Returns
    -------
    Dataset
    """
    check_missing(missing)
    most = records if records is not None and records >= 1 else None
    given = [name_or_path] if isinstance(name_or_path, str | Path) else list(name_or_path)
    entries = [CATALOGUE.get(str(each).lower().replace("_", "-")) for each in given]
    if any(entries) and len(given) > 1:
        raise InvalidData("a known data set stands alone; several names are files, one client each")
    if entries and entries[0] is not None:
        entry = entries[0]
        if label_column or client_column or schema is not None:
            raise InvalidData(f"schema, label and client column of {entry.name!r} are fixed; give them for files only")
        found = _dataset(entry, *_named(entry, download), missing, most)
    else:
        own = schema if isinstance(schema, Schema | None) else Schema.read(schema)
        found = load_files(paths_of(given), own, label_column, client_column, missing, most)
    if records not in (None, len(found.X)):
        raise InvalidData(f"records must be between 1 and {len(found.X)} for {found.name}, got {records}")
    return found


def paths_of(given: Sequence[str | Path]) -> list[Path]:
    """Return the files that are meant, each by its name or by a pattern such as ``hospitals/*.csv``."""
    found: list[Path] = []
    for each in given:
        path = Path(each).expanduser()
        matches = [path] if path.is_file() else sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        files = [match for match in matches if match.is_file()]
        if not files:
            known = CATALOGUE.get(str(each).lower().replace("_", "-"))
            raise UnknownDataset(
                _unknown(str(each)) if known is None else f"{known.name} is a known data set, not a file"
            )
        found += files
    places: set[Path] = set()
    for path in found:
        if path.resolve() in places:
            raise InvalidData(f"{path} is given twice")
        places.add(path.resolve())
    if not found:
        raise UnknownDataset("no file is given")
    return found


def _named(entry: CatalogueEntry, download: bool) -> tuple[RawTable, _Origin]:
    if entry.file is None:
        return _digits()
    path = find_file(entry)
    if path is None:
        if not download:
            raise DataUnavailable(unavailable(entry, "downloading is turned off"))
        arrays = fetch(entry)
        path = cache_dir() / entry.file
        try:
            save(path, arrays)
        except OSError as error:
            print(f"could not keep {entry.name} in the cache: {error}", file=sys.stderr)
            names = tuple(map(str, arrays["class_names"]))
            table = RawTable(arrays["X"], arrays["y"], arrays.get("groups"), names)
            return table, _Origin(f"OpenML {entry.openml}", _array_sha256(arrays["X"]))
    table = read(path)
    if entry.group_size is not None and table.groups is None:
        table = RawTable(table.X, table.labels, _individuals(path), table.class_names)
    return table, _Origin(str(path), file_sha256(path))


def _digits() -> tuple[RawTable, _Origin]:
    import sklearn
    from sklearn.datasets import load_digits

    bunch = load_digits()
    names = tuple(str(name) for name in bunch.target_names)
    table = RawTable(bunch.data, bunch.target, None, names)
    return table, _Origin(f"scikit-learn {sklearn.__version__}", _array_sha256(bunch.data))


def _individuals(path: Path) -> NDArray[Any]:
    """Return the mouse of each row: the identifier 309_1 is the first row of mouse 309."""
    table = read(path, client_column="mouse_id")
    assert table.groups is not None  # `read` raises if the key is missing
    return np.array([str(value).rsplit("_", 1)[0] for value in table.groups])


def _dataset(entry: CatalogueEntry, table: RawTable, origin: _Origin, missing: Missing, records: int | None) -> Dataset:
    """Return a data set of the catalogue, its pixels scaled and its classes numbered."""
    name, raw = entry.name, table.X
    raw = as_matrix(raw.reshape(len(raw), -1) if raw.ndim > 2 else raw, name)
    if raw.shape != (entry.records, entry.features):
        raise UnreadableFile(
            f"{origin.source} holds {raw.shape[0]} records of {raw.shape[1]} features; "
            f"{name} has {entry.records} of {entry.features}"
        )
    labels = None if table.labels is None else as_labels(table.labels, len(raw), name)
    groups = None if table.groups is None else as_labels(table.groups, len(raw), name, "groups")
    y, class_names = _codes(labels, table.class_names, name)
    first = slice(records)
    X, y = _scaled(raw[first], entry.scale), None if y is None else y[first]
    if missing == "refuse":
        refuse_bad(np.isnan(X), name, "NaN", MissingValues, table.features)
    return Dataset(
        name=name,
        X=read_only(X),
        y=None if y is None else read_only(y),
        class_names=class_names,
        groups=None if groups is None else read_only(groups[first]),
        feature_range=entry.feature_range,
        image_shape=entry.image_shape,
        source=origin.source,
        sha256=origin.sha256,
        missing=missing,
        licence=entry.licence,
        origin="built-in",
    )


def _scaled(raw: NDArray[Any], scale: float) -> NDArray[Any]:
    """Return a float array: float64 stays, all else becomes float32; values are divided by `scale`."""
    if scale == 1:
        return raw.astype(raw.dtype if raw.dtype in (np.float32, np.float64) else np.float32, copy=False)
    X = raw.astype(np.float32)
    X /= np.float32(scale)
    return X


def _codes(
    labels: NDArray[Any] | None, given: tuple[str, ...] | None, name: str
) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Number the classes of a built-in data set from 0, in the order of their public names."""
    if labels is None:
        return None, ()
    if given is not None and labels.dtype.kind in "iu":
        if labels.min() < 0 or labels.max() >= len(given):
            raise InvalidData(f"{name} has labels outside its {len(given)} class names")
        return labels.astype(np.int64), given
    return number_labels(labels)


def _array_sha256(a: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(a).data).hexdigest()


def _unknown(text: str) -> str:
    near = difflib.get_close_matches(text.lower(), CATALOGUE, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"{text!r} is neither a file nor a known data set{hint} "
        f"(known: {', '.join(CATALOGUE)}; files: {', '.join(ENDINGS)})"
    )
