"""What an audit found, as a frozen fact: JSON, Markdown and a figure come from it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accounting.rounding import rounded_down, rounded_up
from attacks.auditing.claims import Claim

Verdict = Literal["consistent", "suspect", "violated", "no claim"]
Scores = NDArray[np.float64]

_MEANING: dict[Verdict, str] = {
    "consistent": "No lower bound is above the claim.",
    "suspect": "A lower bound is above the claim, by no more than chance explains: repeat with more canaries.",
    "violated": "A lower bound is above the claim: the code does not keep what the ledger says.",
}


@dataclass(frozen=True)
class LowerBound:
    """One certified lower bound on ε.

    Parameters
    ----------
    method : str
    epsilon : float
        The true ε at the claim's δ is at least this, at `confidence`.
    confidence : float
    assumptions : tuple of str
        What it needs beyond fair coins.
    """

    method: str
    epsilon: float
    confidence: float
    assumptions: tuple[str, ...]


@dataclass(frozen=True)
class Guesses:
    """The counts that the bounds rest on; threshold and number of guesses were fixed before the run.

    Parameters
    ----------
    threshold : float
        Scores above it are guesses of "in".
    games_in, games_out : int
        Games in which the coin said so.
    false_negatives, false_positives : int
        Of all games.
    guesses, correct : int
        Of the one-run method, which abstains from the games nearest to the threshold.
    """

    threshold: float
    games_in: int
    games_out: int
    false_negatives: int
    false_positives: int
    guesses: int
    correct: int

    @property
    def games(self) -> int:
        """All games."""
        return self.games_in + self.games_out


@dataclass(frozen=True, eq=False)
class AuditResult:
    """Claimed ε, certified lower bounds and the verdict.

    Parameters
    ----------
    title : str
        What was audited.
    claim : Claim
    bounds : tuple of LowerBound
    alarm : float
        Bound on the probability that code which keeps its claim is called violated.
    beyond_chance : float
        Largest lower bound at confidence 1 − alarm/2 for each method: what the verdict is by.
    counts : Guesses
    seen : str
        What the adversary saw, and what a canary is here.
    proof : str
        What shows without any chance that the claim is wrong, as a sentence; empty if nothing does.
    facts : dict
        Numbers of the run, ready for JSON; ``reach`` is the canaries' distance over the stated sensitivity.
    scores_in, scores_out : array of shape (games_in,), (games_out,)
        For the figure; not part of the JSON.
    """

    title: str
    claim: Claim
    bounds: tuple[LowerBound, ...]
    alarm: float
    beyond_chance: float
    counts: Guesses
    seen: str
    proof: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    scores_in: Scores = field(default_factory=lambda: np.empty(0), repr=False)
    scores_out: Scores = field(default_factory=lambda: np.empty(0), repr=False)

    @property
    def lower_bound(self) -> float:
        """The largest certified lower bound on ε."""
        return max(bound.epsilon for bound in self.bounds)

    @property
    def ratio(self) -> float | None:
        """Largest certified over claimed ε, at the bounds' own confidence. None without a claim."""
        if not self.claim.exists:
            return None
        return self.lower_bound / self.claim.epsilon if self.claim.epsilon > 0 else math.inf

    @property
    def verdict(self) -> Verdict:
        """Whether the claim stands, as far as this audit can see.

        At a confidence of 0.95 one honest audit in twenty has a bound above its claim, so that a violation needs more.
        """
        if not self.claim.exists:
            return "no claim"
        if self.proof or self.beyond_chance > self.claim.epsilon:
            return "violated"
        return "suspect" if self.lower_bound > self.claim.epsilon else "consistent"

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if not self.claim.exists:
            found = rounded_down(self.lower_bound)
            return f"No claim to audit; lower bound found: ε ≥ {found} at δ = {self.claim.delta:g}."
        return (
            f"{self.proof or _MEANING[self.verdict]} Claimed ε = {rounded_up(self.claim.epsilon)}, certified "
            f"ε ≥ {rounded_down(self.lower_bound)} at δ = {self.claim.delta:g}."
        )

    def bound(self, method: str) -> LowerBound:
        """Return the bound of this method."""
        return {each.method: each for each in self.bounds}[method]

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the scores, ready for JSON; no claim is null."""
        counts = self.counts
        return {
            "title": self.title,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "claimed_epsilon": self.claim.epsilon if self.claim.exists else None,
            "claimed_mu": self.claim.mu,
            "claim_source": self.claim.source,
            "delta": self.claim.delta,
            "lower_bound": self.lower_bound,
            "ratio": self.ratio,
            "alarm": self.alarm,
            "beyond_chance": self.beyond_chance,
            "proof": self.proof,
            "bounds": {
                each.method: {
                    "epsilon": each.epsilon,
                    "confidence": each.confidence,
                    "assumptions": list(each.assumptions),
                }
                for each in self.bounds
            },
            "canaries": counts.games,
            "counts": dict(vars(counts)),
            "seen": self.seen,
            "facts": self.facts,
        }

    def to_json(self) -> str:
        """Return JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def markdown(self, figure: str | None = None) -> str:
        """Return a Markdown page; `figure` is the name of a picture to show on it."""
        claim, counts = self.claim, self.counts
        lines = [f"# Audit: {self.title}", "", f"**{self.sentence}**", ""]
        lines += [f"![Scores and bounds]({figure})", ""] if figure else []
        lines += ["| | ε | share of the claim | confidence | assumes |", "|---|---|---|---|---|"]
        claimed = f"{claim.epsilon:.4g}" if claim.exists else "none"
        lines.append(f"| claim ({claim.source}) | {claimed} | | | |")
        for each in self.bounds:
            share = f"{each.epsilon / claim.epsilon:.2f}" if claim.exists and claim.epsilon > 0 else ""
            assumed = "; ".join(each.assumptions)
            lines.append(
                f"| {each.method} | ≥ {rounded_down(each.epsilon)} | {share} | {each.confidence:g} | {assumed} |"
            )
        lines += [
            "",
            f"δ = {claim.delta:g}. {counts.games} canaries: {counts.games_in} in, {counts.games_out} out; threshold "
            f"{counts.threshold:.4g}, fixed before the run; {counts.false_positives} false positives, "
            f"{counts.false_negatives} false negatives; {counts.correct} of {counts.guesses} one-run guesses correct.",
        ]
        if claim.exists:
            lines.append(f"The chance that code which keeps its claim is called violated is at most {self.alarm:g}.")
        lines += ["", f"What was seen: {self.seen}", ""]
        lines += [f"- {name}: {_shown(value)}" for name, value in self.facts.items()]
        return "\n".join(lines) + "\n"

    def figure(self, path: Path) -> None:
        """Write a picture (PNG) of the two distributions of scores and of the bounds."""
        from attacks.auditing.figure import draw

        draw(self, path)

    def __str__(self) -> str:
        bounds = ", ".join(f"{each.method} ε ≥ {rounded_down(each.epsilon)}" for each in self.bounds)
        return f"{self.title}: {self.verdict}. {self.sentence} ({bounds}; {self.counts.games} canaries)"


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
