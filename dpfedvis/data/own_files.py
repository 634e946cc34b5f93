"""Files and frames of the user's as one data set: each is a client, prepared by a public schema, or plain numbers."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.checks import Missing, as_labels, as_matrix, read_only, refuse_bad
from dpfedvis.data.errors import InvalidData, MissingValues, NotFinite, UnknownColumn
from dpfedvis.data.files import ENDINGS, read, read_columns
from dpfedvis.data.records import Dataset, name_labels
from dpfedvis.data.schema import Schema
from dpfedvis.data.tables import ColumnTable, of_frame


@dataclass(frozen=True, eq=False)
class Table:
    """The records of one file or frame, as they take part.

    Parameters
    ----------
    X : array of shape (n, m)
    roles : mapping of str to text array of shape (n,)
        Labels, clients, persons and ids, by role; see `Schema`.
    features : tuple of str
        Names of the m features; empty if they have none.
    own : mapping of str to array of shape (n,)
        Columns as they were read.
    notes : tuple of str
        What was found, for the owner of the file.
    image_shape : tuple of int, optional
    """

    X: NDArray[Any]
    roles: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    own: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    image_shape: tuple[int, ...] | None = None

    def first(self, records: int | None) -> Self:
        """Return the table with its first so many records only; None for all."""
        if records is None:
            return self
        roles, own = ({name: each[:records] for name, each in held.items()} for held in (self.roles, self.own))
        return replace(self, X=self.X[:records], roles=roles, own=own)


def load_files(
    paths: Sequence[Path],
    schema: Schema | None,
    label_column: str | None,
    client_column: str | None,
    missing: Missing,
    records: int | None = None,
) -> Dataset:
    """Return files as one data set: all records, or the first. Several files are one client each, named by the file."""
    names = [client_name(path) for path in paths]
    for name, path in zip(names, paths, strict=True):
        if names.count(name) > 1:
            raise InvalidData(f"two files are called {name!r}, as their clients would be; rename {path}")
    if schema is not None and (label_column or client_column):
        raise InvalidData("label and client column are those of the schema: give them their roles there")
    if schema is not None and missing == "client-mean":
        raise InvalidData("a schema fills missing values by itself (fill); leave missing='client-mean' out")
    tables: list[Table] = []
    headers: dict[str, Sequence[str]] = {}
    for path in paths:
        left = None if records is None else max(records - sum(len(each.X) for each in tables), 0)
        if schema is None:
            tables.append(_plain(path, label_column, client_column, missing, left))
        else:
            read_table = read_columns(path, schema.is_number)
            headers[path.name] = list(read_table.columns)
            schema.check_units(headers)
            tables.append(prepared(read_table, schema).first(left))
    if len(paths) > 1 and "client" in tables[0].roles:
        raise InvalidData(
            f"{len(paths)} files are one client each, and {paths[0].name} has a client column, too; give one of the two"
        )
    whole, hashes = joined(dict(zip(names, tables, strict=True)), schema), [file_sha256(path) for path in paths]
    single = len(paths) == 1
    shown = ", ".join(names[:3]) + ", …" * (len(names) > 3)
    return replace(
        whole,
        name=paths[0].name if single else f"{len(paths)} files ({shown})",
        source=", ".join(map(str, paths)),
        sha256=hashes[0] if single else hashlib.sha256("".join(hashes).encode()).hexdigest(),
        files=tuple(paths),
        missing=whole.missing if schema is not None else missing,
        origin="file",
    )


def load_frames(frames: Mapping[str, Any], schema: Schema) -> Dataset:
    """Return data frames as one data set, a client each."""
    if not isinstance(frames, Mapping) or not frames:
        raise InvalidData("data frames are given by the names of their clients, at least one: {'north': frame}")
    tables = {name: of_frame(name, frame, schema.is_number) for name, frame in frames.items()}
    schema.check_units({name: table.columns for name, table in tables.items()})
    return joined({name: prepared(table, schema) for name, table in tables.items()}, schema)


def joined(tables: Mapping[str, Table], schema: Schema | None) -> Dataset:
    """Return the records of clients as one data set; of a single table, its client column makes the clients."""
    parts, names = list(tables.values()), list(tables)
    for name, part in tables.items():
        if part.features != parts[0].features or part.X.shape[1] != parts[0].X.shape[1]:
            raise UnknownColumn(_difference(names[0], parts[0], name, part))
    groups: NDArray[Any] | None = np.repeat(np.array(names, dtype=np.str_), [len(part.X) for part in parts])
    clients = tuple(names)
    if len(parts) == 1:
        groups = parts[0].roles.get("client")
        clients = clients if groups is None else tuple(np.unique(groups).tolist())
    shapes = {part.image_shape for part in parts}
    return Dataset(
        name=", ".join(names),
        X=read_only(_concatenated([part.X for part in parts])),
        y=_all("label", tables),
        class_names=(),
        groups=None if groups is None else read_only(groups),
        feature_range=None if schema is None else schema.bounds,
        image_shape=shapes.pop() if len(shapes) == 1 else None,
        source="memory",
        sha256="",
        missing="refuse" if schema is None else "public-value",
        clients=clients,
        ids=_all("id", tables),
        persons=_all("person", tables),
        own=_own(parts),
        schema=schema,
        notes=(*(note for part in parts for note in part.notes), *_shared_persons(tables, groups)),
    )


def _shared_persons(tables: Mapping[str, Table], groups: NDArray[Any] | None) -> list[str]:
    """Say how many names of persons occur at several clients."""
    persons = _all("person", tables)
    if persons is None or groups is None:
        return []
    pairs = np.unique(np.stack([persons, groups.astype(np.str_)]), axis=1)[0]
    number = int((np.unique(pairs, return_counts=True)[1] > 1).sum())
    if not number:
        return []
    return [
        f"{number} {'names' if number > 1 else 'name'} of persons at several clients: if that is one person, its ε is "
        "that of a person at two sites"
    ]


def prepared(table: ColumnTable, schema: Schema) -> Table:
    """Return a table as the schema prepares it; its columns are kept for the client's own view."""
    found = schema.prepare(table)
    return Table(found.X, found.roles, schema.feature_names, table.columns, found.notes)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def client_name(path: Path) -> str:
    """Return the name of a file without its endings, by which its client is called."""
    name = path.name
    for end in (".gz", *ENDINGS):
        if name.lower().endswith(end):
            name = name[: -len(end)]
    return name or path.name


