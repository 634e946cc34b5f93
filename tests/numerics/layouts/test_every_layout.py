"""What holds for every layout: a layout in `LAYOUTS` is tested here without another line."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest

from dpfedvis.numerics.distances import GramDistances
from dpfedvis.numerics.layouts import LAYOUTS, Layout, Task

RECORDS = 90


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> Layout:
    return LAYOUTS[request.param]()


def groups(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three groups of points, far apart."""
    rng, group = np.random.default_rng(seed), np.arange(RECORDS) % 3
    points = rng.normal(0, 0.3, (RECORDS, 4)) + 10 * np.eye(4)[group]
    return (points - points.mean(axis=0)).astype(np.float32), group


def nearest_groups(places: np.ndarray, known: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Group of the nearest other known place."""
    distances = np.linalg.norm(places[:, None] - known[None], axis=2)
    distances[distances == 0] = np.inf
    return group[distances.argmin(axis=1)]


def test_it_is_a_frozen_dataclass_that_its_name_finds(layout: Layout) -> None:
    assert LAYOUTS[layout.name] is type(layout)
    assert layout.title
    assert isinstance(layout.threads, bool)
    assert pickle.loads(pickle.dumps(layout)) == layout
    with pytest.raises(dataclasses.FrozenInstanceError):
        layout.name = "another"
    assert all(field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
               for field in dataclasses.fields(layout))  # fmt: skip


def test_it_keeps_groups_together_and_places_later_records_among_them(layout: Layout) -> None:
    points, group = groups()
    made = layout.lay_out(GramDistances(points), Task(seed=1))
    assert made.places.shape == (RECORDS, 2)
    assert np.isfinite(made.places).all()
    assert (nearest_groups(made.places, made.places, group) == group).mean() > 0.95
    later, own = groups(seed=2)
    placed = made.place(later[:12])
    assert placed.shape == (12, 2)
    assert (nearest_groups(placed, made.places, group) == own[:12]).mean() > 0.8


def test_the_same_seed_gives_the_same_map(layout: Layout) -> None:
    points, _ = groups()
    once, again = (layout.lay_out(GramDistances(points), Task(seed=3)).places for _ in range(2))
    np.testing.assert_array_equal(once, again)


def test_it_lays_out_anchors_and_places_points_among_them(layout: Layout) -> None:
    anchors, group = groups()
    places = layout.lay_out_anchors(anchors, seed=1)
    before = places.copy()
    assert places.shape == (RECORDS, 2)
    points, own = groups(seed=2)
    placed = layout.place_among(anchors, places, points, seed=1)
    assert placed.shape == (RECORDS, 2)
    assert (nearest_groups(placed, places, group) == own).mean() > 0.8
    np.testing.assert_array_equal(places, before)
