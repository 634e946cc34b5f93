"""A first draft of a schema, made at home from files: kinds are guessed, and what must be public is left open.

Ranges and lists of values stay out unless they are asked for, and the schema then says that they were measured. Why a
column is what it is may tell of the records: the remarks say it to their owner, and the schema does not.
"""

import math
import re
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
from dpfedvis.data.tables import numbers_of, some

MOST_CATEGORIES = 20
_MOSTLY = 0.95  # of the values that are there
_FEW = 10  # values that all differ by chance
_LARGEST = 1e30  # ends of a range are below it
_FORMATS = ("", "%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d", "%d/%m/%Y")
_DAY_OR_MONTH = ("%d/%m/%Y", "%m/%d/%Y")
_HEAD = """\
# A draft, made at home.
# The schema is public and the same at all sites. What is commented out is needed: take it from public knowledge
# (code lists, textbooks, what a device can measure), not from the files.
# Roles: feature, label, client, person, id, drop. Kinds: number, category, ordered, date.
# More settings: log = true, unit = "mg/dl", fill = VALUE, weight = 2.
"""
_MEASURED = """\
# Ranges and lists below were measured on private data. They are not covered by ε, and every statement says so.
"""
_DROP = 'role = "drop"'
_OPEN: Mapping[str, str] = {
    "number": "# range = [LOW, HIGH]            # which values can there be? Those beyond count as the ends\n",
    "category": '# values = ["ONE", "OTHER"]      # the public code list; all else counts as none of them\n',
    "date": "# range = [2000-01-01, 2030-12-31]   # which dates can there be?\n",
}
_OPEN_FORMAT = f'# format = "{_DAY_OR_MONTH[0]}"   # or "{_DAY_OR_MONTH[1]}"\n'
_UNITS = '# unit = "UNIT"                  # the files name different units: convert them to one\n'

# Words in the names of columns
_PERSONS = frozenset(
    {
        "patient",
        "patientin",
        "person",
        "subject",
        "participant",
        "proband",
        "probandin",
        "versicherte",
        "versicherter",
        "versicherten",
    }
)
_CASES = frozenset({"case", "fall", "pid"})  # also words for a yes or no
_IDS = frozenset({"id", "ids", "mrn", "uuid", "guid", "kennung", "kvnr", "ssn", "fallnummer"})
_COUNTERS = frozenset({"nr", "no", "num", "number", "nummer", "key"})
_NAMES = frozenset({"name", "vorname", "nachname", "surname", "lastname", "firstname"})
_PLACES = frozenset({"zip", "zipcode", "plz", "postcode", "postleitzahl"})
_JOINED = re.compile(r".+(nummer|kennung)|..+[^i]nr|(pat|patient|patienten|subject|person|case|fall|record|study)_?id")
_CODE = re.compile(r"0\d+")

_ID = 'role = "id" shows it in the own view (proposed: drop)'
_PERSON = 'role = "person" lets ε be that of a person (proposed: drop)'


@dataclass(frozen=True)
class Draft:
    """A draft of a schema.

    Parameters
    ----------
    text : str
        The schema as TOML with comments.
    remarks : tuple of str
        Why columns are proposed so. They tell of the records: for their owner alone.
    """

    text: str
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Guess:
    """What a column seems to be.

    Parameters
    ----------
    kind : str
    format : str
        Of dates.
    drop : str
        Why it is no feature; empty if it may be one. Private.
    measured : tuple
        Smallest and largest value, or the values that occur; empty if they are no range. Private.
    ambiguous : bool
        Whether days and months cannot be told apart, so that the format is open.
    remarks : tuple of str
        What else its owner should know. Private.
    """

    kind: Kind
    format: str = ""
    drop: str = ""
    measured: tuple[Any, ...] = ()
    ambiguous: bool = False
    remarks: tuple[str, ...] = ()


@dataclass
class _Found:
    """A column of the draft: its values file by file, and the headers that it has."""

    values: list[NDArray[np.str_]]
    headers: list[str]
    whole_header: bool = False  # is its name, brackets and all

    @property
    def units(self) -> list[str]:
        """Units that the headers name, "" for none."""
        return [""] if self.whole_header else list(dict.fromkeys(unit_in(header)[1] for header in self.headers))


