"""Noise sources: integers in, integers out, by one path. What draws from the operating system differs at each run:
levels are such that chance fails one run in about a million."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from scipy import stats

from accounting import DiscreteNoise, InvalidParameter, NoiseSource, SeededNoise
from accounting.noise import ROUNDED, add_rounded, discrete_gaussian, parameter
from accounting.sampler import largest

LEVEL = 2e-8


def sources() -> list[NoiseSource]:
    return [SeededNoise(np.random.default_rng(0)), DiscreteNoise()]


BOTH = pytest.mark.parametrize("source", sources(), ids=lambda source: source.name)


@BOTH
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (3, 4, 5)])
def test_shape_and_dtype_are_kept_and_the_input_is_left_alone(source: NoiseSource, shape: Any) -> None:
    values = np.ones(shape, dtype=np.int64)
    for cells in (1e6, np.full(shape, 1e6)):
        noisy = source.add_integers(values, cells)
        assert (noisy.shape, noisy.dtype) == (shape, np.int64)
        assert (values == 1).all()
        if values.size > 1:
            assert (noisy != values).any()


@BOTH
@pytest.mark.parametrize("cells", [0.0, -1.0, math.nan, math.inf, 3.99, 2.0**50, "5", None])
def test_a_bad_parameter_is_named(source: NoiseSource, cells: Any) -> None:
    with pytest.raises(InvalidParameter, match="noise in cells of the grid must be"):
        source.add_integers(np.zeros(3, dtype=np.int64), cells)
    if isinstance(cells, float):
        with pytest.raises(InvalidParameter, match="noise in cells of the grid must be"):
            source.add_integers(np.zeros(3, dtype=np.int64), np.array([5.0, cells, 5.0]))


@BOTH
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.uint64, np.bool_])
def test_anything_but_int64_is_refused(source: NoiseSource, dtype: Any) -> None:
    with pytest.raises(InvalidParameter, match="values must be an array of type int64"):
        source.add_integers(np.zeros(3, dtype=dtype), 5.0)
    with pytest.raises(InvalidParameter, match="values must be"):
        source.add_integers([1, 2], 5.0)


@BOTH
def test_sums_that_could_leave_the_integers_are_refused_whatever_the_noise(source: NoiseSource) -> None:
    room = 2**63 - 1 - largest(100.0)
    for border in (room, -room):
        source.add_integers(np.array([0, border]), 100.0)
    for far in (room + 1, -room - 1, 2**63 - 1, -(2**63)):
        for cells in (100.0, np.array([5.0, 100.0])):
            with pytest.raises(InvalidParameter, match=f"values must be within ±{room}"):
                source.add_integers(np.array([0, far]), cells)


@BOTH
def test_an_array_of_parameters_gives_each_value_its_own(source: NoiseSource) -> None:
    cells = np.where(np.arange(60_000).reshape(200, 300) % 3 == 0, 10.0, 1e4)
    noise = source.add_integers(np.full(cells.shape, 7), cells) - 7
    for each in (10.0, 1e4):
        own = noise[cells == each] / each
        assert abs((own**2).mean() - 1) < stats.norm.isf(LEVEL) * math.sqrt(2 / own.size)
    with pytest.raises(InvalidParameter, match="shape of the parameters"):
        source.add_integers(np.zeros((2, 3), dtype=np.int64), np.full(6, 5.0))


@BOTH
def test_noise_is_fresh_at_each_call_and_in_each_place(source: NoiseSource) -> None:
    zeros = np.zeros(1000, dtype=np.int64)
    first, second = source.add_integers(zeros, 1e12), source.add_integers(zeros, 1e12)
    assert (first == second).sum() == 0
    assert len(np.unique(first)) == 1000


def test_every_source_says_what_it_is() -> None:
    seeded, discrete = sources()
    assert (seeded.name, discrete.name) == ("seeded", "discrete")
    assert "simulation" in seeded.statement
    assert "operating system" in discrete.statement
    assert "simulation" not in discrete.statement


@given(
    values=arrays(np.int64, array_shapes(max_dims=3, max_side=6), elements=st.integers(-(10**9), 10**9)),
    cells=st.sampled_from([4.0, 77.7, 1e6, 1e12]),
    seed=st.integers(0, 2**32),
)
def test_seeded_repeats_itself_and_is_the_sampler(values: NDArray[np.int64], cells: float, seed: int) -> None:
    first, second = (SeededNoise(np.random.default_rng(seed)).add_integers(values, cells) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    generator = np.random.default_rng(seed)
    drawn = discrete_gaussian(cells, values.shape, lambda size: generator.integers(0, 2**64, size, dtype=np.uint64))
    np.testing.assert_array_equal(first, values + drawn)


def test_noise_of_the_system_cannot_be_repeated_by_a_seed() -> None:
    def draw() -> NDArray[Any]:
        np.random.seed(0)  # noqa: NPY002  # the global state must not matter
        return DiscreteNoise().add_integers(np.zeros(4, dtype=np.int64), 1e12)

    assert not np.array_equal(draw(), draw())


# --- From sigma to the parameter ------------------------------------------------------------------------------------


@given(
    sigma=st.floats(-6, 6).map(lambda power: 10.0**power),
    cells=st.floats(30, 1e9),
    parties=st.integers(1, 40),
    least=st.floats(0.1, 1.0),
)
def test_all_noise_together_is_worth_the_gaussian(sigma: float, cells: float, parties: int, least: float) -> None:
    grid = sigma / (cells * math.sqrt(parties) / least)
    s = parameter(sigma, grid, parties=parties, least=least)
    for relative in (least, (1 + least) / 2, 1.0):
        worth = math.sqrt(parties * (relative * s) ** 2 - 4) / relative * grid
        assert worth >= sigma * (1 - 1e-15)
    assert math.sqrt(parties * s**2 - 4 / least**2) * grid == pytest.approx(sigma, rel=1e-12)


def test_parameters_of_the_theory() -> None:
    assert parameter(math.sqrt(12), 1.0) == pytest.approx(4, rel=1e-12)
    assert parameter(math.sqrt(24), 1.0, least=1 / math.sqrt(2)) == pytest.approx(math.sqrt(32), rel=1e-12)
    assert parameter(10.0, 0.1, parties=4) == pytest.approx(math.sqrt((100**2 + 4) / 4), rel=1e-12)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"sigma": 1.0, "grid": 1.0}, "noise in cells"),
        ({"sigma": 5.0, "grid": 1.0, "parties": 4}, "noise in cells"),
        ({"sigma": 4.0, "grid": 1.0, "least": 0.5}, "noise in cells"),
        ({"sigma": 1e20, "grid": 1.0}, "noise in cells"),
        ({"sigma": 1e300, "grid": 1e-300}, "noise in cells"),
        ({"sigma": 0.0, "grid": 1.0}, "sigma"),
        ({"sigma": 1.0, "grid": math.nan}, "grid"),
        ({"sigma": 9.0, "grid": 1.0, "parties": 0}, "parties"),
        ({"sigma": 9.0, "grid": 1.0, "least": 0.0}, "least"),
        ({"sigma": 9.0, "grid": 1.0, "least": 1.1}, "least"),
    ],
)
def test_noise_that_the_sampler_does_not_make_is_named(values: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"{name}.* must be"):
        parameter(**values)


# --- Values that are no integers ------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rounded_values_come_back_on_the_grid_with_noise_of_sigma(source: NoiseSource, dtype: Any) -> None:
    values = np.linspace(-3, 3, 100_000, dtype=dtype).reshape(200, 500)
    noisy = add_rounded(values, 0.5, 2.0**-10, source)
    assert (noisy.shape, noisy.dtype) == (values.shape, dtype)
    np.testing.assert_array_equal(noisy, np.rint(noisy * 2.0**10) / 2.0**10)
    noise = (noisy - values).astype(float).ravel() / 0.5
    assert abs((noise**2).mean() - 1) < stats.norm.isf(LEVEL) * math.sqrt(2 / noise.size) + 1e-4
    assert stats.kstest(noise, "norm").pvalue > LEVEL


class NoNoise:
    """Shows what is left without noise."""

    name = statement = "none"

    def add_integers(self, values: NDArray[np.int64], parameter: Any) -> NDArray[np.int64]:
        return values


@given(
    values=arrays(np.float64, st.integers(1, 40), elements=st.floats(-10, 10)),
    grid=st.integers(-20, 0).map(lambda power: 2.0**power),
    data=st.data(),
)
def test_the_charge_for_rounding_holds_for_neighbours(values: NDArray[np.float64], grid: float, data: Any) -> None:
    steps = arrays(np.float64, values.shape, elements=st.floats(-2, 2))
    # Neighbours at random, and those on either side of a boundary between cells, which rounding moves furthest apart.
    boundary = (np.floor(values / grid) + 0.5) * grid
    for one, other in ((values, values + data.draw(steps)), (boundary - 1e-6 * grid, boundary + 1e-6 * grid)):
        moved = np.linalg.norm(np.subtract(*(add_rounded(each, 4 * grid, grid, NoNoise()) for each in (one, other))))
        assert moved <= (np.linalg.norm(one - other) + grid * math.sqrt(values.size)) * (1 + 1e-12)


def test_the_charge_for_rounding_is_attained_and_said() -> None:
    grid, size = 0.25, 64
    one, other = np.full(size, 0.125 - 1e-9), np.full(size, 0.125 + 1e-9)
    moved = np.linalg.norm(np.subtract(*(add_rounded(each, 1.0, grid, NoNoise()) for each in (one, other))))
    assert moved == pytest.approx(np.linalg.norm(one - other) + grid * math.sqrt(size), rel=1e-6)
    assert "charged" in ROUNDED
    assert "floating-point" in ROUNDED


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300, 2.0**52])
def test_values_that_no_noise_hides_are_refused(bad: float) -> None:
    with pytest.raises(InvalidParameter, match="values must be finite and below 2⁵² cells"):
        add_rounded(np.array([0.0, bad]), 9.0, 1.0, DiscreteNoise())


@pytest.mark.parametrize("values", [np.zeros(3, dtype=np.int64), [1.0], None])
def test_values_that_are_no_floats_are_refused(values: Any) -> None:
    with pytest.raises(InvalidParameter, match="float32 or float64"):
        add_rounded(values, 9.0, 1.0, DiscreteNoise())
