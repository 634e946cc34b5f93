"""A principal subspace from one noisy release of second moments: where the map's landmarks live."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from accounting.events import Stage
from dpfedvis.mechanisms import Message, PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import ScaleRelease
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.projections import clip_norms

# Eigenvalues above so many times the edge of pure noise belong to directions that are mostly the data's own.
CLEAR = 1.1


@dataclass(frozen=True, eq=False)
class SecondMoments(ScaleRelease):
    """One release of the mean of (x − c)(x − c)ᵀ/C², with x − c clipped to norm C.

    The upper triangle is uploaded, what is off the diagonal times √2: a vector with the Frobenius norm of the matrix.

    Parameters
    ----------
    centre : array of shape (m,)
        c, public.
    clip : float
        C, public.
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
        """√2/n_p, or 1/n_p under add-remove."""
        return sensitivity.second_moment(clip=1.0, adjacency=public.adjacency) / records

    def prepare(self, records: Array) -> Array:
        """Centre, and clip to C."""
        centred = records if self.centre is None else records - self.centre.astype(records.dtype)
        return clip_norms(centred, self.clip)

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the matrix by one product."""
        matrix = (local.records.T @ local.records).astype(np.float64) / (self.clip**2 * local.denominator)
        return Message(_flatten(matrix))

    def matrix(self, average: Array, features: int) -> Array:
        """Return the symmetric matrix, shape (m, m), that an upload stands for, in the units of the data."""
        matrix = np.zeros((features, features))
        matrix[np.triu_indices(features)] = average * self.clip**2
        off = np.triu(matrix, 1) / math.sqrt(2)
        return np.diag(np.diag(matrix)) + off + off.T


@dataclass(frozen=True, eq=False)
class Subspace:
    """An affine subspace that everybody knows.

    Parameters
    ----------
    centre : array of shape (m,)
    axes : array of shape (m, d)
        Orthonormal.
    variances : array of shape (d,)
        Of the data along each axis, as far as the noise lets it be seen.
    """

    centre: Array
    axes: Array
    variances: Array

    def __post_init__(self) -> None:
        for array in (self.centre, self.axes, self.variances):
            # A part of the frame that clients share: nobody moves it.
            array.setflags(write=False)

    def coordinates(self, X: Array) -> Array:
        """Return the coordinates of records, shape (n, d), float32."""
        return ((X - self.centre.astype(X.dtype)) @ self.axes.astype(X.dtype)).astype(np.float32, copy=False)

    def points(self, Z: Array) -> Array:
        """Return the points of the subspace with these coordinates, shape (n, m)."""
        return self.centre + Z.astype(np.float64) @ self.axes.T


def principal_subspace(centre: Array, moments: Array, noise: float, most: int) -> Subspace:
    """Return the leading eigenspace of noisy second moments.

    A symmetric matrix of independent noise, of standard deviation `noise` on and noise/√2 off the diagonal, has
    eigenvalues up to the edge e = 2 √(m/2)·noise (Wigner). A direction of variance λ > e/2 is seen with the eigenvalue
    λ + e²/(4λ), and the squared cosine between what is seen and what is there is 1 − e²/(4λ²) (Benaych-Georges &
    Nadakuditi 2011). Directions with an eigenvalue above `CLEAR`·e are kept: that cosine is then above 0.58.
    At least two directions are kept, since a map has two, so that without any budget to speak of they are random.

    Parameters
    ----------
    centre : array of shape (m,)
    moments : array of shape (m, m)
    noise : float
        Standard deviation of the noise on its diagonal.
    most : int
        Directions to keep at most.
    """
    values, vectors = np.linalg.eigh(moments)
    values, vectors = values[::-1], vectors[:, ::-1]
    edge = 2 * math.sqrt(len(moments) / 2) * noise
    kept = max(2, min(checks.count("components", most), int(np.sum(values > CLEAR * edge))))
    kept = min(kept, len(moments))
    # Noise lifts eigenvalues too: λ + edge²/(4λ) for one at λ ≥ edge/2, which this undoes.
    seen = np.maximum(values[:kept], edge)
    variances = (seen + np.sqrt(np.maximum(seen**2 - edge**2, 0))) / 2
    axes = vectors[:, :kept]
    # The sign of an eigenvector means nothing; fix it, so that equal moments give equal maps.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(kept)])
    return Subspace(centre, axes, np.maximum(variances, np.finfo(np.float64).tiny))


def _flatten(matrix: Array) -> Array:
    rows, columns = np.triu_indices(len(matrix))
    values: Array = matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2))
    return values
