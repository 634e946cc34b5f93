"""A data set before it is split, what one client holds of it, and where each record sits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfedvis.data.checks import Missing, read_only
from dpfedvis.data.errors import InvalidData
from dpfedvis.data.schema import Schema

Origin: TypeAlias = Literal["memory", "built-in", "file", "federation"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records with what is publicly known about them.

    Attributes
    ----------
    name : str
    X : read-only array of shape (n, m)
        May hold NaN if `missing` is a rule for filling them; each client fills its own.
    y : read-only array of shape (n,) or None
        Of a built-in data set, class numbers, which index `class_names`. Of a file, its labels as text: which of them
        occur is private, so that nothing numbers them here.
    class_names : tuple of str
        The public classes of a built-in data set; empty for a file.
    groups : read-only array of shape (n,) or None
        The client column: rows with the same value belong together (one mouse, one hospital).
    feature_range : (float, float) or None
        Bounds that follow from the format, such as (0, 1) for pixels; never measured.
    image_shape : tuple of int or None
    source : str
        Where it was read from.
    sha256 : str
        Of the file, or of the bytes of X if there is no file.
    missing : {"refuse", "client-mean", "public-value"}
    licence : str
        As far as known.
    origin : {"memory", "built-in", "file", "federation"}
        Whether it is of the catalogue, from a file of the user's, or at sites that this process knows by name only: it
        then has no records.
    files : tuple of Path
        The files that it was read from.
    clients : tuple of str
        Names of the clients that it comes with, those without records too; empty if it comes with none. `groups` says
        which record is whose, unless there is only one client.
    ids, persons : read-only text arrays of shape (n,) or None
        What each record and its person are called at home.
    own : mapping of str to array of shape (n,)
        Columns as they were read, for a client's own view.
    schema : Schema or None
        What prepared the records.
    notes : tuple of str
        What was found while reading. It tells of the records: for their owner alone.
    """

    name: str
    X: NDArray[Any]
    y: NDArray[Any] | None
    class_names: tuple[str, ...]
    groups: NDArray[Any] | None
    feature_range: tuple[float, float] | None
    image_shape: tuple[int, ...] | None
    source: str
    sha256: str
    missing: Missing = "refuse"
    licence: str = "not known"
    origin: Origin = "memory"
    files: tuple[Path, ...] = ()
    clients: tuple[str, ...] = ()
    ids: NDArray[Any] | None = None
    persons: NDArray[Any] | None = None
    own: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    schema: Schema | None = None
    notes: tuple[str, ...] = ()

    def taking(self, rows: NDArray[np.int64]) -> Self:
        """Return the data set with these records only."""
        arrays = {name: getattr(self, name) for name in ("X", "y", "groups", "ids", "persons")}
        kept: dict[str, Any] = {name: None if each is None else read_only(each[rows]) for name, each in arrays.items()}
        return replace(self, **kept, own={name: column[rows] for name, column in self.own.items()})

    def __repr__(self) -> str:
        n, m = self.X.shape
        classes = f", {len(self.class_names)} classes" if self.class_names else ""
        return f"Dataset({self.name!r}, {n} records, {m} features{classes})"

    def numbered(self) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
        """Return class numbers, shape (n,), and the names that they index.

        For the owner of the data and for simulations: the labels of a file are numbered by those that occur.
        """
        if self.y is None or self.class_names:
            return self.y, self.class_names
        return number_labels(self.y)


@dataclass(frozen=True, eq=False)
class ClientRecords:
    """What one client holds.

    Attributes
    ----------
    name : str
        As it may be published.
    X : read-only array of shape (n_p, m)
    y : read-only array of shape (n_p,) or None
        For evaluation, and for a density by class.
    imputed : int
        Number of missing values of X that were filled in.
    own_name : str
        What the client is called at home, where `name` is a neutral one.
    ids, persons : read-only text arrays of shape (n_p,) or None
        What records and their persons are called at home.
    own : mapping of str to array of shape (n_p,)
        Columns of the client's own file as they were read.
    """

    name: str
    X: NDArray[Any]
    y: NDArray[Any] | None
    imputed: int = 0
    own_name: str = ""
    ids: NDArray[Any] | None = None
    persons: NDArray[Any] | None = None
    own: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "own_name", self.own_name or self.name)

    @property
    def n_persons(self) -> int | None:
        """Number of persons; None if records do not say who they are of."""
        return None if self.persons is None else len(np.unique(self.persons))

    def __repr__(self) -> str:
        return f"ClientRecords({self.name!r}, {self.X.shape[0]} records)"


@runtime_checkable
class PublicFeatures(Protocol):
    """A map of each record by itself, chosen without looking at the data.

    It costs no ε. It changes no sensitivity either, because records are clipped after it, and sensitivities hold for
    all points of the clipped range.
    """

    @property
    def name(self) -> str:
        """Return a short name for people, such as "hog 28x28"."""
        ...

    @property
    def digest(self) -> str:
        """Return the SHA-256, in hex, that identifies the function and its settings."""
        ...

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Return the public range of every output value, if there is one."""
        ...

    @property
    def norm(self) -> float | None:
        """Return a public bound on the norm of an output row, if there is a sharper one than `bounds` gives."""
        ...

    def __call__(self, X: NDArray[Any], /) -> ArrayLike:
        """Map records, shape (n, m), to shape (n, m')."""
        ...


@dataclass(frozen=True, eq=False)
class RecordIndex:
    """Where each record is.

    Attributes
    ----------
    slices : tuple of slice
        Client p's part of the pooled order (client 0's records, then client 1's, ...).
    rows : read-only int64 array of shape (n,)
        Original row number of each record in pooled order.
    """

    slices: tuple[slice, ...]
    rows: NDArray[np.int64]

    def restore(self, values: ArrayLike) -> NDArray[Any]:
        """Return a result in pooled order, shape (n, ...), in the original order of the rows."""
        pooled = np.asarray(values)
        if pooled.ndim < 1 or len(pooled) != len(self.rows):
            raise InvalidData(f"expected {len(self.rows)} values in pooled order, got shape {pooled.shape}")
        out = np.empty_like(pooled)
        out[self.rows] = pooled
        return out


def pooled_index(records: tuple[int, ...], rows: NDArray[np.int64]) -> RecordIndex:
    """Return the index for clients of the given sizes, and rows of shape (n,) in pooled order."""
    ends = np.cumsum(records)
    slices = tuple(slice(int(end) - n, int(end)) for n, end in zip(records, ends, strict=True))
    return RecordIndex(slices, read_only(rows))


def number_labels(labels: NDArray[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Number labels, shape (n,), by those that occur, in order; numbers written as text sort as numbers."""
    values, codes = np.unique(labels, return_inverse=True)
    names = [str(value) for value in values]
    try:
        order = np.argsort([float(text) for text in names], kind="stable")
    except ValueError:
        return codes.astype(np.int64), tuple(names)
    return np.argsort(order)[codes].astype(np.int64), tuple(names[i] for i in order)


def name_labels(labels: NDArray[Any], names: Sequence[str]) -> NDArray[np.str_]:
    """Return labels, shape (n,), as text: the class that a number stands for where classes have names."""
    if not names or labels.dtype.kind not in "iu":
        return labels.astype(np.str_)
    # A number beyond the names stays a number: to refuse it would tell that it occurs.
    return np.array([names[at] if 0 <= at < len(names) else str(at) for at in labels.tolist()], dtype=np.str_)
