"""The public schema of a table: what each column is, the same at all sites. A TOML file that people write together."""

import hashlib
import json
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import tomli_w
from numpy.typing import NDArray

from dpfedvis.data.columns import Column, InvalidSchema, Role, as_text, is_missing
from dpfedvis.data.errors import InvalidData, UnknownColumn
from dpfedvis.data.tables import ColumnTable, some

Ranges: TypeAlias = Literal["public", "measured"]
MANY = 20  # values, of which one at least can be read if the column is what the schema says
SINGLE: tuple[Role, ...] = ("label", "client", "person", "id")  # roles of one column at most
_UNIT = re.compile(r"(.*\S)\s*[\[(]([^\[\]()]*)[\])]")


@dataclass(frozen=True, eq=False)
class Prepared:
    """The records of one table, as a schema prepares them.

    Parameters
    ----------
    X : array of shape (n, m)
        Each value from 0 to the weight of its column.
    roles : mapping of str to text array of shape (n,)
        Labels, clients, persons and ids, by role.
    notes : tuple of str
        What was filled, ignored or unknown, with columns and counts. They tell of the records: for their owner alone.
    """

    X: NDArray[np.float32]
    roles: Mapping[str, NDArray[np.str_]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """What is publicly known of the columns.

    Parameters
    ----------
    columns : tuple of Column
        In the order of the features.
    ranges : {"public", "measured"}
        Where ranges and lists come from. Measured on private data, they are not covered by ε, and statements say so.
    """

    columns: tuple[Column, ...]
    ranges: Ranges = "public"

    def __post_init__(self) -> None:
        if self.ranges not in get_args(Ranges):
            raise InvalidSchema(f"ranges must be public or measured, not {self.ranges!r}")
        seen: set[str] = set()
        for column in self.columns:
            if column.name in seen:
                raise InvalidSchema(f"two columns are named {column.name!r}")
            seen.add(column.name)
        for role in SINGLE:
            named = [column.name for column in self.columns if column.role == role]
            if len(named) > 1:
                raise InvalidSchema(f"{named[0]!r} and {named[1]!r} both have the role {role}")
        if not self.features:
            raise InvalidSchema("no column has the role feature")

    @classmethod
    def read(cls, path: str | Path) -> "Schema":
        """Read a schema from a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise InvalidSchema(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
        try:
            return cls.of(tomllib.loads(text))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidSchema(f"{path} is not TOML: {error}") from error
        except InvalidSchema as error:
            raise InvalidSchema(f"{path}: {error}") from error

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Schema":
        """Return the schema with these settings: ``ranges``, and a table of columns by name."""
        for key in values:
            if key not in ("ranges", "columns"):
                raise InvalidSchema(f"there is no setting {key!r}; a schema has ranges and columns")
        columns = values.get("columns")
        if not isinstance(columns, Mapping) or not columns:
            raise InvalidSchema("there are no columns; each is a table such as [columns.age]")
        found, wrong = [], []
        for name, each in columns.items():
            try:
                found.append(Column.of(name, each))
            except InvalidSchema as error:
                wrong.append(str(error))
        if wrong:
            raise InvalidSchema(wrong[0] + (f"; {len(wrong) - 1} more columns are to be mended" if wrong[1:] else ""))
        return cls(tuple(found), values.get("ranges", "public"))

    def to_toml(self) -> str:
        """Return the schema as a TOML file has it."""
        return as_toml({"ranges": self.ranges, "columns": {each.name: each.to_dict() for each in self.columns}})

    @cached_property
    def sha256(self) -> str:
        """Hash of all that it says; order counts, comments do not."""
        facts = [self.ranges, [[each.name, each.to_dict()] for each in self.columns]]
        return hashlib.sha256(json.dumps(facts, default=str, sort_keys=True).encode()).hexdigest()

    # Public facts of the prepared records

    @cached_property
    def features(self) -> tuple[Column, ...]:
        """The columns that are features."""
        return tuple(column for column in self.columns if column.role == "feature")

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the m prepared features."""
        return tuple(name for column in self.features for name in column.feature_names)

    @property
    def bounds(self) -> tuple[float, float]:
        """Range that all prepared values lie in."""
        return 0.0, max(column.largest for column in self.features)

    @property
    def norm(self) -> float:
        """Bound on the norm of a prepared record: of a category at most one value is not 0."""
        return math.sqrt(math.fsum(column.largest**2 for column in self.features))

    @property
    def classes(self) -> tuple[str, ...]:
        """The public list of the label, if it has one."""
        return next((column.values for column in self.columns if column.role == "label"), ())

    def named(self, role: Role) -> str | None:
        """Return the name of the column that has a role of one column; None if none has it."""
        return next((column.name for column in self.columns if column.role == role), None)

    def is_number(self, header: str) -> bool:
        """Whether the column under this header holds numbers; ids, persons and clients never do."""
        header = unicodedata.normalize("NFC", header)
        column = self._by_name.get(header) or self._by_name.get(unit_in(header)[0])
        return column is not None and column.role == "feature" and column.kind == "number"

    def check_units(self, headers: Mapping[str, Iterable[str]]) -> None:
        """Refuse tables, by name, whose headers have different units for one column."""
        seen: dict[str, tuple[str, str]] = {}
        for table, own in headers.items():
            for header, name in self._named(own, table).items():
                unit = unit_in(header)[1] if header != name else ""
                other, known = seen.setdefault(name, (table, unit)) if unit else (table, unit)
                if known != unit:
                    raise InvalidSchema(
                        f"column {name!r} is in {known} in {other}, and in {unit} in {table}; convert one"
                    )

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    # Records

    def prepare(self, table: ColumnTable, *, features_only: bool = False) -> Prepared:
        """Return the records of a table: each value by itself, from public facts alone.

        Parameters
        ----------
        table : ColumnTable
        features_only : bool
            Do without labels, persons and ids.
        """
        headers = {name: header for header, name in self._named(table.columns, table.name).items()}
        roles_used = ("feature",) if features_only else ("feature", *SINGLE)
        used = [column for column in self.columns if column.role in roles_used]
        for column in used:
            if column.name not in headers:
                raise UnknownColumn(
                    f"{table.name} has no column {column.name!r}, which the schema has; it has "
                    f"{some(list(table.columns))}"
                )
        notes, known = [], set(headers.values())
        if unknown := [header or "a column without a name" for header in table.columns if header not in known]:
            notes.append(f"{table.name}: the schema does not know, and leaves out: {some(unknown)}")
        parts: list[NDArray[np.float32]] = []
        roles: dict[str, NDArray[np.str_]] = {}
        for column in used:
            values = table.columns[headers[column.name]]
            if column.role == "feature":
                part, missing, other, beyond = column.encoded(values)
                parts.append(part)
                unread = table.unread.get(headers[column.name], 0)
                if MANY <= len(part) == other + unread and column.kind in ("number", "date"):
                    raise InvalidData(
                        f"column {column.name!r} of {table.name}: none of its {len(part)} values is a {column.kind}"
                        f"{f' in the format {column.format}' if column.format else ''}; correct its kind or its values"
                    )
                notes += _counted(table.name, column, missing - unread, other + unread, beyond)
            elif column.role == "label":
                roles["label"] = column.classes_of(values)
            else:
                roles[column.role] = self._named_values(table.name, column, values)
        return Prepared(np.concatenate(parts, axis=1), roles, tuple(notes))

    def _named_values(self, table: str, column: Column, values: NDArray[Any]) -> NDArray[np.str_]:
        """Return clients, persons or ids; who has no client or person cannot take part."""
        texts = np.char.strip(as_text(values))
        gaps = int(is_missing(texts).sum())
        if gaps and column.role != "id":
            raise InvalidData(f"{table} has {gaps} records without a {column.role}, in column {column.name!r}")
        return texts

    def _named(self, headers: Iterable[str], table: str = "") -> dict[str, str]:
        """Return the column that each header is for; a header may have its unit in brackets."""
        found: dict[str, str] = {}
        taken: set[str] = set()
        for header in headers:
            plain = unicodedata.normalize("NFC", header)
            name, unit = unit_in(plain)
            if plain in self._by_name:
                name = plain
            elif name in self._by_name:
                column = self._by_name[name]
                if column.role == "feature" and column.unit and unit != column.unit:
                    raise InvalidSchema(
                        f"column {name!r} of {table or 'a file'} is in {unit}, and the schema says {column.unit}; "
                        "convert it, or correct its header"
                    )
            else:
                continue
            if name in taken:
                raise InvalidSchema(f"two columns of {table or 'a file'} are column {name!r} of the schema; drop one")
            taken.add(name)
            found[header] = name
        return found


def as_toml(values: Mapping[str, Any]) -> str:
    """Return settings as TOML, a list in one line."""
    return re.sub(r"\[\n((?:    .*,\n)+)\]", _in_a_line, tomli_w.dumps(values))


def _in_a_line(found: re.Match[str]) -> str:
    lines = [line.strip() for line in found[1].splitlines()]
    return f"[{' '.join(lines)[:-1]}]"


def unit_in(header: str) -> tuple[str, str]:
    """Return name and unit of a header such as "pressure [mmHg]"; without brackets there is no unit."""
    match = _UNIT.fullmatch(header)
    return (match[1], match[2].strip()) if match else (header, "")


def _counted(table: str, column: Column, missing: int, other: int, beyond: int) -> list[str]:
    """Say how many values of a column were filled or clipped, and why."""
    filled = "none of the list" if column.kind == "category" else "the middle"
    by = f"filled with {filled if column.fill is None else column.fill}"
    wrong = "not in the list" if column.kind in ("category", "ordered") else f"no {column.kind}"
    found = [
        (missing, f"missing, {by}"),
        (other, f"{wrong}, {by}"),
        (beyond, "beyond the range, and counted as its end"),
    ]
    return [
        f"{table}, column {column.name!r}: {number} {'values are' if number > 1 else 'value is'} {what}"
        for number, what in found
        if number
    ]
