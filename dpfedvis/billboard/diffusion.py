"""A client's own neighbours carry what is known of one record to others like it, before any of them is placed.

A record's nearest anchors in the subspace are a coarse answer: the subspace is small and the anchors are noisy. The
client knows its records whole, and which of them are alike. So it lets the answers spread along its own graph of
neighbours, as in label spreading (Zhou et al. 2004), with anchors for labels. All of it stays at home.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from dpfedvis.kernels import Array, block_rows

OWN_COMPONENTS = 40
EVENING = 0.125  # power of the variance that each own component is divided by


def likeness(records: Array) -> Array:
    """Return coordinates in which a client compares its own records: its leading principal components, evened a little.

    Components of small variance are mostly noise, and of the others the largest would decide alone. Each is divided by
    λ^`EVENING`, with λ its variance. It is the client's own affair: nobody else learns these components.

    Parameters
    ----------
    records : array of shape (n, m), n ≥ 2

    Returns
    -------
    array of shape (n, min(n, m, OWN_COMPONENTS)), float32
    """
    from sklearn.decomposition import PCA

    points = records.astype(np.float32, copy=False)
    if not np.ptp(points, axis=0).any():
        return points
    found = PCA(min(*points.shape, OWN_COMPONENTS), random_state=0).fit(points)
    relative = found.explained_variance_ / found.explained_variance_[0]
    evened: Array = found.transform(points) / np.maximum(relative, 1e-12) ** EVENING
    return evened.astype(np.float32)


def diffuse(to_anchors: csr_array, among: csr_array, keep: float, steps: int) -> Array:
    """Return A of A ← keep · P A + (1 − keep) A⁰ after so many steps.

    Parameters
    ----------
    to_anchors : sparse array of shape (n, k)
        A⁰: weights of each record's anchors; rows sum to 1.
    among : sparse array of shape (n, n)
        Weights of each record's neighbours; made symmetric here, and P its rows scaled to sum to 1.
    keep : float
        In (0, 1): how far an answer travels.
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
    """Return where on the map each record's weights are densest: at one of the anchors first, then by mean shift.

    The mean would lie between the regions that the weights point to, where nothing belongs.

    Parameters
    ----------
    weights : array of shape (n, k)
        At least 0, and not all 0 in any row.
    places : array of shape (k, 2)
    width : float
        Of the Gaussian window.
    steps : int
        Of the mean shift.

    Returns
    -------
    array of shape (n, 2), float64
    """
    points = places.astype(np.float32)
    around = _window(points, points, width)
    settled = np.empty((len(weights), 2))
    rows = block_rows(len(weights), len(points), points.itemsize)
    for start in range(0, len(weights), rows):
        part = weights[start : start + rows].astype(np.float32, copy=False)
        centre = points[np.argmax(part @ around, axis=1)]
        for _ in range(steps):
            near = _window(centre, points, width)
            near *= part
            centre = (near @ points) / near.sum(axis=1, keepdims=True)
        settled[start : start + rows] = centre
    return settled


def nearby(weights: Array, places: Array, settled: Array, width: float) -> Array:
    """Return the weights times a Gaussian window around where each record has settled, shape (n, k).

    Weights that point elsewhere would pull a record out of the region that most of them point to.

    Parameters
    ----------
    weights : array of shape (n, k)
    places : array of shape (k, 2)
    settled : array of shape (n, 2)
    width : float
    """
    kept: Array = weights * _window(settled.astype(np.float32), places.astype(np.float32), width)
    return kept


def _window(centres: Array, points: Array, width: float) -> Array:
    """exp(−d²/(2 width²)) between centres and points, shape (centres, points)."""
    window: Array = (centres[:, :1] - points[:, 0]) ** 2
    window += (centres[:, 1:] - points[:, 1]) ** 2
    window /= -2 * np.float32(width) ** 2
    return np.exp(window, out=window)


def strongest(weights: Array, count: int) -> csr_array:
    """Return the largest weights of each row only, scaled to sum to 1; sparse, of the same shape."""
    n, columns = weights.shape
    count = min(count, columns)
    chosen = np.sort(np.argpartition(-weights, count - 1, axis=1)[:, :count], axis=1)
    values = np.take_along_axis(weights, chosen, axis=1).astype(np.float64)
    values /= values.sum(axis=1, keepdims=True)
    return csr_array((values.ravel(), chosen.ravel(), np.arange(n + 1) * count), shape=(n, columns))
