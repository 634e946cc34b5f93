"""A principal subspace from one noisy release of second moments: where the map's landmarks live."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting import checks
from dpfedvis.numerics.kernels import Array

# Eigenvalues above so many times the edge of pure noise belong to directions that are mostly the data's own.
CLEAR = 1.1


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


def client_level_remark(*, clients: int, features: int, moments: float, second_moments: float, local: bool) -> str:
    """Hold the noise for whole clients against the largest signal that there could be.

    A client's upload is a mean over its records, so that it is as long as one record's part at most: √2 for the
    moments (`accounting.sensitivity.moments`), and 1, also in the spectral norm, for the second moments. Noise of
    standard deviation s in each of m + 1 values has norm √(m + 1)·s, and as a symmetric matrix eigenvalues up to
    √(2m)·s (Wigner; see `principal_subspace`). Where the noise is
    the larger, no data could have been seen.

    Parameters
    ----------
    clients : int
        P, public.
    features : int
        m.
    moments, second_moments : float
        Standard deviation of the noise in each value of the clients' average.
    local : bool
        Whether each client adds the whole noise itself: the noise in the average then falls as 1/√P, else as 1/P.
    """
    centre = math.sqrt(features + 1) * moments / math.sqrt(2)
    axes = math.sqrt(2 * features) * second_moments
    worst = max(centre, axes)
    enough = max(math.ceil(clients * (worst**2 if local else worst)), 1)
    said = (
        f"The unit is a whole client, and there {'is' if clients == 1 else 'are'} {clients}: the noise hides all that "
        f"one client adds to the average. In the mean of the records it is {centre:.3g} times, and in their "
        f"principal directions {axes:.3g} times, the largest signal that any data could give."
    )
    if worst >= 1:
        return (
            f"{said} **So the map is mostly noise**: for noise and largest signal to be equal it takes about {enough} "
            "clients, and for a map that means something several times as many."
        )
    return f"{said} Data that do not fill their bounds give less than the largest signal."
