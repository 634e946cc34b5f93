"""One data set before it is dealt to clients."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.checks import Missing


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records with what is publicly known about them.

    Attributes
    ----------
    name : str
    X : read-only array of shape (n, m)
        May hold NaN if `missing` is a rule for filling them: that happens at each client, after the
        records are dealt.
    y : read-only int64 array of shape (n,) or None
        Class numbers, which index `class_names`.
    class_names : tuple of str
        Empty without labels.
    groups : read-only array of shape (n,) or None
        The client column: rows with one value belong together (one mouse, one hospital).
    feature_range : (float, float) or None
        Bounds that follow from the format alone, such as (0, 1) for pixels; never measured.
    image_shape : tuple of int or None
    source : str
        Where it was read from.
    sha256 : str
        Of the file, or of the bytes of X where there is no file.
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
