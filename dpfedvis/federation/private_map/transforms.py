"""Placement by the `transform` of openTSNE and umap."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from accounting import checks
from dpfedvis.federation.private_map.published_map import PublishedMap
from dpfedvis.numerics.kernels import Array

UMAP_SIDE = 10.0  # umap scales every initial layout to this side


@dataclass(frozen=True)
class ByTransform:
    """openTSNE's `transform`: places each record on its own among fixed anchors.

    Parameters
    ----------
    perplexity : float
        Perplexity of the anchors' weights.
    """

    perplexity: float = 5.0

    def __call__(self, published: PublishedMap, records: Array) -> Array:
        """Place each record by itself."""
        from openTSNE import TSNEEmbedding, affinity

        perplexity = min(self.perplexity, (len(published.anchors) - 1) / 3)
        known = affinity.PerplexityBasedNN(published.anchors, perplexity=perplexity, n_jobs=1, method="exact")
        layout = TSNEEmbedding(published.places.copy(), known, n_jobs=1, random_state=published.seed)
        points = published.subspace.coordinates(records)
        return np.array(layout.transform(points, perplexity=perplexity), dtype=np.float64)


@dataclass(frozen=True)
class ByUMAPTransform:
    """umap's `transform`: fixed anchors attract their nearest records and repel others.

    Records do not repel each other, but umap scales the attraction of each by the strongest of all.

    Parameters
    ----------
    neighbors : int
        Number of nearest anchors; fewer if there are fewer anchors.
    min_dist : float
        umap's `min_dist`.
    """

    neighbors: int = 15
    min_dist: float = 0.1

    def __post_init__(self) -> None:
        checks.at_least("neighbors", self.neighbors, 2)
        checks.nonnegative("min_dist", self.min_dist)

    def __call__(self, published: PublishedMap, records: Array) -> Array:
        """Place all records of one client."""
        # umap's forces depend on the unit of length, and the published map has its own.
        unit = float(np.ptp(published.places, axis=0).max()) / UMAP_SIDE or 1.0
        places = (published.places / unit).astype(np.float32)
        with warnings.catch_warnings():
            # It warns about missing TensorFlow, not used here, and about records far from all anchors.
            warnings.filterwarnings("ignore", module="umap")
            from umap import UMAP

            # Only the anchors' graph is needed, so no epochs.
            layout = UMAP(
                n_neighbors=min(self.neighbors, len(published.anchors) - 1),
                min_dist=self.min_dist,
                init=places,
                n_epochs=0,
                random_state=published.seed,
                transform_seed=published.seed,
                n_jobs=1,  # umap uses one job with a seed, and warns otherwise
            ).fit(published.anchors)
            layout.embedding_, layout.n_epochs = places, None
            placed = layout.transform(published.subspace.coordinates(records))
        return np.array(placed, dtype=np.float64) * unit
