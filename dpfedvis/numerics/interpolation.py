"""Interpolation: places of many records from those of a few that were laid out."""

from __future__ import annotations

import numpy as np

from dpfedvis.numerics.distances import GramDistances
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.neighbors import nearest_to

SIMILAR = 10  # laid-out records that a record is placed among
SHIFTS = 8  # steps of mean shift


def interpolate(known: Array, places: Array, points: Array, width: float) -> Array:
    """Return the place of each point where the places of its nearest known points are densest, shape (n, 2).

    Each point by itself: its neighbours weigh exp(−d²/d̄²), with d² its squared distances to them and d̄² their
    mean. From the neighbour with most weight around it, mean shift goes to the middle of that group. The plain mean
    could lie in a gap between regions of the map.

    Parameters
    ----------
    known : array of shape (k, d), float32
        Coordinates of the records that were laid out.
    places : array of shape (k, 2)
    points : array of shape (n, d), float32
    width : float
        Of the Gaussian window of the mean shift.
    """
    found = nearest_to(GramDistances(known), points, min(SIMILAR, len(known)))
    squares = np.square(found.distances, dtype=np.float64)
    weights = np.exp(-squares / np.maximum(squares.mean(axis=1, keepdims=True), np.finfo(np.float32).tiny))
    near = places[found.indices] / width
    densities = np.einsum("ni,nij->nj", weights, _window(near[:, :, None], near[:, None]))
    rows = np.arange(len(points))
    centre = near[rows, densities.argmax(axis=1)]
    for _ in range(SHIFTS):
        pulls = weights * _window(near, centre[:, None])
        # The neighbour that it began at stays in the window, so that no sum is 0.
        centre = np.einsum("nk,nkd->nd", pulls, near) / pulls.sum(axis=1, keepdims=True)
    settled: Array = centre * width
    return settled


def _window(one: Array, other: Array) -> Array:
    """exp(−d²/2) between places."""
    window: Array = np.exp(-0.5 * np.square(one - other).sum(axis=-1))
    return window
