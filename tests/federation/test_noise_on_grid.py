"""What integers cost: on the shipped recipes the noise is within 0.2 % of the continuous closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting import Budget, PlannedRelease, calibrate
from accounting.noise import parameter
from dpfedvis.federation import Door, Streams
from dpfedvis.federation.noise_plan import drawn_by
from dpfedvis.federation.private_map.learner import Learner
from dpfedvis.federation.releases import Releases
from dpfedvis.mechanisms import KMeans
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from tests.makers import federation

FEATURES, CLIENTS, RECORDS = 784, 10, 4000
PUBLIC = PublicParameters(
    Kernel.gaussian(0.5), 900, 16, rounds=12, local_steps=1, step_size=1.0, grid=Grid.of_range(256.0, 2.0**-12, 16)
)


@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("kind", [ScaleHistogram, Moments, SecondMoments, KMeans, GridCounts])
def test_noise_on_the_grid_is_that_of_the_closed_form(kind, epsilon, trust):
    """Every stage of the private map of MNIST: the stated σ, and the noise that is drawn."""
    budget, chosen = Budget(epsilon, 1e-5), kind(trust=trust)
    plan = Learner(budget=budget, mechanism=KMeans(trust=trust), layers=1).plan(CLIENTS, FEATURES)
    fed = federation((3,) * CLIENTS, 2)
    releases = Releases(
        fed, plan, Door(None), Streams(0), [float(RECORDS)] * CLIENTS, [1 / CLIENTS] * CLIENTS, "seeded"
    )
    public = PUBLIC if kind is KMeans else Learner(budget=budget, mechanism=KMeans()).public_for(FEATURES)
    event = releases.client_plans(chosen, public)[0].event(chosen.cell(public, chosen.grid(public, np.zeros((1, 784)))))
    planned = [
        PlannedRelease(each.planned.what, 1.0, each.planned.count, each.planned.share)
        for each in plan.multipliers.releases
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
