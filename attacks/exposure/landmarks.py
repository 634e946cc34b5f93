"""Exposure: do landmarks lie nearer to the records that they were learned from than to others like them?

A landmark that memorises comes close to a record, and an outlier shows itself by a landmark where no other record is.
The comparison is with fresh records of the same distribution. What is found about single records is for their owner
alone: it lives in an object of its own, `OwnerView`, and no public page or JSON holds it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.shared.gradients import Float64
from attacks.shared.statistics import Interval, auc
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.kernels import as_points, check_same_features, squared_distances, squared_norms

PERMUTATIONS, RESAMPLES = 9999, 2000
ATTRIBUTES = 16
BLOCK = 256


@dataclass(frozen=True, eq=False)
class Exposure:
    """Memorisation by landmarks, in numbers about all records together.

    Parameters
    ----------
    landmarks, records : int
        n_y, and how many records, and as many fresh ones, were compared.
    share : Interval
        Share of landmarks whose nearest neighbour among all those is a record and not a fresh one: ½ without
        memorisation. The interval is a bootstrap over the distinct neighbours, because landmarks that share one are
        not independent.
    p_value : float
        Of "the share is ½ by chance", one-sided, by exchanging the labels of records and fresh records; exact.
    to_records, to_fresh : array of shape (n_y,)
        Distance of each landmark to the nearest.
    attributes : Interval
        How often an attribute is guessed better for a record than for a fresh one (½ without exposure): one attribute
        is hidden, and read off the landmark that is nearest in all others. AUC with DeLong's interval.
    """

    landmarks: int
    records: int
    share: Interval
    p_value: float
    to_records: Float64
    to_fresh: Float64
    attributes: Interval

    @property
    def ratio(self) -> float:
        """Median distance to the nearest record over that to the nearest fresh one: 1 without memorisation."""
        fresh = float(np.median(self.to_fresh))
        return float(np.median(self.to_records)) / fresh if fresh else math.nan

    @property
    def summary(self) -> Mapping[str, float | None]:
        """Numbers for tables."""
        return {
            "landmarks nearer to records": self.share.value,
            "p-value": self.p_value,
            "distance ratio": None if math.isnan(self.ratio) else self.ratio,
            "attributes guessed better": self.attributes.value,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the public numbers, none of them about a single record."""
        return {
            "landmarks": self.landmarks,
            "records": self.records,
            "share": self.share.to_dict(),
            "p_value": self.p_value,
            "median_to_records": float(np.median(self.to_records)),
            "median_to_fresh": float(np.median(self.to_fresh)),
            "attributes": self.attributes.to_dict(),
        }


def exposure(
    landmarks: npt.ArrayLike, records: npt.ArrayLike, fresh: npt.ArrayLike, *, rng: np.random.Generator
) -> Exposure:
    """Compare how near landmarks are to records and to fresh records.

    Of the two sets the larger is thinned at random to the size of the smaller, so that neither has the nearest
    neighbour by its number.

    Parameters
    ----------
    landmarks : array of shape (n_y, m)
    records, fresh : arrays of shape (n, m), (f, m)
        At least 2 of each, of one distribution; the landmarks have seen the former only.
    rng : numpy.random.Generator
    """
    Y, inside, outside = (
        checked_points(each, name)
        for each, name in ((landmarks, "landmarks"), (records, "records"), (fresh, "fresh records"))
    )
    check_same_features(inside, Y)
    check_same_features(outside, Y)
    size = min(len(inside), len(outside))
    inside, outside = (each[rng.permutation(len(each))[:size]] for each in (inside, outside))
    (near, to_records), (near_fresh, to_fresh) = nearest(Y, inside), nearest(Y, outside)
    # The label of each landmark's nearest neighbour; ties go to the fresh record, against the finding.
    own = to_records < to_fresh
    neighbours, counts = np.unique(np.where(own, near, size + near_fresh), return_counts=True)
    is_record = neighbours < size
    share = float(counts[is_record].sum()) / len(Y)
    return Exposure(
        landmarks=len(Y),
        records=size,
        share=Interval(share, *_bootstrap(counts, is_record, rng)),
        p_value=_exchange(counts, share, size, rng),
        to_records=to_records,
        to_fresh=to_fresh,
        attributes=_attributes(Y, inside, outside, rng),
    )


