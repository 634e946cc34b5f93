"""Placement of a site's own records in the published map. All of it happens at home.

Four ways: among its nearest anchors by weight; by the layout's own `transform`; by
*diffusion*, where records that are alike settle together; or by *anchored refinement*, where the client then lays out
all its records, with their own neighbours pulling, while the anchors stay pinned. The last two take local structure
from the client's own data and only the frame from the anchors. A client with many records so places some of them
together, and each other one among those that are like it: time is linear in its records, and memory does not grow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from scipy.sparse import block_array, csr_array

from accounting import checks
from dpfedvis.numerics.diffusion import OwnFrame, diffuse, nearby_weights, settle
from dpfedvis.numerics.distances import GramDistances
from dpfedvis.numerics.interpolation import interpolate
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.layouts import Layout
from dpfedvis.numerics.neighbors import Neighbors, nearest, nearest_to
from dpfedvis.protocol.messages import Place
from dpfedvis.protocol.published_map import MOST_TOGETHER, PublishedMap

LEAST_TOGETHER = 5  # fewer records are placed one by one
SETTLING = 8  # steps of mean shift
# How coarsely far points are taken together (Barnes and Hut). With openTSNE's 0.5 a placement takes a third longer, and
# the map is no better: 10-NN across sites .806 and .804 on Fashion-MNIST.
THETA = 0.8
_PART = 1024  # records that are placed among others at a time
_COMPANY = 0x436F6D70  # keeps the choice of records apart from every other stream


class Placement(Protocol):
    """Protocol: places one client's records in the published map."""

    def __call__(self, published: PublishedMap, records: Array, compared: Array | None = None) -> Array:
        """Return places, shape (n, 2), of records, shape (n, m).

        Own records may be compared with each other by other values, `compared`, of shape (n, any).
        """


@dataclass(frozen=True)
class ByWeights:
    """The mean of the nearest anchors' places, with t-SNE's weights.

    Parameters
    ----------
    neighbors : int
        Number of nearest anchors.
    perplexity : float
        Perplexity of their weights.
    """

    neighbors: int = 10
    perplexity: float = 4.0

    def __call__(self, published: PublishedMap, records: Array, compared: Array | None = None) -> Array:
        """Place each record by itself."""
        placed: Array = _anchors(published, records, self.neighbors, self.perplexity) @ published.places
        return placed


@dataclass(frozen=True)
class Diffused:
    """Where the anchors of a record, and of similar records of the client, are densest on the map.

    Parameters
    ----------
    neighbors : int
        Number of similar own records (`dpfedvis.numerics.diffusion.OwnFrame`).
    perplexity : float
        Perplexity of their weights.
    keep : float
        How far weights travel (`dpfedvis.numerics.diffusion.diffuse`).
    steps : int
        Number of diffusion steps.
    window : float
        Width of the mean-shift window, as a fraction of the map's side.
    """

    neighbors: int = 15
    perplexity: float = 5.0
    keep: float = 0.95
    steps: int = 40
    window: float = 0.05

    def __post_init__(self) -> None:
        checks.count("neighbors", self.neighbors)
        checks.positive("perplexity", self.perplexity)
        checks.probability("keep", self.keep)
        checks.at_least("steps", self.steps, 0)
        checks.positive("window", self.window)

    def __call__(self, published: PublishedMap, records: Array, compared: Array | None = None) -> Array:
        """Place all records of one client; very few are placed one by one, and of very many some."""
        return _in_company(self._together, self.window, published, records, compared)

    def _together(self, published: PublishedMap, records: Array, alike: Array) -> Array:
        return self.places(published, self.weights(published, records, alike))

    def weights(self, published: PublishedMap, records: Array, alike: Array) -> Array:
        """Weights of all anchors for each record, shape (n, k); rows sum to 1.

        Parameters
        ----------
        published : PublishedMap
        records : array of shape (n, m)
        alike : array of shape (n, any)
            Coordinates in which the records are compared with each other.
        """
        among = _own(alike, self.neighbors, self.perplexity)
        return diffuse(_anchors(published, records, 15, 5.0), among, self.keep, self.steps)

    def places(self, published: PublishedMap, weights: Array) -> Array:
        """Places of records with these weights, shape (n, 2)."""
        return settle(weights, published.places, self.window * _side(published), SETTLING)


