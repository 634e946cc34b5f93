"""The noise of an average over some of the sites: it is known when the average is, and not before."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting import Ledger
from dpfedvis import FederatedData
from dpfedvis.estimators.simulation import simulated
from dpfedvis.mechanisms import GradientPerturbation, KMeans
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import ScaleHistogram
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol.messages import Send
from dpfedvis.protocol.noise_plan import Extra
from dpfedvis.protocol.sum_messages import SendMasked
from dpfedvis.server.mirror import Mirror
from dpfedvis.server.session import Session
from tests.server.leaky_link import BUDGET, Leaky, leaky, private_program, program
from tests.site.agreed import contract_of

LARGE = "client-4"


def uneven(small: int) -> FederatedData:
    """Four small sites, and one that has nearly all records: without it the average is nearly all noise."""
    rng = np.random.default_rng(0)
    return FederatedData([rng.normal(size=(size, 5)).astype(np.float32) for size in (*[small] * 4, 4000)])


def without(what: str):
    """The large site is away for this release."""
    return lambda name, request: (
        name == LARGE and isinstance(request, SendMasked) and request.send.mechanism.what == what
    )


@pytest.mark.parametrize(
    ("what", "mechanism", "settings"),
    [
        ("scale histogram", GradientPerturbation, {"gamma": "histogram"}),
        ("scale histogram", GradientPerturbation, {"gamma": "moments"}),
        ("scale histogram", GradientPerturbation, {"gamma": 0.1, "start": "mean"}),
        ("scale histogram", KMeans, {"gamma": 0.1}),
    ],
)
def test_noise_is_not_taken_for_the_scale_of_the_data(what, mechanism, settings):
    """With the noise of all sites in mind, a cell of the histogram that is all noise seems to stand out of it."""
    made = program(mechanism(trust="aggregate"), feddl=settings, rounds=1)
    found = leaky(uneven(5), without(what)).run(made).feddl
    assert (LARGE, 0) in [(each.site, each.round) for each in found.failures]
    assert found.public.kernel.mean_gamma == pytest.approx(0.1, rel=0.9)
    assert np.abs(found.start).max() < 100.0
    if found.public.grid is not None:
        assert found.public.grid.step * found.public.grid.most < 100.0


def test_the_published_density_states_the_noise_that_it_has():
    fed, what = uneven(400), "density"
    link = simulated(fed, budget=BUDGET, noise="seeded")
    found = Leaky(link.members, without(what)).run(private_program(fed))
    whole = simulated(fed, budget=BUDGET, noise="seeded").run(private_program(fed))
    event = next(found.feddl.ledger.events(what=what))
    # Four of five sites, each with noise for t − c = 3; and the average is over their share of the records.
    share = 4 * 400 / fed.n_records
    assert found.density.noise == pytest.approx(event.sigma * math.sqrt(4 / 3) / share, rel=1e-9)
    assert whole.density.noise == pytest.approx(event.sigma * math.sqrt(5 / 3), rel=1e-9)
    assert found.density.grid.cells == whole.density.grid.cells, "cells are chosen before anybody is away"


def session_of(link, sizes, mechanism, **settings) -> Session:
    extras = {"scale histogram": Extra(0.3, "scale", 5 * 256)}
    contract = contract_of(
        link.members, sizes, mechanism, budget=BUDGET, features=5, values=5, extras=extras, **settings
    )
    session = Session(link, contract, Mirror(Ledger(budget=BUDGET)), on_failure="continue")
    session.open()
    return session


PUBLIC = PublicParameters(Kernel((0.1,)), 1, 5, 1, 1, 1.0)


@pytest.mark.parametrize("trust", ["local", "aggregate"])
@pytest.mark.parametrize("small", [40, 4000])
def test_an_average_comes_with_the_variance_of_its_noise(trust, small):
    """Held against 120 cells of distances that no record can be in."""
    fed, kind = uneven(small), Send if trust == "local" else SendMasked
    for away in ((), ("client-1",), (LARGE,)):
        link = leaky(fed, lambda name, request, away=away: name in away and isinstance(request, kind))
        link.secure = trust == "aggregate"
        session = session_of(link, fed.records, GradientPerturbation(trust=trust))
        release = ScaleHistogram(trust=trust)
        planned = session.planned_variance(release, PUBLIC)
        found = session.once(release, PUBLIC)
        assert [each.site for each in session.failures] == list(away)
        assert session.planned_variance(release, PUBLIC) == planned
        assert (found.variance == pytest.approx(planned, rel=1e-9)) == (not away)
        # Squared distances of these records are below 2^8, and above 2^-8.
        empty = np.concatenate([found.values[:56], found.values[72:128]])
        assert np.mean(empty**2) == pytest.approx(found.variance, rel=6 * math.sqrt(2 / empty.size))
