"""What the tests of the federation share."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import Budget, GaussianRelease
from dpfedvis.data import FederatedData
from dpfedvis.federation import Upload
from dpfedvis.federation.feddl import FedDL


def release(client="client-0", round=1, mu=0.1, what="gradient", **more):
    return GaussianRelease(what=what, client=client, round=round, sensitivity=mu, sigma=1.0, **more)


@pytest.fixture
def make_upload():
    def make(values, client="client-0", round=1, mu=0.1, resent=False, **more):
        return Upload(values, release(client, round, mu, **more), resent)

    return make


@pytest.fixture
def make_event():
    return release


@pytest.fixture
def fed():
    rng = np.random.default_rng(5)
    return FederatedData([rng.normal(0.3 * p, 1.0, (n, 4)) for p, n in enumerate((20, 30, 45))])


@pytest.fixture
def configure():
    def configured(chosen="gradient", **settings):
        values = {"landmarks": 6, "rounds": 5, "bandwidth": 0.2, "seed": 3, "start": "normal"}
        values["budget"] = Budget(2.0, 1e-5)
        return FedDL(mechanism=chosen, **{**values, **settings})

    return configured
