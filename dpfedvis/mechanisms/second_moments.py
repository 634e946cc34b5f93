"""Second moments: one noisy matrix, from which the server takes principal directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from accounting.events import Stage
from dpfedvis.mechanisms.base import PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import ScaleRelease
from dpfedvis.numerics.exact import Floats, Grid, Integers
from dpfedvis.numerics.exact_sums import UNIT, second_moment_sums
from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True, eq=False)
class SecondMoments(ScaleRelease):
    """One release of the mean of (x − c)(x − c)ᵀ/C², with x − c clipped to norm C.

    The upload is the upper triangle. Off the diagonal it gets 1/√2 of the noise, so that the matrix made of it has the
    noise of its Frobenius norm: an entry there stands for two.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        Trust model: what the server sees of the clients.
    centre : array of shape (m,), optional
        Public centre c; 0 if not given.
    clip : float
        Public clipping norm C.
    norm : float, optional
        Public norm that the grid of the records has room for; the centre's norm and C if not given.
    """

    centre: Array | None = None
    clip: float = 1.0
    norm: float | None = None
    name: ClassVar[str] = "second-moments"
    what: ClassVar[str] = "second moments"
    stage: ClassVar[Stage] = "subspace"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("clip", self.clip)

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """(m(m + 1)/2,)."""
        return (public.features * (public.features + 1) // 2,)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """√2/n_p, or 1/n_p under add-remove.

        Proof. One record adds zzᵀ/n_p with ‖z‖ ≤ 1, of Frobenius norm at most 1/n_p. Replacing z by w moves the mean by
        ‖zzᵀ − wwᵀ‖_F/n_p, and ‖zzᵀ − wwᵀ‖²_F = ‖z‖⁴ + ‖w‖⁴ − 2⟨z, w⟩² ≤ 2. The triangle over its relative noise, off
        the diagonal times √2, has that norm.
        """
        return sensitivity.second_moment(clip=1.0, adjacency=public.adjacency) / records

    def relative_noise(self, public: PublicParameters) -> Floats:
        """1 on the diagonal and 1/√2 off it."""
        rows, columns = np.triu_indices(public.features)
        return np.where(rows == columns, 1.0, math.sqrt(0.5))

    def grid(self, public: PublicParameters, Y: Array) -> Grid:
        """Of records of norm up to `norm`."""
        largest = 0.0 if self.centre is None else float(np.linalg.norm(self.centre))
        return Grid.of_norm(self.norm or largest + self.clip, public.features)

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """A part of C²."""
        return 1 / UNIT**2

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Sum the products, by one product of integers."""
        centre = grid.nearest(np.zeros(public.features) if self.centre is None else self.centre)
        return second_moment_sums(local.cells(grid), centre, grid.step / self.clip, factor=factor)

    def matrix(self, average: Array, features: int) -> Array:
        """Return the matrix of second moments, shape (m, m), of an average upload, in the units of the data."""
        matrix = np.zeros((features, features))
        matrix[np.triu_indices(features)] = average * self.clip**2
        off = np.triu(matrix, 1)
        return np.diag(np.diag(matrix)) + off + off.T
