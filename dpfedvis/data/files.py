"""Tables in files: CSV, NPZ, NPY and Parquet. Pickled content is refused.

Each reader returns a `RawTable`; no reader scales or fills values.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.csv_files import read_csv, read_csv_columns
from dpfedvis.data.errors import DataError, InvalidData, MissingDependency, NotNumeric, UnknownColumn, UnreadableFile
from dpfedvis.data.tables import ColumnTable, RawTable, columns_of, some, typed_column

ENDINGS = (".csv", ".csv.gz", ".npz", ".npy", ".parquet")


def read(path: Path, label_column: str | None = None, client_column: str | None = None) -> RawTable:
    """Read a table of plain numbers; the end of the file's name selects the format."""
    readers = {
        ".csv": read_csv, ".csv.gz": read_csv, ".npz": read_npz, ".npy": read_npy, ".parquet": read_parquet,
    }  # fmt: skip
    return readers[ending(path)](path, label_column, client_column)


def read_columns(path: Path, numbers: Callable[[str], bool]) -> ColumnTable:
    """Read columns by name, for a schema; `numbers` says which of them hold numbers."""
    kind = ending(path)
    if kind in (".npz", ".npy"):
        raise UnreadableFile(f"{path.name}: arrays have no named columns; a schema is for CSV and Parquet files")
    return (read_parquet_columns if kind == ".parquet" else read_csv_columns)(path, numbers)


def ending(path: Path) -> str:
    """Return the end of a file's name that says its format."""
    found = next((each for each in ENDINGS if path.name.lower().endswith(each)), None)
    if found is None:
        raise UnreadableFile(f"{path.name}: files must end in {', '.join(ENDINGS)}")
    return found


@contextmanager
def _as(path: Path, kind: str) -> Iterator[None]:
    """Say in one sentence what the many errors of damaged, encrypted or misnamed files mean."""
    try:
        yield
    except DataError:
        raise
    except MemoryError:
        raise UnreadableFile(f"{path.name} cannot be read as {kind}: it says that it is larger than memory") from None
    except Exception as error:  # parsers of damaged bytes raise about everything
        reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
        raise UnreadableFile(f"{path.name} cannot be read as {kind}: {reason}") from error


def read_npz(path: Path, label_column: str | None = None, client_column: str | None = None) -> RawTable:
    """Read an NPZ file: key X, and keys y and groups or those named instead."""
    # Our own handle: given a path, numpy does not close a broken file.
    with path.open("rb") as stream, _as(path, "NPZ without pickles"):
        content = np.load(stream, allow_pickle=False)
        if not isinstance(content, np.lib.npyio.NpzFile):
            raise UnreadableFile(f"{path.name} is not an NPZ file")
        keys = list(content.files)
        for key in ("X", label_column, client_column):
            if key is not None and key not in keys:
                raise UnknownColumn(f"{path.name} has no array {key!r}; it has {some(keys)}")
        labels, groups = label_column or "y", client_column or "groups"
        wanted = [key for key in ("X", labels, groups, "class_names") if key in keys]
        found = {key: content[key] for key in wanted}
        for key, value in found.items():
            if not isinstance(value, np.ndarray):
                raise UnreadableFile(f"{path.name}: {key!r} is not an array")
        names = tuple(map(str, found["class_names"].ravel())) if "class_names" in keys else None
        return RawTable(found["X"], found.get(labels), found.get(groups), names if labels == "y" else None)


def read_npy(path: Path, label_column: str | None = None, client_column: str | None = None) -> RawTable:
    """Read an NPY file, which holds features only."""
    if label_column or client_column:
        raise UnknownColumn(f"{path.name} is an NPY file and has no named columns; use NPZ or CSV")
    with path.open("rb") as stream, _as(path, "NPY without pickles"):
        content = np.load(stream, allow_pickle=False)
    if not isinstance(content, np.ndarray):
        raise UnreadableFile(f"{path.name} is not an NPY file")
    return RawTable(content)


def read_parquet(path: Path, label_column: str | None = None, client_column: str | None = None) -> RawTable:
    """Read a Parquet file of plain numbers, with the optional package pyarrow."""
    table = _parquet(path)
    names = [str(name) for name in table.column_names]
    features, others = columns_of(path, names, [label_column, client_column])
    columns = {i: table.column(i).to_numpy() for i in features}
    for i, column in columns.items():
        if column.dtype.kind not in "biuf":
            raise NotNumeric(f"column {names[i]!r} of {path.name} is of type {table.column(i).type}, not a number")
    texts: dict[str | None, NDArray[Any]] = {}
    for i in others:
        if table.column(i).null_count:
            raise InvalidData(f"column {names[i]!r} of {path.name} has {table.column(i).null_count} nulls")
        texts[names[i]] = np.array([str(value) for value in table.column(i).to_pylist()], dtype=np.str_)
    X = np.column_stack([columns[i] for i in features])
    titles = tuple(names[i] for i in features)
    return RawTable(X, texts.get(label_column), texts.get(client_column), features=titles)


def read_parquet_columns(path: Path, numbers: Callable[[str], bool]) -> ColumnTable:
    """Read a Parquet file by columns: numbers, and all else as text."""
    table = _parquet(path)
    columns: dict[str, NDArray[Any]] = {}
    unread: dict[str, int] = {}
    for name in map(str, table.column_names):
        column = table.column(name)
        nothing = np.asarray(column.is_null().to_numpy(), dtype=bool)
        # Whole numbers with gaps would become floats.
        values = np.array(column.to_pylist(), dtype=object) if nothing.any() else column.to_numpy()
        columns[name], unread[name] = typed_column(values, nothing, numbers(name))
    return ColumnTable(path.name, columns, unread)


def _parquet(path: Path) -> Any:
    """Return the table of a Parquet file; two columns of one name are refused."""
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingDependency(
            f"reading {path.name} needs the package pyarrow: pip install pyarrow, or convert the file to CSV"
        ) from error
    with _as(path, "Parquet"):
        table = parquet.read_table(path)
    names = [str(name) for name in table.column_names]
    if len(set(names)) < len(names):
        raise UnreadableFile(f"{path.name} has two columns named {next(n for n in names if names.count(n) > 1)!r}")
    return table
