"""Maps of federated records (Algorithm 2): what all layouts share, and FedMap for any of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from accounting import Budget
from accounting.errors import InvalidParameter
from accounting.events import Trust
from dpfedvis.data import FederatedData
from dpfedvis.estimators.base import FederatedEstimator, as_new_records
from dpfedvis.estimators.settings import DEFAULTS, DistanceName, EstimatorSettings, ReleaseMode
from dpfedvis.federation.checkpoint import SnapshotMismatch, read_or_make
from dpfedvis.federation.client import within
from dpfedvis.federation.feddl import NoiseName
from dpfedvis.federation.private_map import Placement, PublishedMap, placement
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.rows import DistanceRows, GramRows, Rows
from dpfedvis.numerics.distances import (
    DistanceEstimate,
    GramDistances,
    NystromDistances,
    gram_frame,
    nystrom_factor,
)
from dpfedvis.numerics.kernels import Array, squared_distances
from dpfedvis.numerics.layouts import LaidOut, Layout, Task
from dpfedvis.numerics.neighbors import Method

# Fewer have no spectral start in two dimensions.
LEAST_RECORDS = 4


class FederatedMap(FederatedEstimator):
    """Landmarks → rows → distances → layout, or landmarks → published map → records placed at home."""

    def fit(self, fed: FederatedData, y: None = None) -> Self:
        """Learn landmarks; then release rows and lay out the map, or publish a map, as `release` says."""
        fed = self._resolve(fed)
        budget = self.settings_.budget
        # Where their number is private, to refuse it would tell it.
        if (budget is None or not budget.hides_records) and fed.n_records < LEAST_RECORDS:
            raise InvalidParameter("number of records", fed.n_records, f"at least {LEAST_RECORDS} for a map")
        if self.settings_.release == "none":
            return self._fit_private(fed)
        _ = self.settings_.recipe  # raises for settings that only a private map has
        rows = self._rows(0.0)
        self._learn(fed, rows)
        self.noise_ = self._row_noise(rows)
        self._frame = self._make_frame()
        uploads = self._release(self._rows(self.noise_), self.feddl_.clients, self._outbox)
        left = np.concatenate([self._represent(upload) for upload in uploads])
        self.distances_: DistanceEstimate = (
            GramDistances(left) if self.settings_.distances == "gram" else NystromDistances(left, self._signs)
        )
        self.embedding_ = self.lay_out(self.distances_)
        return self

    def lay_out(self, estimate: DistanceEstimate) -> Array:
        """Return the map of records from their distances, shape (n, 2)."""
        settings = self.settings_ if hasattr(self, "settings_") else self.settings()
        task = Task(settings.seed, self._threads(settings), settings.search, self._progress)
        self._laid_out: LaidOut = settings.layout.lay_out(estimate, task)
        self.neighbors_ = self._laid_out.neighbors
        return self._laid_out.places

    @staticmethod
    def _threads(settings: EstimatorSettings) -> int:
        """More threads than cores gain nothing, and very many crash openTSNE."""
        return min(settings.jobs, os.cpu_count() or 1) if settings.layout.threads else 1

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
        if self.settings_.release == "none":
            return self.at_home(self.published_map_, within(records))
        uploads = self._release(self._rows(self.noise_), [self._newcomer(records, name)])
        return self._laid_out.place(self._represent(uploads[0]))

    def _rows(self, noise: float) -> Rows:
        # The Gram coordinates are projected at home when they are to carry noise; otherwise distances, as in the paper.
        noisy = self.settings_.distances == "gram" and self.settings_.release == "noisy"
        return GramRows(noise) if noisy else DistanceRows()

    def _make_frame(self) -> Any:
        Y = self.landmarks_.astype(np.float64)
        W = np.sqrt(squared_distances(Y, Y))
        if self.settings_.distances == "gram":
            return None if self.settings_.release == "noisy" else gram_frame(W)
        matrix, signs = nystrom_factor(W, rank=self.settings_.rank, ridge=self.settings_.ridge)
        self._signs = signs.astype(np.float32)
        return matrix

    def _represent(self, rows: Array) -> Array:
        """Turn released rows into the short vectors of the distance estimate, float32."""
        if self.settings_.distances == "nystrom":
            return np.asarray(rows @ self._frame, dtype=np.float32)
        if self._frame is None:
            return np.asarray(rows, dtype=np.float32)
        coordinates: Array = self._frame.coordinates(rows)
        return coordinates

    def _fit_private(self, fed: FederatedData) -> Self:
        """Learn and publish the landmarks' map; each client then places its own records."""
        settings = self.settings_
        if settings.budget is None:
            raise InvalidParameter("budget", None, "given for release='none'")
        recipe, layout, place = settings.recipe, settings.layout, self.at_home
        recipe.check(fed)
        # One absurd value must not stop a client, at any stage: that alone would tell that it is there.
        fed = fed.transformed(within)
        learner = recipe.learner(
            budget=settings.budget,
            mechanism=self._mechanism,
            landmarks=settings.landmarks,
            rounds=settings.rounds,
            tau_x=settings.tau_x,
            noise=settings.chosen_noise(fed),
            seed=settings.seed,
            further=settings.feddl,
        )
        self._claim(fed)
        learned = learner.run(fed, **self._watched)
        self._keep(fed, learned.feddl)
        self._remarks = learner.remarks(learned)
        self.landmarks_ = learned.subspace.points(learned.feddl.landmarks)
        anchors = recipe.anchored_points(learned, learner.records_a_client(fed), settings.seed)
        # Kept, since a density is counted on it.
        frame = read_or_make(
            self._checkpoint and self._checkpoint / "published_map.npz",
            lambda: {
                "anchors": anchors,
                "places": recipe.scaled(layout.lay_out_anchors(anchors, settings.seed), learner.records_a_client(fed)),
                "layout": np.array(repr(layout)),
            },
        )
        if (made := str(frame.pop("layout"))) != repr(layout):
            raise SnapshotMismatch(f"the map is published already, as {made}; resume without another layout")
        self.published_map_ = PublishedMap(learned.subspace, **frame, seed=settings.seed)
        self.embedding_ = np.concatenate(self._placed(place, [client.X for client in fed.clients]))
        self.density_ = recipe.count(learner, learned, self.published_map_, fed) if recipe.density else None
        return self

    def _placed(self, place: Placement, records: list[Array]) -> list[Array]:
        """Let each client place its own records; several at a time, which changes nothing."""

        def at_client(own: Array) -> Array:
            return place(self.published_map_, own) if len(own) else np.empty((0, 2))

        placed: list[Array] = []
        self._tick("placement at home", 0, len(records))
        threads = ThreadPoolExecutor(self._threads(self.settings_))
        try:
            for places in threads.map(at_client, records):
                placed.append(places)
                self._tick("placement at home", len(placed), len(records))
        finally:
            threads.shutdown(cancel_futures=True)
        return placed

    @property
    def at_home(self) -> Placement:
        """How a client places its own records in a published map."""
        settings = self.settings_ if hasattr(self, "settings_") else self.settings()
        return placement(settings.recipe.placement, settings.layout)


