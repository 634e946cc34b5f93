"""What holds for one record holds in any company: one suite for everything that is protected.

The upload of n records minus that of n − 1 is exactly what the one record adds by itself; the bits are the same for any
block size, order, number of threads, and beside any other records. The integers never move by more than is stated.
Exceptions: several local steps and the histogram of scales are tested by replacing a record, rows and records
perturbed at home row by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from accounting import Budget
from dpfedvis.mechanisms import (
    MECHANISMS,
    ClippedGradientPerturbation,
    GradientPerturbation,
    InputPerturbation,
    PlainMechanism,
    PreparedRecords,
    VariablePerturbation,
    scale,
)
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.rows import DistanceRows, GramRows, KernelRows, noisy_rows, row_grid
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics import exact, exact_steps, exact_sums
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel, kernel_matrix
from dpfedvis.protocol.noise_plan import plan_run, site_plans

FEATURES, LANDMARKS = 5, 9
KERNEL = Kernel((0.7,))
Y = np.random.default_rng(1).normal(size=(LANDMARKS, FEATURES))
PUBLIC = PublicParameters(
    KERNEL, LANDMARKS, FEATURES, rounds=3, local_steps=1, step_size=0.5, grid=Grid.of_norm(8.0, FEATURES)
)


@dataclass(frozen=True)
class Weighted(PlainMechanism):
    """A mechanism in the plain way: kernel values and the record itself."""

    name: ClassVar[str] = "weighted"
    what: ClassVar[str] = "weighted"

    def shape(self, public):
        return (public.landmarks + public.features,)

    def bound(self, public):
        return 1.5

    def contribution(self, records, landmarks, public):
        return np.concatenate([kernel_matrix(records, landmarks, public.kernel), records], axis=1)


@dataclass(frozen=True)
class Signs(PlainMechanism):
    """Signs of a product with a public matrix: in a block their last bits could depend on a record's place."""

    name: ClassVar[str] = "signs"
    what: ClassVar[str] = "signs"
    size: ClassVar[int] = 199

    def shape(self, public):
        return (self.size,)

    def bound(self, public):
        return 1.0

    def contribution(self, records, landmarks, public):
        angles = np.outer(np.arange(public.features) + 0.5, np.arange(self.size)) * (math.pi / public.features)
        return (records @ np.cos(angles) > 0) / math.sqrt(self.size)


BALL = {"bound": "theorem", "tau_x": 3.0, "tau_y": 40.0, "upsilon": 30.0}
SUMS = {
    "gradient": GradientPerturbation(),
    "theorem": GradientPerturbation(**BALL),
    "clipped": ClippedGradientPerturbation(clip=0.05),
    "variable": VariablePerturbation(),
    "mean-embedding": MECHANISMS["mean-embedding"](frequencies=50),
    "k-means": MECHANISMS["k-means"](),
    "moments": Moments(tau_x=2.0),
    "second-moments": SecondMoments(clip=1.5, centre=np.full(FEATURES, 0.3), norm=8.0),
    "plain": Weighted(),
}
KERNELS = {"one": KERNEL, "three": Kernel((0.1, 0.7, 3.0))}


def total(chosen, X, public=PUBLIC, factor=1.0, landmarks=Y):
    grid = chosen.grid(public, landmarks)
    made = chosen.total(PreparedRecords(X, float(max(len(X), 1))), landmarks, public, grid, factor)
    assert made.dtype == np.int64
    return made


def sensitivity_in_cells(chosen, public=PUBLIC):
    """Stated sensitivity of a sum, in cells; for second moments of the values over their relative noise."""
    cell = chosen.cell(public, chosen.grid(public, Y))
    return chosen.sensitivity(public, 1.0) / cell + math.sqrt(chosen.rounded(public))


def moved(chosen, X, other, public=PUBLIC):
    difference = (total(chosen, X, public) - total(chosen, other, public)).astype(np.float64)
    relative = chosen.relative_noise(public)
    return float(np.linalg.norm(difference if relative is None else difference / relative))


# Ordinary records, ties, the edge of the grid and far beyond it, zeros and copies of landmarks.
COORDINATES = st.one_of(
    st.floats(-3, 3, width=32),
    st.sampled_from([0.0, 8.0, -8.0, 1e30, -1e30, 1e-30, 0.5, float(2.0**-16), 7.9999995]),
)
RECORDS = st.one_of(
    st.lists(COORDINATES, min_size=FEATURES, max_size=FEATURES).map(tuple),
    st.sampled_from([tuple(row) for row in Y] + [tuple((Y[0] + Y[1]) / 2)]),
)


def table(records):
    return np.asarray(records, dtype=np.float64).reshape(-1, FEATURES)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.parametrize("factor", [1.0, 0.37])
