"""The figures of a run, on white ground. Each is drawn once: the page embeds the files of ``figures/``."""

from __future__ import annotations

import math
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.rounding import rounded_up
from dpfedvis.reporting.drawing import plain, svg
from dpfedvis.reporting.palette import looks
from dpfedvis.reporting.risk_figures import draw_trade_off
from dpfedvis.reporting.run_facts import Cloud, RunFacts, Verdict, number

_ACCENT, _SOFT, _WARN = "#0072B2", "#8a949d", "#D55E00"
RASTERISED = 3000  # points from which on an SVG holds them as a picture
FADED, WEAK = 0.25, "faded: not above the noise"  # opacity of points that are weak, and what the legend says of them
BELOW, IN_FRAME = 100, 50  # letters in a line of a caption, and of what stands in an empty frame
NAMED = 20  # groups up to which a legend names them, and releases up to which the axis does


def drawings(facts: RunFacts) -> dict[str, str | None]:
    """Return the figures of numbers as SVG, by name; None where there is nothing finite to draw."""
    drawn = {
        "budget": _budget(facts),
        "accountants": _accountants(facts),
        "delta": _delta(facts),
        "convergence": _convergence(facts),
        "risk": draw_trade_off(facts.statement),
    }
    return {name: None if figure is None else svg(figure) for name, figure in drawn.items()}


