"""Membership inference: was this record among those behind what was released?

Scores (`attacks.membership.scores`) say how much a release speaks for a record; `membership` turns those of members and
of others into rates. Neighbours replace one record, so in every game "out" means that another record stood in its
place. That makes each rate comparable with the trade-off that μ or (ε, δ) allows, also when the game is easier than the
worst case. It takes members and others of one distribution: where they differ, so do their scores, without any leak.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from accounting.rounding import rounded_up
from attacks.shared.gradients import Float64
from attacks.shared.statistics import Interval, Limit, as_scores, auc, conformal_threshold, exceeds, rate

FPRS = (0.001, 0.01)


@dataclass(frozen=True)
class Game:
    """The rules of a membership game.

    Parameters
    ----------
    name : str
    members, others : str
        Records that are in, and records that are out.
    knows : str
        What the adversary has, besides the record in question.
    independent : bool
        Whether each score has noise of its own. Scores of one client share the client's noise; intervals are then over
        records, given this one run.
    """

    name: str
    members: str
    others: str
    knows: str
    independent: bool


@dataclass(frozen=True)
class OperatingPoint:
    """The rates at one threshold, which was fixed before any score of a member was seen.

    Parameters
    ----------
    target : float
        Target FPR.
    fpr, tpr : Interval, optional
        Counted rates; None where the calibration set is too small for this target.
    allowed : float
        Largest TPR at the target that the guarantee allows.
    """

    target: float
    fpr: Interval | None
    tpr: Interval | None
    allowed: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        counted = {"fpr": self.fpr, "tpr": self.tpr}
        found = {name: None if each is None else each.to_dict() for name, each in counted.items()}
        return {"target": self.target, **found, "allowed": self.allowed}


@dataclass(frozen=True, eq=False)
class Membership:
    """Outcome of one game.

    Parameters
    ----------
    game : Game
    auc : Interval
        With DeLong's interval.
    points : tuple of OperatingPoint
        With Clopper–Pearson intervals.
    limit : Limit
    members, others : arrays of shape (k,)
        Scores.
    """

    game: Game
    auc: Interval
    points: tuple[OperatingPoint, ...]
    limit: Limit
    members: Float64
    others: Float64

    @property
    def summary(self) -> Mapping[str, float | None]:
        """Numbers for tables."""
        values: dict[str, float | None] = {"AUC": self.auc.value, "AUC at most": self.limit.auc()}
        for point in self.points:
            values[f"TPR at FPR {point.target:.1%}"] = None if point.tpr is None else point.tpr.value
            values[f"TPR at FPR {point.target:.1%} at most"] = point.allowed
        return values

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the scores, which are about single records."""
        return {
            "game": vars(self.game),
            "members": len(self.members),
            "others": len(self.others),
            "auc": self.auc.to_dict(),
            "largest_auc": self.limit.auc(),
            "points": [point.to_dict() for point in self.points],
            "limit": self.limit.to_dict(),
        }

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def markdown(self) -> str:
        """Return a section."""
        game = self.game
        lines = [
            f"## From {game.name}",
            "",
            f"In: {game.members}. Out: {game.others}. The adversary knows {game.knows}.",
            f"{len(self.members)} records in, {len(self.others)} out.",
            "",
            "| | found (95 %) | most that the guarantee allows |",
            "|---|---|---|",
            f"| AUC | {self.auc} | {rounded_up(self.limit.auc())} |",
        ]
        for point in self.points:
            found = "too few records out to set a threshold" if point.tpr is None else str(point.tpr)
            counted = "" if point.fpr is None else f" (counted {point.fpr})"
            lines.append(f"| TPR at FPR {point.target:.1%}{counted} | {found} | {rounded_up(point.allowed)} |")
        if not game.independent:
            lines += ["", "Records of one client share its noise: the intervals are over records, given this run."]
        return "\n".join(lines) + "\n"


