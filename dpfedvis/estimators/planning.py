"""The forecast of a private map from public numbers: of data at hand, or of numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accounting import Budget, checks
from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.protocol.messages import Description
from dpfedvis.server.members import Members

SITES = 10


def members_of(fed: FederatedData, budget: Budget | None, records: Sequence[int] | None = None) -> Members:
    """Return the sites as they would describe themselves to a server.

    Parameters
    ----------
    fed : FederatedData
    budget : Budget, optional
    records : sequence of int, optional
        Number of records of each, instead of their own.
    """
    hidden = budget is not None and budget.hides_records
    by_person = budget is not None and budget.unit == "person"
    found = []
    for number, client in enumerate(fed.clients):
        own: int | None = len(client.X) if records is None else records[number]
        if records is None and by_person and client.n_persons is not None and budget is not None:
            own = client.n_persons * budget.rows
        found.append(Description(client.name, "", None if hidden else own, fed.n_features, preparation=fed.preparation))
    return Members(tuple(found))


def of_numbers(records: int | Sequence[int], sites: int | None, features: int) -> tuple[FederatedData, list[int]]:
    """Return data of as many sites with one record each, which stand in, and how many records each site has.

    Parameters
    ----------
    records : int or sequence of int
        Of all sites together, which then have equal parts; or of each site.
    sites : int, optional
    features : int
    """
    checks.count("features", features)
    if isinstance(records, Sequence):
        own = [checks.count("records of a site", each) for each in records]
        if sites is not None and sites != len(own):
            raise InvalidParameter("sites", sites, f"{len(own)}, as many as there are numbers of records")
    else:
        count = checks.whole("sites", SITES if sites is None else sites, 1, checks.count("records", records))
        own = [records // count + (number < records % count) for number in range(count)]
    zeros = np.zeros((1, features), dtype=np.float32)
    return FederatedData([zeros] * len(own), persons=[["stand-in"]] * len(own), bounds=(0.0, 1.0)), own
