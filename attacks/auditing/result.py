"""What an audit found, as a frozen fact: JSON, Markdown and a figure come from it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from accounting.rounding import rounded_down, rounded_up
from accounting.wording import SEEDED, short
from attacks.auditing.bounds import Claim
from attacks.auditing.findings import ALARM, Checked, Finding, joined
from dpfedvis.numerics.files import write_text
from dpfedvis.reporting.drawing import svg
from dpfedvis.reporting.rendering import render_markdown
from dpfedvis.runs.code_version import code_version

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
    tests : int
        Tests of noise and ledger beside the games; see `attacks.auditing.findings`.
    findings : tuple of Finding
        What they found, beyond chance.
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
    tests: int = 0
    findings: tuple[Finding, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    scores_in: Scores = field(default_factory=lambda: np.empty(0), repr=False)
    scores_out: Scores = field(default_factory=lambda: np.empty(0), repr=False)

    @property
    def simulation(self) -> bool:
        """Whether the noise of the games was seeded, so that it can be taken off."""
        return self.facts.get("noise") == SEEDED

    @property
    def one_machine(self) -> bool:
        """Whether one process held the records of all sites; it does in every audit."""
        return True

    @property
    def short(self) -> str:
        """The two facts that stand wherever ε does."""
        return short(simulation=self.simulation, one_machine=self.one_machine)

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
        if self.proof or self.findings or self.beyond_chance > self.claim.epsilon:
            return "violated"
        return "suspect" if self.lower_bound > self.claim.epsilon else "consistent"

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if not self.claim.exists:
            found = rounded_down(self.lower_bound)
            return f"No claim to audit; lower bound found: ε ≥ {found} at δ = {self.claim.delta:g}."
        contradicted = self.findings[0].words if self.findings else ""
        return (
            f"{self.proof or contradicted or _MEANING[self.verdict]} Claimed ε = {rounded_up(self.claim.epsilon)}, "
            f"certified ε ≥ {rounded_down(self.lower_bound)} at δ = {self.claim.delta:g}."
        )

    def checked(self, parts: Iterable[Checked]) -> AuditResult:
        """Return the result with what further checks found; all of them share one false alarm rate, `ALARM`."""
        tests, findings = joined(parts)
        return replace(self, tests=tests, findings=findings, alarm=self.alarm + ALARM)

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
            "simulation": self.simulation,
            "one_machine": self.one_machine,
            "claimed_epsilon": self.claim.epsilon if self.claim.exists else None,
            "claimed_mu": self.claim.mu,
            "claim_source": self.claim.source,
            "delta": self.claim.delta,
            "lower_bound": self.lower_bound,
            "ratio": self.ratio,
            "alarm": self.alarm,
            "beyond_chance": self.beyond_chance,
            "proof": self.proof,
            "tests": self.tests,
            "findings": [dict(vars(each)) for each in self.findings],
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
            "code": str(code_version()),
        }

    def to_json(self) -> str:
        """Return JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def markdown(self, figure: str = "", further: str = "") -> str:
        """Return a Markdown page, with the file of a figure on it and further sections at its end."""
        return render_markdown("audit.md", result=self, figure=figure, further=further)

    def svg(self) -> str:
        """Return a figure: the scores of both sides of the coin, and the bounds beside the claim."""
        return _draw(self)

    def figure(self, path: Path) -> None:
        """Write the figure (SVG)."""
        write_text(path, self.svg())

    def __str__(self) -> str:
        return render_markdown("audit.txt", result=self).rstrip("\n")


_IN, _OUT, _CLAIM = "#b2182b", "#2166ac", "#4d4d4d"


def _draw(result: AuditResult) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_scores(left, result)
    _draw_bounds(right, result)
    return svg(figure)


def _draw_scores(axes: Any, result: AuditResult) -> None:
    inside, outside, mu = result.scores_in, result.scores_out, result.claim.mu
    pooled = np.concatenate([inside, outside])
    low, high = float(pooled.min()), float(pooled.max())
    edges = np.linspace(low, high if high > low else low + 1, 61)
    for scores, colour, label in ((outside, _OUT, "out"), (inside, _IN, "in")):
        axes.hist(scores, bins=edges, color=colour, alpha=0.45, label=label, density=True)
    if mu is not None:
        grid = np.linspace(edges[0], edges[-1], 300)
        for mean, colour in ((0.0, _OUT), (mu, _IN)):
            axes.plot(grid, np.exp(-((grid - mean) ** 2) / 2) / np.sqrt(2 * np.pi), color=colour, linewidth=1)
    axes.axvline(result.counts.threshold, color=_CLAIM, linestyle="--", linewidth=1, label="threshold")
    axes.set_xlabel("score (lines: what the claim allows)" if mu is not None else "probability of in, as seen")
    axes.set_ylabel("density")
    axes.set_title(result.title, fontsize=10)
    # At a fixed place: to look for the best one takes a busy machine more than a second, and matplotlib then warns.
    axes.legend(fontsize=8, loc="upper right")


def _draw_bounds(axes: Any, result: AuditResult) -> None:
    names = [bound.method for bound in result.bounds]
    axes.barh(names, [bound.epsilon for bound in result.bounds], color="#92c5de", height=0.5)
    for place, bound in enumerate(result.bounds):
        axes.text(0, place, f" ≥ {rounded_down(bound.epsilon, 3)}", va="center", fontsize=9)
    title = "no claim"
    if result.claim.exists:
        axes.axvline(result.claim.epsilon, color=_IN, linewidth=1.5)
        title = f"claim ε = {rounded_up(result.claim.epsilon, 3)} (line): {result.verdict}"
    largest = max(result.lower_bound, result.claim.epsilon if result.claim.exists else 0.0)
    axes.set_xlim(0, 1.15 * largest if largest > 0 else 1.0)
    axes.set_xlabel(f"ε at δ = {result.claim.delta:g}, confidence {result.bounds[0].confidence:g}\n{result.short}")
    axes.set_title(title, fontsize=10)
