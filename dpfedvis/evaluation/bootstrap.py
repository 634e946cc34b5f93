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
from dpfedvis.server.verdict import Verdict

MOST = 2000  # records that are drawn
GROUPS = 8  # of neighbouring landmarks, whose records are to be told apart
LEAST_LEFT = 0.02  # of the variance along a direction is left around each landmark
STAGE = "drawn again"


def drawn_again(estimator: PrivateMapEstimator, progress: Progress | None = None) -> Verdict:
    """Return the verdict of a fitted private map with how much of it would come back.

    The landmarks of the map are put into a few groups. The new map is good if its landmarks tell of a record which
    group it was drawn from: see `agreement`. A map without signal, or without regions, is not asked.

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
    said = f"Made again from records drawn from it, about {100 * back:.0f} % of the map comes back."
    return replace(verdict, comes_back=back, sentence=f"{verdict.sentence} {said}")


def returns(verdict: Verdict, result: FedDLResult, subspace: Subspace, program: Program) -> float:
    """Return how much of a map comes back when its program runs again on records that are drawn from it."""
    contract, landmarks = result.contract, result.landmarks
    generator = Streams(contract.seed).generator("bootstrap")
    sizes, budget = _sizes([member.denominator for member in contract.members], contract.budget)
    origins, points = drawn(verdict, landmarks, subspace, sum(sizes), generator)
    parts = np.split(points.astype(np.float32), np.cumsum(sizes)[:-1])
    seed, further = int(generator.integers(2**32)), dict(program.settings.feddl)
    if further.get("public_records") is not None:
        further["public_records"] = max(sizes)
    again = Program(replace(program.settings, budget=budget, noise="seeded", seed=seed, feddl=further))
    with simulated(_at_sites(parts, budget), budget=budget, noise="seeded") as link:
        learned = again.learner(Members.asked(link, budget)).run(link)
    nearest = squared_distances(learned.subspace.coordinates(points), learned.feddl.landmarks).argmin(axis=1)
    return agreement(groups_of(verdict, landmarks)[origins], nearest)


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


def _at_sites(parts: list[Array], budget: Budget) -> FederatedData:
    """Return records that were drawn as those of sites; where the unit is a person, each has as many as are allowed."""
    persons = [np.arange(len(part)) // budget.rows for part in parts] if budget.unit == "person" else None
    return FederatedData(parts, names=[f"drawn {number}" for number in range(len(parts))], persons=persons)


def _sizes(denominators: list[float], budget: Budget | None) -> tuple[list[int], Budget]:
    """Return how many records to draw for each site, and the budget with which their noise is that of the map.

    Noise in a mean over n records is as 1/(nμ): with n/f of them, f·μ gives the same.
    """
    assert budget is not None
    total = math.fsum(denominators)
    if budget.unit == "client":  # each mean is over a site's own records, however many there are
        each = max(2, min(MOST // len(denominators), 200))
        return [each] * len(denominators), budget
    # A multiple of the rows of a person.
    wanted = [budget.rows * max(2, round(own * min(1.0, MOST / total) / budget.rows)) for own in denominators]
    factor = total / sum(wanted)
    epsilon = gaussian_epsilon(budget.mu * factor, budget.delta) if factor > 1 else budget.epsilon
    if epsilon > MOST_EPSILON / 2:
        return [budget.rows * max(2, round(own / budget.rows)) for own in denominators], budget
    return wanted, replace(budget, epsilon=epsilon)


def groups_of(verdict: Verdict, landmarks: Array) -> NDArray[np.int64]:
    """Return the group of each landmark, shape (k,): those that are drawn in at most `GROUPS`, the others in one."""
    from scipy.cluster.hierarchy import fcluster, linkage

    found, shown = np.zeros(len(landmarks), dtype=np.int64), np.asarray(verdict.drawn)
    if shown.sum() > 1:
        tree = linkage(landmarks[shown].astype(np.float64), "ward")
        found[shown] = fcluster(tree, GROUPS, "maxclust")
    return found


def agreement(groups: NDArray[np.int64], cells: NDArray[np.int64]) -> float:
    """Return how well cells tell groups, from 0 (no better than the largest group) to 1.

    Half of the records say which group each cell is of, the other half is judged by it. If p is the share of the
    largest group and a that of the right ones, this is (a − p)/(1 − p).
    """
    known, asked = groups[::2], groups[1::2]
    counts = np.zeros((int(cells.max()) + 1, int(groups.max()) + 1))
    np.add.at(counts, (cells[::2], known), 1)
    right = float(np.mean(counts.argmax(axis=1)[cells[1::2]] == asked))
    largest = float(np.bincount(asked).max() / len(asked))
    return max((right - largest) / (1 - largest), 0.0) if largest < 1 else 0.0
