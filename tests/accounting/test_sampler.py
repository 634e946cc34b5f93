"""The sampler of discrete Gaussians: its probabilities, computed exactly from its tables, and that it uses them."""

from __future__ import annotations

import itertools
import math
import os
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from accounting import InvalidParameter
from accounting import sampler as samplers
from accounting.exactness import DEVIATION, REACH, TAIL
from accounting.sampler import Table, discrete_gaussian, keeping, largest, tabulate

LEVEL = 2e-8  # of each test that draws from the operating system
PARAMETERS = [4.0, 15.99, 16.0, 31.999, 32.0, 100.3, 2.0**20, 2.0**49]
MORE = [4.001, 5.5, 7.0, 33.3, 63.99, 64.0, 511.7, 1e3, 12345.678, 2.0**30 * 1.999, 1e12, math.pi * 2.0**45, 5e14]
if settings.default.max_examples > 60:
    PARAMETERS = PARAMETERS + MORE


def words(size: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


class Script:
    """Words that were chosen beforehand: first calls get theirs, later ones get random words."""

    def __init__(self, *calls: list[int]) -> None:
        self.calls = list(calls)

    def __call__(self, size: int) -> NDArray[np.uint64]:
        if not self.calls:
            return words(size)
        call = self.calls.pop(0)
        assert len(call) == size
        return np.array(call, dtype=np.uint64)


def block_masses(table: Table) -> list[Fraction]:
    """p_a exactly: which uniforms lead to block a."""
    tails = [Fraction(1)]
    for deep in reversed(table.deep):
        rare = deep >> 1088 < table.rare
        tails.append(Fraction(deep if rare else deep >> 1024 << 1024, 2**1101))
    tails.append(Fraction(0))
    return [above - below for above, below in itertools.pairwise(tails)]


def spread(parameter: float, places: list[int]) -> float:
    """Largest difference of the log ratios, over `DEVIATION`: the normaliser lies between, so it bounds the error."""
    table = tabulate(parameter)
    with mpmath.workdps(50):
        square = 2 * mpmath.mpf(parameter) ** 2
        ratios = []
        for block, mass in enumerate(block_masses(table)):
            kept = keeping(table, np.full(len(places), block), np.array(places, dtype=np.uint64)).tolist()
            log_mass = mpmath.log(mass.numerator) - mpmath.log(mass.denominator)
            for place, probability in zip(places, kept, strict=True):
                ideal = -(mpmath.mpf((block << table.bits) + place) ** 2) / square
                ratios.append(log_mass + mpmath.log(probability) - ideal)
        return float((max(ratios) - min(ratios)) / DEVIATION)


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_every_probability_is_within_the_deviation_up_to_the_end(parameter: float) -> None:
    table = tabulate(parameter)
    width = 1 << table.bits
    assert width == 1 or width <= parameter / 16
    assert (table.blocks << table.bits) >= REACH * parameter
    generator = np.random.default_rng(0)
    places = sorted({0, 1 % width, width // 2, width - 1, *generator.integers(0, width, 2).tolist()})
    assert spread(parameter, places) < 1


@pytest.mark.parametrize("parameter", [4.0, 6.3, 40.0, 97.0])
def test_the_normalised_probabilities_are_the_ideal_ones(parameter: float) -> None:
    """Every integer of a small table, with the normalisers of both, and with zero counted once."""
    table = tabulate(parameter)
    width = 1 << table.bits
    with mpmath.workdps(40):
        square = 2 * mpmath.mpf(parameter) ** 2
        real, ideal = [], []
        for block, mass in enumerate(block_masses(table)):
            kept = keeping(table, np.full(width, block), np.arange(width, dtype=np.uint64)).tolist()
            for place, probability in enumerate(kept):
                real.append(mpmath.mpf(mass.numerator) / mass.denominator / width * probability)
                ideal.append(mpmath.exp(-(mpmath.mpf((block << table.bits) + place) ** 2) / square))
        sums = [2 * mpmath.fsum(each) - each[0] for each in (real, ideal)]
        tail = 2 * mpmath.nsum(lambda k: mpmath.exp(-((k + len(real)) ** 2) / square), [0, 40])
        assert tail / (sums[1] + tail) < TAIL
        sums[1] += tail
        worst = max(abs(mpmath.log(one / sums[0] / (two / sums[1]))) for one, two in zip(real, ideal, strict=True))
        assert worst < DEVIATION


@pytest.mark.parametrize("parameter", [4.0, 31.999, 1000.7, 2.0**49])
def test_uniforms_are_compared_with_the_table_bit_by_bit(parameter: float) -> None:
    table = tabulate(parameter)
    ends = 0
    for block, deep in enumerate(reversed(table.deep), 1):
        first, rest = deep >> 1088, deep & (2**1088 - 1)
        if first < table.rare:
            for uniform, expected in ((deep - 1, block), (deep, block - 1)):
                further = [uniform >> 64 * place & (2**64 - 1) for place in reversed(range(17))]
                found = samplers._blocks(table, np.array([uniform >> 1088]), Script([7], further))
                assert found.tolist() == [expected]
            ends += 1
        else:
            border = rest >> 1024
            found = samplers._blocks(table, np.array([first, first]), Script([border - 1, border]))
            assert found.tolist() == [block, block - 1]
    assert 10 < ends < table.blocks - 10
    # Where no G_a has the same first bits, they decide alone.
    alone = np.flatnonzero(~table.split)
    limits = np.array([each >> 1088 for each in table.deep])  # rising
    above = len(limits) - np.searchsorted(limits, alone, side="right")
    assert samplers._blocks(table, alone, Script()).tolist() == above.tolist()


def test_a_uniform_of_zeros_reaches_the_last_block_and_no_further() -> None:
    table = tabulate(50.0)
    zero = np.zeros(1, dtype=np.int64)
    assert samplers._blocks(table, zero, Script([0], [0] * 17)).tolist() == [table.blocks - 1]
    # Zeros in a first word alone say that it is beyond nine parameters, not where.
    further = [0 if place % 17 == 0 else int(word) for place, word in enumerate(words(1700))]
    found = samplers._blocks(table, np.zeros(100, dtype=np.int64), Script([0] * 100, further)) << table.bits
    assert len(np.unique(found)) > 1
    assert (found > 9 * 50).all()
    assert (found < 13 * 50).all()


def test_zero_comes_once_and_the_sign_is_a_bit() -> None:
    table = tabulate(5.0)
    inside, outside = 2**13 - 1, (table.deep[-1] >> 1088) - 1  # blocks 0 and 1
    assert not table.split[[inside, outside]].any()
    drawn = [first << 51 | sign << 42 for first in (inside, outside) for sign in (0, 1)]
    assert samplers._kept(table, 4, Script(drawn)).tolist() == [0, 1, -1]


def test_a_word_is_cut_into_first_bits_v_sign_and_place() -> None:
    """No bit serves twice: the place in a block has bits of its own, in a word of its own if it needs many."""
    for parameter in (1000.0, 2.0**38, 2.0**49):
        table = tabulate(parameter)
        first = int(np.flatnonzero(~table.split)[5])
        block, place = int(table.guide[first]), 2**table.bits // 3
        own = table.bits > 42
        word = first << 51 | 1 << 42 | (0 if own else place)  # v = 0: kept
        calls = [[word], [place | 1 << 60]] if own else [[word]]
        assert samplers._kept(table, 1, Script(*calls)).tolist() == [-((block << table.bits) + place)]
        word |= (2**8 - 1) << 43  # v just below 1: kept only where t is above
        calls[0] = [word]
        kept = samplers._kept(table, 1, Script(*calls))
        assert kept.size == 0


def test_keeping_is_decided_by_further_bits_where_the_first_are_equal() -> None:
    table = tabulate(1000.0)
    block, place = 200, 20
    probability = float(keeping(table, np.array([block]), np.array([place], dtype=np.uint64))[0])
    first, rest = divmod(Fraction(probability) * 2**8, 1)
    assert rest > 0
    arrays: list[NDArray[Any]] = [np.array([block]), np.array([place], dtype=np.uint64)]

    def kept(bits: int, *further: int) -> bool:
        first_bits = np.array([bits], dtype=np.uint64)
        return bool(samplers._accepted(table, *arrays, first_bits, Script(list(further)))[0])

    assert kept(int(first) - 1)
    assert not kept(int(first) + 1)
    border = int(rest * 2**64)
    assert rest * 2**64 == border
    assert kept(int(first), border - 1)
    assert not kept(int(first), border)


def test_exp_of_numpy_is_as_good_as_the_proof_needs() -> None:
    """Within 4 units in the last place, alone and in arrays of any length, as vector routines treat ends apart."""
    exponents = -np.concatenate([np.linspace(0, 2.26, 1500), np.geomspace(1e-18, 2.26, 500)])
    with mpmath.workdps(40):
        exact = [mpmath.exp(mpmath.mpf(float(each))) for each in exponents]
        for length in (1, 3, 8, 61, exponents.size):
            found = np.concatenate([np.exp(part) for part in np.array_split(exponents, exponents.size // length)])
            errors = [abs(mpmath.mpf(float(one)) / two - 1) for one, two in zip(found, exact, strict=True)]
            assert max(errors) <= 4 * 2.0**-52


# --- Draws ----------------------------------------------------------------------------------------------------------


def mass(parameter: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The exact mass function, by its definition."""
    reach = math.ceil(12 * parameter) + 2
    support = np.arange(-reach, reach + 1)
    weights = np.exp(-(support.astype(float) ** 2) / (2 * parameter**2))
    return support, weights / math.fsum(weights)


@pytest.mark.parametrize("parameter", [4.0, 4.7, 40.0, 100.0])
def test_goodness_of_fit_to_the_exact_mass_function(parameter: float) -> None:
    draws = discrete_gaussian(parameter, 400_000, words)
    support, probabilities = mass(parameter)
    inner = support[probabilities * draws.size >= 50]
    clipped = np.clip(draws, inner[0] - 1, inner[-1] + 1) - (inner[0] - 1)
    observed = np.bincount(clipped, minlength=inner.size + 2)
    tail = probabilities[support < inner[0]].sum()
    expected = np.concatenate([[tail], probabilities[probabilities * draws.size >= 50], [tail]]) * draws.size
    assert stats.chisquare(observed, expected * (draws.size / expected.sum())).pvalue > LEVEL


@pytest.mark.parametrize("parameter", [4.0, 50.0, 1e6, 2.0**49])
def test_draws_have_the_moments_of_a_gaussian_and_do_not_depend_on_their_neighbours(parameter: float) -> None:
    draws = discrete_gaussian(parameter, (400, 500), words).ravel() / parameter
    z, size = stats.norm.isf(LEVEL / 8), draws.size
    assert abs(draws.mean()) < z / math.sqrt(size)
    assert abs((draws**2).mean() - 1) < z * math.sqrt(2 / size)
    assert abs((draws**3).mean()) < z * math.sqrt(15 / size)
    assert abs((draws[1:] * draws[:-1]).mean()) < z / math.sqrt(size)
    if parameter >= 1e6:
        assert stats.kstest(draws, "norm").pvalue > LEVEL


@given(
    shape=st.one_of(st.integers(0, 50), st.lists(st.integers(0, 5), max_size=3).map(tuple)),
    parameter=st.floats(4.0, 2.0**49),
)
@settings(max_examples=30)
def test_any_shape_comes_out_as_whole_numbers(shape: Any, parameter: float) -> None:
    draws = discrete_gaussian(parameter, shape, words)
    assert draws.shape == (shape if isinstance(shape, tuple) else (shape,))
    assert draws.dtype == np.int64
    assert (np.abs(draws) <= largest(parameter)).all()
    assert largest(parameter) <= REACH * parameter * (1 + 1e-9) + parameter / 4


def test_large_arrays_are_filled_to_the_end() -> None:
    draws = discrete_gaussian(1e4, 3 * samplers._PROPOSALS + 5, words)
    assert all(abs(half.std() / 1e4 - 1) < 0.05 for half in np.array_split(draws, 2))
    assert len(np.unique(draws)) > 15_000


@pytest.mark.parametrize("parameter", [0.0, -1.0, math.nan, math.inf, 3.999, 2.0**49 * 1.001, "5", None])
def test_a_parameter_outside_the_range_of_the_sampler_is_named(parameter: Any) -> None:
    with pytest.raises(InvalidParameter, match="noise in cells of the grid must be"):
        discrete_gaussian(parameter, 3, words)


@pytest.mark.parametrize("shape", [-1, (2, -3), "3", 2.5, (10**12, 10**12)])
def test_a_shape_that_is_none_is_named(shape: Any) -> None:
    with pytest.raises(InvalidParameter, match="shape must be"):
        discrete_gaussian(5.0, shape, words)


@pytest.mark.parametrize("parameter", [4.0, 5.6])
def test_agreement_with_opendp(parameter: float) -> None:
    dp = pytest.importorskip("opendp.prelude", reason="OpenDP, the exact sampler to compare with, is not installed")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*space, scale=parameter)([0] * 6000))
    ours = discrete_gaussian(parameter, 60_000, words)
    inner = math.ceil(2.2 * parameter)
    edges = np.arange(-inner, inner + 1)
    table = [[(np.clip(draws, -inner, inner) == edge).sum() for edge in edges] for draws in (theirs, ours)]
    assert stats.chi2_contingency(np.array(table)).pvalue > LEVEL
