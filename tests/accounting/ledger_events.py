"""Events that tests write into ledgers, of one μ each, and the budget of the ledgers."""

from __future__ import annotations

from typing import Any

from accounting import Budget, GaussianRelease, SampledGaussianRelease, Unprotected

BUDGET = Budget(1.0, 1e-5)
EVENTS = 60  # in a ledger of small rounds that is far from its budget


def gaussian(client: str = "a", mu: float = 0.1, **values: Any) -> GaussianRelease:
    return GaussianRelease(**{"what": "gradient", "client": client, "sensitivity": mu, "sigma": 1.0, **values})


def round_of(number: int) -> GaussianRelease:
    """Return one of `EVENTS` rounds."""
    return gaussian(mu=0.01, round=number)


def discrete(client: str = "a", mu: float = 0.1, **values: Any) -> GaussianRelease:
    """Return a release on a grid."""
    values = {"what": "moments", "sensitivity": mu, "sigma": 1.0, "grid": 0.01, "values": 1000, **values}
    return GaussianRelease(**{"client": client, "noise": "discrete", **values})


def sampled(client: str = "a", **values: Any) -> SampledGaussianRelease:
    values = {"sensitivity": 1.0, "sigma": 2.0, "sampling_rate": 0.1, **values}
    return SampledGaussianRelease(what="gradient", client=client, adjacency="add-remove", **values)


def exact_rows(client: str = "a", **values: Any) -> Unprotected:
    return Unprotected(**{"what": "distance rows", "client": client, "why": "exact", "stage": "release", **values})
