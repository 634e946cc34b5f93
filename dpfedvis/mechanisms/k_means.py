"""Federated k-means: a few uploads of noisy sums and counts of each landmark's records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from dpfedvis.mechanisms.base import BaseMechanism, PreparedRecords, Update
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Grid, Integers
from dpfedvis.numerics.exact_sums import UNIT, cluster_sums
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.optimisers import Optimiser
from dpfedvis.numerics.projections import clip_norms

# A landmark with less than this fraction of an equal share of the records counts as empty: its count is mostly noise.
EMPTY = 0.25
SURE = 2.0  # standard deviations above pure noise, below which steps and counts tell nothing


@dataclass(frozen=True)
class KMeans(BaseMechanism):
    """Lloyd's algorithm on noisy sums: each landmark moves to the mean of its nearest records.

    Clients sum each record's *offset* from its landmark, clipped to the radius R = reach/√(2γ). Offsets are much
    shorter than records, so they need less noise. With γ one over a typical squared distance of two records, 1/√(2γ)
    is a typical distance of a record from the mean.

    The server knows the noise level and shrinks each step accordingly (`kept`).

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        Trust model: what the server sees of the clients.
    sweeps : int
        Number of uploads; fewer if there are fewer rounds.
    reach : float
        Clipping radius of a record's offset, in units of 1/√(2γ).
    """

    sweeps: int = 12
    reach: float = 0.4
    what: ClassVar[str] = "cluster sums"
    name: ClassVar[str] = "k-means"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("sweeps", self.sweeps)
        checks.between("reach", self.reach, 1e-6, 1e6)

    def uploads(self, rounds: int) -> int:
        """`sweeps`, or the number of rounds if smaller."""
        return min(rounds, self.sweeps)

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """(n_y, m + 1): sums of offsets in units of R, and counts."""
        return public.landmarks, public.features + 1

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """2/n_p, or √2/n_p under add-remove."""
        return sensitivity.cluster_sums(records=records, adjacency=public.adjacency)

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """A part of one record, or of R."""
        return 1 / UNIT

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Sum offsets and count records; the nearest landmark is the first of the nearest, by exact distances."""
        return cluster_sums(local.cells(grid), grid.nearest(Y), grid, self.radius(public), factor=factor)

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Move each landmark to its mean, and each empty one next to a full one, to share its records."""
        radius, counts = self.radius(public), likely(average[:, -1], public.noise)
        least = EMPTY / len(Y)
        shares = np.maximum(counts, least)
        steps = average[:, :-1] / shares[:, None]
        moves = clip_norms(steps * kept(steps, public.noise / shares), 1.0) * radius
        # Where noise is larger than shares, it alone makes counts small.
        empty = np.flatnonzero((counts < least) & (average[:, -1] < 1 / len(Y) - SURE * public.noise))
        moved = Y + moves
        moved[empty] = Y[empty]
        full = np.argsort(-counts, kind="stable")[: len(Y) - len(empty)]
        if len(full) and len(empty):
            # Public random directions: two landmarks at one place must not stay together.
            generator = np.random.default_rng([public.public_seed, 0x6B6D])
            beside = generator.standard_normal((len(empty), Y.shape[1])) * (radius / (2 * math.sqrt(Y.shape[1])))
            moved[empty] = moved[full[np.arange(len(empty)) % len(full)]] + beside
        return Update(moved.astype(Y.dtype, copy=False))

    def counts(self, average: Array) -> Array:
        """The last column."""
        return average[:, -1]

    def radius(self, public: PublicParameters) -> float:
        """R, in the units of the records."""
        return self.reach / math.sqrt(2 * public.kernel.mean_gamma)


def likely(counts: Array, noise: float) -> Array:
    """Return counts drawn towards their mean by as much as they are noise, shape (k,): a Wiener filter.

    Model: counts scatter around 1/k with variance v, plus noise of standard deviation `noise`. v is estimated as their
    mean square less that of the noise. Where the mean square is less than `SURE` standard deviations above that of pure
    noise, each √(2/k) of it, all counts are taken for alike: no landmark seems empty. Post-processing.
    """
    middle = 1 / len(counts)
    if not noise:
        return counts
    square = float(np.mean(np.square(counts - middle)))
    if square < noise**2 * (1 + SURE * math.sqrt(2 / len(counts))):
        return np.full_like(counts, middle)
    likely_counts: Array = middle + (counts - middle) * (1 - noise**2 / square)
    return likely_counts


def kept(steps: Array, noise: Array) -> Array:
    """Return the fraction of each step to take, in [0, 1], shape (k, d): a Wiener filter with estimated signal.

    Model: a step is Gaussian with mean 0 and variance s_j² (one per feature), plus noise of standard deviation
    `noise`_i. Its conditional mean is s_j²/(s_j² + noise_i²) times what is seen. s_j² is estimated as the weighted mean
    square of the steps minus that of the noise. As the landmarks settle, s_j² falls, and the last sweeps add little
    noise. Their sum is at most 1, since no true step is longer. This is post-processing.

    Where that sum is below `SURE` standard deviations of what pure noise has, no step is taken at all: the positive
    parts of noise would else add up to a random walk. With weights w_i ∝ 1/noise_i², each of the kd terms
    w_i step_ij² has variance 2/W² under pure noise, with W = Σ 1/noise_i².

    Parameters
    ----------
    steps : array of shape (k, d)
    noise : array of shape (k,)
    """
    if not noise.any():
        return np.ones_like(steps)
    weights = 1 / np.square(noise)
    scale = float(weights.sum())
    weights /= scale
    above = weights @ np.square(steps) - weights @ np.square(noise)
    if above.sum() < SURE * math.sqrt(2 * steps.size) / scale:
        return np.zeros_like(steps)
    signal = np.maximum(above, 0.0)
    signal /= max(float(signal.sum()), 1.0)
    part: Array = signal / (signal + np.square(noise)[:, None])
    return part
