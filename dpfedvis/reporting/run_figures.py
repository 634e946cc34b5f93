"""The figures of a run for papers, PNG and SVG, on white ground. The same run always gives the same files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dpfedvis.reporting.figures import plain, save
from dpfedvis.reporting.html_parts import shown
from dpfedvis.reporting.palette import looks
from dpfedvis.reporting.run_facts import Cloud, Grouping, RunFacts, number
from dpfedvis.runs.results import SIMULATION

FIGURES = "figures"
_ACCENT, _SOFT, _WARN = "#0072B2", "#8a949d", "#D55E00"
RASTERISED = 3000  # points from which on an SVG holds them as a picture


def write_figures(facts: RunFacts) -> None:
    """Draw all figures into ``figures/``, and those past the door into ``simulation/figures/``."""
    folder = facts.folder / FIGURES
    folder.mkdir(exist_ok=True)
    _map(facts.cloud, facts.title, folder / "map")
    _spent(facts, folder / "budget")
    _accountants(facts, folder / "accountants")
    _curve(facts, folder / "delta")
    _convergence(facts, folder / "convergence")
    if facts.simulation is not None:
        private = facts.folder / SIMULATION / FIGURES
        private.mkdir(exist_ok=True)
        for name, grouping in facts.simulation.cloud.groupings.items():
            cloud = Cloud(facts.simulation.cloud.places, "record", {name: grouping})
            _map(cloud, f"{facts.title}: simulation, by {name}", private / f"by-{name}")


def _canvas(width: float = 5.2, height: float = 3.4) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _map(cloud: Cloud, title: str, path: Path) -> None:
    figure, axes = _canvas(6.4, 5.6)
    many = len(cloud.places) > RASTERISED
    size = max(0.5, min(14.0, 2e4 / len(cloud.places)))
    name, grouping = next(iter(cloud.groupings.items()), (f"{cloud.noun}s", None))
    if grouping is None:
        axes.scatter(*cloud.places.T, s=size, c=_ACCENT, linewidths=0, rasterized=many)
    else:
        _groups(axes, cloud, grouping, name, size, many)
    axes.set(title=title, xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(False)
    save(figure, path)


def _groups(axes: Any, cloud: Cloud, grouping: Grouping, name: str, size: float, many: bool) -> None:
    for code, (group, look) in enumerate(zip(grouping.names, looks(len(grouping.names)), strict=True)):
        own = cloud.places[grouping.codes == code]
        axes.scatter(*own.T, s=size, c=look.light, marker=look.marker, linewidths=0, rasterized=many)
        if len(grouping.names) <= 20:
            axes.scatter([], [], s=24, c=look.light, marker=look.marker, linewidths=0, label=plain(group))
    if len(grouping.names) <= 20:
        axes.legend(title=name, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _spent(facts: RunFacts, path: Path) -> None:
    finite = [each.in_scope for each in facts.steps if math.isfinite(each.in_scope)]
    if not finite:
        return
    figure, axes = _canvas()
    budget = facts.statement["budget"]
    ceiling = 1.25 * max(*finite, budget["epsilon"] if budget else 0.0) or 1.0
    x = [each.number for each in facts.steps]
    lines = {"in scope": ([each.in_scope for each in facts.steps], _ACCENT, "o")}
    if facts.in_scope != facts.epsilon:
        lines["end to end"] = ([each.end_to_end for each in facts.steps], _WARN, "x")
    for name, (values, colour, marker) in lines.items():
        drawn = [min(value, ceiling) for value in values]
        axes.plot(x, drawn, color=colour, marker=marker, ms=3.5, lw=1.4, drawstyle="steps-post", label=name)
        for place, value in zip(x, values, strict=True):
            if math.isinf(value):
                axes.annotate("∞", (place, ceiling), ha="center", va="bottom", color=colour)
    if budget:
        axes.axhline(budget["epsilon"], color=_SOFT, ls="--", lw=1, label="budget")
    axes.set(xlabel="releases, in the order of the ledger", ylabel="ε so far", ylim=(0, 1.12 * ceiling))
    axes.legend(frameon=False)
    save(figure, path)


def _accountants(facts: RunFacts, path: Path) -> None:
    readings = facts.statement["accountants"]
    found = {name: number(each["epsilon"]) for name, each in readings.items()}
    found = {name: value for name, value in found.items() if math.isfinite(value)}
    if not found:
        return
    figure, axes = _canvas()
    names = sorted(found, key=lambda name: -found[name])
    bounds = [readings[name]["is_bound"] for name in names]
    axes.barh(
        [name if bound else f"{name} *" for name, bound in zip(names, bounds, strict=True)],
        [found[name] for name in names],
        color=[_ACCENT if bound else _SOFT for bound in bounds],
        hatch=["" if bound else "//" for bound in bounds],
    )
    if max(found.values()) > 30 * min(found.values()) > 0:
        axes.set_xscale("log")
    for place, name in enumerate(names):
        axes.annotate(f" {shown(found[name])}", (found[name], place), va="center", fontsize=8)
    axes.set(xlabel=f"ε in scope at δ = {facts.delta:g}" + ("" if all(bounds) else "    * approximation, not a bound"))
    axes.margins(x=0.15)
    save(figure, path)


def _curve(facts: RunFacts, path: Path) -> None:
    kept = [(epsilon, delta) for epsilon, delta in facts.curve if math.isfinite(epsilon)]
    if not kept:
        return
    figure, axes = _canvas()
    axes.semilogy(*zip(*kept, strict=True), color=_ACCENT, lw=1.6)
    axes.semilogy([facts.in_scope], [facts.delta], "D", color=_WARN, ms=6, label="this run")
    axes.set(xlabel="ε, in scope", ylabel="δ")
    axes.set_xlim(left=0)
    axes.legend(frameon=False)
    save(figure, path)


def _convergence(facts: RunFacts, path: Path) -> None:
    trace = facts.trace
    if len(trace) < 2:
        return
    figure, axes = _canvas()
    draw = axes.semilogy if (trace[:, 1] > 0).all() else axes.plot
    draw(trace[:, 0], trace[:, 1], color=_ACCENT, marker="o", ms=2.5, lw=1.2, label="step, Frobenius")
    axes.set(xlabel="round", ylabel="step, Frobenius")
    axes.xaxis.get_major_locator().set_params(integer=True)
    if not math.isnan(trace[-1, 2]):
        other = axes.twinx()
        other.plot(trace[:, 0], trace[:, 2], color=_WARN, ls="--", lw=1.2)
        other.set_ylabel("change of the objective, estimate", color=_WARN)
        axes.yaxis.label.set_color(_ACCENT)
    save(figure, path)
