"""What a metric is, and the result that it scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.numerics.distances import GramDistances
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.neighbors import nearest_others

Need = Literal["map", "clusters", "classes", "landmarks"]
_T = TypeVar("_T")

# The k of CA and NPA, as in the paper.
KS = (1, 10, 50)
# Largest sample for silhouette, trustworthiness and continuity, whose cost is quadratic.
SAMPLE = 3000
# Above this many records NPA is that of a sample, whose neighbours are searched among all.
EXACT_NEIGHBORS = 50_000


@dataclass(frozen=True)
class Evaluated:
    """A result with its records. For simulations: metrics read every record and label.

    Parameters
    ----------
    fed : FederatedData
        The records, n in total.
    embedding : array of shape (n, 2), optional
        The map, in the order of the clients.
    labels : array of shape (n,), optional
        Clusters, for a result without a map.
    landmarks : array of shape (n_y, m), optional
    kernel : Kernel, optional
        Of the run that learned the landmarks.
    seed : int
        Of the split of CA, of k-means and of samples.
    neighbors : array of shape (n, at least the largest k), optional
        Nearest neighbours of the pooled records (`true_neighbors`), if known: one search serves many maps.
    """

    fed: FederatedData
    embedding: Array | None = None
    labels: NDArray[Any] | None = None
    landmarks: Array | None = None
    kernel: Kernel | None = None
    seed: int = 0
    neighbors: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        n = self.fed.n_records
        if self.embedding is not None and len(self.embedding) != n:
            raise InvalidParameter("points of the map", len(self.embedding), f"one for each of {n} records")
        largest = max(self.ks, default=0)
        if self.neighbors is not None and not (self.neighbors.shape[0] == n and self.neighbors.shape[1] >= largest):
            raise InvalidParameter("shape of the neighbours", self.neighbors.shape, f"({n}, at least {largest})")

    @cached_property
    def has(self) -> frozenset[Need]:
        """What this result has, for `Metric.needs`."""
        counted = 0 if self.pooled[1] is None else len(np.unique(self.pooled[1]))
        classes = 1 < counted < self.fed.n_records
        there: dict[Need, bool] = {
            "map": self.embedding is not None,
            "classes": classes,
            "clusters": self.labels is not None or (self.embedding is not None and classes),
            "landmarks": self.landmarks is not None,
        }
        return frozenset(need for need, is_there in there.items() if is_there)

    @cached_property
    def pooled(self) -> tuple[Array, NDArray[Any] | None]:
        """Records of all clients, shape (n, m), and their classes, shape (n,)."""
        return self.fed.pooled()

    @property
    def X(self) -> Array:
        """Records of all clients, shape (n, m)."""
        return self.pooled[0]

    @property
    def places(self) -> Array:
        """The map, shape (n, 2)."""
        return _given("map", self.embedding)

    @property
    def classes(self) -> NDArray[Any]:
        """Class of each record, shape (n,)."""
        return _given("classes", self.pooled[1])

    @cached_property
    def clusters(self) -> NDArray[Any]:
        """Cluster of each record, shape (n,): the given ones, or k-means in the map with one cluster per class."""
        if self.labels is not None:
            return self.labels
        from sklearn.cluster import KMeans

        found: NDArray[Any] = KMeans(len(np.unique(self.classes)), n_init=10, random_state=self.seed).fit_predict(
            self.places
        )
        return found

    @property
    def ks(self) -> tuple[int, ...]:
        """The k for which the training part of a 7:3 split has k neighbours."""
        return tuple(k for k in KS if k < 0.7 * self.fed.n_records - 1)

    @cached_property
    def neighbors_among_records(self) -> NDArray[np.int64]:
        """Nearest neighbours of the records `asked`, shape (asked, at least max(ks))."""
        if self.neighbors is not None:
            return self.neighbors[self.asked]
        return true_neighbors(self.X, max(self.ks), self.asked)

    @cached_property
    def neighbors_in_map(self) -> NDArray[np.int64]:
        """Their nearest neighbours in the map, shape (asked, max(ks))."""
        return true_neighbors(self.places, max(self.ks), self.asked)

    @property
    def asked(self) -> NDArray[np.int64]:
        """Records whose neighbours are compared: all, or a sample of very many."""
        return np.arange(self.fed.n_records) if self.fed.n_records <= EXACT_NEIGHBORS else self.sample

    @cached_property
    def sample(self) -> NDArray[np.int64]:
        """At most `SAMPLE` records, for metrics of quadratic cost."""
        return np.random.default_rng(self.seed).permutation(self.fed.n_records)[:SAMPLE]


def _given(name: str, value: _T | None) -> _T:
    if value is None:
        raise InvalidParameter(name, None, "given for this metric")
    return value


@dataclass(frozen=True)
class Metric:
    """One score of a result, with all that tables and figures need to know about it.

    Parameters
    ----------
    key : str
        Name in tables and files.
    name : str
        Short name, as on an axis.
    title : str
        Full name, as in the table of one run.
    function : callable
        `Evaluated` → score, or None if it cannot be computed (too few records).
    needs : tuple of {"map", "clusters", "classes", "landmarks"}
        What a result must have; otherwise the metric is skipped.
    higher : bool
        Whether higher is better.
    chance : callable, optional
        `Evaluated` → approximate score of a random result.
    limits : (float, float)
        Smallest and largest possible score.
    curve : bool
        Whether sweeps draw it against ε.
    paper : str
        Name in the paper's tables, if any.
    """

    key: str
    name: str
    title: str
    function: Callable[[Evaluated], float | None]
    needs: tuple[Need, ...]
    higher: bool = True
    chance: Callable[[Evaluated], float] | None = None
    limits: tuple[float, float] = (0.0, 1.0)
    curve: bool = False
    paper: str = ""

    def better(self, one: float, other: float) -> bool:
        """Whether the first is strictly better."""
        return one > other if self.higher else one < other


def true_neighbors(X: Array, k: int, asked: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the k nearest other records of every record, or of those asked for, nearest first, shape (asked, k)."""
    # Centred: distances far from the origin would lose digits in float32.
    centred = np.asarray(X - X.mean(axis=0, dtype=np.float64), dtype=np.float32)
    return nearest_others(GramDistances(centred), np.arange(len(X)) if asked is None else asked, k).indices
