"""A data set before it is split, what one client holds of it, and where each record sits."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfedvis.data.checks import Missing, read_only
from dpfedvis.data.errors import InvalidData


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records with what is publicly known about them.

    Attributes
    ----------
    name : str
    X : read-only array of shape (n, m)
        May hold NaN if `missing` is a rule for filling them; each client fills its own.
    y : read-only int64 array of shape (n,) or None
        Class numbers, which index `class_names`.
    class_names : tuple of str
        Empty without labels.
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
    """

    name: str
    X: NDArray[Any]
    y: NDArray[np.int64] | None
    class_names: tuple[str, ...]
    groups: NDArray[Any] | None
    feature_range: tuple[float, float] | None
    image_shape: tuple[int, ...] | None
    source: str
    sha256: str
    missing: Missing = "refuse"
    licence: str = "not known"

    def __repr__(self) -> str:
        n, m = self.X.shape
        return f"Dataset({self.name!r}, {n} records, {m} features, {len(self.class_names)} classes)"


@dataclass(frozen=True, eq=False)
class ClientRecords:
    """What one client holds.

    Attributes
    ----------
    name : str
    X : read-only array of shape (n_p, m)
    y : read-only array of shape (n_p,) or None
        For evaluation, and for a density by class.
    imputed : int
        Number of missing values of X that were filled in.
    """

    name: str
    X: NDArray[Any]
    y: NDArray[Any] | None
    imputed: int = 0

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
