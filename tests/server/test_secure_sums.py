"""Secure sums between a server and sites: equal to plain ones, of those who are there, and back when they are back."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from accounting import Budget, Ledger
from dpfedvis import FedTSNE
from dpfedvis.estimators.simulation import simulated
from dpfedvis.links import InProcess
from dpfedvis.mechanisms import GradientPerturbation, KMeans, MeanEmbedding, PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol.messages import Place, Prepare
from dpfedvis.protocol.sum_messages import Confirm, SendMasked, Unmask
from dpfedvis.protocol.views import DensityView
from dpfedvis.server.mirror import Mirror
from dpfedvis.server.session import Session, SiteFailed
from tests.server.leaky_link import BUDGET, STAGES, Leaky, data, events, leaky, plain, private_program, program
from tests.site.agreed import contract_of


@pytest.mark.parametrize("mechanism", [KMeans, GradientPerturbation, MeanEmbedding], ids=lambda kind: kind.name)
@pytest.mark.parametrize("clients", [2, 5])
def test_a_secure_sum_is_the_plain_one_bit_for_bit(mechanism, clients):
    fed, made = data(clients), program(mechanism(trust="aggregate"))
    secure = leaky(fed, lambda name, request: False).run(made)
    assert np.array_equal(secure.landmarks, plain(fed, made).landmarks)
    assert events(secure) == events(plain(fed, made))
    assert not secure.feddl.failures


def test_a_private_map_has_secure_sums_in_every_stage(monkeypatch):
    fed = data()
    settings = {"epsilon": 20.0, "trust": "aggregate", "private_map": {"placement": "weights", "density": True}}
    here = FedTSNE(**settings, n_landmarks=20, n_jobs=1).fit(fed)
    monkeypatch.setattr(InProcess, "secure", True, raising=False)
    init = InProcess.__init__
    monkeypatch.setattr(InProcess, "__init__", lambda self, *a, **k: init(self, *a, **{**k, "secure": True}))
    there = FedTSNE(**settings, n_landmarks=20, n_jobs=1).fit(fed)
    assert np.array_equal(here.published_map_.places, there.published_map_.places)
    assert np.array_equal(here.density_.shares, there.density_.shares)


STOPS = [
    *((kind, "cluster sums|4|0") for kind in ("masked", "confirm", "unmask")),
    ("masked", "moments|0|0"),
    ("unmask", "density|0|0"),
    ("place", ""),
]


@pytest.mark.parametrize("last", STOPS, ids=" ".join)
def test_a_private_map_goes_on_where_its_server_stopped(last, tmp_path):
    """Sites forget a sum with the next: the server keeps each, and asks for none again."""
    fed, asked = data(), []
    made = private_program(fed)

    def stops(name, request):
        if isinstance(request, SendMasked):
            asked.append(request.label)
        kind, label = last
        if stopping and isinstance(request, STAGES.get(kind, Place)) and getattr(request, "label", "") == label:
            raise KeyboardInterrupt
        return False

    with simulated(fed, budget=Budget(20.0, 1e-5), noise="seeded", folder=tmp_path / "sites") as link:
        stopping = True
        with pytest.raises(KeyboardInterrupt):
            Leaky(link.members, stops).run(made, checkpoint=tmp_path / "server")
        done, stopping = set(asked), False
        asked.clear()
        found = Leaky(link.members, stops).run(made, checkpoint=tmp_path / "server")
    whole = simulated(fed, budget=Budget(20.0, 1e-5), noise="seeded").run(made)
    assert np.array_equal(found.map.places, whole.map.places)
    assert sorted(events(found)) == sorted(events(whole))
    assert len(done & set(asked)) <= 1, "only the sum that was open is asked for again"


def test_a_site_that_was_asked_for_something_else_is_not_in_the_sum():
    """Of cells that mean different things, the noise of a sum would be less than its sensitivity needs."""
    fed, lied = data(), []

    class Lying(Leaky):
        def each(self, request):
            found = []
            for site in self.members:
                mine = request
                if site.name == "client-1" and isinstance(request, Prepare) and isinstance(request.view, DensityView):
                    grid = replace(request.view.grid, half=request.view.grid.half / 2)
                    mine = replace(request, view=replace(request.view, grid=grid))
                    lied.append(mine)
                found.append(self._answer(site, mine))
            return found

    link = simulated(fed, budget=Budget(20.0, 1e-5), noise="seeded")
    found = Lying(link.members, lambda name, request: False).run(private_program(fed))
    assert lied
    assert ("client-1", True) in {(each.site, "another question" in each.reason) for each in found.feddl.failures}
    clients = {event.client for event in found.feddl.ledger.events(what="density")}
    assert clients == {f"client-{number}" for number in (0, 2, 3, 4)}


def test_a_false_signature_does_not_stop_a_sum_of_t_others():
    fed, made = data(), program()

    class Forging(Leaky):
        def some(self, requests):
            found = super().some(requests)
            if isinstance(requests.get("client-2"), Confirm):
                found["client-2"] = replace(found["client-2"], signature="00" * 64)
            return found

    link = simulated(fed, budget=BUDGET, noise="seeded")
    found = Forging(link.members, lambda name, request: False).run(made)
    assert np.array_equal(found.landmarks, plain(fed, made).landmarks)


def test_a_repeated_sum_is_not_taken_for_another_round(tmp_path):
    """A server that stopped after a repetition has forgotten it, and must not read its sum as that of a later round."""
    fed, made, stopping = data(), program(retries=1), [True]

    def away(name, request):
        label = getattr(request, "label", "")
        if stopping[0] and isinstance(request, SendMasked) and label.startswith("gradient|3|"):
            raise KeyboardInterrupt
        return isinstance(request, Unmask) and label.startswith(("gradient|2|", "gradient|3|"))

    with simulated(fed, budget=BUDGET, noise="seeded", folder=tmp_path / "sites") as link:
        with pytest.raises(KeyboardInterrupt):
            Leaky(link.members, away).run(made, checkpoint=tmp_path / "server")
        stopping[0] = False
        with pytest.raises(SiteFailed, match="answers another question"):
            Leaky(link.members, away).run(made, checkpoint=tmp_path / "server")


# Drop-outs


@pytest.mark.parametrize("stage", STAGES)
def test_a_site_that_is_away_at_one_stage_does_not_stop_a_run(stage):
    """In the first sum, or when keys are agreed; it is back for the next."""
    fed, made, lost = data(), program(), []

    def away(name, request):
        now = name == "client-2" and isinstance(request, STAGES[stage]) and len(lost) < 1
        lost.extend([request] * now)
        return now

    found = leaky(fed, away).run(made)
    assert lost
    rounds = dict.fromkeys((1, 2, 3), 0)
    for event in found.feddl.ledger.events():
        rounds[event.round] += 1
    # After its masked values came, it is in the sum whether it is there or not.
    first = 5 if stage in ("confirm", "unmask") else 4
    assert rounds == {1: first, 2: 5, 3: 5}
    assert [(each.site, each.round) for each in found.feddl.failures] == ([("client-2", 1)] if first == 4 else [])


def test_an_average_is_that_of_the_survivors():
    """Over 200 rounds: around the mean over the records of those who are there, by their weights."""
    fed, rounds, away = data(), 200, ("client-1",)
    mechanism = GradientPerturbation(trust="aggregate")
    public = PublicParameters(Kernel((0.1,)), 6, 5, rounds, 1, 0.5, grid=Grid.of_bounds(-3.0, 3.0, 5))
    link = leaky(fed, lambda name, request: name in away and isinstance(request, SendMasked))
    sizes = [len(client.X) for client in fed.clients]
    contract = contract_of(link.members, sizes, mechanism, rounds=rounds, features=5, values=30 * 5)
    session = Session(link, contract, Mirror(Ledger(budget=contract.budget)))
    session.open()
    Y = public.grid.snap(np.random.default_rng(1).normal(size=(6, 5)))
    found = np.stack([session.average(mechanism, public, Y, number) for number in range(1, rounds + 1)])
    there = np.concatenate([client.X for client in fed.clients if client.name not in away])
    exact = mechanism.message(PreparedRecords(there, float(len(there))), Y, public, np.random.default_rng(0)).values
    sigma = next(session.mirror.ledger.events()).sigma
    # Four of five sites, each with noise for t − c = 3; and the average is over their share of the weights.
    share = len(there) / sum(sizes)
    expected = sigma * math.sqrt(4 / 3) / share
    noise = found - exact
    assert noise.std() == pytest.approx(expected, rel=7 / math.sqrt(2 * noise.size))
    assert abs(noise.mean()) < 7 * expected / math.sqrt(noise.size)
    present = session.present(mechanism.what)
    assert present == pytest.approx(math.sqrt(4 / 5) / share)
    assert session.planned_variance(mechanism, public) * present**2 == pytest.approx(expected**2)
    assert {event.client for event in session.mirror.ledger.events()} == {c.name for c in fed.clients} - set(away)


@pytest.mark.parametrize("stage", STAGES)
def test_too_few_sites_stop_a_run_and_it_goes_on_when_they_are_back(stage, tmp_path):
    fed, made, gone = data(), program(), [True]

    def away(name, request):
        return gone[0] and name in ("client-0", "client-3") and isinstance(request, STAGES[stage])

    with simulated(fed, budget=BUDGET, noise="seeded", folder=tmp_path / "sites") as link:
        with pytest.raises(SiteFailed, match=r"is not complete: .* of at least 4 .*is away.*resume the run"):
            Leaky(link.members, away).run(made, checkpoint=tmp_path / "server")
        gone[0] = False
        found = Leaky(link.members, away).run(made, checkpoint=tmp_path / "server")
    assert np.array_equal(found.landmarks, plain(fed, made).landmarks)
    # Sites that were charged before the others came stand first.
    assert sorted(events(found)) == sorted(events(plain(fed, made)))


def test_a_sum_can_be_repeated_where_budget_is_set_aside():
    """A site whose state is lost can never open its first sum: a repeated one has another round, noise and charge."""
    fed, made = data(), program(retries=1)
    stuck = []

    def away(name, request):
        now = isinstance(request, Unmask) and request.label.startswith("gradient|2|")
        stuck.extend([name] * now)
        return now

    found = leaky(fed, away).run(made)
    assert stuck
    released = sorted({event.round for event in found.feddl.ledger.events()})
    assert released == [1, 2, 3, 4], "round 2 was charged and never seen, and repeated as round 4"
    assert len(found.feddl.trace) == 3
    # Four releases are planned, so that each has a quarter of the budget.
    without = plain(fed, program())
    ratio = next(found.feddl.ledger.events()).sigma / next(without.feddl.ledger.events()).sigma
    assert ratio == pytest.approx(math.sqrt(4 / 3), rel=1e-4)
    with pytest.raises(SiteFailed, match="is not complete"):
        leaky(fed, away).run(program())


@pytest.mark.parametrize("kind", [Prepare, Place])
def test_a_site_that_misses_a_view_or_the_map_does_not_stop_a_map(kind):
    fed = data()
    made = private_program(fed)
    found = Leaky(
        simulated(fed, budget=Budget(20.0, 1e-5), noise="seeded").members,
        lambda name, request: name == "client-1" and isinstance(request, kind),
    ).run(made)
    assert found.map is not None
    missed = {(each.site, each.reason.partition(":")[0]) for each in found.feddl.failures}
    assert ("client-1", kind.__name__) in missed, "also after the landmarks"
    assert {site for site, _ in missed} == {"client-1"}
    with pytest.raises(SiteFailed, match="3 of 5 sites are there, and 4 are needed"):
        Leaky(
            simulated(fed, budget=Budget(20.0, 1e-5), noise="seeded").members,
            lambda name, request: name in ("client-1", "client-2") and isinstance(request, kind),
        ).run(made)
