"""Centres of clusters."""

from __future__ import annotations

import numpy as np

from dpfedvis.numerics.spectral import cluster_centres


def test_a_point_of_weight_w_counts_as_w_points():
    rng = np.random.default_rng(0)
    points = np.repeat([(0.0, 0.0), (10.0, 0.0), (0.0, 10.0)], 8, axis=0) + rng.normal(size=(24, 2))
    weights = rng.integers(1, 5, len(points))
    weighted, repeated, alike = (
        np.sort(cluster_centres(*each), axis=0)
        for each in (
            (points, 3, 10, 0, weights.astype(float)),
            (np.repeat(points, weights, axis=0), 3, 10, 0),
            (points, 3, 10, 0),
        )
    )
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)
    assert np.abs(weighted - alike).max() > 0.01