def draw_map(cloud: Cloud, title: str, verdict: Verdict | None = None, caption: str = "") -> Any:
    """Return a figure of a map, in the colours of the first of its groupings.

    A map without signal is an empty frame that says so: dots in colours would look like groups of records.

    Parameters
    ----------
    cloud : Cloud
    title, caption : str
    verdict : Verdict, optional
        Its words stand in the caption, and its weak points are faded.
    """
    figure, (axes,) = _canvas(7.0, 6.0)
    said = [] if verdict is None else [verdict.sentence]
    if verdict is not None and verdict.signal == "no":
        sentence = plain(fill(said.pop(), IN_FRAME))
        axes.text(0.5, 0.5, sentence, transform=axes.transAxes, ha="center", va="center", color=_WARN)
    else:
        _draw_points(axes, cloud, None if verdict is None else verdict.weak)
        axes.set_aspect("equal")
        axes.spines[:].set_visible(False)
    axes.set(title=plain(title), xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(axes.spines["left"].get_visible())
    lines = [fill(line, BELOW) for part in [*said, caption] for line in part.splitlines()]
    if lines:
        figure.supxlabel(plain("\n".join(lines)), fontsize=9)
    return figure


def _draw_points(axes: Any, cloud: Cloud, weak: NDArray[np.bool_] | None) -> None:
    many = len(cloud.places) > RASTERISED
    size = max(0.5, min(14.0, 2e4 / len(cloud.places)))
    opacity = np.ones(len(cloud.places)) if weak is None else np.where(weak, FADED, 1.0)
    name, grouping = next(iter(cloud.groupings.items()), ("", None))
    if grouping is None:
        axes.scatter(*cloud.places.T, s=size, c=_ACCENT, alpha=opacity, linewidths=0, rasterized=many)
    else:
        groups = zip(grouping.names, looks(len(grouping.names)), strict=True)
        for code, (group, look) in enumerate(groups):
            own = grouping.codes == code
            style = {"c": look.light, "marker": look.marker, "linewidths": 0}
            axes.scatter(*cloud.places[own].T, s=size, alpha=opacity[own], rasterized=many, **style)
            if 1 < len(grouping.names) <= NAMED:
                axes.scatter([], [], s=24, label=plain(group), **style)
    if weak is not None and weak.any():
        axes.scatter([], [], s=24, c=_ACCENT, alpha=FADED, linewidths=0, label=WEAK)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(title=name, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _canvas(width: float = 5.2, height: float = 3.4, rows: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height * rows), layout="constrained")
    axes = figure.subplots(rows, sharex=True, squeeze=False)[:, 0]
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _budget(facts: RunFacts) -> Any | None:
    """ε after each release; infinity is drawn at the top and marked as what it is."""
    finite = [each.in_scope for each in facts.steps if math.isfinite(each.in_scope)]
    if not finite:
        return None
    figure, (axes,) = _canvas(7.0)
    budget = facts.statement["budget"]
    ceiling = 1.25 * max(*finite, budget["epsilon"] if budget else 0.0) or 1.0
    x = [each.number for each in facts.steps]
    lines = {"in the budget's scope": ([each.in_scope for each in facts.steps], _ACCENT, "o")}
    if any(each.end_to_end != each.in_scope for each in facts.steps):
        lines["end to end"] = ([each.end_to_end for each in facts.steps], _WARN, "x")
    for name, (values, colour, marker) in lines.items():
        drawn = [min(value, ceiling) for value in values]
        axes.plot(x, drawn, color=colour, marker=marker, ms=3.5, lw=1.4, drawstyle="steps-post", label=name)
        for place, value in zip(x, values, strict=True):
            if math.isinf(value):
                axes.annotate("∞", (place, ceiling), ha="center", va="bottom", color=colour)
    if budget:
        axes.axhline(budget["epsilon"], color=_SOFT, ls="--", lw=1, label=f"budget, ε = {budget['epsilon']:g}")
    axes.set(xlabel="releases, in the order of the ledger", ylabel="ε so far", ylim=(0, 1.12 * ceiling))
    if len(x) <= NAMED:
        axes.set_xticks(x, [plain(each.label) for each in facts.steps], rotation=35, ha="right", fontsize=8)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return _told(figure, facts)


def _told(figure: Any, facts: RunFacts) -> Any:
    """Say under a figure with an ε whether it is of a simulation, and of one machine."""
    figure.supxlabel(plain(facts.statement["words"]["short"]), fontsize=7, color=_SOFT, x=0.99, ha="right")
    return figure


def _accountants(facts: RunFacts) -> Any | None:
    readings = facts.statement["accountants"]
    found = {name: number(each["epsilon"]) for name, each in readings.items()}
    found = {name: value for name, value in found.items() if math.isfinite(value)}
    if not found:
        return None
    names = sorted(found, key=lambda name: -found[name])
    figure, (axes,) = _canvas(height=0.34 * len(names) + 1.0)
    bounds = [readings[name]["is_bound"] for name in names]
    # From 0, so that twice as far is twice as much; what would leave all others at 0 is told and not drawn to scale.
    end = 1.15 * min(max(found.values()), 12 * min(found.values()) or math.inf) or 1.0
    for place, (name, bound) in enumerate(zip(names, bounds, strict=True)):
        inside = found[name] <= end
        x = found[name] if inside else end
        axes.hlines(place, 0, x, color="#e4e1d9", lw=1)
        style = {"color": _ACCENT, "mfc": _ACCENT if bound else "white"}
        axes.plot(x, place, "o" if inside else ">", ms=6, clip_on=False, **style)
        axes.annotate(
            rounded_up(found[name]), (x, place), xytext=(8, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    note = "" if all(bounds) else f"; open: {readings[names[bounds.index(False)]]['note']}"
    axes.set(xlabel=f"ε in scope at δ = {facts.delta:g}{note}", xlim=(0, end), ylim=(-0.6, len(names) - 0.4))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return _told(figure, facts)


def _delta(facts: RunFacts) -> Any | None:
    kept = [(epsilon, delta) for epsilon, delta in facts.curve if math.isfinite(epsilon)]
    if not kept:
        return None
    figure, (axes,) = _canvas()
    axes.semilogy(*zip(*kept, strict=True), color=_ACCENT, lw=1.6)
    axes.semilogy([facts.in_scope], [facts.delta], "D", color=_WARN, ms=6, label="this run")
    axes.set(xlabel="ε, in scope", ylabel="δ")
    axes.set_xlim(left=0)
    axes.legend(frameon=False, loc="upper right")
    return _told(figure, facts)


def _convergence(facts: RunFacts) -> Any | None:
    trace = facts.trace
    if len(trace) < 2:
        return None
    figure, axes = _canvas(7.0, 2.6, rows=1 if math.isnan(trace[-1, 2]) else 2)
    marker = "o" if len(trace) < 80 else None
    draw = axes[0].semilogy if (trace[:, 1] > 0).all() else axes[0].plot
    draw(trace[:, 0], trace[:, 1], color=_ACCENT, marker=marker, ms=2.5, lw=1.2)
    axes[0].set_ylabel("step, Frobenius")
    if len(axes) > 1:
        axes[1].plot(trace[:, 0], trace[:, 2], color=_WARN, marker=marker, ms=2.5, lw=1.2)
        axes[1].set_ylabel("F(Y) − F(start), estimate")
    axes[-1].set_xlabel("round")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    return figure
