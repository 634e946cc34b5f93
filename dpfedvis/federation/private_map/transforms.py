"""How openTSNE and umap place new records in a map that is there, for clients that do it at home."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from accounting import checks
from dpfedvis.federation.private_map.published_map import PublishedMap
from dpfedvis.numerics.kernels import Array

UMAP_SIDE = 10.0  # what umap scales every start to


@dataclass(frozen=True)
class ByTransform:
    """openTSNE's `transform`: each record finds its place among fixed anchors, by itself.

    Parameters
    ----------
    perplexity : float
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
    """umap's `transform`: records are pulled to their nearest anchors and pushed off others, and the anchors stay.

    Records do not push each other, but umap weighs the pull of each against the strongest of all.

    Parameters
    ----------
    neighbors : int
        Lowered where there are fewer other anchors.
    min_dist : float
    """

    neighbors: int = 15
    min_dist: float = 0.1

    def __post_init__(self) -> None:
        checks.at_least("neighbors", self.neighbors, 2)
        checks.nonnegative("min_dist", self.min_dist)

    def __call__(self, published: PublishedMap, records: Array) -> Array:
        """Place all records of one client."""
        # umap's forces have a unit of length, and the published map is as large as clients' own layouts need.
        unit = float(np.ptp(published.places, axis=0).max()) / UMAP_SIDE or 1.0
        places = (published.places / unit).astype(np.float32)
        with warnings.catch_warnings():
            # Told that a part of umap which is not used here lacks TensorFlow, and of records far from all anchors.
            warnings.filterwarnings("ignore", module="umap")
            from umap import UMAP

            # It learns the anchors' graph; a layout of its own would be thrown away.
            layout = UMAP(
                n_neighbors=min(self.neighbors, len(published.anchors) - 1),
                min_dist=self.min_dist,
                init=places,
                n_epochs=0,
                random_state=published.seed,
                transform_seed=published.seed,
                n_jobs=1,  # what umap takes with a seed, said here so that it need not warn
            ).fit(published.anchors)
            layout.embedding_, layout.n_epochs = places, None
            placed = layout.transform(published.subspace.coordinates(records))
        return np.array(placed, dtype=np.float64) * unit
