"""What readers of files return: a table of plain numbers, or columns by name for a schema to prepare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.errors import InvalidData, UnknownColumn, UnreadableFile

# Missing values, in lower case.
MISSING_TOKENS = frozenset({"", "na", "nan", "?"})


@dataclass(frozen=True, eq=False)
class RawTable:
    """Content of a file: X of shape (n, ...) and, of shape (n,), raw labels and groups; names of the m features."""

    X: NDArray[Any]
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    class_names: tuple[str, ...] | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """Columns of one file or frame by name.

    Parameters
    ----------
    name : str
        Of the file or the client.
    columns : mapping of str to array of shape (n,)
        Text as it stands, or float64 with NaN where nothing is; dates are text.
    unread : mapping of str to int
        How many values of a column of numbers are none.
    """

    name: str
    columns: Mapping[str, NDArray[Any]]
    unread: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))


def columns_of(path: Path, names: Sequence[str], special: list[str | None]) -> tuple[list[int], list[int]]:
    """Return positions of the feature columns and of the special ones."""
    wanted = [name for name in special if name is not None]
    for name in wanted:
        if name not in names:
            raise UnknownColumn(f"{path.name} has no column {name!r}; it has {some(names)}")
    if len(set(wanted)) < len(wanted):
        raise UnknownColumn(f"label and client column of {path.name} are both {wanted[0]!r}")
    features = [i for i, name in enumerate(names) if name not in wanted]
    if not features:
        raise UnreadableFile(f"{path.name} has no feature columns")
    return features, [names.index(name) for name in wanted]


def some(names: Sequence[str]) -> str:
    """Return names as a message lists them: all, or the first eight."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def number(text: str) -> float | None:
    """Return a number, or None for what is none. Plain float() would read the identifier 309_1 as 3091."""
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def numbers_of(texts: Sequence[str]) -> tuple[list[float], int]:
    """Return texts as numbers, NaN where nothing is, and how many are neither."""
    if "_" not in "".join(texts):
        try:
            return list(map(float, texts)), 0
        except ValueError:
            pass
    values, unread = [], 0
    for text in texts:
        value = number(text)
        if value is None:
            value = float("nan")
            unread += text.strip().lower() not in MISSING_TOKENS
        values.append(value)
    return values, unread


def of_frame(name: str, frame: Any) -> ColumnTable:
    """Return a data frame, of pandas or polars, as columns of numbers and text."""
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise InvalidData(f"{name} is a {type(frame).__name__}; give a data frame with named columns")
    titles = [str(title) for title in frame.columns]
    for title in titles:
        if titles.count(title) > 1:
            raise InvalidData(f"{name} has two columns named {title!r}")
    return ColumnTable(name, {str(title): _plain(frame[title]) for title in frame.columns})


def _plain(series: Any) -> NDArray[Any]:
    """Return a column as float64, or as text with "" where nothing is."""
    nothing = np.asarray((series.isna() if hasattr(series, "isna") else series.is_null()).to_numpy(), dtype=bool)
    values = series.to_numpy()
    if values.dtype.kind in "biuf":
        return np.where(nothing, np.nan, values.astype(np.float64))
    if values.dtype.kind == "M":
        texts = np.datetime_as_string(values.astype("datetime64[D]"))
    else:
        texts = np.array([str(value) for value in values.tolist()], dtype=np.str_)
    return np.where(nothing, "", texts)
