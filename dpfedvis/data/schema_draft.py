"""A first draft of a schema, made at home from files: kinds are guessed, and what must be public is left open.

Ranges and lists of values stay out unless they are asked for, and the schema then says that they were measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.columns import Kind, as_text, days_of, is_missing
from dpfedvis.data.errors import InvalidData
from dpfedvis.data.files import read_columns
from dpfedvis.data.schema import as_toml, unit_in
from dpfedvis.data.tables import numbers_of

MOST_CATEGORIES = 20
_MOSTLY = 0.95  # of the values that are there
_FORMATS = ("", "%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d", "%d/%m/%Y")
_HEAD = """\
# A draft, made at home from: {files}
# The schema is public and the same at all sites. What is commented out is needed: take it from public knowledge
# (code lists, textbooks, what a device can measure), not from the files.
# Roles: feature, label, client, person, id, drop. Kinds: number, category, ordered, date.
# More settings: log = true, unit = "mg/dl", fill = VALUE, weight = 2.
"""
_MEASURED = """\
# Ranges and lists below were measured on private data. They are not covered by ε, and every statement says so.
"""
_PERSONS = ("patient", "person", "subject", "pid", "case", "participant")
_IDS = ("id", "nr", "no", "number", "mrn", "uuid", "key", "name")


@dataclass(frozen=True)
class Guess:
    """What a column seems to be.

    Parameters
    ----------
    kind : str
    format : str
        Of dates.
    drop : str
        Why it is no feature; empty if it may be one.
    measured : tuple
        Smallest and largest value, or the values that occur. Private.
    """

    kind: Kind
    format: str = ""
    drop: str = ""
    measured: tuple[Any, ...] = ()


def draft(paths: Sequence[Path], *, ranges_from_data: bool = False) -> str:
    """Return a schema for files as TOML with comments.

    Parameters
    ----------
    paths : sequence of Path
        Files of one site, or of several for a trial.
    ranges_from_data : bool
        Whether to fill in ranges and lists as they are in the files.
    """
    columns: dict[str, list[NDArray[Any]]] = {}
    for path in paths:
        for name, values in read_columns(path, lambda header: False).columns.items():
            columns.setdefault(name, []).append(as_text(values))
    if not columns:
        raise InvalidData("the files have no columns")
    lines = [_HEAD.format(files=", ".join(path.name for path in paths))]
    lines += [_MEASURED] if ranges_from_data else []
    lines.append(as_toml({"ranges": "measured" if ranges_from_data else "public"}))
    for name, parts in columns.items():
        found = guess(name, np.concatenate(parts))
        lines.append(_column(name, found, ranges_from_data))
    return "\n".join(lines)


def guess(name: str, texts: NDArray[np.str_]) -> Guess:
    """Guess what a column is from its name and values, shape (n,)."""
    there = texts[~is_missing(texts)]
    if not len(there):
        return Guess("text", drop="no file has a value")
    distinct = np.unique(there)
    numbers, wrong = numbers_of([text.replace(",", ".") for text in distinct.tolist()])
    if len(distinct) == 1:
        return Guess("text", drop="it has one value only")
    words = "".join(letter if letter.isalnum() else " " for letter in name.lower()).split()
    whole = all(value == round(value) for value in numbers if np.isfinite(value))
    if len(distinct) == len(there) > 10 and (wrong == len(distinct) or (whole and words and words[-1] in _IDS)):
        for format in _FORMATS:
            if wrong and not days_of(distinct, format)[1]:
                return _date(distinct, format)
        return Guess("text", drop='every value differs, so that it may be an id; role = "id" shows it in the own view')
    if wrong <= (1 - _MOSTLY) * len(distinct):
        finite = [value for value in numbers if np.isfinite(value)]
        return Guess("number", measured=(min(finite), max(finite)))
    for format in _FORMATS:
        if days_of(distinct, format)[1] <= (1 - _MOSTLY) * len(distinct):
            return _date(distinct, format)
    if len(distinct) <= MOST_CATEGORIES:
        return Guess("category", measured=tuple(distinct.tolist()))
    if len(distinct) < len(there) and set(words) & set(_PERSONS):
        return Guess("text", drop='it may say who a record is of; role = "person" lets ε be that of a person')
    return Guess("text", drop=f"it is text with more than {MOST_CATEGORIES} values")


def _date(distinct: NDArray[np.str_], format: str) -> Guess:
    days = days_of(distinct, format)[0]
    ends = [date.fromordinal(int(day)) for day in (np.nanmin(days), np.nanmax(days))]
    return Guess("date", format, measured=tuple(ends))


def _column(header: str, found: Guess, measured: bool) -> str:
    name, unit = unit_in(header)
    settings: dict[str, Any] = {"role": "drop" if found.drop else "feature"}
    if not found.drop:
        settings["kind"] = found.kind
        if found.format:
            settings["format"] = found.format
    key = {"category": "values", "number": "range", "date": "range"}.get(found.kind)
    if measured and found.measured and key:
        settings[key] = list(found.measured)
    if unit and not found.drop:
        settings["unit"] = unit
    text = as_toml({"columns": {name: settings}})
    comments: Mapping[str, str] = {
        "number": "# range = [LOW, HIGH]            # which values can there be? Those beyond count as the ends",
        "category": '# values = ["ONE", "OTHER"]      # the public code list; all else counts as none of them',
        "date": "# range = [2000-01-01, 2030-12-31]   # which dates can there be?",
    }
    if found.drop:
        return f"# {found.drop}\n{text}"
    return text if measured else f"{text}{comments[found.kind]}\n"
