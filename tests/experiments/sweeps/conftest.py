"""Small cells, and rows made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dpfedvis.experiments.sweeps.cells import Cell
from dpfedvis.experiments.sweeps.store import Row
from dpfedvis.runs.code_version import CodeVersion
from dpfedvis.runs.settings import RunConfig

HERE = CodeVersion("1.0", "a" * 40)
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
    def make(settings: dict[str, Any] | None = None, **facts: Any) -> Row:
        settings = {"data": "digits", **(settings or {})}
        common: dict[str, Any] = {
            "kind": "run", "status": "done", "settings": settings, "data_sha256": "d", "scores": {"nmi": 0.5},
            "epsilon_end_to_end": settings.get("epsilon", math.inf), "epsilon_in_scope": settings.get("epsilon"),
            "epsilon_nominal": None, "delta": 1e-5, "seconds": 1.0, "version": HERE, "error": "",
            "finished": "2025-01-01T00:00:00+00:00",
        }  # fmt: skip
        common |= facts
        return Row(address=facts.get("address", repr((common["kind"], settings))), **common)

    return make
