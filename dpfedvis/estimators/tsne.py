"""Fed-tSNE (Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from accounting import Budget
from accounting.events import Trust
from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.estimators.maps import FederatedMap
from dpfedvis.estimators.settings import DEFAULTS, DistanceName, ReleaseMode
from dpfedvis.mechanisms import Mechanism
from dpfedvis.numerics.layouts import TSNELayout
from dpfedvis.numerics.neighbors import Method
from dpfedvis.server.feddl import NoiseName


class FedTSNE(FederatedMap):
    """Fed-tSNE on openTSNE.

    Parameters
    ----------
    n_landmarks : int, optional
        n_y; by default 500, or with ``release="none"`` as many as the noise allows.
    mechanism : Mechanism or str, optional
        How the landmarks are learned; see `dpfedvis.mechanisms`. By default ``"none"`` without a budget; with one,
        ``"k-means"`` where ``release="none"``, else ``"mean-embedding"``.
    budget : Budget, optional
        Without one nothing is protected: the paper's protocol, exact.
    epsilon : float, optional
        Short for a budget of this ε, for one record, with δ = 1e-5, or 1/(10 n) for more than 10,000 records.
    features : str, callable or path-like, optional
        Public features that each client maps its records by, at home: ``"hog"``, ``"hog:28x28"``, ``"l2"``, a function
        that maps each record by itself, or a file of vectors that are joined by the ids of the records.
    compare_features : optional
        The same, by which a client compares its own records when it places them.
    release : {"exact", "noisy", "none"}, optional
        What each client gives away of its records once the landmarks are there. Exact rows are the data: under an
        end-to-end budget they are refused. With ``"none"`` the server publishes the landmarks' map and each client
        places its own records at home. By default ``"none"`` under an end-to-end budget, else ``"exact"``.
    distances : {"gram", "nystrom"}
        Coordinates in the landmarks' affine span, or the paper's B W_k⁺ Bᵀ.
    rounds : int, optional
        S. By default 50; for gradients and local steps under a budget, as many as its noise allows.
    random_state : int
    perplexity : float
        Lowered, with openTSNE's rule, where there are fewer than 3·perplexity other records.
    trust : {"local", "aggregate", "central"}
        Who adds the noise. A mechanism given as an object has its own.
    threshold, colluders : int, optional
        For ``trust="aggregate"``: fewest clients t in a sum (all, or from five on all but a tenth), and clients c that
        may work together with the server (1): ε holds against them. 2t > P + c.
    retries : int
        For ``trust="aggregate"``, sums that may be repeated; budget is set aside for them.
    noise : {"seeded", "discrete"}, optional
        Seeded noise makes a fit a simulation: it can be taken off. By default seeded for arrays in memory and built-in
        data, and discrete, from the operating system, for data from a file.
    release_share : float
        Share of μ² for noisy rows; the landmarks get the rest.
    tau_x : float, optional
        Public bound on the norm of records; by default that of the public bounds of the data.
    rank, ridge
        k and λ of the paper's W_k⁺ and W + λI, for ``distances="nystrom"``.
    search : {"auto", "exact", "approximate"}
        How neighbours are searched.
    n_jobs : int
        Threads of openTSNE; with ``release="none"``, clients that place their records at the same time.
    feddl : mapping, optional
        Further settings of `dpfedvis.server.feddl.FedDL`, such as ``gamma`` and ``bounds``.
    private_map : mapping, optional
        Settings of the end-to-end private map, ``release="none"``; see `dpfedvis.server.recipe.Recipe`.
    tsne : mapping, optional
        Further settings of `openTSNE.TSNE`.

    Attributes
    ----------
    embedding_ : array of shape (n, 2)
        In the order of the clients; `views` gives each client's part. With ``release="none"`` no one but this
        simulation has it: in a real federation each client has its own part.
    published_map_, density_
        With ``release="none"``, what everybody sees.
    distances_, neighbors_
        The estimate and the graph that the map was made from.
    settings_ : EstimatorSettings
        With all choices made.
    landmarks_, ledger_, statement_, feddl_
    """

    _map: ClassVar[str] = TSNELayout.name
    _names: ClassVar[Mapping[str, str | tuple[str, str] | None]] = {
        **FederatedEstimator._names,
        "perplexity": ("tsne", "perplexity"),
        "tsne": ("tsne", "further"),
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
        perplexity: float = TSNELayout.perplexity,
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
        tsne: Mapping[str, Any] | None = None,
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
        self.perplexity = perplexity
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
        self.tsne = tsne
        self.epsilon = epsilon
        self.threshold = threshold
        self.colluders = colluders
        self.retries = retries
        self.features = features
        self.compare_features = compare_features
