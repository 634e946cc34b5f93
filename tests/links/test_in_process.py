"""Sites of one process: neither their number at work nor bytes in between change a bit; errors stay at home."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from accounting import Budget, InvalidParameter
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.estimators.simulation import simulated
from dpfedvis.links import InProcess
from dpfedvis.mechanisms import GradientPerturbation, KMeans, NoPerturbation
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.layouts import TSNELayout
from dpfedvis.protocol.messages import FAILED, Refused, Send
from dpfedvis.server import Program, ProgramSettings
from dpfedvis.server.recipe import Recipe
from dpfedvis.server.session import Failure, SiteFailed
from tests.makers import federation, groups
from tests.site.agreed import agreed, contract_of, sites_of

MANY = [{"jobs": 1}, {"jobs": 2}, {"jobs": 3}, {"jobs": 7}, {"through_bytes": True}, {"jobs": 2, "through_bytes": True}]
MECHANISMS = ["none", "heuristic", "published", "gradient", "clipped", "variable", "input", "mean-embedding", "k-means"]


def budget_for(name):
    return None if name in ("none", "heuristic", "published") else Budget(2.0, 1e-5)


def configured(chosen, **settings):
    values = {"landmarks": 6, "rounds": 5, "gamma": 0.2, "seed": 3, "start": "normal", "budget": Budget(2.0, 1e-5)}
    return FedDL(mechanism=chosen, **{**values, **settings})


def learned(config, fed, **how):
    """Learn over sites of these data, which are asked in this way."""
    link = simulated(fed, budget=config.budget, noise=config.noise)
    seen = []
    asked = InProcess(link.members, **how)
    result, _ = config.learn(asked, witness=lambda events, values: seen.append(values.tobytes()))
    return result, seen


@pytest.mark.parametrize("name", MECHANISMS)
def test_neither_threads_nor_bytes_change_a_bit(name):
    config, fed = configured(name, budget=budget_for(name)), federation()
    first, seen = learned(config, fed)
    assert seen
    for how in MANY[1:]:
        other, also = learned(config, fed, **how)
        np.testing.assert_array_equal(other.landmarks, first.landmarks, strict=True)
        assert list(other.ledger.events()) == list(first.ledger.events())
        assert also == seen
        # As text, so that nan equals nan.
        assert repr(other.trace) == repr(first.trace)


@pytest.mark.parametrize("trust", ["aggregate", "central"])
def test_nor_do_they_change_a_sum(trust):
    config, fed = configured(GradientPerturbation(trust=trust)), federation()
    runs = [learned(config, fed, **how) for how in MANY]
    for other, seen in runs[1:]:
        np.testing.assert_array_equal(other.landmarks, runs[0][0].landmarks)
        assert seen == runs[0][1]


def test_threads_do_not_change_a_bit_of_larger_runs():
    """Blocks large enough for BLAS to use threads of its own, of which it gets two."""
    fed = federation((700, 500, 900), 60, shift=0, seed=0)
    config = FedDL(landmarks=80, mechanism="gradient", budget=Budget(2.0, 1e-5), rounds=3, gamma=0.01)
    with threadpool_limits(2, user_api="blas"):
        assert {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"} == {2}
        runs = [config.run(fed, jobs=jobs).landmarks for jobs in (1, 2, 3)]
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])


def test_a_whole_private_map_is_the_same_through_bytes():
    """Every kind of message: subspace, landmarks, density by class, and records that are placed at home."""
    fed, budget = groups(), Budget(5.0, 1e-5)
    recipe = Recipe(anchors=24, placement="weights", density=True, classes=(0, 1))
    layout = TSNELayout(further={"early_exaggeration_iter": 20, "n_iter": 40})
    program = Program(
        ProgramSettings(
            mechanism=KMeans(),
            budget=budget,
            release="none",
            landmarks=20,
            rounds=3,
            recipe=recipe,
            layout=layout,
        )
    )
    ends = []
    for how in ({}, {"jobs": 3, "through_bytes": True}):
        link = InProcess(simulated(fed, budget=budget, noise="seeded").members, **how)
        published = link.run(program)
        ends.append((published, [site.placed(published.label) for site in link.members]))
    (here, placed), (there, also) = ends
    np.testing.assert_array_equal(here.landmarks, there.landmarks)
    np.testing.assert_array_equal(here.map.places, there.map.places)
    np.testing.assert_array_equal(here.density.shares, there.density.shares)
    for one, other in zip(placed, also, strict=True):
        np.testing.assert_array_equal(one, other)
    assert list(here.feddl.ledger.events()) == list(there.feddl.ledger.events())


# Errors


@dataclass(frozen=True)
class Misbehaving(NoPerturbation):
    """Raises what it is told to, at sites of this many records, where others compute."""

    error: Exception | None = None
    records: int = 5

    def message(self, local, Y, public, generator):
        if self.error is not None and len(local.records) == self.records:
            raise self.error
        return super().message(local, Y, public, generator)


ERRORS = [MemoryError("record 17 is 3.14"), ZeroDivisionError("3.14"), InvalidParameter("gamma", 3.14, "positive")]
PUBLIC = PublicParameters(Kernel.gaussian(1.0), 3, 4, rounds=1, local_steps=1, step_size=1.0)


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
def test_replies_keep_the_order_and_an_error_becomes_a_refusal_without_its_words(error, jobs, caplog):
    sizes = (6, 5, 7, 8)
    sites = sites_of([np.random.default_rng(n).random((n, 4)) for n in sizes])
    chosen = Misbehaving(error=error)
    contract = contract_of(sites, sizes, chosen, budget=None, rounds=9, unprotected=(chosen.what,))
    request = Send(agreed(sites, contract), chosen, PUBLIC, 9, np.zeros((3, 4)))
    with caplog.at_level(logging.WARNING):
        replies = InProcess(sites, jobs=jobs).each(request)
    assert [reply.site for reply in replies] == [f"client-{p}" for p in range(4)]
    assert replies[1] == Refused("client-1", FAILED, "this site could not do it; its own log says why")
    for place in (0, 2, 3):
        again = sites[place].answer(request)
        assert replies[place].event == again.event
        np.testing.assert_array_equal(replies[place].values, again.values)
    assert str(error) in caplog.text, "it stays in the log of the site"


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("error", ERRORS, ids=lambda each: type(each).__name__)
def test_a_site_that_raises_is_a_failure_by_policy(error, jobs):
    """Whatever it raises, also where a setting is to blame: the words of an error may quote a record."""
    fed = federation((20, 30, 45))
    config = configured(Misbehaving(error=error, records=30), budget=None, rounds=2, policy="continue")
    result = config.run(fed, jobs=jobs)
    words = "this site could not do it; its own log says why"
    # Where errors may depend on records, one is all that a server sees.
    more = "this site has failed, and waits for its owner to look at its log (dpfedvis.site.clear_failure)"
    assert result.failures == (Failure("client-1", 1, words), Failure("client-1", 2, more))
    strict = configured(Misbehaving(error=error, records=30), budget=None, rounds=2)
    with pytest.raises(SiteFailed) as caught:
        strict.run(fed, jobs=jobs)
    assert str(caught.value) == f"client-1 failed in round 1: {words}"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("jobs", [0, -1, 1.5])
def test_bad_numbers_of_jobs_are_named(jobs):
    with pytest.raises(InvalidParameter) as caught:
        InProcess(sites_of([np.zeros((2, 4))]), jobs=jobs)
    assert (caught.value.name, caught.value.value) == ("jobs", jobs)