def draft(paths: Sequence[Path], *, ranges_from_data: bool = False) -> Draft:
    """Return a schema for files, and remarks for their owner.

    Parameters
    ----------
    paths : sequence of Path
        Files of one site, or of several for a trial.
    ranges_from_data : bool
        Whether to fill in ranges and lists as they are in the files.
    """
    tables = [
        {header: as_text(values) for header, values in read_columns(path, lambda header: False).columns.items()}
        for path in paths
    ]
    headers = [header for table in tables for header in table]
    remarks = ["a column without a name is left out"] if any(not name.strip() for name in headers) else []
    columns = _gathered(tables)
    if not columns:
        raise InvalidData("the files have no columns")
    lines = [_HEAD] + ([_MEASURED] if ranges_from_data else [])
    lines.append(as_toml({"ranges": "measured" if ranges_from_data else "public"}))
    features = 0
    for name, column in columns.items():
        found = guess(name if column.whole_header else unit_in(name)[0], *column.values)
        features += not found.drop
        lines.append(_column(name, found, column.units, ranges_from_data))
        about = _about(found, column, len(tables), ranges_from_data)
        remarks += [f"column {name!r}: {remark}" for remark in about]
    if not features:
        remarks.append("no column seems to be a feature; a schema needs one")
    return Draft("\n".join(lines), tuple(remarks))


def guess(name: str, *files: NDArray[np.str_]) -> Guess:
    """Guess what a column is from its name and its values, an array of shape (n,) for each file."""
    there = [texts[~is_missing(texts)] for texts in files]
    distinct = np.unique(np.concatenate(there))
    if not len(distinct):
        return Guess("text", drop="no file has a value (proposed: drop)")
    if len(distinct) == 1:
        return Guess("text", drop="it has one value only (proposed: drop)")
    numbers, wrong = numbers_of([text.replace(",", ".") for text in distinct.tolist()])
    few_wrong = (1 - _MOSTLY) * len(distinct)
    coded = any(_CODE.fullmatch(text) for text in distinct.tolist())
    number = wrong <= few_wrong and not coded
    dated = None if coded or number else _date(distinct, few_wrong)
    if dated is not None:
        return dated
    # Two sites may both count from 1: values differ within a file.
    differ = all(len(np.unique(part)) == len(part) for part in there)
    many_differ = differ and max(map(len, there)) > _FEW
    whole = all(value == round(value) for value in numbers if math.isfinite(value))
    if (whole or not number) and (why := _named(name, len(distinct), differ, number or coded)):
        return Guess("text", drop=why)
    if many_differ and not number:
        return Guess("text", drop=f"every value differs, so that it may be an id; {_ID}")
    if number:
        return _number(numbers, many_differ and whole)
    if len(distinct) <= MOST_CATEGORIES:
        return Guess("category", measured=tuple(distinct.tolist()))
    what = "codes with leading zeros" if coded else "text"
    return Guess("text", drop=f"it is {what}, with more than {MOST_CATEGORIES} values (proposed: drop)")


def _words(name: str) -> list[str]:
    """Return the words of a name: PatientID2 is patient, id."""
    words = []
    for letters in re.findall(r"[^\W\d_]+", name):
        start = 0
        for i in range(1, len(letters)):
            if letters[i].isupper() and (letters[i - 1].islower() or letters[i + 1 : i + 2].islower()):
                words.append(letters[start:i].lower())
                start = i
        words.append(letters[start:].lower())
    return words


def _named(name: str, values: int, differ: bool, numbers: bool) -> str:
    """Return why a name is that of a person or an id; empty if it is not."""
    words = _words(name)
    if not words:
        return ""
    last, some_of = words[-1], set(words)
    persons = bool(some_of & (_PERSONS | _CASES))
    if some_of & _PLACES:
        return 'it is a code, not a number; role = "feature" needs kind = "category" and a list (proposed: drop)'
    counts = last in _COUNTERS and "of" not in words  # "number of visits" is a feature
    person = "of" not in words and (last in _PERSONS or (last in _CASES and (differ or values > 2)))
    sure = bool(some_of & _IDS) or any(_JOINED.fullmatch(word) for word in words)
    sure |= words == [last] and last in _NAMES
    sure |= last in _NAMES and bool(some_of & (_PERSONS | {"first", "last", "full", "family"}))
    sure |= counts and persons
    many = values > MOST_CATEGORIES or differ
    if not (sure or person or (counts and numbers and many)):
        return ""
    if differ:
        return f"every value differs, so that it may be an id; {_ID}"
    if persons:
        return f"it may say who a record is of; {_PERSON}"
    return f'its name is that of an id; role = "id" shows it in the own view, {_PERSON}'


