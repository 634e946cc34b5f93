"""Tables in files: CSV, NPZ, NPY and Parquet. Pickled content is refused.

Each reader returns a `RawTable`; no reader scales or fills values.
"""

import csv
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.errors import InvalidData, MissingDependency, NotNumeric, UnknownColumn, UnreadableFile

# Missing values in a CSV file, in lower case.
MISSING_TOKENS = frozenset({"", "na", "nan", "?"})


@dataclass(frozen=True, eq=False)
class RawTable:
    """Content of a file: X of shape (n, ...) and, of shape (n,), raw labels and groups; names of the m features."""

    X: NDArray[Any]
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    class_names: tuple[str, ...] | None = None
    features: tuple[str, ...] = ()


def read(path: Path, label_column: str | None = None, client_column: str | None = None) -> RawTable:
    """Read a table; the file name's suffix selects the format."""
    readers = {".csv": read_csv, ".npz": read_npz, ".npy": read_npy, ".parquet": read_parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UnreadableFile(f"{path.name}: files must end in {', '.join(readers)}")
    return reader(path, label_column, client_column)


def read_csv(path: Path, label_column: str | None = None, client_column: str | None = None) -> RawTable:
    """Read a CSV file with a header row; all columns except the two named ones are features.

    Empty fields, NA, NaN and ? are missing values.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = csv.reader(stream, strict=True)
            header = [name.strip() for name in next(lines, [])]
            _check_header(path, header)
            features, others = _columns(path, header, [label_column, client_column])
            values = array("d")
            texts: list[list[str]] = [[] for _ in others]
            for row in lines:
                if not row:
                    continue
                if len(row) != len(header):
                    raise UnreadableFile(
                        f"{path.name}, line {lines.line_num}: {len(row)} fields, the header has {len(header)}"
                    )
                _append_numbers(values, [row[i] for i in features], path, lines.line_num, features, header)
                for text, i in zip(texts, others, strict=True):
                    text.append(row[i].strip())
    except (UnicodeDecodeError, csv.Error) as error:
        raise UnreadableFile(f"{path.name} is not a CSV file in UTF-8: {error}") from error
    if not values:
        raise UnreadableFile(f"{path.name} has a header row and no records")
    X = np.frombuffer(values, dtype=np.float64).reshape(-1, len(features))
    named: dict[str | None, NDArray[Any]] = {
        header[i]: np.array(text, dtype=np.str_) for i, text in zip(others, texts, strict=True)
    }
    titles = tuple(header[i] for i in features)
    return RawTable(X, named.get(label_column), named.get(client_column), features=titles)


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise UnreadableFile(f"{path.name} is empty; a header row is needed")
    # Unnamed columns are often numbered 0, 1, 2, ...; any other row of numbers is a record.
    counted = header == [str(i) for i in range(len(header))]
    if not counted and all(_number(name) is not None for name in header):
        raise UnreadableFile(f"{path.name} has no header row: its first line holds numbers only")
    twice = next((name for i, name in enumerate(header) if name in header[:i]), None)
    if twice is not None:
        raise UnreadableFile(f"{path.name} has two columns named {twice!r}")


def _columns(path: Path, names: Sequence[str], special: list[str | None]) -> tuple[list[int], list[int]]:
    """Return positions of the feature columns and of the special ones."""
    wanted = [name for name in special if name is not None]
    for name in wanted:
        if name not in names:
            raise UnknownColumn(f"{path.name} has no column {name!r}; it has {_some(names)}")
    if len(set(wanted)) < len(wanted):
        raise UnknownColumn(f"label and client column of {path.name} are both {wanted[0]!r}")
    features = [i for i, name in enumerate(names) if name not in wanted]
    if not features:
        raise UnreadableFile(f"{path.name} has no feature columns")
    return features, [names.index(name) for name in wanted]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _number(text: str) -> float | None:
    """Return a number or None. Plain float() would read the identifier 309_1 as 3091."""
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _append_numbers(
    values: "array[float]", fields: list[str], path: Path, line: int, features: list[int], header: list[str]
) -> None:
    if "_" not in "".join(fields):
        before = len(values)
        try:
            values.extend(map(float, fields))
            return
        except ValueError:
            del values[before:]
    for field, i in zip(fields, features, strict=True):
        number = float("nan") if field.strip().lower() in MISSING_TOKENS else _number(field)
        if number is None:
            raise NotNumeric(
                f"column {header[i]!r} of {path.name} holds {field!r} in line {line}; features must be "
                "numbers (name the label or client column, or drop this one)"
            )
        values.append(number)


def read_npz(path: Path, label_column: str | None = None, client_column: str | None = None) -> RawTable:
    """Read an NPZ file: key X, and keys y and groups or those named instead."""
    try:
        # Our own handle: given a path, numpy does not close a broken file.
        with path.open("rb") as stream:
            content = np.load(stream, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise UnreadableFile(f"{path.name} is not an NPZ file")
            keys = list(content.files)
            for key in ("X", label_column, client_column):
                if key is not None and key not in keys:
                    raise UnknownColumn(f"{path.name} has no array {key!r}; it has {_some(keys)}")
            labels, groups = label_column or "y", client_column or "groups"
            names = tuple(map(str, content["class_names"])) if "class_names" in keys else None
            return RawTable(
                content["X"],
                content[labels] if labels in keys else None,
                content[groups] if groups in keys else None,
                names if labels == "y" else None,
            )
    except UnreadableFile:
        raise
    except (ValueError, OSError, BadZipFile, EOFError) as error:
        raise UnreadableFile(f"{path.name} cannot be read as NPZ without pickles: {error}") from error


def read_npy(path: Path, label_column: str | None = None, client_column: str | None = None) -> RawTable:
    """Read an NPY file, which holds features only."""
    if label_column or client_column:
        raise UnknownColumn(f"{path.name} is an NPY file and has no named columns; use NPZ or CSV")
    try:
        with path.open("rb") as stream:
            content = np.load(stream, allow_pickle=False)
    except (ValueError, OSError, BadZipFile, EOFError) as error:
        raise UnreadableFile(f"{path.name} cannot be read as NPY without pickles: {error}") from error
    if not isinstance(content, np.ndarray):
        raise UnreadableFile(f"{path.name} is not an NPY file")
    return RawTable(content)


def read_parquet(path: Path, label_column: str | None = None, client_column: str | None = None) -> RawTable:
    """Read a Parquet file, with the optional package pyarrow."""
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingDependency(
            f"reading {path.name} needs the package pyarrow: pip install pyarrow, or convert the file to CSV"
        ) from error
    try:
        table = parquet.read_table(path)
    except (ValueError, OSError) as error:  # pyarrow's own errors derive from these two
        raise UnreadableFile(f"{path.name} cannot be read as Parquet: {error}") from error
    names = [str(name) for name in table.column_names]
    features, others = _columns(path, names, [label_column, client_column])
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
