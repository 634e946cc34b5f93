"""What is refused before anything is asked of a site, from public facts of the data alone."""

from __future__ import annotations

from collections.abc import Sequence

from accounting import Budget, checks
from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData


def refuse_data(fed: FederatedData, budget: Budget | None, noise: str) -> None:
    """Raise if these data cannot be used under this budget and noise. What it asks is public: to refuse is to tell."""
    if budget is not None and fed.missing == "client-mean":
        raise InvalidParameter(
            "missing", fed.missing, "public-value or refuse under a budget: filled means tie records to each other"
        )
    if budget is not None and budget.unit == "person" and any(client.persons is None for client in fed.clients):
        raise InvalidParameter(
            "unit", "person", "record or client: the data do not say who each record is of (role person in a schema)"
        )
    if fed.dealt_by_label is not None and noise != "seeded":
        raise InvalidParameter(
            "partition", fed.dealt_by_label, "iid or groups with real noise: a deal by label tells of labels"
        )
    if budget is not None and budget.hides_rows and fed.dealt is not None and noise != "seeded":
        raise InvalidParameter(
            "partition",
            fed.dealt,
            "groups, or clients that are given, with real noise where numbers of records are private: who gets a "
            "record must not depend on how many there are",
        )
    here = fed.origin != "federation"  # real sites check their own records
    if here and (budget is None or budget.adjacency == "replace-one") and 0 in fed.records:
        empty = fed.clients[fed.records.index(0)].name
        raise InvalidParameter(f"number of records of {empty!r}", 0, "at least 1, except under add-remove")


def refuse_classes(classes: Sequence[str] | Sequence[int], fed: FederatedData) -> None:
    """Raise if a density by class cannot be counted; all of it is public."""
    if not classes:
        return
    if fed.origin != "federation" and any(client.y is None for client in fed.clients):
        raise InvalidParameter("labels", None, "given, for a density by class")
    known = fed.class_names if fed.schema is None else fed.schema.classes
    for name in classes if known else ():
        checks.one_of("class", str(name), known)