def _number(numbers: Sequence[float], differ: bool) -> Guess:
    within = [value for value in numbers if abs(value) < _LARGEST]
    remarks = ["its whole numbers all differ; if it is an id, give it the role id"] if differ else []
    if any(abs(value) >= _LARGEST for value in numbers):
        remarks.append(f"it has values beyond ±{_LARGEST:g}, which have no part in a range")
    ends = (min(within), max(within)) if within else (0.0, 0.0)
    # As a column needs it: apart by more than the rounding of float32.
    apart = ends[1] - ends[0] > 1e-6 * max(map(abs, ends))
    return Guess("number", measured=ends if apart else (), remarks=tuple(remarks))


def _date(distinct: NDArray[np.str_], few_wrong: float) -> Guess | None:
    """Return dates in the format that fits most texts; None if none fits."""
    wrong = {format: days_of(distinct, format)[1] for format in _FORMATS}
    format = min(_FORMATS, key=lambda each: wrong[each])
    if wrong[format] > few_wrong:
        return None
    if format in _DAY_OR_MONTH and wrong[_DAY_OR_MONTH[0]] == wrong[_DAY_OR_MONTH[1]]:
        return Guess("date", ambiguous=True, remarks=("day and month cannot be told apart; its format is left open",))
    days = days_of(distinct, format)[0]
    first, last = (date.fromordinal(int(day)) for day in (np.nanmin(days), np.nanmax(days)))
    return Guess("date", format, measured=(first, last) if first < last else ())


def _gathered(tables: Sequence[Mapping[str, NDArray[np.str_]]]) -> dict[str, _Found]:
    """Return columns by name, in the order of the files.

    A name has no brackets, unless a file has it twice: "glucose (fasting)" and "glucose (random)" stay apart.
    """
    shorts = {unit_in(header)[0] for table in tables for header in table}
    # The short name of "a (b) [c]" may be another header, "a (b)".
    twice = {short for short in shorts if unit_in(short)[0] in shorts - {short}}
    for table in tables:
        names = [unit_in(header)[0] for header in table]
        twice.update(name for name in names if names.count(name) > 1)
    columns: dict[str, _Found] = {}
    for table in tables:
        for header, values in table.items():
            if not header.strip():
                continue
            short = unit_in(header)[0]
            column = columns.setdefault(header if short in twice else short, _Found([], [], short in twice))
            column.values.append(values)
            column.headers += [header] if header not in column.headers else []
    return columns


def _about(found: Guess, column: _Found, files: int, measured: bool) -> list[str]:
    """Return remarks on a column."""
    remarks = [found.drop] if found.drop else list(found.remarks)
    if len(column.units) > 1 and not found.drop:
        remarks.append(f"the files name different units ({some(column.headers)}); convert them to one, and draft anew")
    if len(column.values) < files:
        remarks.append(f"{len(column.values)} of {files} files {'has' if len(column.values) == 1 else 'have'} it")
    if measured and not (found.drop or found.measured or found.ambiguous):
        remarks.append("its values make no range, which is left open")
    return remarks


def _column(name: str, found: Guess, units: Sequence[str], measured: bool) -> str:
    """Return a column as TOML; its comments tell nothing of the records."""
    if found.drop:
        text = as_toml({"columns": {name: {"role": "drop"}}})
        return text.replace(f"{_DROP}\n", f"{_DROP}   # or: id, person, feature\n")
    settings: dict[str, Any] = {"role": "feature", "kind": found.kind}
    if found.format:
        settings["format"] = found.format
    filled = measured and bool(found.measured)
    if filled:
        settings["values" if found.kind == "category" else "range"] = list(found.measured)
    if len(units) == 1 and units[0]:
        settings["unit"] = units[0]
    text = as_toml({"columns": {name: settings}})
    text += _OPEN_FORMAT if found.ambiguous else ""
    text += "" if filled else _OPEN[found.kind]
    return text + (_UNITS if len(units) > 1 else "")