@pytest.mark.parametrize("name", sorted(SUMS))
@settings(max_examples=15)
@given(rest=st.lists(RECORDS, max_size=40), one=RECORDS, order=st.randoms())
def test_n_records_minus_the_others_is_the_one(name, factor, kernel, rest, one, order):
    chosen, public = SUMS[name], replace(PUBLIC, kernel=KERNELS[kernel])
    everyone = [*rest, one]
    order.shuffle(everyone)
    alone = total(chosen, table([one]), public, factor)
    together = total(chosen, table(everyone), public, factor)
    np.testing.assert_array_equal(together - total(chosen, table(rest), public, factor), alone)


@pytest.mark.parametrize("name", sorted(SUMS))
def test_blocks_threads_and_order_change_no_bit(name, monkeypatch):
    chosen, generator = SUMS[name], np.random.default_rng(2)
    X = generator.normal(size=(300, FEATURES))
    expected = total(chosen, X)
    np.testing.assert_array_equal(total(chosen, X[generator.permutation(len(X))]), expected)
    for threads in (1, 2):
        with threadpool_limits(threads):
            np.testing.assert_array_equal(total(chosen, X), expected)
    for rows in (1, 7, 13, 61, 257):
        monkeypatch.setattr(exact_sums, "block_rows", lambda width, rows=rows: rows)
        np.testing.assert_array_equal(total(chosen, X), expected)


@pytest.mark.parametrize("name", [*sorted(SUMS), "three steps"])
def test_cells_that_are_not_kept_change_no_bit(name, monkeypatch):
    """Those of very many records are computed block by block, as often as they are read."""
    X = np.random.default_rng(2).normal(0, 3, (300, FEATURES))
    chosen, public = SUMS.get(name, VariablePerturbation()), PUBLIC
    if name not in SUMS:
        public = replace(PUBLIC, local_steps=3)
    expected = total(chosen, X, public)
    monkeypatch.setattr(exact, "MOST_KEPT", 0)
    for rows in (1, 61, 4096):
        monkeypatch.setattr(exact_sums, "block_rows", lambda width, rows=rows: rows)
        np.testing.assert_array_equal(total(chosen, X, public), expected)
    sampled = PreparedRecords(X, 300.0)
    computed = sampled.cells(chosen.grid(public, Y))
    assert not isinstance(computed, np.ndarray)
    part = sampled.sample(0.3, np.random.default_rng(0))
    rows = np.random.default_rng(0).random(300) < 0.3
    np.testing.assert_array_equal(part.cells(chosen.grid(public, Y))[:], computed[:][rows])


def test_the_scale_histogram_is_the_same_for_any_blocks(monkeypatch):
    X = np.random.default_rng(2).normal(0, 3, (301, FEATURES))
    expected = total(ScaleHistogram(), X)
    for rows in (1, 7, 150, 151):
        monkeypatch.setattr(scale, "block_rows", lambda width, rows=rows: rows)
        np.testing.assert_array_equal(total(ScaleHistogram(), X), expected)


def test_several_local_steps_are_the_same_for_any_blocks_threads_and_order(monkeypatch):
    public, generator = replace(PUBLIC, local_steps=3), np.random.default_rng(2)
    X, chosen = generator.normal(size=(300, FEATURES)), VariablePerturbation()
    expected = total(chosen, X, public)
    assert np.abs(expected).max() > 0
    np.testing.assert_array_equal(total(chosen, X[generator.permutation(len(X))], public), expected)
    for threads in (1, 2):
        with threadpool_limits(threads):
            np.testing.assert_array_equal(total(chosen, X, public), expected)
    for rows in (1, 7, 61):
        monkeypatch.setattr(exact_steps, "block_rows", lambda width, rows=rows: rows)
        np.testing.assert_array_equal(total(chosen, X, public), expected)


@pytest.mark.parametrize("name", sorted(SUMS))
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@given(one=RECORDS, other=RECORDS)
def test_no_pair_moves_the_integers_further_than_stated(name, adjacency, one, other):
    if name == "variable" and adjacency == "add-remove":
        return  # it refuses
    chosen, public = SUMS[name], replace(PUBLIC, adjacency=adjacency)
    second = table([other]) if adjacency == "replace-one" else table([])
    assert moved(chosen, table([one]), second, public) <= sensitivity_in_cells(chosen, public) * (1 + 1e-12)


