"""What readers of files return: a table of plain numbers, or columns by name for a schema to prepare."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
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


def of_frame(name: str, frame: Any, numbers: Callable[[str], bool]) -> ColumnTable:
    """Return a data frame, of pandas or polars, as columns; `numbers` says which of them hold numbers."""
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise InvalidData(f"{name} is a {type(frame).__name__}; give a data frame with named columns")
    titles = [str(title) for title in frame.columns]
    if len(set(titles)) < len(titles):
        raise InvalidData(f"{name} has two columns named {next(t for t in titles if titles.count(t) > 1)!r}")
    columns, unread = {}, {}
    for title in frame.columns:
        series = frame[title]
        nothing = np.asarray((series.isna() if hasattr(series, "isna") else series.is_null()).to_numpy(), dtype=bool)
        columns[str(title)], unread[str(title)] = typed_column(series.to_numpy(), nothing, numbers(str(title)))
    return ColumnTable(name, columns, unread)


def typed_column(values: NDArray[Any], nothing: NDArray[np.bool_], number: bool) -> tuple[NDArray[Any], int]:
    """Return a column with types of its own as float64, or as text with "" where nothing is; and how many are unread.

    Each value becomes text or a number by itself: the type of the whole column may follow from one other record.
    """
    if number and values.dtype.kind in "biuf":
        return np.where(nothing, np.nan, values.astype(np.float64)), 0
    if values.dtype.kind == "M":
        plain: list[Any] = np.datetime_as_string(values.astype("datetime64[D]")).tolist()
    else:
        plain = values.tolist()
    texts = ["" if gap else _value(value) for value, gap in zip(plain, nothing.tolist(), strict=True)]
    if not number:
        return np.array(texts, dtype=np.str_), 0
    found, unread = numbers_of([_TRUTH_NUMBERS.get(text, text) for text in texts])
    return np.array(found), unread


_TRUTH = {"true": "True", "false": "False"}
_TRUTH_NUMBERS = {"True": "1", "False": "0"}
_WHOLE = re.compile(r"(-?\d+)\.0+")


def _value(value: Any) -> str:
    """Return one value as text, alike for every type that a frame may have for it: 5, 5.0 and "5.0" are "5".

    Whole numbers become text digit by digit: as floats two long ids would be one.
    """
    if isinstance(value, datetime | date):
        return value.date().isoformat() if isinstance(value, datetime) else value.isoformat()
    text = str(value)
    if match := _WHOLE.fullmatch(text):
        return match[1]
    return _TRUTH.get(text.lower(), text)
