"""Noise sources. Those that draw from the operating system differ at each run: levels are such that chance fails one
run in about a million."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from scipy import stats

from accounting import DiscreteNoise, InvalidParameter, NoiseSource, SeededNoise, SystemNoise, noise
from accounting.noise import discrete_gaussian, grid_for

LEVEL = 2e-8  # of each of about forty tests that draw from the operating system


def sources() -> list[NoiseSource]:
    return [SeededNoise(np.random.default_rng(0)), SystemNoise(), DiscreteNoise(2.0**-10)]


# --- All sources ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (3, 4, 5)])
def test_shape_and_dtype_are_kept_and_the_input_is_left_alone(source: NoiseSource, dtype: Any, shape: Any) -> None:
    values = np.ones(shape, dtype=dtype)
    noisy = source.add(values, 2.0)
    assert (noisy.shape, noisy.dtype) == (shape, dtype)
    assert (values == 1).all()
    assert np.isfinite(noisy).all()
    if values.size:
        assert (noisy != values).any()


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, "1", None])
def test_a_bad_sigma_is_named(source: NoiseSource, sigma: Any) -> None:
    with pytest.raises(InvalidParameter, match="sigma"):
        source.add(np.zeros(3), sigma)


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_whole_numbers_are_refused_since_noise_would_be_cut_off(source: NoiseSource, dtype: Any) -> None:
    with pytest.raises(InvalidParameter, match="float32 or float64"):
        source.add(np.zeros(3, dtype=dtype), 0.5)


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
@pytest.mark.parametrize("sigma", [0.3, 5.0])
def test_moments_are_those_of_the_normal_distribution(source: NoiseSource, sigma: float) -> None:
    size = 200_000
    values = np.linspace(-3, 3, size).reshape(400, 500)
    draws = (source.add(values, sigma) - values).ravel() / sigma
    z = stats.norm.isf(LEVEL / 8)
    assert abs(draws.mean()) < z / math.sqrt(size)
    assert abs((draws**2).mean() - 1) < z * math.sqrt(2 / size)
    assert abs((draws**3).mean()) < z * math.sqrt(15 / size)
    assert abs((draws[1:] * draws[:-1]).mean()) < z / math.sqrt(size)
    assert stats.kstest(draws, "norm").pvalue > LEVEL


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)
def test_noise_is_fresh_at_each_call_and_in_each_place(source: NoiseSource) -> None:
    first, second = source.add(np.zeros(1000), 1e3), source.add(np.zeros(1000), 1e3)
    # Discrete draws may meet: a million cells of noise make that rare.
    assert (first == second).sum() <= 5
    assert len(np.unique(first)) >= 990


def test_every_source_says_what_it_is() -> None:
    names = [source.name for source in sources()]
    assert names == ["seeded", "system", "discrete"]
    statements = [source.statement for source in sources()]
    assert "simulation" in statements[0]
    assert "operating system" in statements[1]
    assert "zCDP" in statements[2]
    assert "simulation" not in statements[1] + statements[2]


# --- Seeded and system ----------------------------------------------------------------------------------------------


@given(
    values=arrays(np.float64, array_shapes(max_dims=3, max_side=6), elements=st.floats(-1e3, 1e3)),
    sigma=st.floats(1e-3, 1e3),
    seed=st.integers(0, 2**32),
)
def test_seeded_repeats_itself(values: NDArray[np.float64], sigma: float, seed: int) -> None:
    first = SeededNoise(np.random.default_rng(seed)).add(values, sigma)
    second = SeededNoise(np.random.default_rng(seed)).add(values, sigma)
    np.testing.assert_array_equal(first, second)
    reference = values + sigma * np.random.default_rng(seed).standard_normal(values.shape)
    np.testing.assert_array_equal(first, reference)


def test_system_cannot_be_repeated_by_a_seed() -> None:
    def draw() -> NDArray[Any]:
        np.random.seed(0)  # noqa: NPY002  # the global state must not matter
        return SystemNoise().add(np.zeros(4), 1.0)

    assert not np.array_equal(draw(), draw())


def test_the_extremes_of_the_entropy_give_finite_symmetric_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(byte: bytes) -> float:
        monkeypatch.setattr(os, "urandom", lambda size: byte * size)
        return float(SystemNoise().add(np.zeros(1), 1.0)[0])

    assert -9 < draw(b"\x00") < -8
    assert 8 < draw(b"\xff") < 9
    assert draw(b"\x00") == pytest.approx(-draw(b"\xff"), rel=1e-12)
    bits = np.array([0, 2**64 - 1, 2**63, 2**63 - 1], dtype=np.uint64)
    unit = noise._unit(bits)
    assert ((unit > 0) & (unit < 1)).all()
    np.testing.assert_array_equal(unit[::2] + unit[1::2], 1.0)


# --- Discrete: the sampler ------------------------------------------------------------------------------------------


def mass(sigma: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The exact mass function, by its definition."""
    reach = math.ceil(40 * sigma) + 2
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-(support.astype(float) ** 2) / (2 * sigma**2))
    return support, weights / math.fsum(weights)


