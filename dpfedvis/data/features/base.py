"""What a public feature is, and how one is applied to the records of one client."""

from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpfedvis.data.checks import as_matrix, read_only, refuse_bad
from dpfedvis.data.errors import InvalidData, NotFinite
from dpfedvis.data.records import PublicFeatures

BLOCK = 1024  # records in one call
SAMPLE = 18  # records of a client that are also mapped alone: the first, the last, and 16 between them


class NotByRecord(InvalidData):
    """A feature whose result for one record depends on the records beside it."""


class FeatureFailed(InvalidData):
    """A feature that raised an error of its own."""


def apply(features: PublicFeatures, X: ArrayLike, what: str) -> NDArray[np.float32]:
    """Map the records of one client, and check the result.

    Some records are also mapped alone. If a single bit then differs, the feature is refused: the guarantee needs that
    one record changes nothing but its own row. This finds ordinary mistakes, such as subtracting a mean. It is no
    proof, because not every record is tried. What learns at its first call learns from public rows: each client has a
    copy of its own, which is called with zeros and ones before it sees a record.

    Parameters
    ----------
    features : PublicFeatures
    X : array of shape (n, m)
        Without records (n = 0), rows of zeros tell the number of values.
    what : str
        The client's name, for messages.

    Returns
    -------
    read-only float32 array of shape (n, m')

    Raises
    ------
    NotByRecord
        If a record's values depend on the records beside it.
    FeatureFailed
        If the feature raised an error. Its text may hold values of records, so that the message names only its type.
    InvalidData
        If the result is not one row of finite numbers for each record.
    """
    records = as_matrix(X, what, least=0)
    # Sums over a row may add in another order in another memory layout.
    records = read_only(np.ascontiguousarray(records))
    public = np.stack([np.zeros(records.shape[1]), np.ones(records.shape[1])]).astype(records.dtype)
    features, before = _rehearsed(features, public)
    tried = np.unique(np.linspace(0, len(records) - 1, SAMPLE).astype(np.int64)) if len(records) else np.arange(0)
    parts: list[NDArray[np.float32]] = []
    seen: list[tuple[NDArray[Any], bytes]] = []
    for block, rows in _blocks(records, tried):
        found = _called(features, _in_company(block), what)
        if parts and found.shape[1] != parts[0].shape[1]:
            _refuse_widths(features, what, parts[0].shape[1], found.shape[1])
        for row in rows:
            alone = _called(features, block[row : row + 1], what)
            if alone.shape[1] != found.shape[1]:
                _refuse_widths(features, what, found.shape[1], alone.shape[1])
            seen.append((block[row : row + 1], alone.tobytes()))
            if alone.dtype != found.dtype or alone[0].tobytes() != found[row].tobytes():
                raise NotByRecord(
                    f"{features.name} gives a record of {what} other values alone than beside others; a feature must "
                    "map each record by itself, to the last bit (no means or scales of the data; np.einsum instead of "
                    "@, whose last bits depend on the number of rows)"
                )
        parts.append(_as_float32(found[: len(block)], f"{features.name} of {what}"))
    again = [(_called(features, record, what).tobytes(), alone) for record, alone in seen]
    if _values_of(features, public) != before or any(now != alone for now, alone in again):
        raise NotByRecord(
            f"{features.name} gives other values after it has seen records of {what}; it must learn nothing"
        )
    return read_only(np.concatenate(parts))


def _rehearsed(features: PublicFeatures, public: NDArray[Any]) -> tuple[PublicFeatures, bytes | None]:
    """Return a copy that has been called with public rows, so that nothing it learns at first is of a record.

    Also what it gives for them: the same is expected of it when it has seen records.
    """
    with suppress(Exception):  # what cannot be copied has no state to copy, such as a function
        features = deepcopy(features)
    _values_of(features, public)
    return features, _values_of(features, public)


def _values_of(features: PublicFeatures, public: NDArray[Any]) -> bytes | None:
    """Return what a feature gives for public rows, as bytes; None if it fails on them."""
    with suppress(Exception), np.errstate(all="ignore"):
        return np.asarray(features(read_only(public))).tobytes()
    return None


def _blocks(records: NDArray[Any], tried: NDArray[np.int64]) -> Iterator[tuple[NDArray[Any], list[int]]]:
    """Yield records in blocks, at least one, and which rows of each block are also mapped alone."""
    for start in range(0, max(len(records), 1), BLOCK):
        here = tried[(tried >= start) & (tried < start + BLOCK)]
        yield records[start : start + BLOCK], (here - start).tolist()


def _in_company(block: NDArray[Any]) -> NDArray[Any]:
    """Return at least two rows: a mean over a single record would not be noticed."""
    missing = max(2 - len(block), 0)
    return read_only(np.concatenate([block, np.zeros((missing, block.shape[1]), block.dtype)])) if missing else block


def _called(features: PublicFeatures, X: NDArray[Any], what: str) -> NDArray[Any]:
    """Return the feature's values for X, shape (n, m), as a numeric array of shape (n, m')."""
    try:
        # What is not finite is refused with its count, so that warnings would say nothing new.
        with np.errstate(all="ignore"):
            result = features(X)
    except InvalidData:
        raise
    except Exception as error:  # a function of the user's may raise anything
        raise FeatureFailed(f"{features.name} failed on records of {what} with {type(error).__name__}") from error
    found = as_matrix(result, f"{features.name} of {what}", least=0)
    if len(found) != len(X):
        raise InvalidData(f"{features.name} of {what} gave {len(found)} rows for {len(X)} records")
    return found


def _as_float32(found: NDArray[Any], what: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        out = found.astype(np.float32)
    refuse_bad(~np.isfinite(out), what, "not finite in float32", NotFinite)
    return out


def _refuse_widths(features: PublicFeatures, what: str, one: int, other: int) -> None:
    raise NotByRecord(
        f"{features.name} gave {one} values for some records of {what} and {other} for others; a feature must map each "
        "record by itself, and all to the same number of values"
    )
