"""Partitions: ways of splitting n records among P clients.

Each function returns one sorted array of row numbers per client. Every row is in exactly one of them, and
every client has at least one row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidParameter
from dpfedvis.data.errors import LabelsNeeded, PartitionError, TooManyClients

Rows = NDArray[np.int64]
Labels = NDArray[Any]
Deal = Callable[[Labels, int, np.random.Generator], list[Rows]]

FORMS = "iid, by-class, classes:K (such as classes:2), dirichlet:ALPHA (such as dirichlet:0.5), groups"


def check_clients(n: int, clients: int, what: str = "records") -> None:
    """Raise unless each client can get at least one."""
    if isinstance(clients, bool) or not isinstance(clients, int | np.integer) or clients < 1:
        raise PartitionError(f"clients must be a whole number of at least 1, got {clients!r}")
    if clients > n:
        raise TooManyClients(f"{clients} clients cannot share {n} {what}: each needs at least one")


def iid(n: int, clients: int, rng: np.random.Generator) -> list[Rows]:
    """Split at random; sizes differ by at most one.

    Parameters
    ----------
    n : int
        Number of records.
    clients : int
        Number of clients P.
    rng : numpy.random.Generator

    Returns
    -------
    list of P int64 arrays
    """
    check_clients(n, clients)
    return [np.sort(part) for part in np.array_split(rng.permutation(n), clients)]


def by_class(y: Labels, clients: int, rng: np.random.Generator) -> list[Rows]:
    """Give each client whole classes.

    With as many clients as classes, client p holds class p (in sorted order). With fewer clients, class c
    goes to client c mod P. With more clients, each class gets one client, and each further client joins the
    class with the most records per client; a shared class is split at random among its clients.

    Parameters
    ----------
    y : array of shape (n,)
    clients : int
    rng : numpy.random.Generator
        Used for shared classes only.

    Returns
    -------
    list of P int64 arrays
    """
    check_clients(len(y), clients)
    members = _members(y)
    if clients <= len(members):
        return [_join(members[p::clients]) for p in range(clients)]
    # No class gets more clients than records: one with a single record per client has ratio 1, and since
    # clients <= n some other class has a larger one.
    sharers = np.ones(len(members), dtype=np.int64)
    sizes = np.array([len(rows) for rows in members])
    for _ in range(clients - len(members)):
        sharers[np.argmax(sizes / sharers)] += 1
    return [
        np.sort(part)
        for rows, k in zip(members, sharers, strict=True)
        for part in np.array_split(rng.permutation(rows), k)
    ]


def classes_per_client(y: Labels, clients: int, rng: np.random.Generator, k: int) -> list[Rows]:
    """Give each client records of exactly k classes.

    The classes, in random order, are assigned in a cycle, k to a client. The records of a class are split
    at random and evenly among its clients.

    Parameters
    ----------
    y : array of shape (n,)
    clients : int
    rng : numpy.random.Generator
    k : int
        Classes per client. ``clients * k`` must be at least the number of classes, and no class may get
        more clients than it has records.

    Returns
    -------
    list of P int64 arrays
    """
    check_clients(len(y), clients)
    members = _members(y)
    n_classes = len(members)
    if not 1 <= k <= n_classes:
        raise PartitionError(f"classes:{k} is not possible: the data have {n_classes} classes")
    if clients * k < n_classes:
        enough = -(-n_classes // clients)
        raise PartitionError(
            f"{clients} clients with {k} classes each cover {clients * k} of {n_classes} classes; "
            f"use classes:{enough} or more, or more clients"
        )
    order = rng.permutation(n_classes)
    # k consecutive places of a cycle of n_classes >= k are k different classes.
    owners: list[list[int]] = [[] for _ in members]
    for place in range(clients * k):
        owners[order[place % n_classes]].append(place // k)
    parts: list[list[Rows]] = [[] for _ in range(clients)]
    for rows, holders in zip(members, owners, strict=True):
        if len(holders) > len(rows):
            raise PartitionError(
                f"classes:{k} with {clients} clients gives class {y[rows[0]]} to {len(holders)} clients, "
                f"but it has {len(rows)} records; use fewer clients or fewer classes each"
            )
        for p, part in zip(holders, np.array_split(rng.permutation(rows), len(holders)), strict=True):
            parts[p].append(part)
    return [_join(part) for part in parts]


def dirichlet(y: Labels, clients: int, rng: np.random.Generator, alpha: float) -> list[Rows]:
    """Split each class in shares drawn from a symmetric Dirichlet distribution.

    A small `alpha` gives most of a class to few clients; a large one approaches `iid`. A client without any
    record gets a random one from the client with the most. This is the only change to the draw, and it
    matters only for small `alpha` or little data.

    Parameters
    ----------
    y : array of shape (n,)
    clients : int
    rng : numpy.random.Generator
    alpha : float
        Concentration, positive and finite.

    Returns
    -------
    list of P int64 arrays
    """
    check_clients(len(y), clients)
    if not (isfinite(alpha) and alpha > 0):
        raise PartitionError(f"dirichlet needs a positive, finite alpha, got {alpha}")
    owner = np.empty(len(y), dtype=np.int64)
    for rows in _members(y):
        share = np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1]
        cuts = np.floor(share * len(rows)).astype(np.int64)
        for p, part in enumerate(np.split(rng.permutation(rows), np.minimum(cuts, len(rows)))):
            owner[part] = p
    held = np.bincount(owner, minlength=clients)
    for empty in np.flatnonzero(held == 0):
        giver = int(np.argmax(held))
        owner[rng.choice(np.flatnonzero(owner == giver))] = empty
        held[giver] -= 1
        held[empty] = 1
    return [np.flatnonzero(owner == p) for p in range(clients)]


@dataclass(frozen=True)
class Partition:
    """A parsed partition: call it to split records.

    Attributes
    ----------
    spec : str
        The text it was made from, such as ``"dirichlet:0.5"``.
    deal : callable or None
        Takes labels, clients and a generator. None for `iid` and `groups`, which need no labels.
    """

    spec: str
    deal: Deal | None = None

    @property
    def by_group(self) -> bool:
        """Whether each group is a client."""
        return self.spec == "groups"

    def __call__(self, n: int, y: Labels | None, clients: int, rng: np.random.Generator) -> list[Rows]:
        """Split n records with labels y (shape (n,) or None) among the clients."""
        if self.by_group:
            raise PartitionError("partition 'groups' needs a client column (groups), and the data have none")
        if self.deal is None:
            return iid(n, clients, rng)
        if y is None:
            raise LabelsNeeded(f"partition {self.spec!r} needs labels, and none were given")
        return self.deal(y, clients, rng)


def partition(spec: str) -> Partition:
    """Parse a partition such as ``"iid"``, ``"by-class"``, ``"classes:2"`` or ``"dirichlet:0.5"``.

    Parameters
    ----------
    spec : str

    Returns
    -------
    Partition
    """
    name, colon, argument = str(spec).partition(":")
    try:
        match name, bool(colon):
            case (("iid" | "groups"), False):
                return Partition(name)
            case "by-class", False:
                return Partition(name, by_class)
            case "classes", True:
                return Partition(spec, partial(classes_per_client, k=int(argument)))
            case "dirichlet", True:
                return Partition(spec, partial(dirichlet, alpha=float(argument)))
    except ValueError:
        pass  # the number does not parse: the error below lists the valid forms
    raise PartitionError(f"unknown partition {spec!r}; valid forms: {FORMS}")


def _members(y: Labels) -> list[Rows]:
    """Row numbers of each class, classes in sorted order."""
    codes = np.unique(y, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes))[:-1])


def _join(parts: list[Rows]) -> Rows:
    return np.sort(np.concatenate(parts))


def refuse_partition(spec: str, *, noise: str, hides_records: bool) -> None:
    """Raise, by the partition's name alone, where a deal would tell of the records. To be asked before labels are read.

    Parameters
    ----------
    spec : str
    noise : str
        Source of noise; a simulation, with seeded noise, may be dealt in any way.
    hides_records : bool
        Whether the numbers of records are private.
    """
    how = partition(spec)
    if noise == "seeded":
        return
    if how.deal is not None:
        raise InvalidParameter("partition", spec, "iid or groups with real noise: a deal by label tells of labels")
    if hides_records and not how.by_group:
        raise InvalidParameter(
            "partition",
            spec,
            "groups, or clients that are given, with real noise where numbers of records are private: who gets a "
            "record must not depend on how many there are",
        )


def deal_groups(
    groups: NDArray[Any], y: Labels | None, clients: int | None, how: Partition, rng: np.random.Generator
) -> tuple[list[Rows], list[str] | None]:
    """Split records by whole groups: no group (one patient, one mouse) is at two clients.

    Parameters
    ----------
    groups : array of shape (n,)
        The group of each row.
    y : array of shape (n,) or None
        For a partition by class, each group must have only one class.
    clients : int or None
        None means 10; the number of groups if that is smaller, or for partition `groups`.
    how : Partition
    rng : numpy.random.Generator

    Returns
    -------
    rows : list of P int64 arrays
    names : list of str or None
        The groups' names if each client is one group, else None.
    """
    # By name: the order of appearance in the file would tell where a record stands.
    values, codes = np.unique(groups, return_inverse=True)
    order = np.arange(len(values))
    if how.by_group:
        if clients not in (None, len(values)):
            raise PartitionError(f"partition 'groups' makes one client of each of {len(values)} groups, not {clients}")
        return [np.flatnonzero(codes == g) for g in order], [str(values[g]) for g in order]
    count = min(10, len(values)) if clients is None else clients
    check_clients(len(values), count, "groups")
    labels = None
    if how.deal is not None:
        if y is None:
            raise LabelsNeeded(f"partition {how.spec!r} needs labels, and none were given")
        labels = _group_labels(values, codes, y, how)[order]
    dealt = how(len(values), labels, count, rng)
    return [np.flatnonzero(np.isin(codes, order[part])) for part in dealt], None


def _group_labels(values: NDArray[Any], codes: NDArray[np.int64], y: Labels, how: Partition) -> Labels:
    """Return the one label of each group; raise if a group has several."""
    classes, numbers = np.unique(y, return_inverse=True)
    table = np.zeros((len(values), len(classes)), dtype=np.bool_)
    table[codes, numbers] = True
    several = np.flatnonzero(table.sum(axis=1) > 1)
    if len(several):
        g = several[0]
        raise PartitionError(
            f"partition {how.spec!r} splits groups by class, but group {values[g]} has "
            f"{int(table[g].sum())} classes; use 'iid' or 'groups'"
        )
    labels: Labels = classes[table.argmax(axis=1)]
    return labels
