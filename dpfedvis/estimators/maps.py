"""What Fed-tSNE and Fed-UMAP share: from federated data to something that can be laid out."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.estimators.base import FederatedEstimator, ReleaseMode, as_new_records
from dpfedvis.federation.checkpoint import read_or_make
from dpfedvis.federation.client import LARGEST_NORM
from dpfedvis.federation.private_map import Anchored, ByTransform, Placement, PublishedMap, Recipe, placement
from dpfedvis.mechanisms import Mechanism, mechanism
from dpfedvis.mechanisms.rows import DistanceRows, GramRows, Rows
from dpfedvis.numerics.distances import (
    DistanceEstimate,
    GramDistances,
    NystromDistances,
    gram_frame,
    nystrom_factor,
)
from dpfedvis.numerics.kernels import Array, squared_distances
from dpfedvis.numerics.neighbors import Method
from dpfedvis.numerics.projections import clip_norms

# Fewer have no spectral start in two dimensions.
LEAST_RECORDS = 4


class FederatedMap(FederatedEstimator):
    """Landmarks → rows → distances → neighbours, or landmarks → published map; t-SNE and UMAP lay out differently."""

    distances: Literal["gram", "nystrom"]
    rank: int | None
    ridge: float
    neighbors: Method
    private_map: Mapping[str, Any] | None

    _anchored: ClassVar[Placement] = Anchored()

    def fit(self, fed: FederatedData, y: None = None) -> Self:
        """Learn landmarks; then release rows and lay out the map, or publish a private map, as `release` says."""
        self._check_data(fed)
        if fed.n_records < LEAST_RECORDS:
            raise InvalidParameter("number of records", fed.n_records, f"at least {LEAST_RECORDS} for a map")
        if self._mode == "none":
            return self._fit_private(fed)
        rows = self._rows(0.0)
        self._learn(fed, rows)
        self.noise_ = self._row_noise(rows)
        self._frame = self._make_frame()
        uploads = self._release(self._rows(self.noise_), self.feddl_.clients, self._outbox)
        left = np.concatenate([self._represent(upload) for upload in uploads])
        self.distances_: DistanceEstimate = (
            GramDistances(left) if self.distances == "gram" else NystromDistances(left, self._signs)
        )
        self.embedding_ = self.lay_out(self.distances_)
        return self

    def fit_transform(self, fed: FederatedData, y: None = None) -> Array:
        """Fit, and return the map of all records in the order of the clients, shape (n, 2)."""
        return self.fit(fed).embedding_

    def views(self) -> dict[str, Array]:
        """Return each client's part of the map, by name."""
        check_is_fitted(self, "embedding_")
        return self._by_client(self.embedding_)

    def transform(self, X: Any, name: str = "newcomer") -> Array:
        """Place the records of a client that joins later.

        It releases rows as the others did, and they are accounted for under its name; with ``release="none"`` it
        places itself in the published map, and nothing is released or spent.

        Parameters
        ----------
        X : array of shape (n, m)
        name : str

        Returns
        -------
        array of shape (n, 2)
        """
        check_is_fitted(self, "embedding_")
        records = as_new_records(X, self.landmarks_.shape[1])
        if self._mode == "none":
            return self.at_home(self.published_map_, clip_norms(records, LARGEST_NORM))
        uploads = self._release(self._rows(self.noise_), [self._newcomer(records, name)])
        return self._place(self._represent(uploads[0]))

    def _rows(self, noise: float) -> Rows:
        checks.one_of("distances", self.distances, ("gram", "nystrom"))
        # The Gram coordinates are projected at home when they are to carry noise; otherwise distances, as in the paper.
        noisy = self.distances == "gram" and self._mode == "noisy"
        return GramRows(noise) if noisy else DistanceRows()

    def _make_frame(self) -> Any:
        Y = self.landmarks_.astype(np.float64)
        W = np.sqrt(squared_distances(Y, Y))
        if self.distances == "gram":
            return None if self._mode == "noisy" else gram_frame(W)
        matrix, signs = nystrom_factor(W, rank=self.rank, ridge=self.ridge)
        self._signs = signs.astype(np.float32)
        return matrix

    def _represent(self, rows: Array) -> Array:
        """Turn released rows into the short vectors of the distance estimate, float32."""
        if self.distances == "nystrom":
            return np.asarray(rows @ self._frame, dtype=np.float32)
        if self._frame is None:
            return np.asarray(rows, dtype=np.float32)
        coordinates: Array = self._frame.coordinates(rows)
        return coordinates

    @property
    def _mode(self) -> ReleaseMode:
        if self.release is not None:
            return self.release
        private = self.budget is not None and self.budget.scope == "end-to-end"
        protects = self.mechanism is None or mechanism(self.mechanism).protection == "upload"
        return "none" if private and protects else "exact"

    @property
    def _chosen(self) -> Mechanism:
        default = "k-means" if self._mode == "none" else "gradient"
        return mechanism(default if self.mechanism is None else self.mechanism)

    def _fit_private(self, fed: FederatedData) -> Self:
        """Learn and publish the landmarks' map; each client then places its own records."""
        if self.budget is None:
            raise InvalidParameter("budget", None, "given for release='none'")
        recipe, place = self.recipe, self.at_home
        recipe.check(fed)
        # One absurd value must not stop a client, at any stage: that alone would tell that it is there.
        fed = fed.clip(LARGEST_NORM)
        further = {**(self.feddl or {})}
        learner = recipe.learner(
            budget=self.budget,
            mechanism=self._chosen,
            landmarks=self.n_landmarks,
            rounds=self.rounds,
            tau_x=self.tau_x,
            seed=self.random_state,
            further=further,
        )
        self._claim(fed)
        learned = learner.run(fed, **self._watched)
        self._keep(fed, learned.feddl)
        self._remarks = learner.remarks(learned)
        self.landmarks_ = learned.subspace.points(learned.feddl.landmarks)
        anchors = recipe.anchored_points(learned, learner.records_a_client(fed), self.random_state)
        # Kept, since a density is counted on it.
        frame = read_or_make(
            self._checkpoint and self._checkpoint / "published_map.npz",
            lambda: {
                "anchors": anchors,
                "places": recipe.scaled(self.lay_out_anchors(anchors), learner.records_a_client(fed)),
            },
        )
        self.published_map_ = PublishedMap(learned.subspace, **frame, seed=self.random_state)
        self.embedding_ = np.concatenate(self._placed(place, [client.X for client in fed.clients]))
        self.density_ = recipe.count(learner, learned, self.published_map_, fed) if recipe.density else None
        return self

    def _placed(self, place: Placement, records: list[Array]) -> list[Array]:
        """Let each client place its own records; several at a time, which changes nothing."""
        placed: list[Array] = []
        self._tick("placement at home", 0, len(records))
        threads = ThreadPoolExecutor(self._threads)
        try:
            for places in threads.map(partial(place, self.published_map_), records):
                placed.append(places)
                self._tick("placement at home", len(placed), len(records))
        finally:
            threads.shutdown(cancel_futures=True)
        return placed

    @property
    def _threads(self) -> int:
        return 1

    @property
    def recipe(self) -> Recipe:
        """How a budget becomes a map, from the settings in `private_map`."""
        try:
            return Recipe(**(self.private_map or {}))
        except TypeError as error:
            raise InvalidParameter("private_map", self.private_map, f"settings of Recipe: {error}") from error

    @property
    def at_home(self) -> Placement:
        """How a client places its own records in a published map."""
        return placement(self.recipe.placement, self._anchored, self._transform)

    @property
    def _transform(self) -> Placement:
        return ByTransform()

    # What t-SNE and UMAP do each in their own way.

    def lay_out_anchors(self, anchors: Array) -> Array:
        """Return the map of the anchors, shape (k, 2)."""
        raise NotImplementedError

    def lay_out(self, estimate: DistanceEstimate) -> Array:
        """Return the map of all records from their estimated distances, shape (n, 2)."""
        raise NotImplementedError

    def _place(self, queries: Array) -> Array:
        """Return places of records that come later, shape (q, 2)."""
        raise NotImplementedError
