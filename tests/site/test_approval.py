"""Approval: a contract waits for the owner of the records, and one approval is for one contract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.protocol.messages import APPROVAL, Agree, Refused, Signed
from dpfedvis.site import Identity, Policy, SiteLedger
from dpfedvis.site.approval import NothingWaits, approve, waiting
from tests.site.agreed import SIMULATED, contract_of, sites_of

ASKING = replace(SIMULATED, approve="each run")


def site_in(folder: Path, policy: Policy = ASKING):
    (site,) = sites_of([np.zeros((5, 4), dtype=np.float32)], policy, folder=folder)
    return site


def test_a_contract_waits_until_it_is_approved(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    contract = contract_of([site], [5], GradientPerturbation())
    refused = site.answer(Agree(contract))
    assert isinstance(refused, Refused)
    assert refused.code == APPROVAL
    found = waiting(tmp_path)
    assert found["epsilon"] == 2.0
    assert found["releases"] == {"gradient": 1}
    approve(tmp_path, found["label"])
    assert isinstance(site.answer(Agree(contract)), Signed)
    with pytest.raises(NothingWaits):
        waiting(tmp_path)


def test_an_approval_is_for_one_contract(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    first = contract_of([site], [5], GradientPerturbation())
    site.answer(Agree(first))
    approve(tmp_path, waiting(tmp_path)["label"])
    for other in (replace(first, run="another"), replace(first, rounds=2), replace(first, seed=1, derived="")):
        reply = site.answer(Agree(other))
        assert isinstance(reply, Refused)
        assert reply.code == APPROVAL


def test_what_the_policy_refuses_is_never_shown_for_approval(tmp_path: Path) -> None:
    site = site_in(tmp_path, replace(SIMULATED, approve="each run", epsilon=1.0))
    reply = site.answer(Agree(contract_of([site], [5], GradientPerturbation())))
    assert isinstance(reply, Refused)
    assert reply.code == "policy"
    with pytest.raises(NothingWaits):
        waiting(tmp_path)


def test_an_approval_outlives_the_process(tmp_path: Path) -> None:
    keys, path = Identity(), tmp_path / "ledger.sqlite"
    SiteLedger.make(path)

    def started():
        policy = replace(SIMULATED, approve="each run")
        (site,) = sites_of([np.zeros((5, 4), dtype=np.float32)], policy, folder=tmp_path, identity=keys,
                           ledger=SiteLedger(path))  # fmt: skip
        return site

    site = started()
    contract = contract_of([site], [5], GradientPerturbation())
    site.answer(Agree(contract))
    approve(tmp_path, waiting(tmp_path)["label"])
    site.ledger.close()
    site = started()
    assert isinstance(site.answer(Agree(contract)), Signed)
    site.ledger.close()
