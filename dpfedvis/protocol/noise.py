"""The noise of a release: at a site, or by a trusted curator."""

from __future__ import annotations

import numpy as np

from accounting import DiscreteNoise, GaussianRelease, NoiseSource, SeededNoise
from accounting.noise import parameter
from dpfedvis.numerics.exact import Floats, Integers

NOISE_SOURCES = ("seeded", "discrete")


def add_noise(
    source: NoiseSource, values: Integers, event: GaussianRelease, parties: int = 1, relative: Floats | None = None
) -> Integers:
    """Add the noise that an event states, or one of several parties' share of it.

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
    assert event.grid is not None
    least = 1.0 if relative is None else float(relative.min())
    cells = parameter(event.sigma, event.grid, parties=parties, least=least)
    return source.add_integers(values, cells if relative is None else cells * relative)


def noise_source(name: str, generator: np.random.Generator) -> NoiseSource:
    """Return the noise source of this name."""
    return SeededNoise(generator) if name == "seeded" else DiscreteNoise()
