"""What a program leaves survives a journey as bytes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from accounting import Budget, Ledger
from dpfedvis import FederatedData
from dpfedvis.estimators.simulation import simulated
from dpfedvis.mechanisms import GradientPerturbation, KMeans
from dpfedvis.numerics.layouts import LAYOUTS
from dpfedvis.numerics.spectral import SpectralSettings
from dpfedvis.protocol.signatures import verify
from dpfedvis.protocol.wire import Malformed, encode
from dpfedvis.server import Program, ProgramSettings, Published
from dpfedvis.server.recipe import Recipe

BUDGET = Budget(20.0, 1e-5)
SETTINGS = {
    "landmarks": {"mechanism": GradientPerturbation(), "landmarks": 5, "rounds": 3},
    "rows": {"mechanism": GradientPerturbation(), "landmarks": 5, "rounds": 3, "release": "noisy", "tau_x": 4.0},
    "map": {
        "mechanism": KMeans(trust="aggregate"),
        "release": "none",
        "layout": LAYOUTS["tsne"](),
        "recipe": Recipe(density=True),
        "clusters": SpectralSettings(clusters=3),
    },
}


def same(a: Any, b: Any) -> bool:
    """Whether two values are the same to the last bit, part by part."""
    if isinstance(a, Ledger):
        return a.budget == b.budget and list(a.events()) == list(b.events())
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return bool(a == b) or (a != a and b != b)


@pytest.fixture(scope="module", params=SETTINGS)
def published(request: pytest.FixtureRequest) -> Published:
    rng = np.random.default_rng(0)
    fed = FederatedData([rng.normal(size=(60, 4)) for _ in range(2)], bounds=(-3, 3))
    program = Program(ProgramSettings(budget=BUDGET, feddl={"bounds": (-3, 3)}, **SETTINGS[request.param]))
    return simulated(fed, budget=BUDGET, noise="seeded").run(program)


def test_nothing_is_lost_on_the_way(published: Published) -> None:
    found = Published.of_bytes(published.to_bytes())
    for each in fields(Published):
        assert same(getattr(found, each.name), getattr(published, each.name)), each.name


def test_receipts_are_signed_by_the_members(published: Published) -> None:
    keys = {member.name: member.key for member in published.contract.members}
    assert {each.site for each in published.receipts} == set(keys)
    for each in published.receipts:
        assert each.contract == published.label
        assert not each.signature or verify(keys[each.site], each.signature, each.signed)


def test_bytes_of_something_else_are_refused(published: Published) -> None:
    with pytest.raises(Malformed):
        Published.of_bytes(published.to_bytes()[:-3])
    for other in ({}, {"feddl": 3}, {"feddl": {}}, {"feddl": {"budget": 1, "events": (2,)}}, (), "text", None):
        with pytest.raises(Malformed):
            Published.of_bytes(encode(other))


def test_a_verdict_on_other_landmarks_is_refused(published: Published) -> None:
    if published.verdict is None or not published.verdict.drawn:
        return
    longer = replace(published.verdict, drawn=(*published.verdict.drawn, True))
    with pytest.raises(Malformed):
        Published.of_bytes(replace(published, verdict=longer).to_bytes())