class FedMap(FederatedMap):
    """A map by any layout.

    Parameters
    ----------
    layout : Layout or str
        See `dpfedvis.numerics.layouts`.
    n_landmarks, mechanism, budget, release, distances, rounds, random_state, trust, noise, release_share, tau_x, rank,
    ridge, search, n_jobs, feddl, private_map
        As in `FedTSNE`.
    """

    def __init__(
        self,
        layout: Layout | str = DEFAULTS.map,
        n_landmarks: int | None = DEFAULTS.landmarks,
        mechanism: Mechanism | str | None = DEFAULTS.mechanism,
        budget: Budget | None = None,
        release: ReleaseMode | None = DEFAULTS.release,
        distances: DistanceName = DEFAULTS.distances,
        rounds: int = DEFAULTS.rounds,
        random_state: int = DEFAULTS.seed,
        trust: Trust = DEFAULTS.trust,
        noise: NoiseName | None = DEFAULTS.noise,
        release_share: float = DEFAULTS.release_share,
        tau_x: float | None = DEFAULTS.tau_x,
        rank: int | None = DEFAULTS.rank,
        ridge: float = DEFAULTS.ridge,
        search: Method = DEFAULTS.search,
        n_jobs: int = DEFAULTS.jobs,
        feddl: Mapping[str, Any] | None = None,
        private_map: Mapping[str, Any] | None = None,
    ) -> None:
        self.layout = layout
        self.n_landmarks = n_landmarks
        self.mechanism = mechanism
        self.budget = budget
        self.release = release
        self.distances = distances
        self.rounds = rounds
        self.random_state = random_state
        self.trust = trust
        self.noise = noise
        self.release_share = release_share
        self.tau_x = tau_x
        self.rank = rank
        self.ridge = ridge
        self.search = search
        self.n_jobs = n_jobs
        self.feddl = feddl
        self.private_map = private_map
