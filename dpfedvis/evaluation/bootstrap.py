"""Parametric bootstrap of a private map: how much of it would come back if it were true. Post-processing.

Records are drawn from what was released, a mixture around the landmarks with the shares that were counted, and the same
recipe runs again on them, with noise of the same size. What of the map comes back then is at most what can be trusted
of it.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, gaussian_epsilon
from accounting.exactness import MOST_EPSILON
from dpfedvis.data import FederatedData
from dpfedvis.estimators.private_map import PrivateMapEstimator
from dpfedvis.estimators.simulation import simulated
from dpfedvis.numerics.kernels import Array, squared_distances
from dpfedvis.numerics.layouts import Progress
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.server import Program
from dpfedvis.server.feddl import FedDLResult
from dpfedvis.server.members import Members
from dpfedvis.server.verdict import Verdict, verdict_of

MOST = 2000  # records that are drawn
LEAST_LEFT = 0.02  # of the variance along a direction is left around each landmark
STAGE = "drawn again"


def drawn_again(estimator: PrivateMapEstimator, progress: Progress | None = None) -> Verdict:
    """Return the verdict of a fitted private map with how much of it would come back.

    That is the adjusted mutual information between the regions which records were drawn from and those of the new map
    which they are nearest to: 1 if the regions come back, 0 if they do no better than chance. A map without signal, or
    without regions, has none.

    Parameters
    ----------
    estimator : PrivateMapEstimator
    progress : callable, optional
        Called with (stage, done, total).
    """
    verdict = estimator.verdict_
    if not verdict.regions or verdict.signal == "no":
        return verdict
    if progress is not None:
        progress(STAGE, 0, 1)
    back = returns(verdict, estimator.feddl_, estimator.published_map_.subspace, estimator.program_)
    if progress is not None:
        progress(STAGE, 1, 1)
    return replace(verdict, comes_back=back)


def returns(verdict: Verdict, result: FedDLResult, subspace: Subspace, program: Program) -> float:
    """Return how much of a map comes back when its program runs again on records that are drawn from it."""
    from sklearn.metrics import adjusted_mutual_info_score

    contract, landmarks = result.contract, result.landmarks
    generator = Streams(contract.seed).generator("bootstrap")
    sizes, budget = _sizes([member.denominator for member in contract.members], contract.budget)
    origins, points = drawn(verdict, landmarks, subspace, sum(sizes), generator)
    parts = np.split(points.astype(np.float32), np.cumsum(sizes)[:-1])
    seed = int(generator.integers(2**32))
    again = Program(replace(program.settings, budget=budget, noise="seeded", seed=seed))
    names = [f"drawn {number}" for number in range(len(parts))]
    with simulated(FederatedData(parts, names=names), budget=budget, noise="seeded") as link:
        learned = again.learner(Members.asked(link, budget)).run(link)
    found = verdict_of(learned)
    regions, new = (_regions_of_landmarks(each) for each in (verdict, found))
    nearest = squared_distances(learned.subspace.coordinates(points), learned.feddl.landmarks).argmin(axis=1)
    return max(float(adjusted_mutual_info_score(regions[origins], new[nearest])), 0.0)


def drawn(
    verdict: Verdict, landmarks: Array, subspace: Subspace, count: int, generator: np.random.Generator
) -> tuple[NDArray[np.int64], Array]:
    """Draw records from what was released; return the landmark of each, and the records.

    Each region has its share, spread evenly over its landmarks; around a landmark records have what the landmarks lack
    of the variance, in the subspace by its directions, and outside of it alike in all.

    Returns
    -------
    (array of shape (count,), array of shape (count, m))
    """
    shares = np.zeros(len(landmarks))
    for region in verdict.regions:
        shares[list(region.landmarks)] = max(region.share, 0.0) / len(region.landmarks)
    shares = shares if shares.sum() > 0 else np.ones(len(landmarks))
    shares /= shares.sum()
    origins = generator.choice(len(landmarks), size=count, p=shares)
    # Second moments are about the released centre, which is off the mean by its noise.
    left = np.maximum(subspace.variances - shares @ np.square(landmarks), LEAST_LEFT * subspace.variances)
    inside = landmarks[origins] + np.sqrt(left) * generator.standard_normal((count, len(left)))
    features, dimensions = subspace.axes.shape
    rest = max((verdict.spread or 0.0) - float(subspace.variances.sum()), 0.0)
    outside = np.zeros((count, features))
    if features > dimensions and rest:
        outside = generator.standard_normal((count, features)) * math.sqrt(rest / (features - dimensions))
        outside -= (outside @ subspace.axes) @ subspace.axes.T
    return origins.astype(np.int64), subspace.points(inside) + outside


def _sizes(denominators: list[float], budget: Budget | None) -> tuple[list[int], Budget]:
    """Return how many records to draw for each site, and the budget with which their noise is that of the map.

    Noise in a mean over n records is as 1/(nμ): with n/f of them, f·μ gives the same.
    """
    assert budget is not None
    total = math.fsum(denominators)
    if budget.unit == "client":  # each mean is over a site's own records, however many there are
        each = max(2, min(MOST // len(denominators), 200))
        return [each] * len(denominators), budget
    wanted = [max(2, round(own * min(1.0, MOST / total))) for own in denominators]
    factor = total / sum(wanted)
    epsilon = gaussian_epsilon(budget.mu * factor, budget.delta) if factor > 1 else budget.epsilon
    if epsilon > MOST_EPSILON / 2:
        return [max(2, round(own)) for own in denominators], budget
    return wanted, replace(budget, epsilon=epsilon)


def _regions_of_landmarks(verdict: Verdict) -> NDArray[np.int64]:
    """Return the number of the region of each landmark; all that are not clear count as one."""
    found = np.full(len(verdict.drawn), -1, dtype=np.int64)
    for number, region in enumerate(verdict.regions):
        if region.clear:
            found[list(region.landmarks)] = number
    return found