def membership(
    members: npt.ArrayLike,
    others: npt.ArrayLike,
    *,
    game: Game,
    limit: Limit,
    calibration: npt.ArrayLike | None = None,
    fprs: Sequence[float] = FPRS,
) -> Membership:
    """Turn scores into rates.

    Parameters
    ----------
    members, others : arrays of shape (k,), (k′,)
        Scores of records that are in and out; the larger, the more they speak for "in".
    game : Game
    limit : Limit
    calibration : array of shape (c,), optional
        Scores of further records that are out, from which thresholds are taken (`conformal_threshold`). Without
        them the scores must be N(0, 1) for a record that is out, and thresholds are Φ⁻¹(1 − FPR).
    fprs : sequence of float
        FPRs to aim at.
    """
    inside, outside = as_scores(members), as_scores(others)
    points = []
    for target in fprs:
        threshold = -float(ndtri(target)) if calibration is None else conformal_threshold(calibration, target)
        counted = [rate(int((scores > threshold).sum()), len(scores)) for scores in (outside, inside)]
        found = counted if threshold < math.inf else [None, None]
        points.append(OperatingPoint(target, found[0], found[1], limit.tpr(target)))
    return Membership(game, auc(inside, outside), tuple(points), limit, inside, outside)


@dataclass(frozen=True, eq=False)
class StrongGames:
    """Outcome of many strong games.

    Parameters
    ----------
    outcome : Membership
    distance : float
        Of the two hypotheses in units of the noise, the mean over games: what is possible for these pairs. At most μ if
        the code keeps its claim.
    accuracy : Interval
        Share of right guesses, at the threshold halfway between the two.
    allowed : float
        The largest probability of a right guess that the guarantee allows, Φ(μ/2) for μ-GDP (`Limit.accuracy`).
    possible : float
        Φ(distance/2), that of the best test for this pair with noise of that scale; the mean over games.
    excess, excess_possible : float
        p-values of "no more right guesses than allowed", and than possible; exact, one-sided. A small one is a leak.
    """

    outcome: Membership
    distance: float
    accuracy: Interval
    allowed: float
    possible: float
    excess: float
    excess_possible: float

    @property
    def summary(self) -> dict[str, float | None]:
        """Numbers for tables."""
        return {"accuracy": self.accuracy.value, "accuracy at most": self.allowed, **self.outcome.summary}

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the scores, ready for JSON."""
        names = ("distance", "allowed", "possible", "excess", "excess_possible")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        return values | {"accuracy": self.accuracy.to_dict(), **self.outcome.to_dict()}

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def markdown(self) -> str:
        """Return a section."""
        return self.outcome.markdown() + (
            f"\nGuessed right: {self.accuracy}; the best test for these records {self.possible:.4g}, most that the "
            f"guarantee allows {self.allowed:.4g}. Exact one-sided p-values of no more than that: "
            f"{self.excess_possible:.3g} and {self.excess:.3g}.\n"
        )


def judge(
    z: npt.ArrayLike,
    coins: npt.NDArray[np.bool_],
    distance: npt.ArrayLike,
    limit: Limit,
    game: Game,
) -> StrongGames:
    """Return rates and p-values of games with scores z, N(0, 1) out and N(distance, 1) in, and these coins.

    Distances may differ between games. Then the number of right guesses is a sum of coins of different probabilities,
    whose tail from one above the mean on is no heavier than that of the binomial with the mean probability (Hoeffding
    1956, Thm 4): small p-values err on the side of the code.
    """
    scores = np.asarray(z, dtype=np.float64)
    apart = np.broadcast_to(np.asarray(distance, dtype=np.float64), scores.shape)
    correct, games = int(((scores > apart / 2) == coins).sum()), len(scores)
    allowed, possible = limit.accuracy(), float(ndtr(apart / 2).mean())
    return StrongGames(
        membership(scores[coins], scores[~coins], game=game, limit=limit),
        float(apart.mean()),
        rate(correct, games),
        allowed,
        possible,
        exceeds(correct, games, allowed),
        exceeds(correct, games, possible),
    )
