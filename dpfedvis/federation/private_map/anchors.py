"""Anchors: the points of the published map that stand for the landmarks. All of it is post-processing."""

from __future__ import annotations

import numpy as np

from dpfedvis.federation.private_map.subspace import Subspace
from dpfedvis.numerics.kernels import Array

SPREAD = 0.5  # of the standard deviation around a landmark


def spread_out(landmarks: Array, subspace: Subspace, count: int, generator: np.random.Generator) -> Array:
    """Return points that follow the data as the landmarks do, but more of them and less regular.

    A map of few landmarks has no gaps between groups: t-SNE spreads them evenly. So each becomes several points around
    it, with a part of the variance that the landmarks leave of the data's.

    Parameters
    ----------
    landmarks : array of shape (n_y, d)
    subspace : Subspace
    count : int
        Points to make, at least n_y.
    generator : numpy.random.Generator
        Public.

    Returns
    -------
    array of shape (count, d), float32
    """
    left = np.maximum(subspace.variances - landmarks.var(axis=0), 0.1 * subspace.variances)
    origins = landmarks[np.arange(count) % len(landmarks)]
    points: Array = origins + SPREAD * np.sqrt(left) * generator.standard_normal(origins.shape)
    return points.astype(np.float32)
