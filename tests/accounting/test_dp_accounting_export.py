"""A ledger as one event of dp-accounting: its own accountants give the ε that the ledger gives."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from accounting import GaussianRelease, Ledger, SampledGaussianRelease, Unprotected, gaussian_epsilon

NEIGHBOURS = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


def epsilon_of(event: Any, delta: float = 1e-5) -> float:
    accountant = PLDAccountant(NEIGHBOURS, value_discretization_interval=1e-3).compose(event)
    return float(accountant.get_epsilon(delta))


def gaussian(client: str, **options: Any) -> GaussianRelease:
    return GaussianRelease(**{"what": "x", "client": client, "sensitivity": 1.0, "sigma": 5.0} | options)


def test_the_worst_client_by_google_is_the_closed_form() -> None:
    ledger = Ledger()
    ledger.record(gaussian("a", count=3), gaussian("a", what="y", sigma=2.0), gaussian("b", sigma=50.0))
    mu = math.sqrt(3 / 25 + 1 / 4)
    assert ledger.spent(1e-5) == pytest.approx(gaussian_epsilon(mu, 1e-5))
    assert epsilon_of(ledger.to_dp_accounting()) == pytest.approx(ledger.spent(1e-5), rel=1e-3)
    assert epsilon_of(ledger.to_dp_accounting("b")) == pytest.approx(gaussian_epsilon(1 / 50, 1e-5), rel=1e-2)


def test_replace_one_is_not_doubled() -> None:
    """Our sensitivity says what a neighbour is; the event has no adjacency of its own."""
    ledger = Ledger()
    ledger.record(gaussian("a", adjacency="replace-one", sensitivity=2.0))
    assert epsilon_of(ledger.to_dp_accounting()) == pytest.approx(gaussian_epsilon(0.4, 1e-5), rel=1e-3)


def test_sampled_releases_stay_sampled() -> None:
    ledger = Ledger()
    options = {"what": "x", "client": "a", "sensitivity": 1.0, "sigma": 2.0, "adjacency": "add-remove"}
    ledger.record(SampledGaussianRelease(**options, count=10, sampling_rate=0.1))
    assert epsilon_of(ledger.to_dp_accounting()) == pytest.approx(ledger.spent(1e-5), rel=1e-2)
    event = ledger.to_dp_accounting()
    rdp = RdpAccountant(neighboring_relation=NEIGHBOURS).compose(event).get_epsilon(1e-5)
    assert rdp == pytest.approx(ledger.compare(1e-5)["rdp"].epsilon, rel=1e-6)


def test_unprotected_and_empty() -> None:
    ledger = Ledger()
    assert epsilon_of(ledger.to_dp_accounting()) == 0
    ledger.record(gaussian("a"), Unprotected(what="rows", client="b", why="exact", stage="release"))
    assert epsilon_of(ledger.to_dp_accounting()) == math.inf
    assert epsilon_of(ledger.to_dp_accounting("a")) < 10