def worst_pair(chosen, public, seed):
    """Random search, then steps uphill: the largest move found, over what is stated."""
    generator = np.random.default_rng(seed)
    best, pair = 0.0, None
    for _ in range(60):
        found = generator.normal(size=(2, FEATURES)) * generator.choice([0.3, 1.0, 3.0])
        if (value := moved(chosen, found[:1], found[1:], public)) > best:
            best, pair = value, found
    for step in np.geomspace(0.5, 1e-3, 100):
        tried = pair + step * generator.normal(size=pair.shape)
        if (value := moved(chosen, tried[:1], tried[1:], public)) > best:
            best, pair = value, tried
    return best / sensitivity_in_cells(chosen, public)


@pytest.mark.parametrize("name", sorted(SUMS))
def test_worst_pairs_found_by_search_stay_within_what_is_stated(name):
    assert 0 < worst_pair(SUMS[name], PUBLIC, 3) <= 1 + 1e-12


def test_the_tight_sensitivity_is_attained_on_the_grid():
    """All landmarks at one place, and two records at ±1/√(2γ) on opposite sides."""
    same, r = np.zeros((LANDMARKS, FEATURES)), 1 / math.sqrt(2 * 0.7)
    here, there = np.zeros((1, FEATURES)), np.zeros((1, FEATURES))
    here[0, 0], there[0, 0] = r, -r
    chosen = SUMS["gradient"]
    difference = total(chosen, here, landmarks=same) - total(chosen, there, landmarks=same)
    assert np.linalg.norm(difference) / sensitivity_in_cells(chosen) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("power", [12, 21] if settings.get_current_profile_name() == "thorough" else [12, 16])
@pytest.mark.parametrize("name", ["gradient", "k-means", "moments", "second-moments"])
def test_a_record_that_crosses_a_power_of_two_moves_no_others(name, power):
    """Partial sums near 2^k: in float32 one more record would change the rounding of all later ones."""
    chosen, count = SUMS[name], 2**power // 8 if name == "gradient" else 2**power
    rest = np.tile(np.full(FEATURES, 0.4), (count, 1))
    for extra in (0.4, -1.7, 0.39999):
        one = np.full((1, FEATURES), extra)
        with_first, with_last = np.concatenate([one, rest]), np.concatenate([rest, one])
        np.testing.assert_array_equal(total(chosen, with_first), total(chosen, with_last))
        np.testing.assert_array_equal(total(chosen, with_last) - total(chosen, rest), total(chosen, one))


# By replacing


@given(records=st.lists(RECORDS, min_size=2, max_size=9), place=st.integers(0, 8), other=RECORDS)
def test_replacing_a_record_moves_the_histogram_of_scales_no_further_than_stated(records, place, other):
    X, second = table(records), table(records)
    second[place % len(records)] = other
    chosen = ScaleHistogram()
    X, second = (np.clip(each, -1e15, 1e15) for each in (X, second))
    assert moved(chosen, X, second) <= sensitivity_in_cells(chosen) * (1 + 1e-12)


@settings(max_examples=40)
@given(
    records=st.lists(RECORDS, min_size=1, max_size=8),
    place=st.integers(0, 7),
    other=RECORDS,
    steps=st.integers(2, 5),
)
def test_replacing_a_record_moves_local_steps_no_further_than_stated(records, place, other, steps):
    X, second = table(records), table(records)
    second[place % len(records)] = other
    chosen, public = VariablePerturbation(), replace(PUBLIC, local_steps=steps)
    stated = chosen.sensitivity(public, float(len(records))) / chosen.cell(public, public.grid)
    assert moved(chosen, X, second, public) <= stated * (1 + 1e-12)


# Row by row


@pytest.mark.parametrize("rows", [DistanceRows(), GramRows(0.1), KernelRows(KERNEL)])
@given(rest=st.lists(RECORDS, max_size=9), one=RECORDS, other=RECORDS)
def test_a_row_is_the_same_in_any_company_and_moves_no_further_than_stated(rows, rest, one, other):
    tau = 2.0
    alone = noisy_rows(rows, table([one]), Y, tau)
    assert alone.dtype == np.int64
    np.testing.assert_array_equal(noisy_rows(rows, table([*rest, one]), Y, tau)[-1:], alone)
    cell = rows.cell(row_grid(tau, Y))
    stated = rows.sensitivity(tau, LANDMARKS, "replace-one") / cell + math.sqrt(rows.width(Y))
    assert np.linalg.norm(alone - noisy_rows(rows, table([other]), Y, tau)) <= stated * (1 + 1e-12)


