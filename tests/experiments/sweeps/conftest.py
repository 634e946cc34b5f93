"""Small cells, and rows made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedvis.experiments.sweeps.cells import Cell
from dpfedvis.runs.settings import RunConfig
from tests import makers

SMALL: dict[str, Any] = {
    "data": "digits", "records": 80, "clients": 3, "landmarks": 8, "rounds": 2, "map": "clusters", "mechanism": "none",
}  # fmt: skip


@pytest.fixture
def cell():
    def make(kind: str = "run", **settings: Any) -> Cell:
        return Cell(kind, RunConfig(**{**SMALL, **settings}))

    return make


@pytest.fixture
def row():
    return makers.row