def pooled(draws: NDArray[np.int64], sigma: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Observed and expected counts, with tails pooled so that fifty or more are expected in each cell."""
    support, probabilities = mass(sigma)
    expected = probabilities * draws.size
    inner = support[expected >= 50]
    clipped = np.clip(draws, inner[0] - 1, inner[-1] + 1)
    observed = np.bincount(clipped - (inner[0] - 1), minlength=inner.size + 2).astype(float)
    tail = expected[support < inner[0]].sum()
    cells = np.concatenate([[tail], expected[expected >= 50], [tail]])
    if tail < 50:  # a tail too light for a cell of its own joins its neighbour
        observed[1], observed[-2] = observed[1] + observed[0], observed[-2] + observed[-1]
        cells[1], cells[-2] = cells[1] + tail, cells[-2] + tail
        observed, cells = observed[1:-1], cells[1:-1]
    return observed, cells


@pytest.mark.parametrize("sigma", [0.3, 0.999, 1.0, 2.0, 3.7, 50.0])
def test_goodness_of_fit_to_the_exact_mass_function(sigma: float) -> None:
    draws = discrete_gaussian(sigma, 400_000)
    observed, expected = pooled(draws, sigma)
    assert observed.sum() == draws.size
    assert len(observed) >= 3
    assert stats.chisquare(observed, expected * (observed.sum() / expected.sum())).pvalue > LEVEL


@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.7, 50.0, 1e6])
def test_draws_are_symmetric_and_independent_of_their_neighbours(sigma: float) -> None:
    draws = discrete_gaussian(sigma, 200_000).astype(float)
    z = stats.norm.isf(LEVEL / 4)
    signs = np.sign(draws)
    assert abs(signs.sum()) < z * math.sqrt(max(1.0, np.abs(signs).sum()))
    positive, negative = np.sort(draws[draws > 0]), np.sort(-draws[draws < 0])
    if sigma >= 50:
        assert stats.ks_2samp(positive, negative).pvalue > LEVEL
    assert abs((draws[1:] * draws[:-1]).mean()) < z * draws.var() / math.sqrt(draws.size)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.7, 50.0])
def test_the_variance_is_the_exact_one(sigma: float) -> None:
    support, probabilities = mass(sigma)
    variance = math.fsum(probabilities * support.astype(float) ** 2)
    fourth = math.fsum(probabilities * support.astype(float) ** 4)
    draws = discrete_gaussian(sigma, 300_000).astype(float)
    spread = math.sqrt((fourth - variance**2) / draws.size)
    assert abs((draws**2).mean() - variance) < stats.norm.isf(LEVEL / 2) * spread


@given(
    shape=st.one_of(st.integers(0, 50), st.lists(st.integers(0, 5), max_size=3).map(tuple)), sigma=st.floats(1e-6, 1e9)
)
def test_any_shape_comes_out_as_whole_numbers(shape: Any, sigma: float) -> None:
    draws = discrete_gaussian(sigma, shape)
    assert draws.shape == (shape if isinstance(shape, tuple) else (shape,))
    assert draws.dtype == np.int64
    assert (np.abs(draws) <= 40 * sigma + 1).all()


def test_large_arrays_are_filled_to_the_end() -> None:
    draws = discrete_gaussian(1e4, 3 * noise._BLOCK + 5)
    halves = np.array_split(draws, 2)
    assert np.abs(draws).min() < 100
    assert all(abs(half.std() / 1e4 - 1) < 0.05 for half in halves)
    assert len(np.unique(draws)) > 20_000


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 1e-200, 2.0**41])
def test_a_sigma_outside_the_range_of_the_sampler_is_named(sigma: float) -> None:
    with pytest.raises(InvalidParameter, match="sigma"):
        discrete_gaussian(sigma, 3)


@pytest.mark.parametrize("sigma", [0.6, 1.0, 4.2])
def test_agreement_with_opendp(sigma: float) -> None:
    dp = pytest.importorskip("opendp.prelude", reason="OpenDP, the exact sampler to compare with, is not installed")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*space, scale=sigma)([0] * 6000))
    ours = discrete_gaussian(sigma, 60_000)
    inner = min(theirs.max(), -theirs.min(), math.ceil(2.5 * sigma))
    edges = np.arange(-inner, inner + 1)
    table = [[(np.clip(draws, -inner, inner) == edge).sum() for edge in edges] for draws in (theirs, ours)]
    assert stats.chi2_contingency(np.array(table)).pvalue > LEVEL


# --- Discrete: the grid ---------------------------------------------------------------------------------------------

_GRIDS = st.integers(-20, 3).map(lambda power: 2.0**power)


@given(values=arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e3, 1e3)), grid=_GRIDS)
def test_results_are_on_the_grid_and_rounding_is_at_most_half_a_cell(values: NDArray[np.float64], grid: float) -> None:
    source = DiscreteNoise(grid)
    noisy = source.add(values, 3 * grid)
    np.testing.assert_array_equal(noisy, np.rint(noisy / grid) * grid)
    # So little noise that none of it is seen: what is left is the rounding.
    rounded = source.add(values, 1e-3 * grid)
    assert np.abs(rounded - values).max() <= grid / 2


@given(
    values=arrays(np.float64, st.integers(1, 40), elements=st.floats(-10, 10)),
    grid=_GRIDS,
    data=st.data(),
)
def test_the_charged_sensitivity_holds_for_neighbours(values: NDArray[np.float64], grid: float, data: Any) -> None:
    steps = arrays(np.float64, values.shape, elements=st.floats(-2, 2))
    # Neighbours at random, and those on either side of a boundary between cells, which rounding moves furthest apart.
    boundary = (np.floor(values / grid) + 0.5) * grid
    for one, other in ((values, values + data.draw(steps)), (boundary - 1e-6 * grid, boundary + 1e-6 * grid)):
        source = DiscreteNoise(grid)
        distance = np.linalg.norm(source.add(one, 1e-3 * grid) - source.add(other, 1e-3 * grid))
        charged = source.charged(float(np.linalg.norm(one - other)), values.size)
        assert distance <= charged * (1 + 1e-12)


def test_the_charge_is_attained() -> None:
    grid, size = 0.25, 64
    one, other = np.full(size, 0.125 - 1e-9), np.full(size, 0.125 + 1e-9)
    source = DiscreteNoise(grid)
    moved = np.linalg.norm(source.add(one, 1e-4) - source.add(other, 1e-4))
    assert moved == pytest.approx(source.charged(float(np.linalg.norm(one - other)), size), rel=1e-6)


@given(sensitivity=st.floats(1e-9, 1e9), dimension=st.integers(1, 10**6), overhead=st.floats(1e-6, 1.0))
def test_the_grid_is_the_widest_power_of_two_within_the_overhead(
    sensitivity: float, dimension: int, overhead: float
) -> None:
    grid = grid_for(sensitivity, dimension, overhead)
    assert math.frexp(grid)[0] == 0.5
    charged = DiscreteNoise(grid).charged(sensitivity, dimension)
    assert charged <= sensitivity * (1 + overhead) * (1 + 1e-12)
    assert DiscreteNoise(2 * grid).charged(sensitivity, dimension) > sensitivity * (1 + overhead) * (1 - 1e-12)


@pytest.mark.parametrize("grid", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_grid_is_named(grid: float) -> None:
    with pytest.raises(InvalidParameter, match="granularity"):
        DiscreteNoise(grid)


def test_bad_arguments_of_the_grid_are_named() -> None:
    for arguments in ((0.0, 3), (1.0, 0), (1.0, 3, 0.0)):
        with pytest.raises(InvalidParameter):
            grid_for(*arguments)
    with pytest.raises(InvalidParameter, match="dimension"):
        DiscreteNoise(1.0).charged(1.0, 0)
