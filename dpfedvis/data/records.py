"""What one client holds, and where its records sit in the whole."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfedvis.data.checks import read_only
from dpfedvis.data.errors import InvalidData


@dataclass(frozen=True, eq=False)
class ClientRecords:
    """What one client holds.

    Attributes
    ----------
    name : str
    X : read-only array of shape (n_p, m)
    y : read-only array of shape (n_p,) or None
        For evaluation only; no mechanism reads it.
    imputed : int
        Number of values of X that were missing and filled in.
    """

    name: str
    X: NDArray[Any]
    y: NDArray[Any] | None
    imputed: int = 0

    def __repr__(self) -> str:
        return f"ClientRecords({self.name!r}, {self.X.shape[0]} records)"


@dataclass(frozen=True, eq=False)
class RecordIndex:
    """Where each record sits.

    Attributes
    ----------
    slices : tuple of slice
        Client p's part of the pooled order (client 0's records, then client 1's, ...).
    rows : read-only int64 array of shape (n,)
        Original row number of each record in pooled order. Counts up if nothing was dealt.
    """

    slices: tuple[slice, ...]
    rows: NDArray[np.int64]

    def restore(self, values: ArrayLike) -> NDArray[Any]:
        """Put a result in pooled order, shape (n, ...), back in the original order."""
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