@given(rest=st.lists(RECORDS, max_size=9), one=RECORDS)
def test_records_get_their_noise_by_themselves_within_tau(rest, one):
    chosen = InputPerturbation(tau_x=2.0)
    alone = chosen.at_home(table([one]), PUBLIC)
    np.testing.assert_array_equal(chosen.at_home(table([*rest, one]), PUBLIC)[-1:], alone)
    assert np.linalg.norm(alone) * chosen.grid(PUBLIC, Y).step <= 2.0


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 5))
def test_counts_of_the_density_add_up(numbers, one):
    chosen = GridCounts(cells=6)
    values = [np.array(each, dtype=np.float64).reshape(-1, 1) for each in ([*numbers, one], numbers, [one])]
    together, rest, alone = (total(chosen, each) for each in values)
    np.testing.assert_array_equal(together - rest, alone)


# The parts


@given(
    st.lists(st.floats(-700, 0), min_size=1, max_size=3 * exact.CHUNK // 100),
    st.integers(0, exact.CHUNK + 70),
    st.sampled_from([np.exp, np.cos, np.sin]),
)
def test_an_elements_place_does_not_change_its_value(values, before, function):
    alone = np.array(values)
    exact.elementwise(function, alone)
    placed = np.concatenate([np.zeros(before), values, np.ones(3)])
    exact.elementwise(function, placed)
    np.testing.assert_array_equal(placed[before:-3], alone)


def test_a_plain_part_does_not_depend_on_the_place_in_a_block():
    """BLAS takes other kernels for the last rows and columns of a product, and at a tie a last bit is a whole value."""
    features, copies = 64, 256
    public = replace(PUBLIC, features=features, grid=Grid.of_norm(8.0, features))
    record = np.zeros(features)
    record[[3, 60]] = 1.0  # cosines that cancel to the last bit
    own = total(Signs(), record[None], public, landmarks=np.zeros((LANDMARKS, features)))
    for first in (0, 1, 100, copies - 1):
        others = np.zeros((copies, features))
        others[first] = record
        made = total(Signs(), others, public, landmarks=np.zeros((LANDMARKS, features)))
        nothing = total(Signs(), np.zeros((copies, features)), public, landmarks=np.zeros((LANDMARKS, features)))
        alone = total(Signs(), np.zeros((1, features)), public, landmarks=np.zeros((LANDMARKS, features)))
        assert np.array_equal(made - nothing, own - alone)


@pytest.mark.parametrize("gamma", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("cells", [1, 2, 8])
def test_near_records_stay_within_thm_6_on_the_grid(gamma, cells):
    """The theorem's Δ falls with τ_X, and what rounding of the kernel adds does not: it has to be charged."""
    grid = Grid.of_norm(1.0, 1)
    chosen = GradientPerturbation(bound="theorem", tau_x=cells * grid.step, tau_y=2.0, upsilon=1.0)
    public = PublicParameters(Kernel((gamma,)), 2, 1, rounds=1, local_steps=1, step_size=1.0, grid=grid)
    bound = chosen.sensitivity(public, 1.0) / chosen.cell(public, grid) + np.sqrt(chosen.rounded(public))
    worst = 0.0
    for place in np.linspace(0.05, 0.9, 60):
        landmarks = grid.snap(np.full((2, 1), place))
        totals = [
            chosen.total(PreparedRecords(np.array([[side * chosen.tau_x]]), 1.0), landmarks, public, grid)
            for side in (-1.0, 0.0, 1.0)
        ]
        worst = max(worst, *(float(np.linalg.norm(a - b)) for a in totals for b in totals))
    assert 0 < worst <= bound


@pytest.mark.parametrize("weight", [0.01, 0.1, 0.5])
def test_a_light_site_is_charged_for_the_cells_of_the_heaviest(weight):
    """Sites share one grid: a light one's records are multiplied by less and rounded to the same cells."""
    grid = Grid.of_norm(1.0, 1)
    chosen = GradientPerturbation(bound="theorem", tau_x=1e-5, tau_y=2.0, upsilon=1.0, trust="aggregate")
    public = PublicParameters(Kernel((0.1,)), 2, 1, rounds=1, local_steps=1, step_size=1.0, grid=grid)
    plan = plan_run(Budget(1.0, 1e-5), chosen, 1, None, "seeded", {}, 4)
    light, _ = site_plans(plan, chosen, public, ["light", "heavy"], [1.0, 1.0], [weight, 1 - weight])
    cell, worst = chosen.cell(public, grid), 0.0
    for place in np.linspace(0.05, 0.9, 60):
        landmarks = grid.snap(np.full((2, 1), place))
        totals = [
            chosen.total(PreparedRecords(np.array([[x]]), 1.0), landmarks, public, grid, light.factor)
            for x in np.linspace(-chosen.tau_x, chosen.tau_x, 5)
        ]
        worst = max(worst, *(float(np.linalg.norm(a - b)) for a in totals for b in totals))
    assert 0 < worst * cell * light.scale <= light.event(cell).sensitivity
