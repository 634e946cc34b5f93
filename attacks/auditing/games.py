"""From the scores of games to bounds and a verdict, whatever the mechanism."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr, expit

from accounting import checks
from accounting.errors import InvalidParameter
from attacks.auditing.bounds import (
    Claim,
    epsilon_from_gdp,
    epsilon_from_one_run,
    epsilon_from_rates,
    planned_guesses,
)
from attacks.auditing.evidence import Evidence, Predictor, Seen, weigh
from attacks.auditing.result import AuditResult, Guesses, LowerBound, Scores
from attacks.shared.statistics import rate_above
from dpfedvis.numerics.kernels import Array

INDEPENDENT = "independent games, fair coins"
GAUSSIAN = "Gaussian trade-off (the claim's own form)"
_UNFAIR = 1e-6  # probability under which sides are too uneven for fair coins


def audit_games(
    scores_in: npt.ArrayLike,
    scores_out: npt.ArrayLike,
    claim: Claim,
    *,
    threshold: float | None = None,
    confidence: float = 0.95,
    alarm: float = 1e-3,
    title: str = "games",
    seen: str = "scores",
    facts: Mapping[str, Any] | None = None,
) -> AuditResult:
    """Compare the scores of many games with a claim.

    Each game tossed a fair coin of its own between two neighbouring data sets, "in" and "out", and gave the adversary's
    score one number, the larger the more it speaks for "in".

    Parameters
    ----------
    scores_in, scores_out : arrays of shape (games_in,), (games_out,)
        Of the games in which the coin said so; at least one of each.
    claim : Claim
    threshold : float, optional
        Where guesses of "in" begin, fixed before the run: by default μ/2 of the claim, which is right for
        log-likelihood ratios over μ, shifted by μ/2 so that they are N(0, 1) out and N(μ, 1) in. Needed if the claim
        has no μ.
    confidence : float
        Of each bound.
    alarm : float
        Most that the probability may be with which code that keeps its claim is called violated: the verdict is by
        bounds of confidence 1 − `alarm`/2 each.
    title, seen : str
        For the result.
    facts : mapping, optional
        Numbers of the run, ready for JSON.

    Returns
    -------
    AuditResult

    Notes
    -----
    If games differ in their errors, their mean rates still obey the trade-off function, which is convex. The number of
    one-run guesses comes from the claim and the number of games, before any score is looked at. Sides so uneven that
    fair coins cannot explain them are refused, as the bounds would not hold: always guessing the larger side would win.
    """
    inside, outside = _scores("scores_in", scores_in), _scores("scores_out", scores_out)
    confidence, alarm = checks.probability("confidence", confidence), checks.probability("alarm", alarm)
    if threshold is None:
        if claim.mu is None:
            raise InvalidParameter("threshold", None, "given for a claim without μ, and fixed before the run")
        threshold = claim.mu / 2
    games = len(inside) + len(outside)
    if 2 * float(bdtr(min(len(inside), len(outside)), games, 0.5)) < _UNFAIR:
        raise InvalidParameter(
            "games in and out", (len(inside), len(outside)), "by fair coins, so about as many of each"
        )
    known = claim.exists and claim.mu is not None
    guesses = planned_guesses(games, float(claim.mu or 0), claim.delta, confidence) if known else games
    counts = _count(inside, outside, float(threshold), guesses)
    return AuditResult(
        title=title,
        claim=claim,
        bounds=_bounds(counts, claim, confidence),
        alarm=alarm,
        beyond_chance=max(each.epsilon for each in _bounds(counts, claim, 1 - alarm / 2)),
        counts=counts,
        seen=seen,
        facts=dict(facts or {}),
        scores_in=inside,
        scores_out=outside,
    )


def _bounds(counts: Guesses, claim: Claim, confidence: float) -> tuple[LowerBound, ...]:
    sides = (counts.false_positives, counts.games_out, counts.false_negatives, counts.games_in)
    if claim.exists and claim.mu is not None:
        epsilon = epsilon_from_gdp(*sides, claim.delta, confidence)
        first = LowerBound("gdp", epsilon, confidence, (INDEPENDENT, GAUSSIAN))
    else:
        half = (1 + confidence) / 2
        rates = rate_above(*sides[:2], half), rate_above(*sides[2:], half)
        first = LowerBound("rates", epsilon_from_rates(*rates, claim.delta), confidence, (INDEPENDENT,))
    one_run = epsilon_from_one_run(counts.games, counts.guesses, counts.correct, claim.delta, confidence)
    return first, LowerBound("one-run", one_run, confidence, ("fair independent coins only",))


def _count(inside: Scores, outside: Scores, threshold: float, guesses: int) -> Guesses:
    scores = np.concatenate([inside, outside]) - threshold
    truth = np.arange(len(scores)) < len(inside)
    right = (scores > 0) == truth
    # Of games that tie, the wrong guesses first: any order that does not look at the coins does at least as well.
    surest = np.lexsort((right, -np.abs(scores)))[:guesses]
    return Guesses(
        threshold=threshold,
        games_in=len(inside),
        games_out=len(outside),
        false_negatives=int(np.count_nonzero(~right[truth])),
        false_positives=int(np.count_nonzero(~right[~truth])),
        guesses=guesses,
        correct=int(np.count_nonzero(right[surest])),
    )


def _scores(name: str, values: npt.ArrayLike) -> Scores:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or len(scores) == 0:
        raise InvalidParameter(f"shape of {name}", scores.shape, "of one dimension, with at least one game")
    if np.isnan(scores).any():
        raise InvalidParameter(name, "nan", "numbers")
    return scores


def audit_uploads(
    seen: Iterable[Seen],
    predict: Predictor,
    coins: Mapping[str, bool],
    claim: Claim,
    *,
    confidence: float = 0.95,
    title: str = "uploads",
    description: str = "all uploads of each client",
    facts: Mapping[str, Any] | None = None,
) -> AuditResult:
    """Audit everything that a set of clients uploaded as one mechanism: each client hosts one game.

    Clients hold disjoint records, so that the games of different clients are neighbours of one and the same data set,
    and noise of different clients is independent.

    Parameters
    ----------
    seen : iterable of Seen
        A watcher's or a recording's uploads, of any number of stages.
    predict : Predictor
    coins : mapping of str to bool
        Name of each client with a canary → whether it holds the "in" record.
    claim : Claim
        Such as `Claim.of_ledger`.
    confidence, title, facts
        As in `audit_games`.
    description : str
        What was seen, for the result.

    Notes
    -----
    The threshold is at a log-likelihood ratio of 0, whatever the run shows. With a μ the scores are the ratios over μ,
    shifted by μ/2, so that under the claim they are N(0, 1) out and N(μ, 1) in at most; without one they are the
    probability of "in".
    """
    return audit_evidence(
        weigh(seen, predict),
        coins,
        claim,
        confidence=confidence,
        title=title,
        description=description,
        facts=facts,
    )


def audit_evidence(
    evidence: Evidence,
    coins: Mapping[str, bool],
    claim: Claim,
    *,
    confidence: float,
    title: str,
    description: str,
    facts: Mapping[str, Any] | None = None,
) -> AuditResult:
    """Audit what is known of each coin, of one run or of many; parameters as in `audit_uploads`."""
    missing = [game for game in coins if game not in evidence.ratios]
    if missing:
        raise InvalidParameter("uploads", f"none of {missing[0]}", "at least one with a prediction for every canary")
    facts = dict(facts or {})
    if claim.mu is not None and evidence.distance:
        facts["reach"] = max(evidence.distance.values()) / claim.mu
    ratios = np.array([evidence.ratios[game] for game in coins])
    tossed = np.array(list(coins.values()), dtype=bool)
    scores, threshold = scores_of(ratios, claim)
    return audit_games(
        scores[tossed],
        scores[~tossed],
        claim,
        threshold=threshold,
        confidence=confidence,
        title=title,
        seen=description,
        facts=facts,
    )


def scores_of(ratios: Array, claim: Claim) -> tuple[Array, float]:
    """Return scores in the units of the claim, and the threshold that stands for a ratio of 0."""
    if claim.mu is None:
        return expit(ratios), 0.5
    return ratios / claim.mu + claim.mu / 2, claim.mu / 2
