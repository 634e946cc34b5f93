"""Records divided by their length."""

import hashlib
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidParameter

VERSION = 1  # of the function; to be raised when any of its values change


@dataclass(frozen=True)
class L2:
    """Each record, divided by its Euclidean length. A record of zeros stays as it is.

    Angles between records are left, as cos = 1 − d²/2, and lengths are gone: of images, brightness. The length of a
    row is a sum over that row alone, in float64, so that no other record can change a bit of it.

    Parameters
    ----------
    positive : bool
        Whether values of records are at least 0, publicly; then so are those of the features.
    """

    positive: bool = False

    @classmethod
    def choose(cls, setting: str, image_shape: tuple[int, ...] | None, bounds: tuple[float, float] | None) -> Self:
        """Return the feature for data of this public range; it has no settings."""
        if setting:
            raise InvalidParameter("features", f"l2:{setting}", "l2, which has no settings")
        return cls(bounds is not None and bounds[0] >= 0)

    @property
    def name(self) -> str:
        """Return what it is called, for people."""
        return "l2"

    @property
    def digest(self) -> str:
        """Return the SHA-256 that identifies the function and its settings."""
        return hashlib.sha256(repr(("l2", VERSION, self.positive)).encode()).hexdigest()

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the range of every value."""
        return (0.0, 1.0) if self.positive else (-1.0, 1.0)

    @property
    def norm(self) -> float:
        """Return a bound on the norm of every output row.

        *Proof.* Square, sum of m terms, root and quotient are off by a relative m·2⁻⁵² at most, below 2⁻²⁴ for
        m < 2²⁸; rounding an entry to float32 is off by 2⁻²⁴ of it. So the norm is at most (1 + 2⁻²⁴)² < 1 + 2⁻²².
        """
        return 1 + 2**-22

    def __call__(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Map records, shape (n, m), to shape (n, m)."""
        values = np.ascontiguousarray(X, dtype=np.float64)
        if self.positive:  # a value outside the public range counts as its end
            values = np.maximum(values, 0.0)
        # First by the largest value, so that no square is too large or too small for a float.
        largest = np.abs(values).max(axis=1, keepdims=True, initial=0.0)
        values = values / np.where(largest > 0, largest, 1.0)
        lengths = np.sqrt(np.einsum("ij,ij->i", values, values))[:, None]
        return (values / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
