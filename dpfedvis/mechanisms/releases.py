"""Single releases beside the mechanisms, by the name of what they release."""

from __future__ import annotations

from dpfedvis.mechanisms.base import Mechanism
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.scale import ExactMean, MedianDistance, Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments

SINGLE_RELEASES: dict[str, type[Mechanism]] = {
    each.what: each for each in (ScaleHistogram, Moments, SecondMoments, GridCounts, ExactMean, MedianDistance)
}
