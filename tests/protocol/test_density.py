"""The grid of a density: cells, classes, and how many cells the noise allows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from accounting import InvalidParameter
from dpfedvis.protocol.density import LEAST_CELLS, MOST_CELLS, Density, DensityGrid, cell_numbers, cells_for


def test_cells_are_rows_of_the_second_coordinate():
    grid, eps = DensityGrid(2.0, 4), 1e-9
    points = np.array([(-2, -2), (2, -2), (-2, 2), (2, 2), (0, 0), (-eps, -eps), (-1.5, 0.5), (1 - eps, -1)])
    np.testing.assert_array_equal(grid.cell(points), [0, 3, 12, 15, 10, 5, 8, 6])


def test_what_lies_outside_is_counted_at_the_edge_and_what_is_nowhere_is_counted_too():
    grid = DensityGrid(1.0, 3)
    outside = np.array([(-9.0, 0.0), (1e300, 0.0), (0.0, np.inf), (-np.inf, -np.inf)])
    np.testing.assert_array_equal(grid.cell(outside), [3, 5, 7, 0])
    assert 0 <= grid.cell(np.array([[np.nan, np.nan]]))[0] < 9


@given(npst.arrays(np.float64, (7, 2), elements=st.floats(-3, 3)), st.integers(1, 20))
def test_every_point_of_the_square_is_in_its_cell(points, cells):
    numbers, side = DensityGrid(3.0, cells).cell(points), 6.0 / cells
    lower = np.stack([numbers % cells, numbers // cells], axis=1) * side - 3
    assert (points >= lower - 1e-9).all()
    assert (points <= lower + side + 1e-9).all()


@pytest.mark.parametrize(("half", "cells", "name"), [(0.0, 3, "half"), (np.inf, 3, "half"), (1.0, 0, "cells")])
def test_a_grid_that_is_none_is_named(half, cells, name):
    with pytest.raises(InvalidParameter) as caught:
        DensityGrid(half, cells)
    assert caught.value.name == name


@given(st.floats(1e-12, 1e6), st.floats(1.0, 100.0))
def test_more_noise_gives_no_more_cells(noise, factor):
    assert LEAST_CELLS <= cells_for(noise * factor) <= cells_for(noise) <= MOST_CELLS == cells_for(0.0)
    if LEAST_CELLS < cells_for(noise) < MOST_CELLS:
        assert 1 / cells_for(noise) ** 2 >= 2 * noise


def test_classes_are_counted_apart_and_strangers_after_the_last():
    grid, cells = DensityGrid(1.0, 2), np.array([0, 1, 2, 3, 3])
    labels = np.array(["cat", "ape", "dog", "bee", "eel"])
    numbers = cell_numbers(cells, grid, labels, ("dog", "ape", "cat"))  # in the order of the list
    assert numbers.shape == (5, 1)
    np.testing.assert_array_equal(numbers[:, 0], [8 + 0, 4 + 1, 0 + 2, 12 + 3, 12 + 3])
    np.testing.assert_array_equal(cell_numbers(cells, grid, None, ()), cells[:, None])
    with pytest.raises(InvalidParameter, match="classes"):
        cell_numbers(cells, grid, labels, ())


@given(st.lists(st.sampled_from("abcdef"), min_size=1), st.data())
def test_one_label_moves_one_record(labels, data):
    """A class has its number in the public list, whatever labels occur."""
    grid, classes = DensityGrid(1.0, 2), ("d", "b")
    place, other = data.draw(st.integers(0, len(labels) - 1)), data.draw(st.sampled_from("abcdef"))
    cells = np.zeros(len(labels), dtype=np.int64)
    before = cell_numbers(cells, grid, np.array(labels), classes)
    after = cell_numbers(cells, grid, np.array([*labels[:place], other, *labels[place + 1 :]]), classes)
    assert np.count_nonzero(np.delete(before - after, place)) == 0


def test_the_total_is_over_classes():
    shares = np.arange(8.0).reshape(2, 2, 2)
    density = Density(DensityGrid(1.0, 2), shares, 0.1, ("a",))
    np.testing.assert_array_equal(density.total, shares[0] + shares[1])
    assert density.layers == ("a", "other")
    assert Density(DensityGrid(1.0, 2), shares[:1], 0.1).layers == ()
