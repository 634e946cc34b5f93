"""Sites whose policies allow different ε take part with noise of their own, and the statement lists them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget, GaussianRelease, InvalidParameter, SeededNoise
from accounting.accountants import tightest
from accounting.noise import parameter
from accounting.risk_lines import risk_lines
from accounting.statement import state
from dpfedvis import FederatedData
from dpfedvis.estimators.simulation import policy_for, write_sites
from dpfedvis.links import InProcess, Processes
from dpfedvis.mechanisms import GradientPerturbation, KMeans, NoPerturbation
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.protocol.contract import Contract, Member
from dpfedvis.protocol.messages import Describe, Description
from dpfedvis.protocol.noise import add_noise, noise_cells, variance_alone
from dpfedvis.protocol.noise_plan import Extra
from dpfedvis.server import Program, ProgramSettings
from dpfedvis.server.private_map import Learner
from dpfedvis.server.session import SiteRefused
from dpfedvis.site import Policy, Site

BUDGET = Budget(4.0, 1e-5)
NAMES = ("north", "south", "west")
LIMITS = {"north": 1.0, "south": None, "west": 2.0}
POLICY = policy_for(BUDGET, "seeded")


def sites(policy: Policy = POLICY, **changes: Any) -> list[Site]:
    rng = np.random.default_rng(0)
    sizes = {"north": 30, "south": 40, "west": 50}
    return [
        Site(name, rng.uniform(-1, 1, size=(sizes[name], 5)), policy=replace(policy, epsilon=LIMITS[name], **changes))
        for name in NAMES
    ]


def program(trust: str, **changes: Any) -> Program:
    common: dict[str, Any] = {"budget": BUDGET, "landmarks": 6, "rounds": 3, "feddl": {"bounds": (-1, 1)}}
    return Program(ProgramSettings(mechanism=KMeans(trust=trust), **{**common, **changes}))  # type: ignore[arg-type]


@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
def test_each_site_spends_its_own_and_no_more(trust: str) -> None:
    with InProcess(sites()) as link:
        found = link.run(program(trust))
        owned = {site.name: site.ledger for site in link.members}
    ledger, contract = found.feddl.ledger, found.contract
    assert [each.epsilon for each in contract.members] == [1.0, None, 2.0]
    for name, limit in LIMITS.items():
        spent = ledger.spent(1e-5, client=name)
        assert spent <= (limit or 4.0)
        budget = contract.budget_of(name)
        assert budget is not None
        assert budget.epsilon == (limit or 4.0)
        # Its own ledger would refuse the release after the last by its own ε, and not by that of the run.
        assert [each.budget for each in owned[name]._accounts.values()] == [budget]
        assert owned[name].events(contract.run, name) == [each for each in ledger.events() if each.client == name]
        if trust != "central" and limit is not None:
            assert spent == pytest.approx(limit, rel=1e-5)
    told = state(ledger)
    assert told.site_epsilons == {name: ledger.spent(1e-5, client=name) for name in NAMES}
    if trust != "central":  # there one noise, for the smallest ε, is that of all
        assert "- north: ε = 1\n" in str(told)
        assert "- south: ε = 4\n" in str(told)


def test_under_local_trust_others_have_the_noise_that_they_had() -> None:
    """A site with a smaller ε changes its own noise alone."""
    with InProcess(sites()) as link:
        own = list(link.run(program("local")).feddl.ledger.events(client="south"))
    contract = Contract(
        run="r", budget=BUDGET, mechanism=KMeans(), rounds=3, noise="seeded", seed=0, features=5,
        members=tuple(Member(name, 40.0, 1 / 3) for name in NAMES), values=36,
    )  # fmt: skip
    assert contract.plan is not None
    events = [each for each in own if isinstance(each, GaussianRelease) and each.what == "cluster sums"]
    assert events[0].noise_multiplier == pytest.approx(contract.plan.multipliers["cluster sums"].sigma, rel=1e-2)


def test_a_site_refuses_a_contract_that_forgets_its_limit() -> None:
    """A server that leaves the limit out, or writes a larger one, gets no signature."""

    class Forgetful(InProcess):
        def _answer(self, site: Site, request: Any) -> Any:
            reply = super()._answer(site, request)
            return replace(reply, epsilon=self.told) if isinstance(request, Describe) else reply

    for told in (None, 3.0):
        link = Forgetful(sites())
        link.told = told  # type: ignore[attr-defined]
        with pytest.raises(SiteRefused, match=rf"north refused: a budget of epsilon {told or 4:g} is above 1"), link:
            link.run(program("aggregate"))
        assert all(site.ledger.head is None for site in link.members)


@pytest.mark.parametrize("wrong", [0, 0.0, -1.0, math.nan, math.inf, "1", True])
def test_an_epsilon_that_is_none_is_refused_by_name(wrong: Any) -> None:
    """0 is no "any": it would have been taken for no limit at all."""
    with pytest.raises(InvalidParameter, match="epsilon of north"):
        Member("north", 30.0, 1.0, epsilon=wrong)
    with pytest.raises(InvalidParameter, match="epsilon of north"):
        Description("north", "", 30, 5, epsilon=wrong)


def test_an_epsilon_is_a_float() -> None:
    """1 and 1.0 have different bytes."""
    for number in (1, np.float64(1.0)):
        assert type(Member("north", 30.0, 1.0, epsilon=number).epsilon) is float
        assert type(Description("north", "", 30, 5, epsilon=number).epsilon) is float


def test_what_leaves_without_noise_has_no_budget_of_its_own() -> None:
    chosen = ProgramSettings(mechanism=NoPerturbation(), landmarks=4, rounds=1, feddl={"bounds": (-1, 1)})
    with InProcess(sites(unprotected=True)) as link:
        assert [each.epsilon for each in link.run(Program(chosen)).contract.members] == [None] * 3


def test_sites_are_told_apart_by_processes_and_secure_sums(tmp_path: Path) -> None:
    """The same bits as in one process; a site's owner edits its policy file, and nobody else knows of it."""
    fed = FederatedData([site._agreement._records for site in sites()], names=list(NAMES))
    folders = write_sites(fed, tmp_path, policy_for(BUDGET, "seeded", receipts="signed"))
    for name, limit in LIMITS.items():
        policy = folders[name] / "policy.toml"
        policy.write_text(policy.read_text().replace('epsilon = "any"', f"epsilon = {limit or 4.0}", 1))
    with Processes(folders) as link:
        found = link.run(program("aggregate"))
    with InProcess(sites()) as here:
        expected = here.run(program("aggregate"))
    assert np.array_equal(found.landmarks, expected.landmarks)
    ledger = found.feddl.ledger
    assert [each.to_json() for each in ledger.events()] == [each.to_json() for each in expected.feddl.ledger.events()]
    assert ledger.spent(1e-5, client="north") == pytest.approx(1.0, rel=1e-5)


