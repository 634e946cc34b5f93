"""A site whose records are of persons: it counts them itself, draws at home, and agrees to nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accounting import Budget
from dpfedvis.mechanisms import KMeans
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import Moments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol import wire
from dpfedvis.protocol.messages import Agree, Describe, Done, Prepare, Refused, Send, Signed
from dpfedvis.protocol.noise_plan import plan_run, site_plans
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.views import SubspaceView
from dpfedvis.site import Site
from dpfedvis.site.folder import holds, open_site, write_site
from tests.site.agreed import SIMULATED, agreed, contract_of

RECORDS = np.random.default_rng(0).normal(size=(12, 4))
PERSONS = np.array(["a"] * 7 + ["b"] * 3 + ["c", "d"])
BUDGET = Budget(2.0, 1e-5, unit="person", rows_per_person=2)
PUBLIC = PublicParameters(Kernel((0.5,)), 5, 4, 1, 1, 0.5, grid=Grid.of_norm(8.0, 4))


def site(records=RECORDS, **changes) -> Site:
    return Site("client-0", records, **{"policy": SIMULATED, "persons": PERSONS, **changes})


def contract(own: Site, records: int = 8, **changes):
    settings = {"budget": BUDGET, "values": 100, **changes}
    return contract_of([own], [records], KMeans(sweeps=1), **settings)


def test_the_policy_says_which_number_is_told():
    by_person, by_record = (
        site(policy=replace(SIMULATED, unit="person")),
        site(policy=replace(SIMULATED, unit="record")),
    )
    assert by_person.answer(Describe(False, 2)).records == 8
    assert by_record.answer(Describe(False)).records == 12
    assert by_person.answer(Describe(False)).words == "the privacy unit of this site is a person"
    assert by_record.answer(Describe(False, 1)).words == "the privacy unit of this site is a record"
    for rows in (0, -1, 2**70, 1.5):
        assert isinstance(by_person.answer(Describe(False, rows)), Refused)


def test_a_site_without_persons_takes_part_unseen():
    """Under add-remove: to fail would tell that its only person is gone."""
    empty = site(records=RECORDS[:0], persons=PERSONS[:0])
    budget = Budget(2.0, 1e-5, unit="person", rows_per_person=2, adjacency="add-remove")
    assert isinstance(empty.answer(Agree(contract(empty, 40, budget=budget))), Signed)


def test_views_are_of_the_records_that_take_part():
    own = site()
    label = agreed([own], contract(own))
    axes = np.eye(4)[:, :2] * 0.5
    view = SubspaceView(Subspace(np.zeros(4), axes, np.ones(2), Grid.of_norm(8.0, 4)))
    assert isinstance(own.answer(Prepare(label, view)), Done)
    assert own._runs[label].computation.views[view.name].shape == (6, 2)


def test_what_rounding_adds_is_multiplied_too():
    public, moments = replace(PUBLIC, landmarks=1), Moments(tau_x=2.0)
    plans = {}
    for rows in (1, 3):
        budget = Budget(2.0, 1e-5, unit="person", rows_per_person=rows)
        plan = plan_run(budget, moments, 1, None, "seeded", {}, 5)
        (plans[rows],) = site_plans(plan, moments, public, ["a"], [12.0], [1.0])
    cell = 1e-3
    exact = {rows: plan.sensitivity for rows, plan in plans.items()}
    added = {rows: plan.event(cell).sensitivity - exact[rows] for rows, plan in plans.items()}
    assert exact[3] == pytest.approx(3 * exact[1])
    assert added[3] == pytest.approx(3 * added[1], rel=1e-9)
    assert added[1] > 0


def test_a_site_tells_persons_and_not_records():
    own = site()
    assert own.answer(Describe(False)).records == 12
    assert own.answer(Describe(False, 2)).records == 8
    assert own.answer(Describe(True, 2)).records is None
    refused = site(persons=None).answer(Describe(False, 2))
    assert isinstance(refused, Refused)
    assert "no persons" in refused.words


@pytest.mark.parametrize("records", [12, 7, 9])
def test_another_number_of_persons_is_refused(records):
    own = site()
    refused = own.answer(Agree(contract(own, records)))
    assert refused.words == "the contract has another number of records for this site"
    assert isinstance(own.answer(Agree(contract(own))), Signed)


def test_persons_are_needed_to_agree():
    own = site(persons=None)
    assert "no persons" in own.answer(Agree(contract(own))).words


def test_an_upload_counts_at_most_so_many_records_of_a_person():
    own = site()
    label = agreed([own], contract(own, budget=replace(BUDGET, epsilon=400.0)))
    Y = PUBLIC.grid.snap(np.zeros((5, 4)))
    sent = own.answer(Send(label, KMeans(sweeps=1), PUBLIC, 1, Y))
    counts = sent.values[:, -1] * sent.event.grid * 8  # of 8 that the sum is divided by
    assert counts.sum() == pytest.approx(6, abs=0.2)  # two of a, two of b, c and d
    assert sent.event.unit == "person"
    assert sent.event.sensitivity == pytest.approx(2 * 2 / 8, rel=1e-6)


def test_a_simulation_draws_the_same_and_real_noise_does_not():
    def drawn(own: Site, noise: str) -> list[int]:
        return own._agreement._taking_part(contract(own, noise=noise)).tolist()

    assert drawn(site(), "seeded") == drawn(site(), "seeded")
    assert len({tuple(drawn(site(), "discrete")) for _ in range(20)}) > 5


def test_another_preparation_is_refused():
    own = site(preparation="schema 12ab")
    assert own.answer(Describe()).preparation == "schema 12ab"
    for other in ("", "schema 34cd"):
        refused = own.answer(Agree(contract(own, preparation=other)))
        assert refused.words == "the contract is for another schema or other features"
    assert isinstance(own.answer(Agree(contract(own, preparation="schema 12ab"))), Signed)


def test_budget_and_preparation_travel():
    found = wire.decode(wire.encode(contract(site(), preparation="schema 12ab")))
    assert found.budget == BUDGET
    assert found.preparation == "schema 12ab"


def test_the_folder_of_a_site_keeps_persons_and_preparation(tmp_path):
    facts = {"persons": PERSONS, "compared": RECORDS[:, :1], "preparation": "schema 12ab"}
    write_site(tmp_path / "a", "client-0", RECORDS, policy=SIMULATED, **facts)
    assert holds(tmp_path / "a", "client-0", RECORDS, None, SIMULATED, **facts)
    for changed in ({"persons": PERSONS[::-1]}, {"compared": None}, {"preparation": ""}):
        assert not holds(tmp_path / "a", "client-0", RECORDS, None, SIMULATED, **{**facts, **changed})
    own = open_site(tmp_path / "a")
    assert own.answer(Describe(False, 2)).records == 8
    assert own.answer(Describe()).preparation == "schema 12ab"
    own.ledger.close()
