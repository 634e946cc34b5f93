"""Settings of an end-to-end private map, all of them public."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accounting import Budget, checks
from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.federation import Streams
from dpfedvis.federation.private_map.density import Density, DensityGrid, cells_for, numbered
from dpfedvis.federation.private_map.learner import Learned, Learner, Shares
from dpfedvis.federation.private_map.placement import ByWeights, Placement
from dpfedvis.federation.private_map.published_map import PublishedMap
from dpfedvis.federation.private_map.subspace import Subspace
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.numerics.kernels import Array

# What of FedDL's settings also makes sense for all stages.
_PASSED = ("noise", "public_records")
LEAST_ANCHORS, MOST_ANCHORS = 300, 1000
SPREAD = 0.5  # of the standard deviation around a landmark


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a budget becomes a map.

    Parameters
    ----------
    shares : Shares or mapping
        Shares of μ² for the stages; see `dpfedvis.federation.private_map.Shares`.
    components : int
        Dimension of the subspace at most.
    factors : sequence of float
        Bandwidths of the landmarks' kernel; see `dpfedvis.federation.private_map.Learner`.
    anchors : int, optional
        Points of the published map that stand for the landmarks; see
        `spread_out`. By default half as many as a client has records, but from
        300 to 1000.
    placement : {"anchored", "diffused", "weights", "transform"} or Placement
        How clients place their records at home; ``transform`` is openTSNE's for t-SNE and umap's for UMAP.
    radius : float
        Root mean square distance of the landmarks from the middle of the map, in units of √(records a client). A
        t-SNE of n records takes about as much room.
    density : bool
        Whether to release counts of records on a grid, each placed by itself among the anchors.
    classes : sequence of int
        The public labels, to count each class by itself; the records then need labels.
    """

    shares: Shares | Mapping[str, float] = field(default_factory=Shares)
    components: int = 16
    factors: Sequence[float] = (1.0,)
    anchors: int | None = None
    placement: Placement | str = "anchored"
    radius: float = 1.0
    density: bool = False
    classes: Sequence[int] = ()

    def __post_init__(self) -> None:
        checks.count("components", self.components)
        if self.anchors is not None:
            checks.at_least("anchors", self.anchors, 4)  # fewer have no spectral start in two dimensions
        checks.positive("radius", self.radius)
        if not len(self.factors):
            raise InvalidParameter("factors", self.factors, "at least one bandwidth")
        if self.classes and not self.density:
            raise InvalidParameter("classes", tuple(self.classes), "left out without a density")
        if len(set(self.classes)) < len(self.classes):
            raise InvalidParameter("classes", tuple(self.classes), "distinct labels")
        for factor in self.factors:
            checks.positive("factor", factor)
        if not isinstance(self.shares, Shares):
            try:
                object.__setattr__(self, "shares", Shares(**self.shares))
            except TypeError as error:
                raise InvalidParameter("shares", self.shares, f"shares of the stages: {error}") from error

    def learner(
        self,
        *,
        budget: Budget,
        mechanism: Mechanism,
        landmarks: int | None,
        rounds: int,
        tau_x: float | None,
        seed: int,
        further: Mapping[str, Any],
    ) -> Learner:
        """Return the server's side of a run with these settings."""
        if unknown := sorted(set(further) - set(_PASSED)):
            raise InvalidParameter("feddl", unknown, f"among {', '.join(_PASSED)} with release='none'")
        assert isinstance(self.shares, Shares)
        return Learner(
            budget=budget,
            mechanism=mechanism,
            landmarks=landmarks,
            rounds=rounds,
            components=self.components,
            factors=tuple(self.factors),
            shares=self.shares,
            density=self.density,
            tau_x=tau_x,
            seed=seed,
            **further,
        )

    def anchored_points(self, learned: Learned, records: float, seed: int) -> Array:
        """Return the points that will be on the map, shape (anchors, d); at least one for each landmark.

        `records` is a public number of records a client.
        """
        landmarks, count = learned.feddl.landmarks, self.anchors
        if count is None:
            count = min(max(int(records / 2), LEAST_ANCHORS), MOST_ANCHORS)
        generator = Streams(seed).generator("anchors")
        return spread_out(landmarks, learned.subspace, max(count, len(landmarks)), generator)

    def check(self, fed: FederatedData) -> None:
        """Refuse data that cannot give what is asked for, before anything is released."""
        if self.density and self.classes and any(client.y is None for client in fed.clients):
            raise InvalidParameter("labels", None, "there, for a density by class")

    def scaled(self, places: Array, records: float) -> Array:
        """Centre the box of the landmarks' map, and give it the room that a client's own layout needs.

        Parameters
        ----------
        places : array of shape (k, 2)
        records : float
            Public number of records a client: the map's size is published.
        """
        places = places - (places.max(axis=0) + places.min(axis=0)) / 2
        size = math.sqrt(float(np.mean(np.sum(places**2, axis=1))))
        return places * (self.radius * math.sqrt(records) / max(size, 1e-12))

    def count(self, learner: Learner, learned: Learned, published: PublishedMap, fed: FederatedData) -> Density:
        """Release the density of all clients' records, each placed by itself among the anchors (`ByWeights`).

        Not where the client's own layout has put them: there one record moves the others, and with them their cells,
        further than the sensitivity of counts allows.
        """
        public, trust = learner.public_for(1), learner.mechanism.trust
        classes = tuple(sorted(self.classes))
        noise = math.sqrt(learned.releases.variance(GridCounts(trust=trust, cells=1), public))
        grid = DensityGrid(published.half, cells_for(noise))
        labels = [client.y for client in fed.clients] if classes else [None] * fed.n_clients
        numbers = iter(
            numbered(grid.cell(ByWeights()(published, client.X)), grid, own, classes)
            for client, own in zip(fed.clients, labels, strict=True)
        )
        counts = GridCounts(trust=trust, cells=grid.cells**2 * max(len(classes), 1))
        average, _ = learned.releases.with_data(fed.transformed(lambda _: next(numbers))).once(counts, public)
        return Density(grid, average.reshape(-1, grid.cells, grid.cells), noise, classes)


def spread_out(landmarks: Array, subspace: Subspace, count: int, generator: np.random.Generator) -> Array:
    """Return points that follow the data as the landmarks do, but more of them and less regular.

    A map of few landmarks has no gaps between groups: t-SNE spreads them evenly. So each becomes several points around
    it, with a part of the variance that the landmarks leave of the data's.

    Parameters
    ----------
    landmarks : array of shape (n_y, d)
    subspace : Subspace
    count : int
        Points to make, at least n_y.
    generator : numpy.random.Generator
        Public.

    Returns
    -------
    array of shape (count, d), float32
    """
    left = np.maximum(subspace.variances - landmarks.var(axis=0), 0.1 * subspace.variances)
    origins = landmarks[np.arange(count) % len(landmarks)]
    points: Array = origins + SPREAD * np.sqrt(left) * generator.standard_normal(origins.shape)
    return points.astype(np.float32)
