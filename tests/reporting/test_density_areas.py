"""Areas of a density: nothing is drawn that noise made, and what is drawn follows from the released cells alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path as Outline

from dpfedvis.protocol.density import Density, DensityGrid
from dpfedvis.reporting.density_areas import (
    FRAME,
    STANDS_OUT,
    Rings,
    above,
    areas,
    contour_levels,
    drawn_half,
    finer,
    grid_middles,
    smoothed,
)

CELLS = 16
HALF = 3.0


def density(shares: np.ndarray, noise: float = 1e-3, classes: tuple[str, ...] = ()) -> Density:
    return Density(DensityGrid(HALF, shares.shape[-1]), shares, noise, classes)


def noise_alone(classes: int = 1, seed: int = 0, cells: int = CELLS) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1e-3, (classes, cells, cells))


def two_groups() -> Density:
    """Class 3 around cell (4, 4), class 7 around (13, 13)."""
    shares = noise_alone(3)
    shares[0, 3:6, 3:6] += 0.05
    shares[1, 12:15, 12:15] += 0.05
    return density(shares, classes=("3", "7"))


def test_the_noise_that_is_left_is_as_stated() -> None:
    shares, noise = smoothed(density(noise_alone(20, cells=40)))
    inner = shares[:, 5:-5, 5:-5]
    assert inner.std() == pytest.approx(noise, rel=0.03)
    assert shares[:, 0, 0].std() < noise  # a corner never stands out more easily
    assert noise < 1e-3


def test_smoothing_keeps_each_class_to_itself_and_its_share() -> None:
    shares = np.zeros((2, CELLS, CELLS))
    shares[0, 8, 8] = 1.0
    found, _ = smoothed(density(shares))
    assert found[0].sum() == pytest.approx(1.0)
    assert np.unravel_index(found[0].argmax(), found[0].shape) == (8, 8)
    assert not found[1].any()


def test_noise_alone_has_no_contours() -> None:
    for seed in range(5):
        given = density(noise_alone(10, seed), classes=tuple("123456789"))
        shares, noise = smoothed(given)
        assert len(contour_levels(np.maximum(shares.sum(axis=0), 0), noise * math.sqrt(10))) == 0


def test_contours_lie_between_the_noise_and_the_peak() -> None:
    total = np.zeros((CELLS, CELLS))
    total[4, 4] = 0.2
    levels = contour_levels(total, 1e-3)
    assert levels[0] == pytest.approx(STANDS_OUT * 1e-3)
    assert (np.diff(levels) > 0).all()
    assert levels[-1] < 0.2
    assert len(contour_levels(total, 0.0)) == len(levels)  # without noise, too
    assert len(contour_levels(np.zeros((CELLS, CELLS)), 0.0)) == 0


def inside(rings: Rings, x: float, y: float) -> bool:
    """Whether a place is inside an odd number of lines."""
    return sum(bool(Outline(line).contains_point((x, y))) for line in rings.lines) % 2 == 1


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 8, 20, 64]))
def test_a_finer_grid_is_nowhere_above_the_cells_around(seed: int, cells: int) -> None:
    """So that what does not stand out in any cell is not drawn between them either."""
    values = np.random.default_rng(seed).normal(size=(cells, cells))
    fine, framed = finer(values), np.pad(values, FRAME)
    assert fine.max() <= framed.max() + 1e-12
    assert fine.min() >= framed.min() - 1e-12
    factor = len(fine) // len(framed)
    for row, column in np.argwhere(fine > np.quantile(fine, 0.99))[:20].tolist():
        r, c = row // factor, column // factor
        around = framed[max(r - 2, 0) : r + 3, max(c - 2, 0) : c + 3]
        assert fine[row, column] <= around.max() + 1e-12


def test_an_area_holds_the_places_above_its_level_and_no_others() -> None:
    shares = two_groups().shares[:1]
    fine = finer(shares[0])
    middles = grid_middles(2.0, len(fine))
    rings = above(fine, 2.0, 0.02)
    rng = np.random.default_rng(0)
    found = 0
    for row, column in rng.integers(0, len(fine), size=(400, 2)).tolist():
        if abs(fine[row, column] - 0.02) > 2e-3:
            found += fine[row, column] > 0.02
            assert inside(rings, middles[column], middles[row]) == (fine[row, column] > 0.02)
    assert found > 5
    assert len(above(fine, 2.0, 1.0).lines) == 0


def test_a_hole_in_an_area_is_none_of_it() -> None:
    ring = np.zeros((20, 20))
    ring[5:15, 5:15] = 1.0
    ring[8:12, 8:12] = 0.0
    rings = above(finer(ring), 2.0, 0.5)
    assert len(rings.lines) == 2
    assert not inside(rings, 0.0, 0.0)


def test_each_class_is_coloured_and_named_where_it_is() -> None:
    measured = two_groups()
    together, everything, three, seven, other = areas(measured)
    assert [each.name for each in (together, everything, three, seven, other)] == [
        "classes", "all records", "3", "7", "other",
    ]  # fmt: skip
    side = 2 * HALF / CELLS
    assert [name for name, _, _ in together.names] == ["3", "7"]
    for (_, x, y), cells in zip(together.names, ((3, 6), (12, 15)), strict=True):
        assert cells[0] * side - HALF < x < cells[1] * side - HALF
        assert x == pytest.approx(y, abs=2 * side)
    for number, (_, x, y) in enumerate(together.names):
        colours = {layer for layer, rings in together.fills if inside(rings, x, y)}
        assert colours == {number}
    assert (three.members, seven.members, other.members) == ((0,), (1,), (2,))
    assert len(other.levels) == 0
    assert drawn_half(measured) == pytest.approx(HALF * (1 + 2 * FRAME / CELLS))


def test_what_has_no_colour_has_no_name() -> None:
    """A class in one cell, just above the noise: smooth areas stay below its level."""
    shares = two_groups().shares.copy()
    _, noise = smoothed(density(shares))
    shares[0] = shares[2] = 0.0
    shares[0, 4, 4] = 2.5 * STANDS_OUT * noise
    (together, *_) = areas(density(shares, classes=("3", "7")))
    coloured = {layer for layer, rings in together.fills if len(rings.lines)}
    assert [name for name, _, _ in together.names] == ["7"]
    assert coloured == {1}


@pytest.mark.parametrize("classes", [(), tuple("123456789")])
def test_noise_alone_is_not_coloured(classes: tuple[str, ...]) -> None:
    """One false cell in thirty thousand is allowed: five times ten layers of 256 cells may hold one."""
    drawn = 0
    for seed in range(5):
        for area in areas(density(noise_alone(10 if classes else 1, seed), classes=classes)):
            if area.name in ("classes", "all records"):
                drawn += sum(len(rings.lines) for _, rings in area.fills)
                drawn += len(area.names)
    assert drawn <= 8