@dataclass(frozen=True)
class Anchored:
    """Anchored refinement: a t-SNE of the client's own records around fixed anchors.

    The layout starts from the places of `Diffused`. Each record is pulled by similar own records, and by the anchors
    near its start to which `Diffused` gives most weight.

    Parameters
    ----------
    pull : float
        Fraction of a record's affinity that goes to anchors.
    reach : float
        Width of the window in which anchors pull a record, as a fraction of the map's side.
    perplexity : float
        Perplexity among own records.
    exaggerated : int
        Iterations with exaggerated affinities.
    exaggeration : float
        Factor of the exaggerated affinities.
    plain : int
        Iterations without exaggeration.
    diffused : Diffused
        Settings of the start.
    """

    pull: float = 0.75
    reach: float = 0.1
    perplexity: float = 15.0
    exaggerated: int = 100
    exaggeration: float = 12.0
    plain: int = 200
    diffused: Diffused = field(default_factory=Diffused)

    def __post_init__(self) -> None:
        checks.probability("pull", self.pull)
        checks.positive("reach", self.reach)
        checks.positive("perplexity", self.perplexity)
        checks.positive("exaggeration", self.exaggeration)
        checks.at_least("exaggerated", self.exaggerated, 0)
        checks.at_least("plain", self.plain, 0)

    def __call__(self, published: PublishedMap, records: Array, compared: Array | None = None) -> Array:
        """Place all records of one client together; very few are placed one by one, and of very many some."""
        return _in_company(self._together, self.diffused.window, published, records, compared)

    def _together(self, published: PublishedMap, records: Array, alike: Array) -> Array:
        from openTSNE import TSNEEmbedding

        pinned = len(published.places)
        weights = self.diffused.weights(published, records, alike)
        start = self.diffused.places(published, weights)
        anchors = nearby_weights(weights, published.places, start, self.reach * _side(published), 15)
        layout = TSNEEmbedding(
            np.concatenate([published.places, start]),
            _Affinities(self._affinities(anchors, alike)),
            negative_gradient_method=_pinned(published.places),
            n_jobs=1,
            random_state=published.seed,
        )
        layout.optimize(self.exaggerated, exaggeration=self.exaggeration, momentum=0.5, inplace=True, theta=THETA)
        layout.optimize(self.plain, exaggeration=1, momentum=0.8, inplace=True, theta=THETA)
        return np.array(layout[pinned:], dtype=np.float64)

    def _affinities(self, to_anchors: csr_array, alike: Array) -> csr_array:
        """Joint affinities of anchors and own records, sparse, summing to 1; none between anchors."""
        among = _own(alike, max(int(3 * self.perplexity), 1), self.perplexity)
        pulled = to_anchors * (self.pull / 2)
        joint = block_array([[None, pulled.T], [pulled, (among + among.T) * ((1 - self.pull) / 2)]], format="csr")
        joint.sort_indices()
        return csr_array(joint / joint.sum())


@dataclass(frozen=True)
class ByTransform:
    """As the layout itself places new records among fixed ones: openTSNE's or umap's `transform`."""

    layout: Layout

    def __call__(self, published: PublishedMap, records: Array, compared: Array | None = None) -> Array:
        """Place all records of one client."""
        points = published.subspace.coordinates(records)
        return self.layout.place_among(published.anchors, published.places, points, published.seed)


def place(request: Place, records: Array, compared: Array | None = None) -> Array:
    """Return the places of records, shape (n, 2), as a request asks for it."""
    chosen = placement(request.placement, request.layout)
    # A placement of the user's own may know nothing of other values.
    return chosen(request.published, records) if compared is None else chosen(request.published, records, compared)


def placement(choice: Placement | str, layout: Layout) -> Placement:
    """Return a placement: itself, or the one of this short name for maps of this layout."""
    if not isinstance(choice, str):
        return choice
    known: dict[str, Placement] = {
        "anchored": Anchored(**layout.refinement),
        "diffused": Diffused(),
        "weights": ByWeights(),
        "transform": ByTransform(layout),
    }
    return known[choice]


