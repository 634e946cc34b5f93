"""CSV files as hospitals have them: commas, semicolons or tabs, decimal commas, a byte-order mark, compressed or not.

What separates fields follows from the header row alone, and not from the records.
"""

import csv
import gzip
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, cast
from zlib import error as DamagedStream

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.errors import NotNumeric, UnreadableFile
from dpfedvis.data.tables import MISSING_TOKENS, ColumnTable, RawTable, columns_of, number, numbers_of

SEPARATORS = (",", ";", "\t")
_BLOCK = 2**20  # fields that become columns at a time


def read_csv(path: Path, label_column: str | None = None, client_column: str | None = None) -> RawTable:
    """Read a CSV file with a header row; all columns except the two named ones are features.

    Empty fields, NA, NaN and ? are missing values. Where the separator is no comma, numbers may have decimal commas.
    """
    with _rows(path) as (header, separator, rows):
        features, others = columns_of(path, header, [label_column, client_column])
        numbers = _Numbers(path, [header[i] for i in features], commas=separator != ",")
        texts: list[list[str]] = [[] for _ in others]
        for line, row in rows:
            numbers.append([row[i] for i in features], line)
            for text, i in zip(texts, others, strict=True):
                text.append(row[i].strip())
    named: dict[str | None, NDArray[Any]] = {
        header[i]: np.array(text, dtype=np.str_) for i, text in zip(others, texts, strict=True)
    }
    titles = tuple(header[i] for i in features)
    return RawTable(numbers.table(), named.get(label_column), named.get(client_column), features=titles)


def read_csv_columns(path: Path, numbers: Callable[[str], bool]) -> ColumnTable:
    """Read the columns of a CSV file by name; it may have no records.

    Parameters
    ----------
    path : Path
    numbers : callable
        Whether a column of this name holds numbers. Where the separator is no comma, they may have decimal commas;
        then none of them may have a point, which could mean thousands.
    """
    with _rows(path) as (header, separator, rows):
        numeric = [numbers(name) for name in header]
        marks: dict[str, str] = {}  # the first column with a decimal comma, and with a point
        parts: list[list[Any]] = [[] for _ in header]
        unread = [0] * len(header)
        block: list[list[str]] = []
        for _, row in rows:
            block.append(row)
            if len(block) * len(header) >= _BLOCK:
                _add(block, header, numeric, separator != ",", marks, parts, unread)
        _add(block, header, numeric, separator != ",", marks, parts, unread)
    if len(marks) == 2:
        raise NotNumeric(
            f"{path.name} has numbers with decimal commas (column {marks[',']!r}) and others with points (column "
            f"{marks['.']!r}); write all in one way, without separators of thousands"
        )
    columns: dict[str, NDArray[Any]] = {}
    for name, part, is_number in zip(header, parts, numeric, strict=True):
        empty = np.empty(0, dtype=np.float64 if is_number else np.str_)
        columns[name] = np.concatenate(part) if part else empty
    return ColumnTable(path.name, columns, dict(zip(header, unread, strict=True)))


def _add(
    block: list[list[str]],
    header: Sequence[str],
    numeric: Sequence[bool],
    commas: bool,
    marks: dict[str, str],
    parts: list[list[Any]],
    unread: list[int],
) -> None:
    """Add rows to the columns, and empty the block."""
    for place, texts in enumerate(zip(*block, strict=True)):
        if numeric[place]:
            joined = "".join(texts) if commas else ""
            for mark in (",", "."):
                if mark in joined:
                    marks.setdefault(mark, header[place])
            fields = [text.replace(",", ".") for text in texts] if commas else texts
            values, wrong = numbers_of(fields)
            parts[place].append(np.array(values))
            unread[place] += wrong
        else:
            parts[place].append(np.array([text.strip() for text in texts], dtype=np.str_))
    block.clear()


