"""Checks of one client's arrays, and filling of missing values. No function here sees two clients."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dpfedvis.data.errors import InvalidData, MissingValues, NotFinite

Missing: TypeAlias = Literal["refuse", "client-mean", "public-value"]


def check_missing(missing: str) -> None:
    """Raise unless `missing` is a known rule for missing values."""
    if missing not in get_args(Missing):
        raise InvalidData(f"missing must be one of {', '.join(get_args(Missing))}, got {missing!r}")


def check_bounds(bounds: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return public feature bounds as floats; raise unless low < high and both are finite."""
    if bounds is None:
        return None
    try:
        low, high = (float(end) for end in bounds)
    except (TypeError, ValueError):
        raise InvalidData(f"bounds must be (low, high), got {bounds!r}") from None
    if not -np.inf < low < high < np.inf:
        raise InvalidData(f"bounds must be finite with low < high, got {bounds!r}")
    return low, high


def check_dtype(dtype: DTypeLike) -> "np.dtype[Any]":
    """Return the dtype; raise unless it is float32 or float64."""
    found = np.dtype(dtype)
    if found not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InvalidData(f"dtype must be float32 or float64, got {found}")
    return found


def read_only(a: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view; the caller's array stays writable."""
    view = a.view()
    view.flags.writeable = False
    return view


def as_matrix(X: ArrayLike, what: str, least: int = 1) -> NDArray[Any]:
    """Return X as a numeric array of shape (n, m) with n >= least and m >= 1, without copying if possible."""
    try:
        a = np.asarray(X)
    except ValueError as error:  # rows of different lengths
        raise InvalidData(f"{what} is not a rectangular array: {error}") from error
    if a.dtype.kind not in "biuf":
        raise InvalidData(f"{what} holds values of type {a.dtype}; features must be numbers")
    if a.ndim != 2:
        raise InvalidData(f"{what} must be 2-D (records by features), got shape {a.shape}")
    if a.shape[0] < least:
        raise InvalidData(f"{what} has no records")
    if a.shape[1] < 1:
        raise InvalidData(f"{what} has no features")
    return a


def as_labels(y: ArrayLike, n: int, what: str, noun: str = "labels") -> NDArray[Any]:
    """Return y as an array of n labels (or groups), shape (n,), without missing values."""
    a = np.asarray(y)
    if a.dtype.kind == "O":
        # Text columns arrive as objects. Other objects have no safe sort order.
        if not all(isinstance(value, str) for value in a.flat):
            raise InvalidData(f"the {noun} of {what} mix types or hold None; give integers or text")
        a = a.astype(np.str_)
    if a.ndim != 1:
        raise InvalidData(f"the {noun} of {what} must be 1-D, got shape {a.shape}")
    if len(a) != n:
        raise InvalidData(f"{what} has {n} records and {len(a)} {noun}")
    if a.dtype.kind == "f" and not np.isfinite(a).all():
        raise InvalidData(f"{what} has {int((~np.isfinite(a)).sum())} {noun} that are not finite")
    return a


def clean(
    X: NDArray[Any], what: str, dtype: "np.dtype[Any]", missing: Missing, fill: float
) -> tuple[NDArray[Any], int]:
    """Check, fill and convert one client's records.

    Parameters
    ----------
    X : array of shape (n_p, m)
    what : str
        The client's name, for messages.
    dtype : numpy.dtype
    missing : {"refuse", "client-mean", "public-value"}
    fill : float
        Public value; also used for a column in which this client has no value at all.

    Returns
    -------
    X : read-only C-contiguous array of shape (n_p, m)
        Shares memory with the input if nothing had to change.
    filled : int
        Number of values that were filled in.
    """
    filled = 0
    if X.dtype.kind == "f":
        refuse_bad(np.isinf(X), what, "infinite", NotFinite)
        holes = np.isnan(X)
        filled = int(holes.sum())
        if filled:
            if missing == "refuse":
                refuse_bad(holes, what, "NaN", MissingValues)
            X = _fill(X, holes, fill if missing == "public-value" else _column_means(X, holes, fill))
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(X, dtype=dtype)
    if out.dtype.itemsize < X.dtype.itemsize and X.dtype.kind == "f":
        refuse_bad(np.isinf(out), what, f"too large for {dtype} (use dtype=float64)", NotFinite)
    return read_only(out), filled


def refuse_bad(bad: NDArray[np.bool_], what: str, kind: str, error: type[NotFinite], names: Sequence[str] = ()) -> None:
    """Raise `error`, with count and column, if any entry of `bad` (shape (n, m)) is true; `names` are of columns."""
    if not bad.any():
        return
    columns = np.flatnonzero(bad.any(axis=0))
    count = int(bad.sum())
    plural = "value" if count == 1 else "values"
    first = repr(names[columns[0]]) if len(names) == bad.shape[1] else str(columns[0])
    where = f"in column {first}" if len(columns) == 1 else f"in {len(columns)} columns, first {first}"
    noun = f"{kind} {plural}" if " " not in kind else f"{plural} {kind}"
    ways = (
        "; choose missing='public-value' to fill them, or missing='client-mean' where there is no budget"
        if error is MissingValues
        else ""
    )
    raise error(f"{what} has {count} {noun} {where}{ways}")


def _column_means(X: NDArray[Any], holes: NDArray[np.bool_], fill: float) -> NDArray[np.float64]:
    """Mean of each column over the values present, `fill` where there are none. Shape (m,)."""
    present = (~holes).sum(axis=0)
    total = np.where(holes, 0.0, X).sum(axis=0, dtype=np.float64)
    return np.where(present > 0, total / np.maximum(present, 1), fill)


def _fill(X: NDArray[Any], holes: NDArray[np.bool_], value: float | NDArray[np.float64]) -> NDArray[Any]:
    return np.where(holes, np.broadcast_to(np.asarray(value, dtype=X.dtype), X.shape), X)


def row_norms(X: NDArray[Any]) -> NDArray[np.float64]:
    """Euclidean norms of the rows, shape (n,), in float64 and without overflow."""
    if X.dtype == np.float32:
        squares: NDArray[np.float64] = np.einsum("ij,ij->i", X, X, dtype=np.float64)
        return np.sqrt(squares)
    largest = np.maximum(X.max(axis=1), -X.min(axis=1))
    unit = np.where(largest > 0, largest, 1.0)
    scaled = X / unit[:, None]
    norms: NDArray[np.float64] = unit * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return norms


def clip_rows(X: NDArray[Any], tau: float) -> NDArray[Any]:
    """Scale every row of X, shape (n, m), to norm at most tau, never above it by rounding.

    A sensitivity relies on this bound. A computed norm of m terms has a relative error below (m + 8) eps, and
    scaling adds a few roundings, one of them in X's own precision. The target is lowered by both, so the true
    norm of each returned row is at most tau. Shorter rows are not changed.
    """
    norms = row_norms(X)
    slack = (X.shape[1] + 8) * np.finfo(np.float64).eps
    over = norms > tau * (1 - slack)
    if not over.any():
        return X
    target = tau * (1 - 2 * slack - 4 * float(np.finfo(X.dtype).eps))
    out = X.copy()
    # Divide first: target / norm alone could be subnormal and lose digits.
    out[over] = X[over] / norms[over, None] * target
    return read_only(out)
