"""The principal subspace of the landmarks, from one noisy release of second moments."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from accounting import checks
from dpfedvis.numerics.exact import AXES_UNIT, Grid, integer_axes
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.subspace import Subspace

# Eigenvalues above this many times the edge of pure noise belong to directions that are mostly signal.
CLEAR = 1.1
LEAST_VARIANCE = 1e-60  # keeps grid and kernel finite where nothing was seen
MOST_UNSEEN = 64  # directions of a map that knows none
MANY_VALUES = 128  # images of more values are seen by their low frequencies


def low_frequencies(shape: tuple[int, ...]) -> Array | None:
    """Return the low spatial frequencies of images of this shape, as orthonormal columns; None for small images.

    Neighbouring pixels are alike, so that most of the variance of images lies in cosines of low frequency. The noise of
    second moments has its edge at √(2m)·s: with half the frequencies of both sides, a quarter of all, it is half as
    high. The choice rests on the public shape alone, so that it costs nothing.

    Parameters
    ----------
    shape : tuple of int
        Height and width, and the number of values at each place where there are several.

    Returns
    -------
    array of shape (m, m'), or None
    """
    height, width, *values = shape
    if math.prod(shape) <= MANY_VALUES:
        return None
    basis: Array = reduce(np.kron, [_cosines(height), _cosines(width), np.eye(math.prod(values))])
    return basis


def _cosines(side: int) -> Array:
    """Return the lower half of the cosines (DCT-II) of a side, as orthonormal columns."""
    kept = math.ceil(side / 2)
    waves: Array = np.cos(np.pi / side * np.outer(np.arange(side) + 0.5, np.arange(kept))) * math.sqrt(2 / side)
    waves[:, 0] = 1 / math.sqrt(side)
    return waves


def unseen_subspace(centre: Array, spread: float, raw: Grid, generator: np.random.Generator) -> Subspace:
    """Return the subspace of a map that knows no direction of the data: all of them, or random ones, alike.

    Where no eigenvalue of the moments is above the edge of noise, their leading directions are random: two of them
    would show a site less of its own records than all features do.

    Parameters
    ----------
    centre : array of shape (m,)
    spread : float
        Variance of the records, summed over all features.
    raw : Grid
        Of the records.
    generator : numpy.random.Generator
        Public. Random directions keep distances (Johnson & Lindenstrauss 1984): a squared distance in d of m directions
        is d/m of the whole one, with a relative standard deviation of at most √(2/d).
    """
    features = len(centre)
    kept = min(features, MOST_UNSEEN)
    axes = np.eye(features)
    if kept < features:
        axes = np.linalg.qr(generator.standard_normal((features, kept)))[0]
    variances = np.full(kept, max(spread / features, LEAST_VARIANCE))
    return Subspace(centre, integer_axes(axes) / AXES_UNIT, variances, raw)


def components_seen(moments: Array, noise: float) -> int:
    """Return how many directions of noisy second moments stand above the edge of noise; see `principal_subspace`."""
    return int(np.sum(np.linalg.eigvalsh(moments) > CLEAR * edge_of(noise, len(moments))))


def edge_of(noise: float, features: int) -> float:
    """Return how large eigenvalues of pure noise get: e = 2 √(m/2)·noise (Wigner)."""
    return 2 * math.sqrt(features / 2) * noise


def principal_subspace(
    centre: Array, moments: Array, noise: float, most: int, raw: Grid, basis: Array | None = None
) -> Subspace:
    """Return the leading eigenspace of noisy second moments.

    A symmetric matrix of independent noise, of standard deviation `noise` on and noise/√2 off the diagonal, has
    eigenvalues up to the edge e = 2 √(m/2)·noise (Wigner). A direction of variance λ > e/2 appears with eigenvalue
    λ + e²/(4λ), and the squared cosine between the seen and the true direction is 1 − e²/(4λ²) (Benaych-Georges &
    Nadakuditi 2011). Directions with an eigenvalue above `CLEAR`·e are kept: that squared cosine is then above 0.58.
    At least two directions are kept, since a map has two; with a very small budget they are random.

    Parameters
    ----------
    centre : array of shape (m,), or (m',) with a basis
    moments : array of shape (m, m)
    noise : float
        Standard deviation of the noise on its diagonal.
    most : int
        Largest number of directions.
    raw : Grid
        Of the records.
    basis : array of shape (m', m), optional
        Orthonormal columns in which the moments are given; the subspace is one of the m' values of a record.
    """
    values, vectors = np.linalg.eigh(moments)
    values, vectors = values[::-1], vectors[:, ::-1]
    edge = edge_of(noise, len(moments))
    kept = max(2, min(checks.count("components", most), int(np.sum(values > CLEAR * edge))))
    kept = min(kept, len(moments))
    # Noise raises an eigenvalue λ ≥ edge/2 to λ + edge²/(4λ); this inverts it.
    seen = np.maximum(values[:kept], edge)
    variances = (seen + np.sqrt(np.maximum(seen**2 - edge**2, 0))) / 2
    axes = vectors[:, :kept] if basis is None else basis @ vectors[:, :kept]
    # Fix the arbitrary signs of eigenvectors, so that equal moments give equal maps.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(kept)])
    return Subspace(centre, integer_axes(axes) / AXES_UNIT, np.maximum(variances, LEAST_VARIANCE), raw)


def client_level_remark(
    *, clients: int, features: int, seen: int, moments: float, second_moments: float, local: bool
) -> str:
    """Compare the noise for privacy unit client with the largest possible signal, in words.

    A client's upload is a mean over its records, so it is at most as long as one record's part: √2 for the moments
    (`accounting.sensitivity.moments`), and 1, also in the spectral norm, for the second moments. Noise of standard
    deviation s in each of m + 1 values has norm √(m + 1)·s, and as a symmetric matrix eigenvalues up to √(2m)·s
    (Wigner; see `principal_subspace`). If the noise is larger, no data can be seen.

    Parameters
    ----------
    clients : int
        Number of clients P.
    features : int
        Number of features m.
    seen : int
        Number of values that second moments are of.
    moments, second_moments : float
        Standard deviation of the noise in each value of the clients' average.
    local : bool
        Whether trust is local: the noise in the average then falls as 1/√P, else as 1/P.
    """
    centre = math.sqrt(features + 1) * moments / math.sqrt(2)
    axes = math.sqrt(2 * seen) * second_moments
    worst = max(centre, axes)
    enough = max(math.ceil(clients * (worst**2 if local else worst)), 1)
    said = (
        f"The privacy unit is a client, and there {'is' if clients == 1 else 'are'} {clients}: the noise hides all "
        f"that one client adds to the average. In the mean of the records it is {centre:.3g} times, and in their "
        f"principal directions {axes:.3g} times, the largest possible signal of any data."
    )
    if worst >= 1:
        return (
            f"{said} **So the map is mostly noise**: noise and largest signal are equal for about {enough} "
            "clients; a useful map needs several times as many."
        )
    return f"{said} Data that do not fill their bounds have a smaller signal."
