"""Noise sources. Each has a name for the event, and a sentence for the privacy statement.

`seeded` can be repeated, so its runs are simulations. `system` draws from the operating system and cannot be repeated;
its values are floating-point numbers, whose low bits are not those of a real Gaussian (Mironov 2012). `discrete` draws
integers on a grid, so low bits show nothing; rounding to the grid is charged to the sensitivity. The last two start
from uniforms of 52 bits: their tails end beyond eight standard deviations, and the discrete masses have a relative
error of about 2⁻⁵² times the noise in cells. That is not charged.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from accounting import checks
from accounting.errors import InvalidParameter

Array = NDArray[np.floating[Any]]
Shape = int | tuple[int, ...]

_BLOCK = 2**14  # proposals of the discrete sampler at a time


class NoiseSource(Protocol):
    """The plug-in point: something that adds Gaussian noise to an array."""

    @property
    def name(self) -> str:
        """Name that goes into the event."""

    @property
    def statement(self) -> str:
        """What a privacy statement says about it."""

    def add(self, values: Array, sigma: float) -> Array:
        """Return `values`, of any shape and its dtype, plus noise of standard deviation `sigma`."""


@dataclass(frozen=True)
class SeededNoise:
    """Noise of a numpy generator: for simulation."""

    generator: np.random.Generator
    name: str = "seeded"
    statement: str = (
        "The noise comes from a seeded generator: this run is a simulation, and anyone who knows the seed can "
        "take the noise off again."
    )

    def add(self, values: Array, sigma: float) -> Array:
        """Return `values` plus N(0, sigma²)."""
        sigma = checks.positive("sigma", sigma)
        _check_values(values)
        noise = self.generator.standard_normal(values.shape, dtype=values.dtype)
        noise *= sigma
        noise += values
        return noise


@dataclass(frozen=True)
class SystemNoise:
    """Noise from the operating system's entropy."""

    name: str = "system"
    statement: str = (
        "The noise comes from the operating system's entropy, as floating-point numbers: the guarantee is that of "
        "the ideal Gaussian, and leaves aside what the low bits of floating-point numbers may show."
    )

    def add(self, values: Array, sigma: float) -> Array:
        """Return `values` plus N(0, sigma²)."""
        sigma = checks.positive("sigma", sigma)
        _check_values(values)
        return (values + sigma * ndtri(_uniform(values.size)).reshape(values.shape)).astype(values.dtype, copy=False)


@dataclass(frozen=True)
class DiscreteNoise:
    """Discrete Gaussian noise on the grid `granularity`·ℤ, from the operating system's entropy.

    Parameters
    ----------
    granularity : float
        Width of the grid; see `grid_for`.

    Notes
    -----
    Values are rounded to the grid before the noise is added. Rounding moves each of d values by at most half a cell,
    so two neighbours that differ by Δ differ by at most Δ + granularity·√d afterwards: that is the sensitivity to
    account for. The acceptance test of the sampler compares 52-bit uniforms, so that probabilities are exact to 2⁻⁵²
    only.
    """

    granularity: float
    name: str = "discrete"
    statement: str = (
        "The noise is a discrete Gaussian on a grid, from the operating system's entropy, accounted by zCDP; rounding "
        "to the grid is charged to the sensitivity."
    )

    def __post_init__(self) -> None:
        checks.positive("granularity", self.granularity)

    def charged(self, sensitivity: float, dimension: int) -> float:
        """Sensitivity including the rounding of `dimension` values."""
        return sensitivity + self.granularity * math.sqrt(checks.count("dimension", dimension))

    def add(self, values: Array, sigma: float) -> Array:
        """Return `values` rounded to the grid, plus discrete Gaussian noise of parameter `sigma`."""
        sigma = checks.positive("sigma", sigma)
        _check_values(values)
        cells = np.rint(np.asarray(values, dtype=np.float64) / self.granularity)
        noise = discrete_gaussian(sigma / self.granularity, values.shape)
        return ((cells + noise) * self.granularity).astype(values.dtype, copy=False)


def grid_for(sensitivity: float, dimension: int, overhead: float = 1e-3) -> float:
    """Largest power of two whose rounding raises the sensitivity by at most the fraction `overhead`.

    A power of two keeps the arithmetic on the grid exact in binary floating point.
    """
    sensitivity = checks.positive("sensitivity", sensitivity)
    widest = checks.positive("overhead", overhead) * sensitivity / math.sqrt(checks.count("dimension", dimension))
    return 2.0 ** math.floor(math.log2(widest))


def discrete_gaussian(sigma: float, shape: Shape) -> NDArray[np.int64]:
    """Draw from the discrete Gaussian: P(k) ∝ exp(−k²/(2 sigma²)) on the integers, for sigma in 2⁻³⁰ … 2⁴⁰.

    Rejection from a two-sided geometric distribution of scale t = ⌊sigma⌋ + 1: a proposal y is kept with probability
    exp(−(|y| − sigma²/t)²/(2 sigma²)) (Canonne, Kamath & Steinke 2020, Alg. 3), here for whole arrays at once. Between
    0.43 (sigma just below 1) and 0.76 (large sigma) of the proposals are kept.
    """
    if not 2.0**-30 <= checks.positive("sigma", sigma) <= 2.0**32:
        raise InvalidParameter("sigma", sigma, "between 2⁻³⁰ and 2³² cells of the grid")
    result = np.empty(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)
    filled, kept_share = 0, 0.7
    while filled < result.size:
        missing = result.size - filled
        # In blocks that fit the processor's cache.
        proposals = min(_BLOCK, int(1.05 * missing / kept_share) + 32)
        kept = _kept_proposals(sigma, proposals)
        kept_share = max(kept.size, 1) / proposals
        kept = kept[:missing]
        result[filled : filled + kept.size] = kept
        filled += kept.size
    return result.reshape(shape)


def _kept_proposals(sigma: float, proposals: int) -> NDArray[np.float64]:
    scale = math.floor(sigma) + 1
    bits = _random_bits(proposals)
    magnitude = _unit(bits)
    np.log(magnitude, out=magnitude)
    magnitude *= -scale
    np.floor(magnitude, out=magnitude)
    # Kept with probability exp(−z²/2).
    z = magnitude * (1 / sigma)
    z -= sigma / scale
    z *= z
    z *= -0.5
    keep = _uniform(proposals) <= np.exp(z, out=z)
    # One draw gives sign and magnitude: the lowest bit is not among those that make the uniform.
    sign = (bits & np.uint64(1)).astype(np.float64)
    sign *= -2
    sign += 1
    # Zero would be proposed twice, once with each sign.
    keep &= (magnitude != 0) | (sign > 0)
    magnitude *= sign
    return magnitude[keep]


def _check_values(values: Array) -> None:
    if not isinstance(values, np.ndarray) or values.dtype not in (np.float32, np.float64):
        kind = getattr(values, "dtype", type(values).__name__)
        raise InvalidParameter("values", kind, "an array of type float32 or float64: others would round the noise")
    if not np.isfinite(values).all():
        raise InvalidParameter("values", "nan or inf", "finite: noise cannot hide nan or inf")


def _random_bits(size: int) -> NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


def _uniform(size: int) -> NDArray[np.float64]:
    """Uniform numbers in (0, 1) with 52 random bits, from the operating system."""
    return _unit(_random_bits(size))


def _unit(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    # Half a step off zero, so that neither 0 nor 1 comes out and the distribution is symmetric. With 52 bits every
    # step is exact; with 53 the largest number would be rounded to 1.
    unit = (bits >> np.uint64(12)).astype(np.float64)
    unit += 0.5
    unit *= 2.0**-52
    return unit
