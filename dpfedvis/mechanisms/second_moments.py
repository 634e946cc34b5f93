"""Second moments: one noisy matrix, from which the server takes principal directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from accounting.events import Stage
from dpfedvis.mechanisms.base import Message, PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import ScaleRelease
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.projections import clip_norms


@dataclass(frozen=True, eq=False)
class SecondMoments(ScaleRelease):
    """One release of the mean of (x − c)(x − c)ᵀ/C², with x − c clipped to norm C.

    The upload is the upper triangle with off-diagonal entries times √2: a vector with the matrix's Frobenius norm.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        Trust model: what the server sees of the clients.
    centre : array of shape (m,), optional
        Public centre c; 0 if not given.
    clip : float
        Public clipping norm C.
    """

    centre: Array | None = None
    clip: float = 1.0
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
        ‖zzᵀ − wwᵀ‖_F/n_p, and ‖zzᵀ − wwᵀ‖²_F = ‖z‖⁴ + ‖w‖⁴ − 2⟨z, w⟩² ≤ 2.
        """
        return sensitivity.second_moment(clip=1.0, adjacency=public.adjacency) / records

    def prepare(self, records: Array) -> Array:
        """Subtract the centre, and clip to norm C."""
        centred = records if self.centre is None else records - self.centre.astype(records.dtype)
        return clip_norms(centred, self.clip)

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the matrix by one product."""
        matrix = (local.records.T @ local.records).astype(np.float64) / (self.clip**2 * local.denominator)
        return Message(_flatten(matrix))

    def matrix(self, average: Array, features: int) -> Array:
        """Return the matrix of second moments, shape (m, m), of an average upload, in the units of the data."""
        matrix = np.zeros((features, features))
        matrix[np.triu_indices(features)] = average * self.clip**2
        off = np.triu(matrix, 1) / math.sqrt(2)
        return np.diag(np.diag(matrix)) + off + off.T


def _flatten(matrix: Array) -> Array:
    rows, columns = np.triu_indices(len(matrix))
    values: Array = matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2))
    return values
