"""Data as they are given to `fit` and `transform`: federated, an array, or a data frame; and what is public of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidParameter
from accounting.wording import STAND_IN, VECTORS
from dpfedvis.data import FederatedData, Schema
from dpfedvis.data.features import PublicFeatures, Vectors, apply
from dpfedvis.data.tables import of_frame
from dpfedvis.estimators.settings import EstimatorSettings
from dpfedvis.numerics.kernels import Array


def federated(X: Any, y: Any, groups: Any) -> tuple[FederatedData, NDArray[np.int64] | None]:
    """Return data as they were given to `fit`; for an array also the row of each record, in the order of clients."""
    if isinstance(X, FederatedData):
        if groups is not None:
            raise InvalidParameter("groups", type(groups).__name__, "left out with FederatedData, which has clients")
        return X, None
    if isinstance(X, str | bytes) or not (hasattr(X, "__array__") or isinstance(X, Sequence)):
        raise InvalidParameter("data", type(X).__name__, "FederatedData, or an array or data frame of numbers")
    if hasattr(X, "columns"):
        _refuse_frame(X)
    if groups is None:
        fed = FederatedData([X], None if y is None else [y])
    else:
        fed = FederatedData.split(X, y, partition="groups", groups=groups)
    return fed, fed.index.rows


def _refuse_frame(frame: Any) -> None:
    """Name the first column of a data frame that is not of numbers, or has gaps."""
    way = "numbers without gaps; FederatedData.from_frames prepares text, dates and gaps by a schema"
    for name in frame.columns:
        values = frame[name].to_numpy()
        if values.dtype.kind not in "biuf":
            raise InvalidParameter(f"column {str(name)!r}", str(values.dtype), way)
        if values.dtype.kind == "f" and (gaps := int(np.isnan(values).sum())):
            raise InvalidParameter(f"column {str(name)!r}", f"with {gaps} missing values", way)


def as_new_records(X: Any, features: int) -> Array:
    """Return records of a client that joins later, shape (n, m), float32; named errors for anything else."""
    records = np.asarray(X, dtype=np.float32)
    if records.ndim != 2 or records.shape[1] != features:
        raise InvalidParameter("shape of the new records", records.shape, f"(n, {features})")
    if not len(records):
        raise InvalidParameter("number of new records", 0, "at least 1")
    if not np.isfinite(records).all():
        raise InvalidParameter("the new records", "nan or inf", "finite")
    return records


def new_records(
    X: Any,
    name: str,
    features: int,
    schema: Schema | None,
    mapping: PublicFeatures | None,
    names: Sequence[str] | None = None,
) -> NDArray[Any]:
    """Return records of a client that joins later, prepared as those of the fit were.

    Parameters
    ----------
    X : array of shape (n, m), or a data frame where there is a schema
    name : str
        Of the client.
    features : int
        m, before public features.
    schema : Schema, optional
    mapping : PublicFeatures, optional
    names : sequence of str, optional
        Of the columns of the frame that was fitted to.
    """
    if schema is not None and hasattr(X, "columns"):
        X = schema.prepare(of_frame(name, X, schema.is_number), features_only=True).X
    elif names is not None and hasattr(X, "columns") and [str(each) for each in X.columns] != list(names):
        own = ", ".join(str(each) for each in X.columns)
        raise InvalidParameter("columns of the new records", own, f"those of the fit, {', '.join(names)}")
    records = as_new_records(X, features)
    return records if mapping is None else apply(mapping, records, name)


def public_facts(fed: FederatedData, settings: EstimatorSettings) -> dict[str, Any]:
    """What is publicly known of the data: their number, range, schema and features, and who made the clients."""
    budget, units = settings.budget, settings.public_units(fed)
    hidden = budget is not None and budget.hides_records
    noun = STAND_IN if hidden else "persons" if budget is not None and budget.unit == "person" else "records"
    found: dict[str, Any] = {} if units is None else {noun: units}
    # Of a schema, each column has its own range.
    if fed.schema is None and (bounds := settings.feddl_for(fed).get("bounds")) is not None:
        found["bounds"] = list(bounds)
    ranges = fed.ranges
    if ranges is None and fed.origin == "memory" and settings.noise == "discrete":
        ranges = "of the file"  # nobody here knows how an array was scaled
    if ranges is not None:
        found["ranges"] = ranges
    if fed.schema is not None:
        found["schema"] = f"{len(fed.schema.features)} columns as features, sha256 {fed.schema.sha256}"
    found["columns"] = fed.n_features if fed.schema is None else [each.name for each in fed.schema.features]
    if fed.features is not None:
        # The hash of vectors from a file would tell of the records.
        of_file = isinstance(fed.features, Vectors)
        found["features"] = VECTORS if of_file else f"{fed.features.name}, sha256 {fed.features.digest}"
    if fed.origin == "file" and fed.dealt is not None:
        found["dealt"] = fed.dealt
    if budget is None or budget.unit != "client":
        found["names"] = [client.name for client in fed.clients]
    return found
