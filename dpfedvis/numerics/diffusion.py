"""Diffusion of anchor weights along a client's own neighbour graph, before its records are placed.

A record's nearest anchors in the subspace are a coarse answer: the subspace is small and the anchors are noisy. The
client knows all features of its records. So it spreads the weights along its own neighbour graph, as in label
spreading (Zhou et al. 2004) with anchors for labels. All of it stays at the client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from accounting.errors import InvalidParameter
from dpfedvis.numerics.kernels import Array, block_rows

OWN_COMPONENTS = 40
FAR = -60.0  # of a window's exponent
EVENING = 0.125  # each component is divided by its variance to this power


@dataclass(frozen=True, eq=False)
class OwnFrame:
    """Coordinates in which a client compares its own records: its leading principal components, rescaled.

    Small components are mostly noise and are dropped; the largest would dominate the rest. So each is divided by
    λ^`EVENING`, with λ its variance. The components stay at the client.

    Parameters
    ----------
    components : sklearn.decomposition.PCA, optional
        None where the records do not differ: then they are compared as they are.
    """

    components: Any

    @classmethod
    def of(cls, records: Array) -> OwnFrame:
        """Return the frame of records, shape (n, m), n ≥ 2."""
        from sklearn.decomposition import PCA

        points = records.astype(np.float32, copy=False)
        if not np.ptp(points, axis=0).any():
            return cls(None)
        with np.errstate(invalid="ignore"):  # shares of a variance that is rounded to 0
            found = PCA(min(*points.shape, OWN_COMPONENTS), random_state=0).fit(points)
        return cls(found if found.explained_variance_[0] > 0 else None)  # all alike, up to rounding

    def coordinates(self, records: Array) -> Array:
        """Return the coordinates of records, shape (n, min(m, own records, OWN_COMPONENTS)), float32."""
        points = records.astype(np.float32, copy=False)
        if self.components is None:
            return points
        variances = self.components.explained_variance_
        evened: Array = self.components.transform(points) / np.maximum(variances / variances[0], 1e-12) ** EVENING
        return evened.astype(np.float32)


def diffuse(to_anchors: csr_array, among: csr_array, keep: float, steps: int) -> Array:
    """Iterate A ← keep · P A + (1 − keep) A⁰ and return A.

    Parameters
    ----------
    to_anchors : sparse array of shape (n, k)
        A⁰: weights of each record's anchors; rows sum to 1.
    among : sparse array of shape (n, n)
        Weights of each record's neighbours. Made symmetric here; P has its rows scaled to sum to 1.
    keep : float
        In (0, 1): how far weights travel.
    steps : int

    Returns
    -------
    array of shape (n, k), float32
        Rows sum to 1.
    """
    both = (among + among.T).astype(np.float32)
    scale = np.float32(keep) / np.maximum(both.sum(axis=1), np.finfo(np.float32).tiny)
    travelled = csr_array(both.multiply(scale[:, None]))
    home = ((1 - keep) * to_anchors).astype(np.float32).toarray()
    weights: Array = to_anchors.astype(np.float32).toarray()
    for _ in range(steps):
        weights = travelled @ weights
        weights += home
    return weights


def settle(weights: Array, places: Array, width: float, steps: int) -> Array:
    """Return where on the map each record's weights are densest: the best anchor, then mean shift.

    The plain mean could lie in a gap between regions of the map.

    Parameters
    ----------
    weights : array of shape (n, k)
        At least 0, not all 0 in any row.
    places : array of shape (k, 2)
    width : float
        Of the Gaussian window.
    steps : int
        Of the mean shift.

    Returns
    -------
    array of shape (n, 2), float64
    """
    unit = _unit(width)
    points, width = (places / unit).astype(np.float32), width / unit
    around = _window(points, points, width)
    settled = np.empty((len(weights), 2))
    rows = block_rows(len(weights), len(points), points.itemsize)
    for start in range(0, len(weights), rows):
        part = weights[start : start + rows].astype(np.float32, copy=False)
        centre = points[np.argmax(part @ around, axis=1)]
        for _ in range(steps):
            near = _window(centre, points, width)
            near *= part
            total = near.sum(axis=1, keepdims=True)
            # Without any anchor in the window, stay.
            centre = np.where(total > 0, (near @ points) / np.where(total > 0, total, 1), centre)
        settled[start : start + rows] = centre
    return settled * unit


def nearby_weights(weights: Array, places: Array, settled: Array, width: float, count: int) -> csr_array:
    """Return each record's strongest weights near its settled place, scaled to sum to 1; sparse, shape (n, k).

    Weights of distant anchors would pull a record out of its region.

    Parameters
    ----------
    weights : array of shape (n, k)
    places : array of shape (k, 2)
    settled : array of shape (n, 2)
    width : float
        Of the Gaussian window around a record. A record without weight inside keeps all its weights.
    count : int
        Weights to keep of each record.
    """
    unit, rows, parts = _unit(width), block_rows(len(weights), len(places), weights.itemsize), []
    points, centres = ((each / unit).astype(np.float32) for each in (places, settled))
    for start in range(0, len(weights), rows):
        part = weights[start : start + rows]
        near = part * _window(centres[start : start + rows], points, width / unit)
        near = np.where(near.sum(axis=1, keepdims=True) > 0, near, part)
        parts.append(strongest(near, count))
    return csr_array(vstack(parts, format="csr"))


def _unit(width: float) -> float:
    """Return a power of two near a width: dividing by it is exact, and squares stay in float32's range."""
    if not width > 0:
        raise InvalidParameter("width", width, "above 0")
    return 2.0 ** math.frexp(width)[1]


def _window(centres: Array, points: Array, width: float) -> Array:
    """exp(−d²/(2 width²)) between centres and points, shape (centres, points); 0 beyond e^`FAR`."""
    window: Array = (centres[:, :1] - points[:, 0]) ** 2
    window += (centres[:, 1:] - points[:, 1]) ** 2
    window /= -2 * np.float32(width) ** 2
    # Products with subnormal numbers take ten times as long.
    np.copyto(window, -np.inf, where=window < FAR)
    return np.exp(window, out=window)


def strongest(weights: Array, count: int) -> csr_array:
    """Return only the largest `count` weights of each row, scaled to sum to 1; sparse, same shape."""
    n, columns = weights.shape
    count = min(count, columns)
    chosen = np.sort(np.argpartition(-weights, count - 1, axis=1)[:, :count], axis=1)
    values = np.take_along_axis(weights, chosen, axis=1).astype(np.float64)
    values /= values.sum(axis=1, keepdims=True)
    return csr_array((values.ravel(), chosen.ravel(), np.arange(n + 1) * count), shape=(n, columns))
