"""The noise of a release: at a site, or by a trusted curator."""

from __future__ import annotations

import math

import numpy as np

from accounting import DiscreteNoise, GaussianRelease, NoiseSource, SeededNoise, checks
from accounting.noise import parameter
from accounting.sampler import check_parameter
from dpfedvis.numerics.exact import Floats, Integers

NOISE_SOURCES = ("seeded", "discrete")


def add_noise(
    source: NoiseSource, values: Integers, event: GaussianRelease, parties: int = 1, relative: Floats | None = None
) -> Integers:
    """Add the noise that an event states, or one of several parties' share of it and what is that party's own.

    Parameters
    ----------
    source : NoiseSource
    values : array of int64
    event : GaussianRelease
        With its grid.
    parties : int
        Sites that share the noise.
    relative : array of the shape of `values`, optional
        Noise of each value relative to the largest.
    """
    cells = noise_cells(event, parties, relative)
    return source.add_integers(values, cells if relative is None else cells * relative)


def noise_cells(event: GaussianRelease, parties: int = 1, relative: Floats | None = None) -> float:
    """Return the noise parameter of what one party draws, in cells; raise if the sampler has no room for it.

    Parameters
    ----------
    event, parties, relative
        As in `add_noise`.
    """
    grid = checks.positive("grid", event.grid or 0.0)
    least = 1.0 if relative is None else float(relative.min())
    cells = parameter(common_sigma(event), grid, parties=parties, least=least)
    return cells if event.own is None else check_parameter(math.hypot(cells, event.own / grid))


def common_sigma(event: GaussianRelease) -> float:
    """Return the noise of an event without what is the client's own; up, against rounding.

    *Proof.* With own noise of at most R = 10³ times the common, σ² and own² are each off by less than 5·2⁻⁵³ (R² + 1)
    of the common variance, so that their difference is off by less than 1.2·10⁻⁹ of it, and its root by half of that.
    """
    return event.sigma if event.own is None else math.sqrt(event.sigma**2 - event.own**2) * (1 + 1e-9)


def variance_alone(event: GaussianRelease) -> float:
    """Return the variance of the noise that one client adds to a sum."""
    shares = 1 if event.sharing is None else event.sharing.shares
    return common_sigma(event) ** 2 / shares + (event.own or 0.0) ** 2


def noise_source(name: str, generator: np.random.Generator) -> NoiseSource:
    """Return the noise source of this name."""
    return SeededNoise(generator) if name == "seeded" else DiscreteNoise()
