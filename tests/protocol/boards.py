"""A published map of three groups, and records of a group, for tests of placing."""

from __future__ import annotations

import numpy as np

from dpfedvis.numerics.exact import Grid
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace


def board_of(anchors=40, shift=(0.0, 0.0), seed=0):
    """Three groups of anchors in the plane of the second and fourth of five features, and in three parts of the map."""
    rng = np.random.default_rng(seed)
    axes = np.zeros((5, 2))
    axes[1, 0] = axes[3, 1] = 1.0
    subspace = Subspace(np.full(5, 0.5), axes, np.array([30.0, 30.0]), Grid.of_norm(128.0, 5))
    groups = np.arange(anchors) % 3
    points = 8.0 * np.array([(0, 0), (1, 0), (0, 1)])[groups] + rng.normal(size=(anchors, 2))
    places = 20.0 * np.array([(-1, -1), (1, 0), (0, 1)])[groups] + rng.normal(size=(anchors, 2))
    return PublishedMap(subspace, points.astype(np.float32), places + shift, 3), groups


def records_of(published, group, n=30, seed=1):
    rng = np.random.default_rng(seed)
    Z = 8.0 * np.array([(0, 0), (1, 0), (0, 1)])[group] + rng.normal(size=(n, 2))
    return (published.subspace.points(Z) + 0.1 * rng.normal(size=(n, 5)) * [1, 0, 1, 0, 1]).astype(np.float32)
