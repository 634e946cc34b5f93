"""Layouts: from estimated distances to places in the plane. One frozen dataclass each; `LAYOUTS` knows them by name.

A layout is the plug-in point of maps. Its fields are the settings of the map: command line, TOML and Python read their
names, types and defaults from it, and their help from the first sentence of its docstring's `Parameters`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from dpfedvis.numerics.distances import DistanceEstimate, GramDistances
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.neighbors import Method, Neighbors, nearest, nearest_to

# Called with the name of a stage, how many parts of it are done, and how many there are.
Progress = Callable[[str, int, int], None]
LEAST_PERPLEXITY = 1.0  # below it a record has no neighbours to speak of
LARGEST_MIN_DIST = 10.0  # the side of umap's maps
_UMAP_SIDE = 10.0  # what umap scales every start to


@dataclass(frozen=True)
class Task:
    """How to lay out, apart from what the map looks like.

    Parameters
    ----------
    seed : int
    jobs : int
        Threads; they change no result.
    search : {"auto", "exact", "approximate"}
        How neighbours are searched.
    progress : callable, optional
    """

    seed: int = 0
    jobs: int = 1
    search: Method = "auto"
    progress: Progress | None = None


@dataclass(frozen=True, eq=False)
class LaidOut:
    """A map of records.

    Parameters
    ----------
    places : array of shape (n, 2)
    neighbors : Neighbors
        The graph that it was made from.
    place : callable
        Places of records that come later, shape (q, 2), from their short vectors of the distance estimate.
    """

    places: Array
    neighbors: Neighbors
    place: Callable[[Array], Array]


class Layout(Protocol):
    """The plug-in point of maps.

    Attributes
    ----------
    name : str
        Short name, as on the command line.
    title : str
        What its map is called on pages.
    refinement : mapping
        Arguments of `dpfedvis.federation.private_map.Anchored` with which clients place records in such a map at home.
    threads : bool
        Whether clients may place records in several threads at once.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    refinement: ClassVar[Mapping[str, Any]]
    threads: ClassVar[bool]

    def lay_out(self, estimate: DistanceEstimate, task: Task) -> LaidOut:
        """Lay out records by their estimated distances."""

    def lay_out_anchors(self, anchors: Array, seed: int) -> Array:
        """Return places of the anchors of a private map, shape (k, 2), from their points, shape (k, d)."""

    def place_among(self, anchors: Array, places: Array, points: Array, seed: int) -> Array:
        """Return places of points, shape (n, 2), among anchors that stay where they are."""


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

    def lay_out(self, estimate: DistanceEstimate, task: Task) -> LaidOut:
        """Lay out records by their estimated distances."""
        from openTSNE import TSNE, affinity, initialization

        k = min(len(estimate.left) - 1, int(3 * self.perplexity))
        neighbors = nearest(estimate, k, method=task.search, seed=task.seed)
        affinities = affinity.PerplexityBasedNN(
            perplexity=min(self.perplexity, k / 3), knn_index=_index(estimate, neighbors), n_jobs=task.jobs
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

        def place(queries: Array) -> Array:
            # Perplexity 5 and openTSNE's own schedule: its advice for new points among fixed ones.
            perplexity = min(5.0, self.perplexity, len(layout) / 3)
            return np.array(layout.transform(queries, perplexity=perplexity), dtype=np.float64)

        return LaidOut(np.array(layout, dtype=np.float64), neighbors, place)

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
        checks.between("min_dist", self.min_dist, 0.0, LARGEST_MIN_DIST)

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
        return LaidOut(places, neighbors, lambda queries: self._place(estimate, places, queries))

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


LAYOUTS: dict[str, type[Layout]] = {
    "tsne": TSNELayout,
    "umap": UMAPLayout,
}


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


def _index(estimate: DistanceEstimate, neighbors: Neighbors) -> Any:
    """Our neighbours in openTSNE's terms, also for records that come later."""
    from openTSNE.nearest_neighbors import KNNIndex  # takes a second to import

    class Index(KNNIndex):  # type: ignore[misc]  # openTSNE has no types
        def __init__(self) -> None:
            self.n_samples, self.k = neighbors.indices.shape

        def build(self) -> tuple[NDArray[np.int64], Array]:
            return neighbors.indices, neighbors.distances.astype(np.float64)

        def query(self, query: Array, k: int) -> tuple[NDArray[np.int64], Array]:
            found = nearest_to(estimate, np.asarray(query, dtype=np.float32), k)
            return found.indices, found.distances.astype(np.float64)

    return Index()
