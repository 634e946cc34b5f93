"""The recipe: public settings of an end-to-end private map."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, checks
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.k_means import likely
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.density import OTHER, Density, DensityGrid, cells_for
from dpfedvis.protocol.messages import PLACEMENTS
from dpfedvis.protocol.published_map import MOST_TOGETHER, PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.views import DensityView
from dpfedvis.server.feddl import NoiseName
from dpfedvis.server.private_map import BudgetShares, Learned, Learner
from dpfedvis.server.regions import pooled

# What of FedDL's settings also makes sense for all stages.
_PASSED = ("public_records", "bounds")
LEAST_ANCHORS, MOST_ANCHORS = 300, 1000
LEAST_WEIGHT = 0.01  # of an anchor, in equal shares
SPREAD = 0.5  # of the standard deviation around a landmark
LEAST_PLACES, MOST_PLACES = 4, 20_000  # fewer have no spectral start in two dimensions


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of a private map.

    Parameters
    ----------
    shares : BudgetShares or mapping
        Shares of μ² for the stages scale, moments, subspace and density; landmarks get the rest.
    components : int
        Dimensions of the subspace at most.
    factors : sequence of float
        Bandwidths of the landmarks' kernel, relative to the spread of the records.
    anchors : int, optional
        Points of the published map that stand for the landmarks (half as many as a client has records, from 300 to
        1000). See `spread_out`.
    placement : {"anchored", "diffused", "weights", "transform"} or Placement
        How clients place their records at home: anchored, diffused, weights or transform. The last is openTSNE's for
        t-SNE and umap's for UMAP.
    radius : float
        Size of the published map, in units of √(records of a client), of which at most 5000 count. A t-SNE of n
        records takes about as much room.
    density : bool
        Also release noisy counts of records on a grid over the map: a picture for everyone.
    classes : sequence of str
        Public list of classes, to count each by itself, and all other labels as "other". A whole number means its
        text.
    """

    shares: BudgetShares | Mapping[str, float] = field(default_factory=BudgetShares)
    components: int = 32
    factors: Sequence[float] = (1.0,)
    anchors: int | None = None
    placement: Callable[..., Array] | str = "anchored"
    radius: float = 1.0
    density: bool = False
    classes: Sequence[str] | Sequence[int] = ()

    def __post_init__(self) -> None:
        checks.count("components", self.components)
        if self.anchors is not None:
            checks.whole("anchors", self.anchors, LEAST_PLACES, MOST_PLACES)
        checks.between("radius", self.radius, 1e-3, 1e3)
        if not len(self.factors):
            raise InvalidParameter("factors", self.factors, "at least one bandwidth")
        for factor in self.factors:
            checks.between("factor", factor, 1e-6, 1e6)
        if isinstance(self.placement, str):
            checks.one_of("placement", self.placement, PLACEMENTS)
        object.__setattr__(self, "classes", _names(self.classes))
        if self.classes and not self.density:
            raise InvalidParameter("classes", self.classes, "left out without a density")
        if not isinstance(self.shares, BudgetShares | Mapping):
            raise InvalidParameter("shares", self.shares, "a share of the budget for each of some stages")
        if not isinstance(self.shares, BudgetShares):
            stages = [each.name for each in fields(BudgetShares)]
            for stage in self.shares:
                checks.one_of("stage of shares", stage, stages)
            object.__setattr__(self, "shares", BudgetShares(**self.shares))

    def learner(
        self,
        *,
        budget: Budget,
        mechanism: Mechanism,
        landmarks: int | None,
        rounds: int,
        tau_x: float | None,
        image: tuple[int, ...] | None,
        noise: NoiseName,
        seed: int,
        further: Mapping[str, Any],
        **sharing: Any,
    ) -> Learner:
        """Return the server's side of a run; `sharing` has threshold, colluders and retries."""
        if unknown := sorted(set(further) - set(_PASSED)):
            # It learns scale and kernel itself.
            raise InvalidParameter(unknown[0], further[unknown[0]], "left out with release='none'")
        assert isinstance(self.shares, BudgetShares)
        return Learner(
            budget=budget,
            mechanism=mechanism,
            landmarks=landmarks,
            rounds=rounds,
            components=self.components,
            factors=tuple(self.factors),
            shares=self.shares,
            layers=len(self.classes) + 1 if self.density else 0,
            tau_x=tau_x,
            bounds=further.get("bounds"),
            image=image,
            public_records=further.get("public_records"),
            noise=noise,
            seed=seed,
            **sharing,
        )

    def anchored_points(self, learned: Learned, records: float, seed: int) -> Array:
        """Return the anchors, shape (anchors, d), at least one per landmark.

        `records` is a public number of records per client.
        """
        landmarks, count = learned.feddl.landmarks, self.anchors
        if count is None:
            count = min(max(int(records / 2), LEAST_ANCHORS), MOST_ANCHORS)
        generator = Streams(seed).generator("anchors")
        return spread_out(landmarks, learned.subspace, max(count, len(landmarks)), generator)

    @staticmethod
    def weights(learned: Learned, of: NDArray[np.int64]) -> Array | None:
        """Return the shares of records that anchors stand for, up to a factor; None where no counts were released.

        Parameters
        ----------
        learned : Learned
        of : array of shape (anchors,)
            The landmark of each anchor.
        """
        tally = learned.feddl.tally
        if tally is None:
            return None
        counts, noise = pooled(tally)
        # Noise makes some counts negative; no anchor is without any weight.
        shares: Array = np.maximum(likely(counts, noise), LEAST_WEIGHT / len(counts))[of]
        return shares

    def scaled(self, places: Array, records: float) -> Array:
        """Centre the anchors' box, and scale it to the size that a client's own layout needs.

        Parameters
        ----------
        places : array of shape (k, 2)
        records : float
            Public number of records per client: the map's size is published.
        """
        places = places - (places.max(axis=0) + places.min(axis=0)) / 2
        size = math.sqrt(float(np.mean(np.sum(places**2, axis=1))))
        return places * (self.radius * math.sqrt(min(records, MOST_TOGETHER)) / max(size, 1e-12))

    def count(self, learner: Learner, learned: Learned, published: PublishedMap) -> Density:
        """Release the density of all sites' records, each placed on its own among the anchors.

        By `PublishedMap.place`, whose place of a record depends on nothing else. The site's own layout is not used:
        there one record moves others into other cells, which the sensitivity of counts does not cover.
        """
        public, trust, session = learner.public_for(1), learner.mechanism.trust, learned.session
        classes = tuple(map(str, self.classes))
        planned = math.sqrt(session.planned_variance(GridCounts(trust=trust, cells=1), public))
        grid = DensityGrid(published.half, cells_for(planned))
        session.prepare(DensityView(published, grid, classes))
        counts = GridCounts(trust=trust, cells=grid.cells**2 * (len(classes) + 1))
        average, variance = session.once(counts, public, "density")
        return Density(grid, average.reshape(-1, grid.cells, grid.cells), math.sqrt(variance), classes)


def _names(classes: Sequence[str] | Sequence[int]) -> tuple[str, ...]:
    """Return the names of classes, or raise unless they are distinct, and none is "other"."""
    if isinstance(classes, str) or any(isinstance(each, bool) or not isinstance(each, str | int) for each in classes):
        raise InvalidParameter("classes", classes, "a list of names or whole numbers")
    names = tuple(str(each).strip() for each in classes)
    if len(set(names)) < len(names) or "" in names:
        raise InvalidParameter("classes", names, "distinct labels, none of them empty")
    if OTHER in names:
        raise InvalidParameter("classes", names, f"without {OTHER!r}, the class of all labels that are not named")
    return names


def spread_out(landmarks: Array, subspace: Subspace, count: int, generator: np.random.Generator) -> Array:
    """Return anchors: several points around each landmark. Post-processing.

    t-SNE spreads few landmarks evenly, without gaps between groups. So each becomes several points, with a part of the
    data's variance that the landmarks do not have.

    Parameters
    ----------
    landmarks : array of shape (n_y, d)
    subspace : Subspace
    count : int
        Number of anchors, at least n_y.
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