# The noise


@given(
    limits=st.lists(st.one_of(st.none(), st.floats(0.05, 8.0)), min_size=3, max_size=8),
    sizes=st.lists(st.integers(5, 2000), min_size=8, max_size=8),
    colluders=st.integers(0, 1),
    cells=st.sampled_from([1, 64]),
)
@settings(max_examples=settings.default.max_examples // 2)
def test_what_is_left_of_the_noise_is_enough_for_each(
    limits: list[float | None], sizes: list[int], colluders: int, cells: int
) -> None:
    """By hand: of t sites at least, c of whom take theirs off, the site itself and t − c − 1 others are left."""
    P = len(limits)
    weights = [size / sum(sizes[:P]) for size in sizes[:P]]
    members = tuple(Member(f"s{p}", float(sizes[p]), weights[p], epsilon=limits[p]) for p in range(P))
    mechanism = GridCounts(trust="aggregate", cells=cells)
    contract = Contract(
        run="r", budget=BUDGET, mechanism=KMeans(trust="aggregate"), rounds=1, noise="seeded", seed=0, features=2,
        members=members, colluders=colluders, values=P * 64,
        extras=Learner(budget=BUDGET, mechanism=KMeans(trust="aggregate"), layers=1).shares.planned(
            Learner(budget=BUDGET, mechanism=KMeans()).public_for(2),
            seen=Learner(budget=BUDGET, mechanism=KMeans()).public_for(2), parties=P, scale=False, layers=1,
        ),
    )  # fmt: skip
    public = Learner(budget=BUDGET, mechanism=KMeans()).public_for(2)
    plans, sharing = contract.site_plans(mechanism, public), contract.sharing
    assert sharing is not None
    cell = mechanism.cell(public, mechanism.grid(public, np.zeros((1, 2))))
    events = [plan.event(cell, 0) for plan in plans]
    drawn = []
    for event in events:
        assert event.grid == events[0].grid
        source = Recorded()
        add_noise(source, np.zeros(1, dtype=np.int64), event, sharing.shares)
        drawn.append(source.parameter)
    least = sorted(drawn)
    for p, (plan, event) in enumerate(zip(plans, events, strict=True)):
        own = contract.plan_of(plan.name)
        assert own is not None
        moved = event.sensitivity / (event.grid or 1.0)
        others = [each for number, each in enumerate(drawn) if number != p]
        left = math.sqrt(drawn[p] ** 2 + math.fsum(each**2 for each in sorted(others)[: sharing.shares - 1]) - 4)
        assert left >= own.multipliers["density"].sigma * moved * (1 - 1e-9)
        assert left * (event.grid or 1.0) >= event.sigma * (1 - 1e-9), "the ledger states no more than there is"
        assert drawn[p] >= least[0] >= 4
    total = math.fsum(variance_alone(event) for event in events)
    assert contract.planned_variance(mechanism, public) == pytest.approx(total, rel=1e-9)


class Recorded:
    """A source of no noise that keeps what it was asked for."""

    name = "seeded"
    parameter = 0.0

    def add_integers(self, values: Any, parameter: Any) -> Any:
        self.parameter = float(parameter)
        return values


def test_drawn_noise_is_what_the_events_say() -> None:
    """100,000 values of each of three sites, summed: its variance is the planned one."""
    common = {"what": "x", "sensitivity": 1.0, "grid": 0.1, "values": 3, "trust": "aggregate"}
    common |= {"parties": 3, "threshold": 3, "colluders": 1}
    events = [GaussianRelease(client="a", sigma=5.0, **common), GaussianRelease(client="b", sigma=5.0, **common)]
    events.append(GaussianRelease(client="c", sigma=math.hypot(5.0, 12.0), own=12.0, **common))
    source = SeededNoise(np.random.default_rng(0))
    noise = sum(add_noise(source, np.zeros(100_000, dtype=np.int64), each, 2) for each in events) * 0.1
    expected = math.fsum(variance_alone(each) for each in events)
    assert expected == pytest.approx(3 * 12.5 + 144, rel=1e-9)
    assert float(np.var(noise)) == pytest.approx(expected, rel=0.02)
    assert parameter(5.0, 0.1, parties=2) == pytest.approx(math.hypot(50, 2) / math.sqrt(2))


def test_the_sampler_is_asked_for_what_is_drawn_before_anything_is_spent() -> None:
    """The common noise alone has too few cells of this grid; what the event states, own noise included, has enough."""
    common = {"what": "x", "sensitivity": 1.0, "grid": 1.0, "values": 3, "trust": "aggregate", "parties": 3}
    event = GaussianRelease(client="c", sigma=math.hypot(1.0, 100.0), own=100.0, threshold=3, colluders=1, **common)
    assert parameter(event.sigma, 1.0, parties=2) > 4
    with pytest.raises(InvalidParameter, match="in cells of the grid"):
        noise_cells(event, 2)
    fine = replace(event, grid=0.01)
    assert noise_cells(fine, 2) == pytest.approx(math.hypot(100 / math.sqrt(2), 10_000), rel=1e-3)
    with pytest.raises(InvalidParameter, match="in cells of the grid"):
        noise_cells(replace(event, grid=1e-13), 2)


def test_an_epsilon_that_asks_for_endless_noise_is_refused_by_the_name_of_its_site() -> None:
    budget, mechanism = Budget(4.0, 1e-12), GridCounts(trust="aggregate", cells=4)
    learner = Learner(budget=budget, mechanism=KMeans())
    public = learner.public_for(2)
    cell = mechanism.cell(public, mechanism.grid(public, np.zeros((1, 2))))
    for epsilon, far in ((1e-2, False), (1e-3, True)):
        members = (Member("north", 30.0, 0.5, epsilon=epsilon), Member("south", 30.0, 0.5))
        contract = Contract(
            run="r", budget=budget, mechanism=KMeans(trust="aggregate"), rounds=1, noise="seeded", seed=0, features=2,
            members=members, values=512, extras={"density": Extra(0.5, "release", 8)},
        )  # fmt: skip
        north, south = contract.site_plans(mechanism, public)
        assert south.event(cell).own is None
        if far:
            with pytest.raises(InvalidParameter, match="noise of north"):
                north.event(cell)
        else:
            assert north.event(cell).own is not None


def test_own_noise_is_not_shared_out_again() -> None:
    """Against the server alone one more share of the common noise is there, and no more of the site's own."""
    common = {"what": "x", "sensitivity": 1.0, "trust": "aggregate", "parties": 3, "threshold": 3, "colluders": 1}
    event = GaussianRelease(client="c", sigma=13.0, own=12.0, noise="seeded", **common)
    lines = {line.key: line.risk.mu for line in risk_lines([event], None)}
    assert lines["unit"] == pytest.approx(1 / 13)
    assert lines["server alone"] == pytest.approx(1 / math.sqrt(25 * 3 / 2 + 144))
    assert GaussianRelease(**{k: v for k, v in event.to_dict().items() if k != "kind"}) == event
    assert "own" not in replace(event, own=None).to_dict()


def test_the_ratio_of_noise_is_that_of_the_plans() -> None:
    for trust in ("local", "aggregate", "central"):
        mechanism = KMeans(trust=trust)  # type: ignore[arg-type]
        made = {}
        for limit in (None, 1.0):
            contract = Contract(
                run="r", budget=BUDGET, mechanism=mechanism, rounds=2, noise="seeded", seed=0, features=3, values=90,
                members=tuple(Member(name, 50.0, 1 / 3, epsilon=limit if name == "north" else None) for name in NAMES),
            )  # fmt: skip
            public = replace(Learner(budget=BUDGET, mechanism=mechanism).public_for(3), landmarks=2)
            made[limit] = math.sqrt(contract.planned_variance(mechanism, public)), contract.noise_ratio
        assert made[None][1] == 1.0
        assert made[1.0][1] > 1.1
        assert made[1.0][0] / made[None][0] == pytest.approx(made[1.0][1], rel=1e-6)


def test_gradients_take_part_too() -> None:
    chosen = ProgramSettings(
        mechanism=GradientPerturbation(trust="aggregate"), budget=BUDGET, landmarks=4, rounds=2,
        feddl={"bounds": (-1, 1)},
    )  # fmt: skip
    with InProcess(sites()) as link:
        ledger = link.run(Program(chosen)).feddl.ledger
    composition = ledger.composition("north")
    assert tightest(composition).epsilon(composition, 1e-5) <= 1.0
