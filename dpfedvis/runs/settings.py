"""All settings of a run in one frozen object: from flags or a TOML file, and back to TOML in full."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from accounting import Budget
from accounting.budget import Adjacency, Scope, Unit
from accounting.errors import InvalidParameter
from accounting.events import Trust
from dpfedvis.errors import DpfedvisError
from dpfedvis.runs.settings_checks import CHECKS
from dpfedvis.runs.toml_files import read_toml, toml

if TYPE_CHECKING:
    from dpfedvis.data import Dataset, FederatedData
    from dpfedvis.data.checks import Missing
    from dpfedvis.estimators.base import FederatedEstimator, ReleaseMode
    from dpfedvis.estimators.clusters import Affinity
    from dpfedvis.mechanisms import Mechanism

MapName = Literal["tsne", "umap", "clusters"]
Sample = Literal["first", "random"]


class UnknownSetting(DpfedvisError):
    """A key that no run has."""

    def __init__(self, name: str) -> None:
        near = difflib.get_close_matches(name, [each.name for each in fields(RunConfig)], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        super().__init__(f"there is no setting {name!r}{hint}")
        self.name = name


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Settings of one run. What is None is chosen by `settled`, or by the library.

    Parameters
    ----------
    data : str
        Name of a data set, or a file.
    records : int, optional
        Take only so many.
    sample : {"first", "random"}
        Which: the first of the file, or any, by a permutation that follows from the seed and is public. Only then do
        the records that took no part differ from those that did by chance alone.
    label_column, client_column : str, optional
        Columns of a file.
    missing : {"refuse", "client-mean", "public-value"}
    clients : int, optional
    partition : str
        As in `dpfedvis.data.partition`: ``iid``, ``by-class``, ``classes:K``, ``dirichlet:ALPHA``, ``groups``.
    bounds : (float, float), optional
        Public range of every feature; by default that of the data's format, if it has one.
    map : {"tsne", "umap", "clusters"}
    mechanism : str, optional
        By default ``none`` without a budget; ``k-means`` with ``release="none"``, else ``mean-embedding``.
    trust, beta, clip, frequencies, batch
        Settings of the mechanism, where it has them.
    epsilon : float, optional
        None is no budget.
    delta, adjacency, unit, scope
        Of the budget.
    release : {"exact", "noisy", "none"}, optional
        By default what the budget allows: exact rows without one; for maps nothing of a record, else noisy rows.
    release_share : float
        Share of μ² for noisy rows.
    density : bool
        With ``release="none"``, also release how many records lie where on the map, with noise.
    classes : sequence of int, optional
        Public labels, to count each class by itself.
    shares : mapping of str to float, optional
        With ``release="none"``, shares of μ² for its stages; see `dpfedvis.federation.private_map.Shares`.
    components, placement : optional
        With ``release="none"``, dimension of the subspace at most, and how clients place their records; see
        `dpfedvis.federation.private_map.Recipe`.
    distances : {"gram", "nystrom"}
    rank, ridge
        Of the Nyström estimate.
    landmarks : int, optional
        n_y; by default 500, or as many as the noise allows with ``release="none"``.
    rounds, local_steps : int
        S and Q.
    noise : {"seeded", "system", "discrete"}
    gamma : float, several, or one of "public", "histogram", "moments", "median", optional
        Kernel width, or where to take it from.
    tau_x : float, optional
        Public bound on the norm of records; by default √m · max|bound| where bounds are public.
    optimiser, step_size, weights, sampling_rate, public_records, start
        As in `dpfedvis.federation.feddl.FedDL`.
    mmd : {"unbiased", "biased"}
        Which estimator of the MMD is minimised.
    perplexity, neighbours, clusters
        Of t-SNE, UMAP and clustering.
    affinity : {"neighbors", "kernel"}
        Of clustering: a graph of neighbours, or the paper's kernel estimate.
    affinity_gamma : float, optional
        Width of the kernel affinity; by default that of the landmarks' learning.
    jobs : int
        Threads of t-SNE.
    seed : int
    recorded_rounds : int, optional
        Keep the uploads of the first so many rounds only; all by default.
    evaluate : bool
        Whether a simulation, a run with seeded noise, also leaves scores and the place and label of every record. A run
        with real noise never does.
    """

    data: str
    records: int | None = None
    sample: Sample = "first"
    label_column: str | None = None
    client_column: str | None = None
    missing: Missing = "refuse"
    clients: int | None = None
    partition: str = "iid"
    bounds: tuple[float, float] | None = None
    map: MapName = "tsne"
    mechanism: str | None = None
    trust: Trust = "local"
    beta: float | None = None
    clip: float | None = None
    frequencies: int | None = None
    batch: int | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    adjacency: Adjacency = "replace-one"
    unit: Unit = "record"
    scope: Scope = "end-to-end"
    release: ReleaseMode | None = None
    release_share: float = 0.5
    density: bool = False
    classes: tuple[int, ...] | None = None
    shares: dict[str, float] | None = field(default=None, hash=False)  # a dict has no hash; it counts for equality
    components: int | None = None
    placement: Literal["anchored", "diffused", "weights", "transform"] | None = None
    distances: Literal["gram", "nystrom"] = "gram"
    rank: int | None = None
    ridge: float = 0.0
    landmarks: int | None = None
    rounds: int = 50
    local_steps: int = 1
    noise: Literal["seeded", "system", "discrete"] = "seeded"
    gamma: float | tuple[float, ...] | str | None = None
    tau_x: float | None = None
    optimiser: str = "plain"
    step_size: float | None = None
    weights: Literal["records", "equal"] = "records"
    sampling_rate: float | None = None
    public_records: int | None = None
    mmd: Literal["unbiased", "biased"] = "unbiased"
    start: Literal["uniform", "normal", "mean"] | None = None
    perplexity: float = 30.0
    neighbours: int = 15
    clusters: int = 10
    affinity: Affinity = "neighbors"
    affinity_gamma: float | None = None
    jobs: int = 2
    seed: int = 0
    recorded_rounds: int | None = None
    evaluate: bool = True

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None and each.default is not None:
                raise InvalidParameter(each.name, None, "given")
            if value is not None:
                object.__setattr__(self, each.name, CHECKS[each.name](each.name, value))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings under their names; the rest has its defaults."""
        known = {each.name for each in fields(cls)}
        for name in values:
            if name not in known:
                raise UnknownSetting(name)
        if "data" not in values:
            raise InvalidParameter("data", None, "given: the name of a data set, or a file")
        return cls(**values)

    @classmethod
    def from_toml(cls, path: str | Path, **overrides: Any) -> Self:
        """Read a TOML file; `overrides` win over it."""
        return cls.from_mapping({**read_toml(path), **overrides})

    def to_toml(self) -> str:
        """Return every setting as TOML; one that is not given stands in a comment, for TOML has no null."""
        lines = []
        for each in fields(self):
            value = getattr(self, each.name)
            lines.append(f"# {each.name} is not given" if value is None else f"{each.name} = {toml(value)}")
        return "\n".join(lines) + "\n"

    @property
    def budget(self) -> Budget | None:
        """The budget, if there is one."""
        if self.epsilon is None:
            return None
        return Budget(self.epsilon, self.delta, adjacency=self.adjacency, unit=self.unit, scope=self.scope)

    @property
    def chosen_release(self) -> ReleaseMode:
        """The way of releasing that was given, or else the first that the budget allows."""
        from dpfedvis.mechanisms import mechanism

        if self.release is not None:
            return self.release
        protection = "upload" if self.mechanism is None else mechanism(self.mechanism).protection
        if self.epsilon is None or self.scope == "landmarks" or protection == "home":
            return "exact"
        return "none" if self.map != "clusters" and protection == "upload" else "noisy"

    @property
    def chosen_mechanism(self) -> str:
        """The mechanism given, or else the one that learns most from the budget."""
        if self.mechanism is not None:
            return self.mechanism
        if self.epsilon is None:
            return "none"
        return "k-means" if self.chosen_release == "none" else "mean-embedding"

    def dataset(self) -> Dataset:
        """Load the data."""
        if self.sample == "first":
            return self._load(self.records)
        from dpfedvis.data.checks import read_only

        whole = self._load(None)
        rows = self.taken(len(whole.X))
        labels, groups = (None if each is None else read_only(each[rows]) for each in (whole.y, whole.groups))
        return replace(whole, X=read_only(whole.X[rows]), y=labels, groups=groups)

    def taken(self, size: int) -> NDArray[np.int64]:
        """Rows that take part, of the `size` rows of the data; sorted."""
        from dpfedvis.data import InvalidData
        from dpfedvis.federation import Streams

        records = size if self.records is None else self.records
        if records > size:
            raise InvalidData(f"records must be between 1 and {size} for {self.data}, got {records}")
        if self.sample == "first":
            return np.arange(records)
        return np.sort(Streams(self.seed).generator("sample").permutation(size)[:records])

    def _load(self, records: int | None) -> Dataset:
        from dpfedvis.data import load

        return load(
            self.data,
            label_column=self.label_column,
            client_column=self.client_column,
            missing=self.missing,
            records=records,
        )

    def federated(self, dataset: Dataset | None = None) -> FederatedData:
        """Deal the data, loaded here unless given, to the clients."""
        from dpfedvis.data import FederatedData

        dataset = self.dataset() if dataset is None else dataset
        return FederatedData.from_dataset(dataset, clients=self.clients, partition=self.partition, seed=self.seed)

    def settled(self, fed: FederatedData) -> Self:
        """Return these settings with all choices made that were left open; they rest on public facts of `fed` alone."""
        release = self.chosen_release
        bounds, tau_x = self.bounds or fed.bounds, self.tau_x
        if tau_x is None and bounds is not None:
            # No record within the bounds is longer.
            tau_x = math.sqrt(fed.n_features) * max(abs(bounds[0]), abs(bounds[1])) or None
        return replace(
            self,
            clients=fed.n_clients,
            mechanism=self.chosen_mechanism,
            release=release,
            landmarks=500 if self.landmarks is None and release != "none" else self.landmarks,
            bounds=bounds,
            tau_x=tau_x,
        )

    def made_mechanism(self) -> Mechanism:
        """Return the mechanism with its settings; one that it does not have is an error."""
        from dpfedvis.runs.build import mechanism_of

        return mechanism_of(self)

    def estimator(self) -> FederatedEstimator:
        """Return the estimator, ready to fit."""
        from dpfedvis.runs.build import estimator_of

        return estimator_of(self)
