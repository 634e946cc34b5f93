"""A data set before it is split, what one client holds of it, and where each record sits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfedvis.data.checks import Missing, read_only
from dpfedvis.data.errors import InvalidData

Origin: TypeAlias = Literal["memory", "built-in", "file"]


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
    origin : {"memory", "built-in", "file"}
        Whether it is of the catalogue, or from a file of the user's.
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
    """

    name: str
    X: NDArray[Any]
    y: NDArray[Any] | None
    imputed: int = 0
    own_name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "own_name", self.own_name or self.name)

    def __repr__(self) -> str:
        return f"ClientRecords({self.name!r}, {self.X.shape[0]} records)"


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