def nearest(points: Float64, targets: Float64, *, apart: bool = False) -> tuple[npt.NDArray[np.int64], Float64]:
    """Return the nearest target of each point and its distance, in blocks; with `apart` a point is not its own.

    Distances of a few ulp of the norms are taken as 0, since squares cannot tell them from it.
    """
    indices, squares = np.empty(len(points), np.int64), np.empty(len(points))
    for start in range(0, len(points), BLOCK):
        part = points[start : start + BLOCK]
        block = squared_distances(part, targets)
        if apart:
            block[np.arange(len(part)), start + np.arange(len(part))] = np.inf
        indices[start : start + BLOCK] = block.argmin(axis=1)
        squares[start : start + BLOCK] = block.min(axis=1)
    rounding = 1e-14 * (np.vecdot(points, points) + float(np.vecdot(targets, targets).max()))
    return indices, np.sqrt(np.where(squares > rounding, squares, 0.0))


def checked_points(values: npt.ArrayLike, name: str) -> Float64:
    """Return at least two finite points in float64, or raise."""
    points: Float64 = np.ascontiguousarray(values, dtype=np.float64)
    as_points(points, name, minimum=2)
    squared_norms(points, name)  # refuses what is not finite
    return points


def _bootstrap(
    counts: npt.NDArray[np.int64], hits: npt.NDArray[np.bool_], rng: np.random.Generator
) -> tuple[float, float]:
    """Percentile interval of Σ counts·hits/Σ counts over resampled neighbours."""
    drawn = rng.integers(len(counts), size=(RESAMPLES, len(counts)))
    shares = (counts * hits)[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(shares, [0.025, 0.975])
    return float(low), float(high)


def _exchange(counts: npt.NDArray[np.int64], share: float, size: int, rng: np.random.Generator) -> float:
    """p-value of the share when the labels of `size` records and `size` fresh ones are exchanged at random.

    If landmarks do not depend on which of the 2·size are records, every labelling is as likely. A labelling gives
    a hypergeometric number of the neighbours the label "record", and each set of that size with equal probability.
    """
    marked = rng.hypergeometric(size, size, len(counts), size=PERMUTATIONS)
    ranks = rng.random((PERMUTATIONS, len(counts))).argsort(axis=1).argsort(axis=1)
    shares = ((ranks < marked[:, None]) @ counts) / counts.sum()
    return float(1 + (shares >= share - 1e-12).sum()) / (1 + PERMUTATIONS)


def _attributes(Y: Float64, inside: Float64, outside: Float64, rng: np.random.Generator) -> Interval:
    chosen = rng.permutation(Y.shape[1])[:ATTRIBUTES]
    return auc(*(-attribute_errors(Y, points, chosen.tolist()) for points in (inside, outside)))


def attribute_errors(landmarks: Float64, points: Float64, attributes: Sequence[int]) -> Float64:
    """Return the mean error of guessing hidden attributes of each point, shape (k,).

    Attribute a is guessed as that of the landmark nearest in all other attributes.
    """
    if not attributes:
        raise DpfedvisError("no attributes to guess")
    errors = np.zeros(len(points))
    for start in range(0, len(points), BLOCK):
        part = points[start : start + BLOCK]
        squares = squared_distances(part, landmarks)
        for a in attributes:
            gaps = np.abs(part[:, a, None] - landmarks[:, a])
            found = (squares - gaps**2).argmin(axis=1)
            errors[start : start + BLOCK] += gaps[np.arange(len(part)), found]
    mean: Float64 = errors / len(attributes)
    return mean