@contextmanager
def _rows(path: Path) -> Iterator[tuple[list[str], str, Iterator[tuple[int, list[str]]]]]:
    """Open a CSV file: its header, its separator, and its rows with the number of their last line."""
    try:
        with _opened(path) as stream:
            first = stream.readline()
            separator = max(SEPARATORS, key=_outside_quotes(first).count)
            lines = csv.reader(_from(first, stream), strict=True, delimiter=separator)
            header = [name.strip() for name in next(lines, [])]
            _check_header(path, header)
            yield header, separator, _whole(path, lines, len(header))
    except (UnicodeDecodeError, csv.Error) as error:
        way = "; save it as CSV UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        raise UnreadableFile(f"{path.name} is not a CSV file in UTF-8: {error}{way}") from error
    except (EOFError, DamagedStream, gzip.BadGzipFile) as error:
        raise UnreadableFile(f"{path.name} is not a whole gzip file: {error}") from error


def _whole(path: Path, lines: Any, columns: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty; one with more or fewer fields than the header is refused."""
    for row in lines:
        if not row:
            continue
        if len(row) != columns:
            raise UnreadableFile(f"{path.name}, line {lines.line_num}: {len(row)} fields, the header has {columns}")
        yield lines.line_num, row


def _opened(path: Path) -> TextIO:
    if path.name.lower().endswith(".gz"):
        return cast(TextIO, gzip.open(path, "rt", newline="", encoding="utf-8-sig"))
    return path.open(newline="", encoding="utf-8-sig")


def _from(first: str, stream: TextIO) -> Iterator[str]:
    yield first
    yield from stream


def _outside_quotes(line: str) -> str:
    """Return what is not inside quotation marks: names of columns may hold separators there."""
    return "".join(line.split('"')[::2])


def _check_header(path: Path, header: list[str]) -> None:
    if not header:
        raise UnreadableFile(f"{path.name} is empty; a header row is needed")
    # Unnamed columns are often numbered 0, 1, 2, ...; any other row of numbers is a record.
    counted = header == [str(i) for i in range(len(header))]
    if not counted and all(number(name.replace(",", ".")) is not None for name in header):
        raise UnreadableFile(f"{path.name} has no header row: its first line holds numbers only")
    seen: set[str] = set()
    for name in header:
        if name in seen:
            raise UnreadableFile(f"{path.name} has two columns named {name!r}")
        seen.add(name)


class _Numbers:
    """The features of a file, row by row.

    Parameters
    ----------
    path : Path
    names : sequence of str
        Of the columns.
    commas : bool
        Whether numbers may have decimal commas. Then none of the file may have a point, which could mean thousands.
    """

    def __init__(self, path: Path, names: Sequence[str], commas: bool) -> None:
        self._path, self._names, self._commas = path, names, commas
        self._values = array("d")
        self._comma, self._point = "", ""  # where the first of each is

    def append(self, fields: list[str], line: int) -> None:
        """Add a record, or name the column and line that hold no number."""
        if self._commas:
            fields = self._with_points(fields, line)
        if "_" not in "".join(fields):
            before = len(self._values)
            try:
                self._values.extend(map(float, fields))
                return
            except ValueError:
                del self._values[before:]
        for field, name in zip(fields, self._names, strict=True):
            value = float("nan") if field.strip().lower() in MISSING_TOKENS else number(field)
            if value is None:
                raise NotNumeric(
                    f"column {name!r} of {self._path.name} holds {field!r} in line {line}; features must be "
                    "numbers (name the label or client column, drop this one, or write a schema: dpfedvis data schema)"
                )
            self._values.append(value)

    def table(self) -> NDArray[np.float64]:
        """Return all records, shape (n, m)."""
        if not self._values:
            raise UnreadableFile(f"{self._path.name} has a header row and no records")
        if self._comma and self._point:
            raise NotNumeric(
                f"{self._path.name} has numbers with decimal commas ({self._comma}) and others with points "
                f"({self._point}); write all in one way, without separators of thousands"
            )
        return np.frombuffer(self._values, dtype=np.float64).reshape(-1, len(self._names))

    def _with_points(self, fields: list[str], line: int) -> list[str]:
        joined = "".join(fields)
        if "." in joined and not self._point:
            self._point = f"line {line}"
        if "," not in joined:
            return fields
        self._comma = self._comma or f"line {line}"
        return [field.replace(",", ".") for field in fields]
