"""What integers cost: on the shipped recipes the noise is within 0.2 % of the continuous closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget, GaussianRelease, PlannedRelease, calibrate
from accounting.noise import parameter
from dpfedvis.mechanisms import KMeans
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol.messages import Description
from dpfedvis.protocol.noise import common_sigma
from dpfedvis.protocol.noise_plan import drawn_by
from dpfedvis.server.members import Members
from dpfedvis.server.private_map import Learner

FEATURES, CLIENTS, RECORDS = 784, 10, 4000
MEMBERS = Members(tuple(Description(f"client-{p}", "", RECORDS, FEATURES) for p in range(CLIENTS)))
PUBLIC = PublicParameters(
    Kernel.gaussian(0.5), 900, 16, rounds=12, local_steps=1, step_size=1.0, grid=Grid.of_range(256.0, 2.0**-12, 16)
)


@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("kind", [ScaleHistogram, Moments, SecondMoments, KMeans, GridCounts])
def test_noise_on_the_grid_is_that_of_the_closed_form(kind, epsilon, trust):
    """Every stage of the private map of MNIST: the stated σ, and the noise that is drawn."""
    budget, chosen = Budget(epsilon, 1e-5), kind(trust=trust)
    contract = Learner(budget=budget, mechanism=KMeans(trust=trust), layers=1).contract(MEMBERS, "run")
    public = PUBLIC if kind is KMeans else Learner(budget=budget, mechanism=KMeans()).public_for(FEATURES)
    event = contract.site_plans(chosen, public)[0].event(chosen.cell(public, chosen.grid(public, np.zeros((1, 784)))))
    planned = [
        PlannedRelease(each.planned.what, 1.0, each.planned.count, each.planned.share)
        for each in contract.plan.multipliers.releases
    ]
    delta = chosen.sensitivity(public, RECORDS) / (1 if trust == "local" else CLIENTS)
    continuous = calibrate(budget, planned)[chosen.what].sigma * delta
    assert continuous <= event.sigma <= continuous * 1.002
    relative = chosen.relative_noise(public)
    least = 1.0 if relative is None else float(relative.min())
    parties = drawn_by(trust, CLIENTS)
    cells = parameter(event.sigma, event.grid, parties=parties, least=least)
    assert cells * least >= 32
    assert continuous <= cells * math.sqrt(parties) * event.grid <= continuous * 1.002


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e3))
def test_the_common_noise_is_never_less_than_planned(common: float, times: float) -> None:
    """Others rely on it, however much a site adds of its own."""
    own = times * common
    event = GaussianRelease(
        what="sums", client="a", sensitivity=1.0, sigma=math.hypot(common, own), own=own, trust="aggregate",
        parties=3, threshold=3, colluders=0,
    )  # fmt: skip
    assert common <= common_sigma(event) <= common * (1 + 1e-8)