def _plain(
    path: Path, label_column: str | None, client_column: str | None, missing: Missing, records: int | None
) -> Table:
    """Return the first records of a file of plain numbers, as they are; None for all."""
    table, what = read(path, label_column, client_column), path.name
    raw = table.X
    shape = tuple(int(side) for side in raw.shape[1:]) if raw.ndim > 2 else None
    raw = as_matrix(raw.reshape(len(raw), -1) if raw.ndim > 2 else raw, what)
    roles: dict[str, NDArray[Any]] = {}
    for role, noun, column in (("label", "labels", table.labels), ("client", "groups", table.groups)):
        if column is not None:
            values = as_labels(column, len(raw), what, noun)
            roles[role] = name_labels(values, (table.class_names or ()) if role == "label" else ())
            if empty := int(np.isin(np.char.lower(roles[role]), ["", "nan"]).sum()):
                words = "label" if role == "label" else "client column"
                raise InvalidData(f"{what} has {empty} records with a missing {words}")
    # float64 stays, all else becomes float32.
    X = raw[:records].astype(raw.dtype if raw.dtype in (np.float32, np.float64) else np.float32, copy=False)
    roles = {role: each[:records] for role, each in roles.items()}
    refuse_bad(np.isinf(X), what, "infinite", NotFinite, table.features)
    if missing == "refuse":
        refuse_bad(np.isnan(X), what, "NaN", MissingValues, table.features)
    own = {name: X[:, number] for number, name in enumerate(table.features)}
    named = {label_column or "label": roles.get("label"), client_column or "client": roles.get("client")}
    own |= {name: each for name, each in named.items() if each is not None}
    return Table(X, roles, table.features, own, image_shape=shape)


def _all(role: str, tables: Mapping[str, Table]) -> NDArray[Any] | None:
    """Join a role's column of all tables; None if none has it, an error if only some do."""
    columns = {client: table.roles.get(role) for client, table in tables.items()}
    given = [column for column in columns.values() if column is not None]
    if not given:
        return None
    for client, column in columns.items():
        if column is None:
            raise InvalidData(f"{client} has no {role} column, and other clients have one")
    return read_only(np.concatenate(given))


def _concatenated(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _own(parts: Sequence[Table]) -> dict[str, NDArray[Any]]:
    """Columns of all files, joined; empty where a file has no such column."""
    found: dict[str, NDArray[Any]] = {}
    for name in dict.fromkeys(name for part in parts for name in part.own):
        kind = next(part.own[name].dtype.kind for part in parts if name in part.own)
        gap = "" if kind == "U" else np.nan
        found[name] = _concatenated([part.own.get(name, np.full(len(part.X), gap)) for part in parts])
    return found


def _difference(first: str, one: Table, second: str, other: Table) -> str:
    lacking = [name for name in one.features if name not in other.features]
    more = [name for name in other.features if name not in one.features]
    if lacking or more:
        name, has, lacks = (lacking[0], first, second) if lacking else (more[0], second, first)
        return f"{has} has a column {name!r} that {lacks} has not; all clients need the same features"
    if one.X.shape[1] == other.X.shape[1]:
        return f"{first} and {second} have their columns in another order; write them in one order, or give a schema"
    return f"{first} has {one.X.shape[1]} features and {second} has {other.X.shape[1]}"
