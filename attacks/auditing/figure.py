"""The picture of an audit: the scores of both sides of the coin, and the bounds beside the claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from accounting.rounding import rounded_down
from attacks.auditing.result import AuditResult

_IN, _OUT, _CLAIM = "#b2182b", "#2166ac", "#4d4d4d"


def draw(result: AuditResult, path: Path) -> None:
    """Write the picture as PNG, whole or not at all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _scores(left, result)
    _bounds(right, result)
    temporary = path.with_name(path.name + ".tmp")
    try:
        figure.savefig(temporary, format="png", dpi=120)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _scores(axes: Any, result: AuditResult) -> None:
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
    axes.legend(fontsize=8)


def _bounds(axes: Any, result: AuditResult) -> None:
    names = [bound.method for bound in result.bounds]
    axes.barh(names, [bound.epsilon for bound in result.bounds], color="#92c5de", height=0.5)
    for place, bound in enumerate(result.bounds):
        axes.text(0, place, f" ≥ {rounded_down(bound.epsilon, 3)}", va="center", fontsize=9)
    title = "no claim"
    if result.claim.exists:
        axes.axvline(result.claim.epsilon, color=_IN, linewidth=1.5)
        title = f"claim ε = {result.claim.epsilon:.3g} (line): {result.verdict}"
    largest = max(result.lower_bound, result.claim.epsilon if result.claim.exists else 0.0)
    axes.set_xlim(0, 1.15 * largest if largest > 0 else 1.0)
    axes.set_xlabel(f"ε at δ = {result.claim.delta:g}, confidence {result.bounds[0].confidence:g}")
    axes.set_title(title, fontsize=10)