def _in_company(
    together: Callable[[PublishedMap, Array, Array], Array],
    window: float,
    published: PublishedMap,
    records: Array,
    compared: Array | None,
) -> Array:
    """Place one client's records: `MOST_TOGETHER` of them together, and each other one among those.

    Which ones depends on their number and the public seed alone. They also give the coordinates in which all are
    compared.

    Parameters
    ----------
    together : callable
        From published map, records and their coordinates to places, shape (n, 2).
    window : float
        Width of the window in which a record settles among those like it, as a fraction of the map's side.
    published, records, compared
        As in `Placement`.
    """
    n = len(records)
    if n < LEAST_TOGETHER:
        return ByWeights()(published, records)
    by = records if compared is None else compared
    if n <= MOST_TOGETHER:
        return together(published, records, OwnFrame.of(by).coordinates(by))
    chosen = np.zeros(n, dtype=bool)
    chosen[np.random.default_rng([_COMPANY, published.seed, n]).permutation(n)[:MOST_TOGETHER]] = True
    frame, places = OwnFrame.of(by[chosen]), np.empty((n, 2))
    known = frame.coordinates(by[chosen])
    places[chosen] = among = together(published, records[chosen], known)
    others = np.flatnonzero(~chosen)
    for start in range(0, len(others), _PART):
        part = others[start : start + _PART]
        places[part] = interpolate(known, among, frame.coordinates(by[part]), window * _side(published))
    return places


def _pinned(places: Array) -> Callable[..., tuple[float, Array]]:
    """Return openTSNE's objective with the first points fixed at `places`, bit for bit.

    By Barnes and Hut: FFT interpolation is worth it for more records, and its grid grows with the map.

    openTSNE centres the layout after every step. This is undone for all points; otherwise own records would drift past
    the anchors towards the middle of the map. The anchors' gradient is set to 0, so no step moves them.
    """
    from openTSNE import tsne

    divergence = tsne.kl_divergence_bh

    def objective(embedding: Array, P: csr_array, **settings: Any) -> tuple[float, Array]:
        embedding += places[0] - embedding[0]
        embedding[: len(places)] = places
        error, gradient = divergence(embedding, P, **settings)
        gradient[: len(places)] = 0
        return error, gradient

    return objective


class _Affinities:
    """Affinities in openTSNE's format."""

    def __init__(self, P: csr_array) -> None:
        self.P = P
        self.n_samples = P.shape[0]
        self.verbose = False


def _side(published: PublishedMap) -> float:
    """Side of the map; 1 if all anchors coincide."""
    return float(np.ptp(published.places, axis=0).max()) or 1.0


def _own(alike: Array, k: int, perplexity: float) -> csr_array:
    """Weights of each record's k nearest own records (all if there are fewer), shape (n, n)."""
    k = min(len(alike) - 1, k)
    return _weights(nearest(GramDistances(alike), k, method="exact"), len(alike), min(perplexity, k / 3))


def _anchors(published: PublishedMap, records: Array, k: int, perplexity: float) -> csr_array:
    """Weights of each record's nearest anchors in the subspace, shape (n, k); rows sum to 1."""
    k = min(k, len(published.anchors))
    found = nearest_to(GramDistances(published.anchors), published.subspace.coordinates(records), k)
    return _weights(found, len(published.anchors), min(perplexity, 0.7 * k))


def _weights(found: Neighbors, columns: int, perplexity: float) -> csr_array:
    """Gaussian weights of the given perplexity over neighbours, shape (n, columns); rows sum to 1."""
    from openTSNE.affinity import joint_probabilities_nn

    if found.indices.shape[1] == 1:
        return csr_array((np.ones(len(found.indices)), found.indices[:, 0], np.arange(len(found.indices) + 1)),
                         shape=(len(found.indices), columns))  # fmt: skip
    weights = joint_probabilities_nn(
        found.indices,
        found.distances,
        [perplexity],
        symmetrize=False,
        normalization="point-wise",
        n_reference_samples=columns,
    )
    return csr_array(weights)
