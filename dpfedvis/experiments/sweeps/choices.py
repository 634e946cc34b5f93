"""Answers from the curves: the best setting at an ε, the least ε for a score, and the ε of all runs together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accounting import gaussian_epsilon, gaussian_mu
from accounting.rounding import rounded_up
from dpfedvis.evaluation.metrics import Metric
from dpfedvis.experiments.sweeps.summary import Context, Point

INF = math.inf
# Scores whose least ε is reported; those that no point or every point reaches are skipped.
_LEVELS = {True: (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95), False: (0.5, 0.3, 0.2, 0.1, 0.05, 0.02)}


@dataclass(frozen=True)
class Cheapest:
    """The least ε at which a level is reached.

    Parameters
    ----------
    level : float
    by_mean : Point, optional
        Whose mean reaches it.
    by_band : Point, optional
        Whose whole confidence interval does.
    """

    level: float
    by_mean: Point | None
    by_band: Point | None


@dataclass(frozen=True)
class Best:
    """The best setting at an ε, and those that are not significantly worse."""

    epsilon: float
    point: Point
    ties: tuple[Point, ...]


def measured(points: Sequence[Point], metric: Metric) -> list[Point]:
    """Return the points that have a score of this metric; chance is no setting."""
    return [point for point in points if metric.key in point.scores and point.kind != "chance"]


def pareto(context: Context, metric: Metric) -> list[Point]:
    """Return the points that no other beats in both ε end to end and the mean score, cheapest first.

    A run whose budget covers the landmarks alone counts with the ε that it has end to end, which is ∞.
    """
    found: list[Point] = []
    ordered = sorted(
        measured(context.points, metric),
        key=lambda point: (_rounded(point.epsilon), -_gain(point, metric)),
    )
    for point in ordered:
        if not found or metric.better(point.scores[metric.key].mean, found[-1].scores[metric.key].mean):
            found.append(point)
    return found


def cheapest(context: Context, metric: Metric) -> list[Cheapest]:
    """For each level, the least finite ε end to end that reaches it, without levels that every or no point reaches."""
    points = sorted(
        (point for point in measured(context.points, metric) if point.epsilon < math.inf),
        key=lambda point: (_rounded(point.epsilon), -_gain(point, metric)),
    )
    answers = []
    for level in _LEVELS[metric.higher]:
        means = [point for point in points if _gain(point, metric) >= _signed(level, metric)]
        bands = [point for point in means if _surely(point, metric) >= _signed(level, metric)]
        if means and len(means) < len(points):
            answers.append(Cheapest(level, means[0], bands[0] if bands else None))
    return answers


def best(context: Context, metric: Metric, *, landmarks_only: bool = False) -> list[Best]:
    """For each budget that was tried, the setting with the best mean.

    Parameters
    ----------
    context : Context
    metric : Metric
    landmarks_only : bool
        Compare runs whose budget covers the landmarks alone, by that ε, instead of end-to-end runs.
    """
    groups: dict[float, list[Point]] = {}
    for point in measured(context.runs, metric):
        epsilon = point.in_scope if landmarks_only else point.epsilon
        if point.landmarks_only == landmarks_only and epsilon is not None:
            groups.setdefault(_rounded(epsilon), []).append(point)
    answers = []
    for epsilon, own in sorted(groups.items()):
        first = max(own, key=lambda point: _gain(point, metric))
        # A tie if the confidence intervals overlap; one seed has no interval.
        ties = [each for each in own if each is not first and _hopefully(each, metric) >= _surely(first, metric) > -INF]
        answers.append(Best(epsilon, first, tuple(ties)))
    return answers


def composable(points: Sequence[Point]) -> list[Point]:
    """Return the points whose runs are Gaussian with a finite ε end to end; sampling records is of another form."""
    return [point for point in points if 0 < point.epsilon < math.inf and not point.sampled]


def together(points: Sequence[Point]) -> float | None:
    """ε of all runs that are `composable`, each seed a run, at the largest δ among them; None if there are none.

    A run of Gaussian releases that spends (ε, δ) exactly is μ-GDP with the μ of `gaussian_mu`, and runs compose to √Σμ²
    (Dong, Roth & Su 2022).
    """
    own = composable(points)
    if not own:
        return None
    delta = max(point.delta for point in own)
    squares = [point.seeds * gaussian_mu(point.epsilon, point.delta) ** 2 for point in own]
    return gaussian_epsilon(math.sqrt(math.fsum(squares)), delta)


def _rounded(epsilon: float) -> float:
    """ε rounded up to four digits, so that runs of the same budget are grouped together."""
    return epsilon if math.isinf(epsilon) else float(rounded_up(epsilon))


def _signed(value: float, metric: Metric) -> float:
    return value if metric.higher else -value


def _gain(point: Point, metric: Metric) -> float:
    return _signed(point.scores[metric.key].mean, metric)


def _surely(point: Point, metric: Metric) -> float:
    """Worst end of the confidence interval; of one seed nothing is sure."""
    return _gain(point, metric) - point.scores[metric.key].reach


def _hopefully(point: Point, metric: Metric) -> float:
    half = point.scores[metric.key].half
    return -INF if half is None else _gain(point, metric) + half
