"""The principal subspace of the landmarks, from one noisy release of second moments."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from dpfedvis.numerics.exact import AXES_UNIT, Grid, integer_axes
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.subspace import Subspace

FEWEST = 10  # directions of a map that sees fewer,
ENOUGH = 0.7  # unless they have so much of the variance
LEAST_VARIANCE = 1e-60  # keeps grid and kernel finite where nothing was seen
MOST_UNSEEN = 64  # directions of a map that knows none
MANY_VALUES = 100  # images of more values are seen by as many low frequencies
AROUND = 2.0  # of a frequency between the values at a place, against one between places


def low_frequencies(shape: tuple[int, ...]) -> Array | None:
    """Return the lowest frequencies of images of this shape, as orthonormal columns; None for small images.

    Neighbouring pixels are alike, so that most of the variance of images lies in waves of low frequency; so are
    neighbouring directions of `hog`, which make up a circle. The noise of second moments has its edge at √(2m)·s: a
    quarter of the values halves it. The choice rests on the public shape alone, so that it costs nothing.

    Waves are products of cosines (DCT-II) down and across, and of sines and cosines around the circle of the values at
    a place. They are taken in the order of u² + v² + (`AROUND`·w)², with u, v and w their frequencies.

    Parameters
    ----------
    shape : tuple of int
        Height and width, and the number of values at each place where there are several.

    Returns
    -------
    array of shape (m, `MANY_VALUES`), or None
    """
    height, width, *values = shape
    if math.prod(shape) <= MANY_VALUES:
        return None
    around, turns = _circle(math.prod(values))
    down, across = _cosines(height), _cosines(width)
    squares = (
        np.arange(height)[:, None, None] ** 2
        + np.arange(width)[:, None] ** 2
        + np.square(AROUND * turns, dtype=np.float64)
    )
    lowest = np.argsort(squares, axis=None, kind="stable")[:MANY_VALUES]
    u, v, w = np.unravel_index(lowest, squares.shape)
    waves: Array = np.einsum("ak,bk,ck->abck", down[:, u], across[:, v], around[:, w]).reshape(-1, len(lowest))
    return waves


def _cosines(side: int) -> Array:
    """Return the cosines (DCT-II) of a side, as orthonormal columns."""
    waves: Array = np.cos(np.pi / side * np.outer(np.arange(side) + 0.5, np.arange(side))) * math.sqrt(2 / side)
    waves[:, 0] = 1 / math.sqrt(side)
    return waves


def _circle(size: int) -> tuple[Array, NDArray[np.int64]]:
    """Return the sines and cosines of a circle, as orthonormal columns, and the turns of each."""
    turns = (np.arange(size) + 1) // 2
    angles = 2 * np.pi / size * np.outer(np.arange(size), turns)
    waves: Array = np.where(np.arange(size) % 2, np.cos(angles), np.sin(angles)) * math.sqrt(2 / size)
    # Of no turn, and of half as many turns as there are values, there is one wave.
    waves[:, 0] = 1 / math.sqrt(size)
    if size % 2 == 0:
        waves[:, -1] = np.cos(angles[:, -1]) / math.sqrt(size)
    return waves, turns


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
    return int(np.sum(np.linalg.eigvalsh(moments) > threshold(len(moments)) * edge_of(noise, len(moments))))


def edge_of(noise: float, features: int) -> float:
    """Return how large eigenvalues of pure noise get: e = 2 √(m/2)·noise (Wigner)."""
    return 2 * math.sqrt(features / 2) * noise


def threshold(features: int) -> float:
    """Return how many times its edge noise alone hardly ever reaches: max(1.1, 1 + m^{−2/3}).

    The largest eigenvalue of noise is off the edge by about m^{−2/3} of it (Tracy & Widom 1994): pure noise gets there
    in at most 1 % of releases (simulated, m = 2 … 200).
    """
    return max(1.1, 1 + math.pow(features, -2 / 3))


def hidden_below(edge: float, features: int) -> float:
    """Return the least variance of a direction that is seen: λ + edge²/(4λ) is then `threshold`(m)·edge."""
    times = threshold(features)
    return edge * (times + math.sqrt(times**2 - 1)) / 2


def principal_subspace(
    centre: Array, moments: Array, noise: float, most: int, raw: Grid, basis: Array | None = None, spread: float = 0.0
) -> Subspace:
    """Return the leading eigenspace of noisy second moments.

    A symmetric matrix of independent noise, of standard deviation `noise` on and noise/√2 off the diagonal, has
    eigenvalues up to the edge e = 2 √(m/2)·noise (Wigner). A direction of variance λ > e/2 appears with eigenvalue
    λ + e²/(4λ), and the squared cosine between the seen and the true direction is 1 − e²/(4λ²) (Benaych-Georges &
    Nadakuditi 2011). Directions with an eigenvalue above `threshold`(m)·e are kept: that squared cosine is then above
    0.58. With fewer than `FEWEST` of them, and less than `ENOUGH` of the variance, the next ones are kept, too,
    although they are nearly random, and share what is left: records are then compared by more than what was seen. The
    trace has noise of standard deviation √m·`noise`, which is added where what is left is asked for; and no direction
    that is not seen has more variance than one that would be.

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
    spread : float
        Variance of the records as far as known, summed over all features; by default that of the moments.
    """
    values, vectors = np.linalg.eigh(moments)
    values, vectors = values[::-1], vectors[:, ::-1]
    edge = edge_of(noise, len(moments))
    clear = min(checks.count("components", most), int(np.sum(values > threshold(len(moments)) * edge)))
    # Noise raises an eigenvalue λ ≥ edge/2 to λ + edge²/(4λ); this inverts it.
    seen = values[:clear]
    variances = (seen + np.sqrt(seen**2 - edge**2)) / 2
    total = max(float(values.sum()), spread) + noise * math.sqrt(len(moments))
    fewest = 2 if clear and variances.sum() >= ENOUGH * total else FEWEST
    kept = min(max(clear, min(most, fewest), 2), len(moments))
    rest = max(total - float(variances.sum()), 0.0) / max(len(moments) - clear, 1)
    rest = min(rest, hidden_below(edge, len(moments)))
    variances = np.concatenate([variances, np.full(kept - clear, rest)])
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
            f"{said} So the map is mostly noise: noise and largest signal are equal for about {enough} "
            "clients; a useful map needs several times as many."
        )
    return f"{said} Data that do not fill their bounds have a smaller signal."
