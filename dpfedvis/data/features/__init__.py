"""Public features: maps of each record by itself, chosen without looking at the data.

They cost no ε and change no sensitivity, because records are clipped after them. A feature with a name is one file and
one line of `FEATURES`. The line gives the function that makes it from

- what was written after the name and a colon (``28x28`` of ``hog:28x28``), or "",
- the shape of the images, or None,
- the public range of the values of a record, or None.

What it returns follows `PublicFeatures`. Its settings must be public, and its values the same bits for any number and
order of records (`apply` checks a sample of them). So it uses no statistics of the data and no matrix products.
"""

import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.errors import InvalidParameter
from dpfedvis.data.features.base import FeatureFailed, NotByRecord, apply
from dpfedvis.data.features.function import Function
from dpfedvis.data.features.hog import Hog
from dpfedvis.data.features.l2 import L2
from dpfedvis.data.features.vectors import ENDINGS, UnmatchedIds, Vectors
from dpfedvis.data.federated import FederatedData
from dpfedvis.data.records import ClientRecords, PublicFeatures

Maker: TypeAlias = Callable[[str, tuple[int, ...] | None, tuple[float, float] | None], PublicFeatures]
Choice: TypeAlias = str | Path | PublicFeatures | Callable[[NDArray[Any]], ArrayLike] | None

FEATURES: dict[str, Maker] = {
    "hog": Hog.choose,
    "l2": L2.choose,
}


def features_of(
    choice: Choice,
    *,
    image_shape: tuple[int, ...] | None = None,
    bounds: tuple[float, float] | None = None,
    id_column: str = "id",
) -> PublicFeatures | None:
    """Return the features that were chosen.

    Parameters
    ----------
    choice : str, Path, callable, PublicFeatures or None
        ``none`` or None; a name in `FEATURES`, with settings after a colon, such as ``hog:28x28``; a file of vectors,
        which ends in .csv, .csv.gz or .npz; a function of records, shape (n, m), that maps each by itself; or
        features as they are.
    image_shape : tuple of int, optional
        Height and width of the images, if the records are images.
    bounds : (float, float), optional
        Public range of the values of a record.
    id_column : str
        The column of a CSV file of vectors that holds the ids of the records.

    Returns
    -------
    PublicFeatures or None
        None if records are taken as they are.
    """
    if choice is None or (isinstance(choice, str) and choice == "none"):
        return None
    if isinstance(choice, Path) or (isinstance(choice, str) and choice.lower().endswith(ENDINGS)):
        return Vectors.read(choice, id_column)
    if not isinstance(choice, str):
        if isinstance(choice, PublicFeatures):
            return choice
        if callable(choice):
            return Function(choice)
        raise InvalidParameter("features", choice, f"one of none, {', '.join(FEATURES)}, or a function of records")
    name, _, setting = choice.partition(":")
    if name not in FEATURES:
        near = difflib.get_close_matches(name, ["none", *FEATURES], n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise InvalidParameter("features", choice, f"one of none, {', '.join(FEATURES)}{hint}")
    return FEATURES[name](setting, image_shape, bounds)


def mapped(features: PublicFeatures, client: ClientRecords) -> NDArray[np.float32]:
    """Return the features of one client's records, read-only and of shape (n, m'): mapped, or joined by their ids."""
    if not isinstance(features, Vectors):
        return apply(features, client.X, client.own_name)
    if client.ids is None:
        raise UnmatchedIds(f"{features.name} are joined by ids, and the records of {client.own_name} have none")
    return features.for_ids(client.ids, client.own_name)


def with_features(fed: FederatedData, choice: Choice, bounds: tuple[float, float] | None = None) -> FederatedData:
    """Return data in which every client has mapped its records at home, unless that was done before.

    Parameters
    ----------
    fed : FederatedData
    choice
        As in `features_of`.
    bounds : (float, float), optional
        Public range of the values of a record; by default that of the data.
    """
    if fed.features is not None:
        return fed
    column = None if fed.schema is None else fed.schema.named("id")
    found = features_of(choice, image_shape=fed.image_shape, bounds=bounds or fed.bounds, id_column=column or "id")
    if isinstance(found, Vectors):
        _refuse_shared_ids(fed)
    return fed if found is None else fed.mapped(found, [mapped(found, client) for client in fed.clients])


def _refuse_shared_ids(fed: FederatedData) -> None:
    """Raise if records of two clients have one id: they would get one vector."""
    ids = [np.unique(client.ids) for client in fed.clients if client.ids is not None]
    if ids and (twice := sum(map(len, ids)) - len(np.unique(np.concatenate(ids)))):
        raise UnmatchedIds(
            f"{twice} ids occur at more than one client, and vectors are joined by them; make ids distinct"
        )


def compared_by(fed: FederatedData, choice: Choice) -> list[NDArray[Any]] | None:
    """Return what each client compares its own records by, at home; None for the records as they take part."""
    before = fed.before_features
    other = with_features(before, choice)
    return None if other is before else [client.X for client in other.clients]


__all__ = [
    "FEATURES",
    "L2",
    "FeatureFailed",
    "Function",
    "Hog",
    "NotByRecord",
    "PublicFeatures",
    "UnmatchedIds",
    "Vectors",
    "apply",
    "compared_by",
    "features_of",
    "mapped",
    "with_features",
]
