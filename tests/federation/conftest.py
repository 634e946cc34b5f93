"""What the tests of the federation share."""

from __future__ import annotations

import pytest

from accounting import Budget, GaussianRelease
from dpfedvis.federation import Upload
from dpfedvis.federation.feddl import FedDL
from tests.makers import federation

GRID = 2.0**-10


def release(client="client-0", round=1, mu=0.1, what="gradient", **more):
    on_grid = {"grid": GRID, "values": 6, **more}
    return GaussianRelease(what=what, client=client, round=round, sensitivity=mu, sigma=1.0, **on_grid)


@pytest.fixture
def make_upload():
    def make(values, client="client-0", round=1, mu=0.1, resent=False, **more):
        return Upload(values, release(client, round, mu, **more), resent)

    return make


@pytest.fixture
def fed():
    return federation()


@pytest.fixture
def configure():
    def configured(chosen="gradient", **settings):
        values = {"landmarks": 6, "rounds": 5, "gamma": 0.2, "seed": 3, "start": "normal"}
        values["budget"] = Budget(2.0, 1e-5)
        return FedDL(mechanism=chosen, **{**values, **settings})

    return configured
