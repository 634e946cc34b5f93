"""Fed-UMAP (Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from accounting import Budget
from accounting.events import Trust
from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.estimators.maps import FederatedMap
from dpfedvis.estimators.settings import DEFAULTS, DistanceName, ReleaseMode
from dpfedvis.mechanisms import Mechanism
from dpfedvis.numerics.layouts import UMAPLayout
from dpfedvis.numerics.neighbors import Method
from dpfedvis.server.feddl import NoiseName


class FedUMAP(FederatedMap):
    """Fed-UMAP on umap-learn.

    Parameters
    ----------
    n_neighbors : int
        Lowered to the number of records where there are fewer.
    min_dist : float
    umap : mapping, optional
        Further settings of `umap.UMAP`.
    n_landmarks, mechanism, budget, epsilon, threshold, colluders, retries, features, compare_features, release,
    distances, rounds, random_state, trust, noise, release_share, tau_x, rank, ridge, search, feddl, private_map
        As in `FedTSNE`.
    """

    _map: ClassVar[str] = UMAPLayout.name
    _names: ClassVar[Mapping[str, str | tuple[str, str] | None]] = {
        **FederatedEstimator._names,
        "n_neighbors": ("umap", "neighbours"),
        "min_dist": ("umap", "min_dist"),
        "umap": ("umap", "further"),
    }

    def __init__(
        self,
        n_landmarks: int | None = DEFAULTS.landmarks,
        mechanism: Mechanism | str | None = DEFAULTS.mechanism,
        budget: Budget | None = None,
        release: ReleaseMode | None = DEFAULTS.release,
        distances: DistanceName = DEFAULTS.distances,
        rounds: int | None = DEFAULTS.rounds,
        random_state: int = DEFAULTS.seed,
        n_neighbors: int = UMAPLayout.neighbours,
        min_dist: float = UMAPLayout.min_dist,
        trust: Trust = DEFAULTS.trust,
        noise: NoiseName | None = DEFAULTS.noise,
        release_share: float = DEFAULTS.release_share,
        tau_x: float | None = DEFAULTS.tau_x,
        rank: int | None = DEFAULTS.rank,
        ridge: float = DEFAULTS.ridge,
        search: Method = DEFAULTS.search,
        feddl: Mapping[str, Any] | None = None,
        private_map: Mapping[str, Any] | None = None,
        umap: Mapping[str, Any] | None = None,
        epsilon: float | None = None,
        threshold: int | None = DEFAULTS.threshold,
        colluders: int | None = DEFAULTS.colluders,
        retries: int = DEFAULTS.retries,
        features: Any = DEFAULTS.features,
        compare_features: Any = DEFAULTS.compare_features,
    ) -> None:
        self.n_landmarks = n_landmarks
        self.mechanism = mechanism
        self.budget = budget
        self.release = release
        self.distances = distances
        self.rounds = rounds
        self.random_state = random_state
        self.n_neighbors = n_neighbors
        self.min_dist = min_dist
        self.trust = trust
        self.noise = noise
        self.release_share = release_share
        self.tau_x = tau_x
        self.rank = rank
        self.ridge = ridge
        self.search = search
        self.feddl = feddl
        self.private_map = private_map
        self.umap = umap
        self.epsilon = epsilon
        self.threshold = threshold
        self.colluders = colluders
        self.retries = retries
        self.features = features
        self.compare_features = compare_features
