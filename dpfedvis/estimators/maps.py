"""Maps of federated records (Algorithm 2): what all layouts share, and FedMap for any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from accounting import Budget
from accounting.errors import InvalidParameter
from accounting.events import Trust
from dpfedvis.data import FederatedData
from dpfedvis.estimators.base import ReleaseUnavailable
from dpfedvis.estimators.private_map import AT_SITES, PrivateMapEstimator
from dpfedvis.estimators.settings import DEFAULTS, DistanceName, ReleaseMode
from dpfedvis.mechanisms import Mechanism
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
from dpfedvis.server import Program
from dpfedvis.server.feddl import NoiseName
from dpfedvis.server.verdict import verdict_of_rows
from dpfedvis.site.views import checked_records

# Fewer have no spectral start in two dimensions.
LEAST_RECORDS = 4


class FederatedMap(PrivateMapEstimator):
    """Landmarks → rows → distances → layout, or landmarks → published map → records placed at home."""

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Learn landmarks; then release rows and lay out the map, or publish a map, as `release` says.

        Parameters
        ----------
        X : FederatedData, or array or data frame of shape (n, m)
        y : array of shape (n,), optional
            Labels of an array's records, for a density by class; with federated data it is ignored.
        groups : array of shape (n,), optional
            The client of each record of an array; by default there is one.
        """
        fed = self._resolve(X, y, groups)
        budget = self.settings_.budget
        # Where their number is private, to refuse it would tell it.
        public = budget is None or not budget.hides_records
        if public and fed.origin != "federation" and fed.n_records < LEAST_RECORDS:
            raise InvalidParameter("number of records", fed.n_records, f"at least {LEAST_RECORDS} for a map")
        if self.settings_.release == "none":
            return self._fit_private(fed)
        _ = self.settings_.recipe  # raises for settings that only a private map has
        self._check_release()
        published, _ = self._carry_out(fed, self._row_program(fed))
        self.noise_ = published.row_noise
        self._frame = self._make_frame()
        left = np.concatenate([self._represent(rows) for rows in published.rows])
        self.distances_: DistanceEstimate = (
            GramDistances(left) if self.settings_.distances == "gram" else NystromDistances(left, self._signs)
        )
        if self._mechanism.protection == "home":
            self.verdict_ = verdict_of_rows(self.distances_.left, self._noise_at_home)
        self.embedding_ = self._ordered(self.lay_out(self.distances_))
        return self

    @property
    def _noise_at_home(self) -> float:
        """Standard deviation of the noise in each value of a perturbed record, and so in each Gram coordinate."""
        return max(plan.sigma(0.0) for plan in self.feddl_.plans)

    def lay_out(self, estimate: DistanceEstimate) -> Array:
        """Return the map of records from their distances, shape (n, 2)."""
        settings = self.settings_ if hasattr(self, "settings_") else self.settings()
        task = Task(settings.seed, self._threads(settings), settings.search, self._progress)
        self._laid_out: LaidOut = settings.layout.lay_out(estimate, task)
        self.neighbors_ = self._laid_out.neighbors
        return self._laid_out.places

    def fit_transform(self, X: Any, y: Any = None, *, groups: Any = None) -> Array:
        """Fit, and return the map of all records, shape (n, 2): in the order of the clients, or of an array's rows."""
        if self._processes is not None and self.settings().chosen_release == "none":
            raise ReleaseUnavailable(AT_SITES)
        return self.fit(X, y, groups=groups).embedding_

    def views(self) -> dict[str, Array]:
        """Return each client's part of the map, by name."""
        if hasattr(self, "published_map_") and not hasattr(self, "embedding_"):
            raise ReleaseUnavailable(AT_SITES)
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
        records = self.new_records(X, name)
        if self.settings_.release == "none":
            return self.at_home(self.published_map_, checked_records(name, records))
        rows = self._newcomer(records, name, self._row_program(FederatedData([records])))
        return self._laid_out.place(self._represent(rows))

    def _row_program(self, fed: FederatedData) -> Program:
        # The Gram coordinates are projected at home when they are to carry noise; otherwise distances, as in the paper.
        noisy = self.settings_.distances == "gram" and self.settings_.release == "noisy"
        return self._program(fed, "gram" if noisy else "distance")

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


class FedMap(FederatedMap):
    """A map by any layout.

    Parameters
    ----------
    layout : Layout or str
        See `dpfedvis.numerics.layouts`.
    n_landmarks, mechanism, budget, epsilon, threshold, colluders, retries, features, compare_features, release,
    distances, rounds, random_state, trust, noise, release_share, tau_x, rank, ridge, search, n_jobs, feddl, private_map
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
        rounds: int | None = DEFAULTS.rounds,
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
        epsilon: float | None = None,
        threshold: int | None = DEFAULTS.threshold,
        colluders: int | None = DEFAULTS.colluders,
        retries: int = DEFAULTS.retries,
        features: Any = DEFAULTS.features,
        compare_features: Any = DEFAULTS.compare_features,
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
        self.epsilon = epsilon
        self.threshold = threshold
        self.colluders = colluders
        self.retries = retries
        self.features = features
        self.compare_features = compare_features
