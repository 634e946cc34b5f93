"""Clients and the average of them: workers change nothing, failures follow the policy and cost nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from accounting import Budget, InvalidParameter, Ledger
from accounting.gdp import gaussian_mu
from dpfedvis.data import FederatedData
from dpfedvis.federation import Client, ClientFailed, ClientPlan, ClientWorkers, Door, Federation, Streams
from dpfedvis.federation.feddl import FedDL
from dpfedvis.federation.noise_plan import client_plans, plan_run
from dpfedvis.mechanisms import GradientPerturbation, Message, NoPerturbation, PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Kernel
from tests.makers import federation

MANY = [("threads", 1), ("threads", 2), ("threads", 3)]
MECHANISMS = ["none", "heuristic", "published", "gradient", "clipped", "variable", "input", "mean-embedding"]


def budget_for(name):
    return None if name in ("none", "heuristic", "published") else Budget(2.0, 1e-5)


@pytest.mark.parametrize("name", MECHANISMS)
def test_threads_do_not_change_a_bit(name, configure, fed):
    results = [
        configure(name, budget=budget_for(name), workers=ClientWorkers(count, backend)).run(fed)
        for backend, count in MANY
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(other.landmarks, results[0].landmarks)
        assert list(other.ledger.events()) == list(results[0].ledger.events())
        # As text, so that nan equals nan.
        assert repr(other.trace) == repr(results[0].trace)


def test_threads_do_not_change_a_bit_of_larger_runs():
    """Blocks large enough for BLAS to use threads of its own, of which it gets two."""
    fed = federation((700, 500, 900), 60, shift=0, seed=0)
    config = FedDL(landmarks=80, mechanism="gradient", budget=Budget(2.0, 1e-5), rounds=3, gamma=0.01)
    with threadpool_limits(2, user_api="blas"):
        assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {2}
        runs = [replace(config, workers=ClientWorkers(count)).run(fed).landmarks for count in (1, 2, 3)]
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])


@pytest.mark.parametrize("name", ["gradient", "input"])
def test_processes_do_not_change_a_bit(name, configure, fed):
    here = configure(name).run(fed)
    there = configure(name, workers=ClientWorkers(2, "processes")).run(fed)
    np.testing.assert_array_equal(here.landmarks, there.landmarks)
    assert list(here.ledger.events()) == list(there.ledger.events())


def test_the_same_seed_repeats_and_another_does_not(configure, fed):
    runs = [configure(seed=seed).run(fed).landmarks for seed in (3, 3, 4)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_the_order_of_clients_changes_only_what_it_must(trust, configure, fed):
    """Without noise nothing but rounding; with noise the streams go by number, the events by name."""
    parts = [client.X for client in fed.clients]
    turned = FederatedData(parts[::-1], names=["client-2", "client-1", "client-0"])
    plain = [configure("none", budget=None).run(each).landmarks for each in (fed, turned)]
    np.testing.assert_allclose(plain[0], plain[1], atol=1e-5)
    noisy = [configure(GradientPerturbation(trust=trust)).run(each) for each in (fed, turned)]
    events = [sorted(event.to_json() for event in run.ledger.events()) for run in noisy]
    assert events[0] == events[1]
    assert noisy[0].ledger.spent() == noisy[1].ledger.spent()


# Failures


@dataclass(frozen=True)
class Unreliable(GradientPerturbation):
    """Fails at the client with 30 records, in round 2."""

    how: str = "nan"
    records: int = 30
    seen: ClassVar[dict[int, int]] = {}

    def total(self, local, Y, public, grid, factor=1.0):
        values = super().total(local, Y, public, grid, factor)
        key = len(local.records)
        self.seen[key] = self.seen.get(key, 0) + 1
        if key != self.records or self.seen[key] != 2:
            return values
        if self.how == "raise":
            raise RuntimeError("the disk is gone")
        broken = {"nan": values * np.nan, "floats": values * 1.0, "shape": values[:-1], "list": values.tolist()}
        return broken.get(self.how)  # or nothing


@dataclass(frozen=True)
class Careless(NoPerturbation):
    """Uploads the wrong type, which only an upload without noise can."""

    how: str = "integers"

    def message(self, local, Y, public, generator):
        values = super().message(local, Y, public, generator).values
        if len(local.records) != 30:
            return Message(values)
        return Message(
            {"integers": values.astype(np.int64), "nothing": None, "half": values.astype(np.float16)}[self.how]
        )


@pytest.fixture(autouse=True)
def _forget():
    Unreliable.seen.clear()


HOW = ["nan", "floats", "shape", "raise", "nothing", "list"]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("how", HOW)
def test_a_round_goes_on_without_a_client_that_fails(how, workers, configure, fed):
    seen = []
    config = configure(Unreliable(how=how), policy="continue", workers=ClientWorkers(workers))
    result = config.run(fed, witness=lambda events, values: seen.append(events[0]))
    assert [(failure.client, failure.round) for failure in result.failures] == [("client-1", 2)]
    assert result.failures[0].reason
    assert len(result.trace) == 5
    assert np.isfinite(result.landmarks).all()
    counts = {name: len(list(result.ledger.events(client=name))) for name in ("client-0", "client-1", "client-2")}
    assert counts == {"client-0": 5, "client-1": 4, "client-2": 5}
    assert [event.to_json() for event in seen] == [event.to_json() for event in result.ledger.events()]
    assert result.ledger.spent(client="client-1") < result.ledger.spent(client="client-0")


@pytest.mark.parametrize("how", HOW)
def test_a_run_that_must_not_go_on_stops(how, configure, fed):
    ledger = Ledger(budget=Budget(2.0, 1e-5))
    with pytest.raises(ClientFailed, match="client-1 failed in round 2"):
        configure(Unreliable(how=how), policy="fail").run(fed, ledger=ledger)
    assert len(ledger) == 3, "round 1 and nothing of round 2"


@pytest.mark.parametrize("trust", ["aggregate", "central"])
@pytest.mark.parametrize("how", HOW)
def test_a_sum_is_never_taken_over_some_clients_only(how, trust, configure, fed):
    ledger, seen = Ledger(budget=Budget(2.0, 1e-5)), []
    with pytest.raises(ClientFailed, match="client-1 failed in round 2"):
        configure(Unreliable(how=how, trust=trust), policy="continue").run(
            fed, ledger=ledger, witness=lambda events, values: seen.append(events)
        )
    assert len(ledger) == 3
    assert len(seen) == 1


@pytest.mark.parametrize("how", ["integers", "nothing", "half"])
def test_the_wrong_type_is_a_failure(how, configure, fed, tmp_path):
    config = configure(Careless(how=how), policy="continue", budget=None, rounds=2)
    for checkpoint in (None, tmp_path / "run"):
        result = config.run(fed, checkpoint=checkpoint)
        assert [(failure.client, failure.round) for failure in result.failures] == [("client-1", 1), ("client-1", 2)]
        assert len(result.ledger) == 4
        result.ledger.close()


def test_weights_are_renormalised_over_those_who_answer(configure, fed):
    """Without noise the run equals one of the others alone."""
    others = FederatedData([fed.clients[0].X, fed.clients[2].X])
    start = np.random.default_rng(0).normal(size=(6, 4))
    broken = configure(Careless(), policy="continue", budget=None, start=start).run(fed)
    alone = configure("none", budget=None, start=start).run(others)
    np.testing.assert_allclose(broken.landmarks, alone.landmarks, atol=1e-6)


def test_a_round_without_any_answer_ends_the_run(configure):
    single = FederatedData([np.random.default_rng(0).normal(size=(30, 4))])
    with pytest.raises(ClientFailed, match="no client gave a valid upload"):
        configure(Careless(), policy="continue", budget=None).run(single)


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_a_run_that_failed_can_be_tried_again(trust, configure, fed, tmp_path):
    """What the others had ready when one failed must not stand for the whole round."""
    config = configure(Unreliable(how="raise", trust=trust))
    with pytest.raises(ClientFailed):
        config.run(fed, checkpoint=tmp_path)
    seen = []
    result = config.run(fed, checkpoint=tmp_path, witness=lambda events, values: seen.extend(events))
    assert len(seen) == 3 * 4, "rounds 2 to 5, of all clients"
    assert len(result.ledger) == 15
    whole = configure(GradientPerturbation(trust=trust)).run(fed)
    np.testing.assert_array_equal(result.landmarks, whole.landmarks)
    result.ledger.close()


# One client


SETTING = PublicParameters(Kernel((0.2,)), landmarks=3, features=4, rounds=1, local_steps=1, step_size=0.5)
WITHOUT = ClientPlan(0, "client-0", 10.0, 0.25, 4)


def test_a_client_adds_its_share_of_the_noise():
    """σ alone, σ/√P of a sum, nothing where the server is trusted; and the event always says σ."""
    X, Y = np.random.default_rng(0).normal(size=(10, 4)), np.zeros((3, 4))
    names, budget = [f"client-{p}" for p in range(4)], Budget(2.0, 1e-5)
    for trust, share in (("local", 1.0), ("aggregate", 1 / 2), ("central", 0.0)):
        mechanism = GradientPerturbation(trust=trust)
        run = plan_run(budget, mechanism, 1, None, "seeded", {}, 12 * (4 if trust == "aggregate" else 1))
        plan = client_plans(run, mechanism, SETTING, names, [10.0] * 4, [0.25] * 4)[0]
        client = Client(X, plan, mechanism, SETTING, Streams(0), "seeded")
        uploads = [client.upload(Y, round) for round in range(1, 301)]
        # What a record moves the sum by is a quarter of what it moves the one upload by, in both.
        weight = 1.0 if trust == "local" else 0.25
        delta = weight * mechanism.sensitivity(SETTING, 10.0)
        sigma = delta / gaussian_mu(2.0, 1e-5)
        for upload in uploads:
            assert upload.event.sensitivity == pytest.approx(delta, rel=1e-12)
            assert upload.event.sigma == pytest.approx(sigma, rel=1e-6)
        exact = mechanism.total(PreparedRecords(X, 10.0), Y, SETTING, mechanism.grid(SETTING, Y))
        noise = np.stack([(upload.values - exact) * upload.event.grid for upload in uploads])
        assert noise.std() == pytest.approx(share * sigma, rel=6 / math.sqrt(2 * noise.size))
        assert abs(noise.mean()) <= 6 * share * sigma / math.sqrt(noise.size)


def test_a_client_without_a_plan_uploads_nothing():
    client = Client(np.zeros((2, 4)), WITHOUT, GradientPerturbation(), SETTING, Streams(0), "seeded")
    with pytest.raises(RuntimeError, match="the noise plan has no"):
        client.upload(np.zeros((3, 4)), 1)


@pytest.mark.parametrize(("settings", "value"), [({"noise": "loud"}, "loud"), ({"policy": "hope"}, "hope")])
def test_bad_names_are_named(settings, value):
    with pytest.raises(InvalidParameter) as caught:
        Federation(
            [np.zeros((2, 4))],
            [WITHOUT],
            NoPerturbation(),
            SETTING,
            Door(Ledger()),
            Streams(0),
            **{"noise": "seeded", **settings},
        )
    assert caught.value.value == value
