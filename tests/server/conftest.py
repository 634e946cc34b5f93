"""What the tests of the server share."""

from __future__ import annotations

import pytest

from accounting import Budget
from dpfedvis.estimators.feddl import FedDL
from tests.makers import federation


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
