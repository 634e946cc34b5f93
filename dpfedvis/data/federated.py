"""Records at P clients: the input of every federated run."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dpfedvis.data.checks import (
    Missing,
    as_labels,
    as_matrix,
    check_bounds,
    check_dtype,
    check_missing,
    clean,
    clip_rows,
    read_only,
)
from dpfedvis.data.errors import InvalidData, PartitionError
from dpfedvis.data.own_files import load_frames
from dpfedvis.data.partitions import deal_groups
from dpfedvis.data.partitions import partition as parse_partition
from dpfedvis.data.public_facts import PublicFacts, WithFacts
from dpfedvis.data.records import ClientRecords, Dataset, PublicFeatures, RecordIndex, name_labels, pooled_index
from dpfedvis.data.schema import Schema

DEFAULT_CLIENTS = 10


class FederatedData(WithFacts):
    """Records split among clients.

    Parameters
    ----------
    X : sequence of P arrays of shape (n_p, m)
        A client may have no record: where n_p is private, to refuse it would tell so.
    y : sequence of P arrays of shape (n_p,), optional
    names : sequence of P str, optional
        Default ``client-0``, ``client-1``, ...
    dtype : float32 or float64
    missing : {"refuse", "client-mean", "public-value"}
        What to do with NaN. ``client-mean`` takes the column's mean over the same client's records; a value
        from other clients would be a release outside the budget. Replacing one record then also changes
        the filled values of others, so no *record-level* sensitivity holds, and no budget is accepted.
        ``public-value`` fills with `fill` and keeps records independent.
    fill : float
        Used by ``public-value``, and by ``client-mean`` for a column in which the client has no value.
        It must be public, not computed from the data.
    bounds : (float, float), optional
        Public range of every feature, such as (0, 1) for pixels; not computed from the data.
    class_names : sequence of str
        Public names of the labels 0, 1, …; without them a label is its own name.
    persons, ids : sequence of P arrays of shape (n_p,), optional
        Who each record is of, for the privacy unit person; and what it is called in the client's own view.

    Notes
    -----
    Arrays are kept as read-only views. An input of the right dtype and layout is not copied: changing it
    later changes the client's records.
    """

    def __init__(
        self,
        X: Sequence[ArrayLike],
        y: Sequence[ArrayLike] | None = None,
        names: Sequence[str] | None = None,
        *,
        dtype: DTypeLike = np.float32,
        missing: Missing = "refuse",
        fill: float = 0.0,
        bounds: tuple[float, float] | None = None,
        class_names: Sequence[str] = (),
        persons: Sequence[ArrayLike] | None = None,
        ids: Sequence[ArrayLike] | None = None,
    ) -> None:
        kind = check_dtype(dtype)
        check_missing(missing)
        if not isfinite(fill):
            raise InvalidData(f"fill must be finite, got {fill}")
        if len(X) < 1:
            raise InvalidData("at least one client is needed")
        titles = _client_names(len(X), names)
        for noun, given in (("label", y), ("person", persons), ("id", ids)):
            if given is not None and len(given) != len(X):
                raise InvalidData(f"{len(X)} clients and {len(given)} {noun} arrays")
        clients: list[ClientRecords] = []
        for p, (title, part) in enumerate(zip(titles, X, strict=True)):
            raw = as_matrix(part, title, least=0)
            if clients and raw.shape[1] != clients[0].X.shape[1]:
                raise InvalidData(f"{title} has {raw.shape[1]} features and {titles[0]} has {clients[0].X.shape[1]}")
            labels = None if y is None else read_only(as_labels(y[p], len(raw), title))
            records, imputed = clean(raw, title, kind, missing, fill)
            named: dict[str, Any] = {
                noun: None if given is None else read_only(as_labels(given[p], len(raw), title, noun).astype(np.str_))
                for noun, given in (("persons", persons), ("ids", ids))
            }
            clients.append(ClientRecords(title, records, labels, imputed, **named))
        self._clients = tuple(clients)
        self._index = pooled_index(self.records, np.arange(self.n_records, dtype=np.int64))
        self._facts = PublicFacts(missing, check_bounds(bounds), class_names=tuple(map(str, class_names)))
        self._before: FederatedData | None = None  # the same records before their features
        self._notes: tuple[str, ...] = ()

    @classmethod
    def split(
        cls,
        X: ArrayLike,
        y: ArrayLike | None = None,
        clients: int | None = None,
        partition: str = "iid",
        seed: int | np.random.Generator = 0,
        *,
        groups: ArrayLike | None = None,
        dtype: DTypeLike = np.float32,
        missing: Missing = "refuse",
        fill: float = 0.0,
        bounds: tuple[float, float] | None = None,
        class_names: Sequence[str] = (),
    ) -> Self:
        """Split one table of records among clients.

        Parameters
        ----------
        X : array of shape (n, m)
        y : array of shape (n,), optional
        clients : int, optional
            Default 10; the number of groups if that is smaller, or for partition ``groups``.
        partition : str
            ``iid``, ``by-class``, ``classes:K``, ``dirichlet:ALPHA`` or ``groups``.
        seed : int or numpy.random.Generator
        groups : array of shape (n,), optional
            Rows with the same value stay together at one client.
        dtype, missing, fill, bounds, class_names
            As for `FederatedData`; missing values are filled after the split.

        Returns
        -------
        FederatedData
        """
        table = as_matrix(X, "X")
        labels = None if y is None else as_labels(y, len(table), "X")
        how = parse_partition(partition)
        rng = np.random.default_rng(seed)
        names = None
        if groups is None:
            rows = how(len(table), labels, DEFAULT_CLIENTS if clients is None else clients, rng)
        else:
            tags = as_labels(groups, len(table), "X", "groups")
            rows, names = deal_groups(tags, labels, clients, how, rng)
        fed = cls(
            [table[r] for r in rows],
            None if labels is None else [labels[r] for r in rows],
            names,
            dtype=dtype,
            missing=missing,
            fill=fill,
            bounds=bounds,
            class_names=class_names,
        )
        fed._index = pooled_index(fed.records, np.concatenate(rows))
        dealt = None if groups is not None and how.by_group else how.spec
        fed._facts = replace(fed._facts, dealt=dealt, by_label=how.deal is not None)
        return fed

    @classmethod
    def from_dataset(
        cls,
        dataset: Dataset,
        clients: int | None = None,
        partition: str | None = None,
        seed: int | np.random.Generator = 0,
        *,
        dtype: DTypeLike = np.float32,
    ) -> Self:
        """Return a loaded data set at its clients, or dealt to others.

        Missing values are filled by the data set's own rule. The public value is the middle of the public
        feature range, or 0 if there is none.

        Parameters
        ----------
        dataset : Dataset
        clients : int, optional
            Deal the records to so many clients. By default those that the data come with: one for each file, or for
            each value of the client column; 10 where they come with none.
        partition : str, optional
            How they are dealt; see `split`. By default ``iid``. Groups, if any, stay whole.
        seed, dtype
            As for `split`.

        Returns
        -------
        FederatedData
        """
        given = len(dataset.clients)
        low, high = dataset.feature_range or (0.0, 0.0)
        facts: dict[str, Any] = {
            "dtype": dtype,
            "missing": dataset.missing,
            "fill": (low + high) / 2,
            "bounds": dataset.feature_range,
            "class_names": dataset.class_names,
        }
        if given and (partition == "groups" or (clients is None and partition is None)):
            if clients not in (None, given):
                raise PartitionError(f"the data come with {given} clients, not {clients}; a partition deals them anew")
            fed = cls._gathered(dataset, facts)
        else:
            # All records of a person go to one client.
            groups = dataset.persons if dataset.groups is None else dataset.groups
            fed = cls.split(dataset.X, dataset.y, clients, partition or "iid", seed, groups=groups, **facts)
        fed._keep(dataset)
        return fed

    @classmethod
    def from_frames(cls, frames: Mapping[str, Any], schema: Schema | str | Path) -> Self:
        """Return data frames, of pandas or polars, as clients.

        Parameters
        ----------
        frames : mapping of str to data frame
            By the name of the client.
        schema : Schema or path-like
            What each column is, publicly.
        """
        own = schema if isinstance(schema, Schema) else Schema.read(schema)
        return cls.from_dataset(load_frames(frames, own))

    @classmethod
    def _gathered(cls, dataset: Dataset, facts: Mapping[str, Any]) -> Self:
        """Return the records at the clients that they come with."""
        groups = dataset.groups
        rows = [
            np.arange(len(dataset.X)) if groups is None else np.flatnonzero(groups == name) for name in dataset.clients
        ]
        labels = None if dataset.y is None else [dataset.y[own] for own in rows]
        fed = cls([dataset.X[own] for own in rows], labels, dataset.clients, **facts)
        fed._index = pooled_index(fed.records, np.concatenate(rows))
        return fed

    def _keep(self, dataset: Dataset) -> None:
        """Keep what is known of the data set, and what each client knows of its own records."""
        self._facts = replace(
            self._facts,
            origin=dataset.origin,
            schema=dataset.schema,
            image_shape=dataset.image_shape,
            norm=None if dataset.schema is None else dataset.schema.norm,
        )
        self._notes = dataset.notes
        parts = [self._index.rows[part] for part in self._index.slices]
        self._clients = tuple(
            replace(
                client,
                ids=None if dataset.ids is None else read_only(dataset.ids[own]),
                persons=None if dataset.persons is None else read_only(dataset.persons[own]),
                # Columns of other clients' files are empty here.
                own={name: part for name, column in dataset.own.items() if _says(part := column[own])},
            )
            for client, own in zip(self._clients, parts, strict=True)
        )

    @property
    def clients(self) -> tuple[ClientRecords, ...]:
        """The clients, in order."""
        return self._clients

    @property
    def n_clients(self) -> int:
        """Number of clients P."""
        return len(self._clients)

    @property
    def records(self) -> tuple[int, ...]:
        """Number of records n_p of each client."""
        return tuple(len(client.X) for client in self._clients)

    @property
    def n_records(self) -> int:
        """Number of records n over all clients."""
        return sum(self.records)

    @property
    def n_persons(self) -> int | None:
        """Number of persons over all clients, each counted where it is; None if records do not say who they are of."""
        found = [client.n_persons for client in self._clients]
        return None if None in found else sum(number for number in found if number is not None)

    @property
    def n_features(self) -> int:
        """Number of features m."""
        return int(self._clients[0].X.shape[1])

    @property
    def index(self) -> RecordIndex:
        """Slices of the pooled order, and the original row of each record."""
        return self._index

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found while the data were prepared. It tells of the records: for their owner alone."""
        return self._notes

    @property
    def imputed(self) -> tuple[int, ...]:
        """Number of filled values of each client."""
        return tuple(client.imputed for client in self._clients)

    def labels_of(self, client: ClientRecords) -> NDArray[np.str_] | None:
        """Return a client's labels by name, shape (n_p,)."""
        return None if client.y is None else name_labels(client.y, self.class_names)

    def pooled(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return all records in one table, for evaluation only.

        Federated code must not call this: in a real federation nobody sees all records.

        Returns
        -------
        X : array of shape (n, m)
        y : array of shape (n,) or None
        """
        labels = [client.y for client in self._clients if client.y is not None]
        X = np.concatenate([client.X for client in self._clients])
        return X, np.concatenate(labels) if labels else None

    def clip(self, tau: float) -> Self:
        """Return a copy with every record scaled to Euclidean norm at most tau.

        Parameters
        ----------
        tau : float
            Public bound; not computed from the data.

        Returns
        -------
        FederatedData
            Same clients, names, labels and index. Arrays that need no clipping are shared.
        """
        if not (isfinite(tau) and tau > 0):
            raise InvalidData(f"tau must be positive and finite, got {tau}")
        return self._with([replace(client, X=clip_rows(client.X, tau)) for client in self._clients])

    def mapped(self, features: PublicFeatures, records: Sequence[NDArray[Any]]) -> Self:
        """Return a copy whose clients have mapped their records by public features.

        Parameters
        ----------
        features : PublicFeatures
        records : sequence of P arrays of shape (n_p, any)
            The mapped records of each client; see `dpfedvis.data.features.with_features`.
        """
        clients = zip(self._clients, records, strict=True)
        made = self._with([replace(client, X=read_only(own)) for client, own in clients])
        made._facts = replace(
            self._facts, bounds=features.bounds, norm=features.norm, features=features, image_shape=None
        )
        made._before = self
        return made

    @property
    def before_features(self) -> "FederatedData":
        """The same records before they were mapped by public features."""
        return self if self._before is None else self._before

    def with_neutral_names(self) -> Self:
        """Return a copy whose clients are called client-0, client-1, …: where who takes part is private."""
        names = _client_names(self.n_clients, None)
        return self._with([replace(each, name=name) for each, name in zip(self._clients, names, strict=True)])

    def shuffled(self, seed: int) -> Self:
        """Return a copy with the clients in a random order. It tells nothing of them if the seed is secret.

        Parameters
        ----------
        seed : int
        """
        order = np.random.default_rng(seed).permutation(self.n_clients).tolist()
        made = self._with([self._clients[p] for p in order])
        rows = np.concatenate([self._index.rows[self._index.slices[p]] for p in order])
        made._index = pooled_index(made.records, rows)
        made._before = None if self._before is None else self._before.shuffled(seed)
        return made

    def _with(self, clients: Sequence[ClientRecords]) -> Self:
        """Return a copy with other clients."""
        made = copy(self)
        made._clients = tuple(clients)
        return made

    def __repr__(self) -> str:
        sizes = self.records
        each = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)}–{max(sizes)}"
        return (
            f"FederatedData({self.n_clients} clients, {each} records each, {self.n_features} features, "
            f"{self._clients[0].X.dtype})"
        )


def _says(column: NDArray[Any]) -> bool:
    """Whether a column has any value."""
    return bool((column != "").any() if column.dtype.kind == "U" else ~np.isnan(column).all())


def _client_names(n: int, names: Sequence[str] | None) -> list[str]:
    if names is None:
        return [f"client-{p}" for p in range(n)]
    if len(names) != n:
        raise InvalidData(f"{n} clients and {len(names)} names")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidData(f"two clients are named {name!r}")
        seen.add(name)
    return list(names)
