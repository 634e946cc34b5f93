"""The layout of t-SNE, by openTSNE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from dpfedvis.numerics.distances import DistanceEstimate, GramDistances
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.layouts.base import LaidOut, Progress, Task, check_further
from dpfedvis.numerics.neighbors import Neighbors, nearest, nearest_to

LEAST_PERPLEXITY = 1.0  # below it a record has no neighbours to speak of


@dataclass(frozen=True)
class TSNELayout:
    """t-SNE by openTSNE.

    Parameters
    ----------
    perplexity : float
        Perplexity of t-SNE; lowered where there are fewer than 3·perplexity other records.
    further : mapping
        Further settings of `openTSNE.TSNE`.
    """

    perplexity: float = 30.0
    further: Mapping[str, Any] = field(default_factory=dict)

    name: ClassVar[str] = "tsne"
    title: ClassVar[str] = "Fed-tSNE map"
    refinement: ClassVar[Mapping[str, Any]] = {}
    threads: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.between("perplexity", self.perplexity, LEAST_PERPLEXITY, 1e6)
        if self.further:
            from openTSNE import TSNE

            check_further("tsne", self.further, TSNE, {"perplexity": "perplexity"})

    def lay_out(self, estimate: DistanceEstimate, task: Task) -> LaidOut:
        """Lay out records by their estimated distances."""
        from openTSNE import TSNE, affinity, initialization

        k = min(len(estimate.left) - 1, int(3 * self.perplexity))
        neighbors = nearest(estimate, k, method=task.search, seed=task.seed)
        affinities = affinity.PerplexityBasedNN(
            perplexity=min(self.perplexity, k / 3), knn_index=_Index(estimate, neighbors), n_jobs=task.jobs
        )
        settings = {"n_jobs": task.jobs, "random_state": task.seed, **self.further}
        start = settings.pop("initialization", None)
        if start is None and isinstance(estimate, GramDistances) and estimate.left.shape[1] > 1:
            start = _pca_start(estimate.left, task.seed)
        elif start is None:
            # Without two coordinates there is no PCA to start from.
            start = initialization.spectral(affinities.P, random_state=task.seed, tol=1e-2)
        layout = TSNE(**_counted(settings, task.progress)).fit(affinities=affinities, initialization=start)
        layout.gradient_descent_params["callbacks"] = settings.get("callbacks")  # later records are not counted
        # openTSNE's `transform` centres the map's box in place. Done here, later records land in the map as shown.
        layout -= (layout.max(axis=0) + layout.min(axis=0)) / 2
        return LaidOut(np.array(layout, dtype=np.float64), neighbors, partial(self._place, layout))

    def _place(self, layout: Any, queries: Array) -> Array:
        # Perplexity 5 and openTSNE's own schedule: its advice for new points among fixed ones.
        perplexity = min(5.0, self.perplexity, len(layout) / 3)
        return np.array(layout.transform(queries, perplexity=perplexity), dtype=np.float64)

    def lay_out_anchors(self, anchors: Array, seed: int) -> Array:
        """Return places of the anchors of a private map."""
        from openTSNE import TSNE

        perplexity = min(self.perplexity, (len(anchors) - 1) / 3)
        common = {"initialization": _pca_start(anchors, seed), "n_jobs": 1, "random_state": seed, "neighbors": "exact"}
        layout = TSNE(**{**common, "perplexity": perplexity, **self.further}).fit(anchors)
        return np.array(layout, dtype=np.float64)

    def place_among(self, anchors: Array, places: Array, points: Array, seed: int) -> Array:
        """Place each record by itself, by openTSNE's `transform`."""
        from openTSNE import TSNEEmbedding, affinity

        perplexity = min(5.0, (len(anchors) - 1) / 3)
        known = affinity.PerplexityBasedNN(anchors, perplexity=perplexity, n_jobs=1, method="exact")
        layout = TSNEEmbedding(places.copy(), known, n_jobs=1, random_state=seed)
        return np.array(layout.transform(points, perplexity=perplexity), dtype=np.float64)


def _counted(settings: dict[str, Any], progress: Progress | None) -> dict[str, Any]:
    """Return settings with which openTSNE tells how far it is; its result is the same."""
    if progress is None or "callbacks" in settings:
        return settings
    every, calls = 50, count(1)  # iterations, openTSNE's own
    total = settings.get("early_exaggeration_iter", 250) // every + settings.get("n_iter", 500) // every
    progress("layout", 0, total)
    return {
        **settings,
        "callbacks_every_iters": every,
        "callbacks": lambda *_: progress("layout", next(calls), total),
    }


def _pca_start(points: Array, seed: int) -> Array:
    """Return the first two principal components, shape (n, 2); a random start where all points are one."""
    from openTSNE import initialization

    with np.errstate(divide="ignore", invalid="ignore"):
        start: Array = initialization.pca(points, random_state=seed)
    if not np.isfinite(start).all():
        start = initialization.random(len(points), random_state=seed)
    return start


@dataclass(frozen=True, eq=False)
class _Index:
    """Our neighbours as openTSNE's `KNNIndex` has them, also for records that come later."""

    estimate: DistanceEstimate
    neighbors: Neighbors

    @property
    def n_samples(self) -> int:
        return len(self.neighbors.indices)

    @property
    def k(self) -> int:
        return int(self.neighbors.indices.shape[1])

    def build(self) -> tuple[NDArray[np.int64], Array]:
        return self.neighbors.indices, self.neighbors.distances.astype(np.float64)

    def query(self, query: Array, k: int) -> tuple[NDArray[np.int64], Array]:
        found = nearest_to(self.estimate, np.asarray(query, dtype=np.float32), k)
        return found.indices, found.distances.astype(np.float64)
