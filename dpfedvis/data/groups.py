"""Dealing whole groups, such as all rows of one patient or one mouse, to clients."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.errors import LabelsNeeded, PartitionError
from dpfedvis.data.partitions import Labels, Partition, Rows, check_clients


def deal_groups(
    groups: NDArray[Any], y: Labels | None, clients: int | None, how: Partition, rng: np.random.Generator
) -> tuple[list[Rows], list[str] | None]:
    """Deal groups as if each were one record, so that no group is split between clients.

    Parameters
    ----------
    groups : array of shape (n,)
        The group of each row.
    y : array of shape (n,) or None
        A partition by class deals groups by their class, so each group must have only one.
    clients : int or None
        None means 10, or as many as there are groups where they are fewer or with partition `groups`.
    how : Partition
    rng : numpy.random.Generator

    Returns
    -------
    rows : list of P int64 arrays
    names : list of str or None
        The groups' own names where each client is one group, else None.
    """
    values, first, codes = np.unique(groups, return_index=True, return_inverse=True)
    order = np.argsort(first)  # groups in order of first appearance, as in the file
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
    """Return the one label of each group, or refuse."""
    classes, numbers = np.unique(y, return_inverse=True)
    table = np.zeros((len(values), len(classes)), dtype=np.bool_)
    table[codes, numbers] = True
    several = np.flatnonzero(table.sum(axis=1) > 1)
    if len(several):
        g = several[0]
        raise PartitionError(
            f"partition {how.spec!r} deals groups by class, but group {values[g]} has "
            f"{int(table[g].sum())} classes; use 'iid' or 'groups'"
        )
    labels: Labels = classes[table.argmax(axis=1)]
    return labels
