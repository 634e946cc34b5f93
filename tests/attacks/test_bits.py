"""Attacks on bits: each wins against a path in floating point, written here, and finds nothing in ours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from accounting import DiscreteNoise, SeededNoise
from attacks.bits import beside_a_landmark, guess, moved, new_label, over_a_power_of_two, reachable, take_off, tied
from attacks.bits.neighbours import cancelling_squares
from dpfedvis.mechanisms.base import PreparedRecords
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.exact_sums import UNIT, cluster_sums, nearest
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.protocol.density import DensityGrid, cell_numbers

PLANE = PublicParameters(Kernel.gaussian(1.0), landmarks=1, features=2, rounds=1, local_steps=1, step_size=1.0)
GAMES, VALUES = 40, 200


# Low bits.


def floating_noise(total: Array, sigma: float, generator: np.random.Generator) -> Array:
    """The broken path: float64 plus σΦ⁻¹(u), u on a grid of 2⁻⁵²."""
    u = (generator.integers(0, 2**52, size=total.shape) + 0.5) / 2.0**52
    return total + sigma * ndtri(u)


def test_low_bits_tell_the_total_of_floating_point_noise() -> None:
    """Two totals that are 1/100 of the noise apart: 40 of 40 right where chance gives 20."""
    generator, right = np.random.default_rng(1), 0
    inside, outside = generator.uniform(size=(2, VALUES))
    for game in range(GAMES):
        seen = floating_noise(inside if game % 2 else outside, 100.0, generator)
        right += guess(seen, inside, outside, 100.0) == (1 if game % 2 else -1)
    assert right == GAMES


def test_low_bits_of_integers_tell_nothing() -> None:
    """Every integer is reached from every total."""
    generator = np.random.default_rng(2)
    inside, outside = generator.integers(0, 1000, size=(2, VALUES))
    for game in range(GAMES):
        seen = SeededNoise(generator).add_integers(inside if game % 2 else outside, 1e5)
        for total in (inside, outside):
            assert np.abs(seen - total).max() < 36e5  # within reach of the sampler, whole cells away
        # The test of floats has no hold on them either: it rules out neither, or both.
        values = [each.astype(np.float64) for each in (seen, inside, outside)]
        assert guess(*values, 1e5) == 0


def test_a_value_is_reached_from_its_own_total() -> None:
    generator = np.random.default_rng(3)
    total = generator.uniform(size=1000)
    assert reachable(floating_noise(total, 3.0, generator), total, 3.0).all()


# Shape.


def nearest_by_blas(X: Array, Y: Array) -> np.ndarray:
    """The broken path: a product whose order of summation follows from the number of rows, as kernels of a BLAS do."""
    step = 1 if len(X) % 2 else -1
    products = np.zeros((len(X), len(Y)), dtype=np.float32)
    for column in range(X.shape[1])[::step]:
        products += X[:, column, None] * Y[None, :, column]
    return np.argmax(products, axis=1)


def test_one_more_record_moves_others_to_another_landmark() -> None:
    pair = tied(400, 32)
    assert pair.public is not None
    flips = np.sum(nearest_by_blas(pair.inside, pair.public)[:-1] != nearest_by_blas(pair.outside, pair.public))
    assert flips * math.sqrt(2) > 50  # counts move by so many Δ of add-remove


def test_exact_ties_are_broken_alike_in_any_company() -> None:
    pair = tied(400, 32)
    assert pair.public is not None
    grid = Grid.of_norm(20.0, 32)
    inside, outside, Y = grid.cells(pair.inside), grid.cells(pair.outside), grid.nearest(pair.public)
    np.testing.assert_array_equal(nearest(inside, Y)[:-1], nearest(outside, Y))


# Accumulation.


def summed_in_float32(records: Array) -> np.ndarray:
    """The broken path: off the diagonal of second moments, one record after the other."""
    products = (records[:, 0] * records[:, 1]).astype(np.float32)
    return np.add.accumulate(products, dtype=np.float32)[-1:]


def second_moments(records: Array) -> np.ndarray:
    chosen = SecondMoments(clip=1.0)
    grid = chosen.grid(PLANE, np.zeros((1, 2)))
    total = chosen.total(PreparedRecords(records, 1.0), np.zeros((1, 2)), PLANE, grid)
    return total * chosen.cell(PLANE, grid) / chosen.relative_noise(PLANE)


def test_a_record_lifts_a_sum_over_a_power_of_two() -> None:
    pair = over_a_power_of_two()
    assert moved(summed_in_float32, pair) > 10 * math.sqrt(2)
    assert moved(second_moments, pair) <= 1.0  # of √2: the record has norm 1, and the other is 0


# Cancellation.


def offsets_clipped_in_float32(pair_of: Array, Y: Array, clip: float) -> np.ndarray:
    """The broken path: clips by norms from ‖x‖² + ‖y‖² − 2x·y."""
    norms = np.sqrt(np.maximum(cancelling_squares(pair_of, Y)[:, 0], 0))
    return ((pair_of - Y) * (clip / np.maximum(norms, clip))[:, None]).sum(axis=0)


def test_a_clip_does_not_see_records_beside_a_landmark() -> None:
    clip = 0.01
    pair = beside_a_landmark(clip, 6.0)
    Y = pair.public
    assert Y is not None
    assert moved(lambda X: offsets_clipped_in_float32(X, Y, clip), pair) > 2 * clip * 1.5  # Δ = 2·clip
    grid = Grid.of_norm(4000.0, 4)

    def exact(X: Array) -> np.ndarray:
        return cluster_sums(grid.cells(X), grid.nearest(Y), grid, clip)[:, :-1] * (clip / UNIT)

    assert moved(exact, pair) <= clip


# Labels.


def test_a_label_that_nobody_else_has_shifts_all_classes() -> None:
    labels, records, grid = 5, 400, DensityGrid(1.0, 2)
    pair, classes = new_label(labels, records), tuple(range(labels + 1))

    def counts(numbers: np.ndarray) -> np.ndarray:
        return np.bincount(numbers, minlength=(labels + 1) * grid.cells**2)

    def by_occurrence(found: np.ndarray) -> np.ndarray:
        """The broken path: classes numbered as they occur."""
        return counts(np.unique(found, return_inverse=True)[1] * grid.cells**2)

    def ours(found: np.ndarray) -> np.ndarray:
        numbers = cell_numbers(np.zeros(len(found), dtype=np.int64), grid, found, classes)
        counted = GridCounts(cells=(labels + 1) * grid.cells**2)
        return counted.total(PreparedRecords(numbers, 1.0), numbers, PLANE, Grid(1.0, 1)) * counted.cell(
            PLANE, Grid(1.0, 1)
        )

    assert moved(by_occurrence, pair) > 50 * math.sqrt(2)
    assert moved(ours, pair) == pytest.approx(math.sqrt(2))


# Seeds.


def test_noise_from_a_known_seed_is_taken_off() -> None:
    """A path that seeds its noise by a short number is a simulation; noise from the system has no seed to find."""
    total = np.arange(-50, 50, dtype=np.int64)

    def noise(seed: int) -> np.ndarray:
        return SeededNoise(np.random.default_rng(seed)).add_integers(np.zeros(100, dtype=np.int64), 1e4)

    found = take_off(total + noise(317), noise, range(1000), bound=100)
    assert found is not None
    assert found[0] == 317
    np.testing.assert_array_equal(found[1], total)
    assert take_off(DiscreteNoise().add_integers(total, 1e4), noise, range(1000), bound=100) is None
