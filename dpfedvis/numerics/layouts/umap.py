"""The layout of UMAP, by umap-learn."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from accounting import checks
from dpfedvis.numerics.distances import DistanceEstimate, GramDistances
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.layouts.base import LaidOut, Task, check_further
from dpfedvis.numerics.neighbors import nearest, nearest_to

SPREAD = 1.0  # umap's own, which min_dist must not exceed
_UMAP_SIDE = 10.0  # what umap scales every start to


@dataclass(frozen=True)
class UMAPLayout:
    """UMAP by umap-learn.

    Parameters
    ----------
    neighbours : int
        Neighbours of a record; lowered to the number of records where there are fewer.
    min_dist : float
        Least distance of two records on the map, in umap's units.
    further : mapping
        Further settings of `umap.UMAP`.
    """

    neighbours: int = 15
    min_dist: float = 0.1
    further: Mapping[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "umap"
    title: ClassVar[str] = "Fed-UMAP map"
    # t-SNE with exaggeration 4 has the forces of UMAP (Böhm, Berens & Kobak 2022).
    refinement: ClassVar[Mapping[str, Any]] = {"exaggeration": 4.0, "exaggerated": 300, "plain": 0}
    threads: ClassVar[bool] = False  # numba's threads are not safe in ours

    def __post_init__(self) -> None:
        checks.at_least("neighbours", self.neighbours, 2)
        checks.between("min_dist", self.min_dist, 0.0, float(self.further.get("spread", SPREAD)))
        if self.further:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module="umap")  # told that a part of it lacks TensorFlow
                from umap import UMAP

            own = {"n_neighbors": "neighbours", "min_dist": "min_dist"}
            check_further("umap", self.further, UMAP, own)

    def lay_out(self, estimate: DistanceEstimate, task: Task) -> LaidOut:
        """Lay out records by their estimated distances."""
        n = len(estimate.left)
        k = min(n - 1, self.neighbours)
        neighbors = nearest(estimate, k, method=task.search, seed=task.seed)
        # umap counts a record among its own neighbours, first.
        indices = np.column_stack([np.arange(n), neighbors.indices])[:, :k]
        distances = np.column_stack([np.zeros(n, np.float32), neighbors.distances])[:, :k].astype(np.float32)
        settings = {
            "n_neighbors": k,
            "min_dist": self.min_dist,
            "random_state": task.seed,
            "n_jobs": 1,  # what umap takes with a seed, said here so that it need not warn
            **self.further,
        }
        with warnings.catch_warnings():
            # Told that a graph without an index cannot place new records (`place` does that without umap), and that
            # a part of umap which is not used here lacks TensorFlow.
            warnings.filterwarnings("ignore", module="umap")
            # Parts that nothing connects are laid out apart, as they should be.
            warnings.filterwarnings("ignore", message="Graph is not fully connected")
            from umap import UMAP

            layout = UMAP(**settings, precomputed_knn=(indices, distances)).fit_transform(estimate.left)
        places = np.asarray(layout, dtype=np.float64)
        return LaidOut(places, neighbors, partial(self._place, estimate, places))

    def _place(self, estimate: DistanceEstimate, places: Array, queries: Array) -> Array:
        """Weighted mean of the places of the nearest records, weights as in UMAP's graph: exp(−(d − d₁)/scale)."""
        found = nearest_to(estimate, queries, min(self.neighbours, len(places)))
        beyond = found.distances - found.distances[:, :1]
        weights = np.exp(-beyond / np.maximum(beyond.mean(axis=1, keepdims=True), 1e-12))
        weights /= weights.sum(axis=1, keepdims=True)
        placed: Array = np.einsum("ij,ijk->ik", weights, places[found.indices])
        return placed

    def lay_out_anchors(self, anchors: Array, seed: int) -> Array:
        """Return places of the anchors of a private map."""
        return self.lay_out(GramDistances(anchors), Task(seed)).places

    def place_among(self, anchors: Array, places: Array, points: Array, seed: int) -> Array:
        """Place all records of one client by umap's `transform`.

        Records are pulled to their nearest anchors and pushed off others. They do not push each other, but umap weighs
        the pull of each against the strongest of all.
        """
        # umap's forces have a unit of length, and the published map is as large as clients' own layouts need.
        unit = float(np.ptp(places, axis=0).max()) / _UMAP_SIDE or 1.0
        fixed = (places / unit).astype(np.float32)
        with warnings.catch_warnings():
            # Told that a part of umap which is not used here lacks TensorFlow, and of records far from all anchors.
            warnings.filterwarnings("ignore", module="umap")
            from umap import UMAP

            # It learns the anchors' graph; a layout of its own would be thrown away.
            layout = UMAP(
                n_neighbors=min(self.neighbours, len(anchors) - 1),
                min_dist=self.min_dist,
                init=fixed,
                n_epochs=0,
                random_state=seed,
                transform_seed=seed,
                n_jobs=1,  # what umap takes with a seed, said here so that it need not warn
            ).fit(anchors)
            layout.embedding_, layout.n_epochs = fixed, None
            placed = layout.transform(points)
        return np.array(placed, dtype=np.float64) * unit
