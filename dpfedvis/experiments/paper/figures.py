"""The paper's three curves, drawn from our numbers; β never without its ε."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpfedvis.experiments.paper.comparisons import Comparison, prices, shown_epsilon
from dpfedvis.experiments.paper.experiments import Experiment
from dpfedvis.experiments.paper.paper import SCORES
from dpfedvis.experiments.paper.readings import Scale
from dpfedvis.reporting.drawing import svg
from dpfedvis.reporting.palette import Look, looks


def draw_figure(experiment: Experiment, scale: Scale, found: Sequence[Comparison]) -> str:
    """Return the figure as SVG: one panel a score, one line a method, standard deviations over seeds as bands."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(experiment.scores), 4.2), layout="constrained")
    panels = figure.subplots(1, len(experiment.scores), squeeze=False)[0]
    groups = list(dict.fromkeys(line.entry.group for line in found))
    for axes, score in zip(panels, experiment.scores, strict=True):
        for group, look in zip(groups, looks(len(groups)), strict=True):
            own = [line for line in found if (line.entry.group, line.score) == (group, score) and line.ours]
            _draw_line(axes, own, group, look)
        axes.set(title=SCORES[score], xlabel=experiment.axis)
        places = sorted({line.entry.x for line in found if line.entry.x is not None})
        if experiment.axis == "β":
            axes.set_xscale("symlog", linthresh=_threshold(found))
            _epsilon_axis(axes, found)
        else:
            axes.set_xscale("log")
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    panels[0].legend(fontsize=8, frameon=False, loc="lower right")
    figure.suptitle(f"{experiment.title} ({scale})")
    return svg(figure)


def _draw_line(axes: Any, own: Sequence[Comparison], group: str, look: Look) -> None:
    points = [(line.entry.x, line.ours) for line in own if line.ours and line.entry.x is not None]
    x, y, sd = [x for x, _ in points], [ours.mean for _, ours in points], [ours.sd or 0.0 for _, ours in points]
    axes.plot(x, y, color=look.light, marker=look.marker, markersize=4, label=group)
    low, high = ([a + sign * b for a, b in zip(y, sd, strict=True)] for sign in (-1, 1))
    axes.fill_between(x, low, high, color=look.light, alpha=0.15, linewidth=0)


def _epsilon_axis(axes: Any, found: Sequence[Comparison]) -> None:
    """Put the nominal ε of each β above the panel."""
    worth = {beta: nominal for (_, beta), (nominal, _, _) in prices(found).items()}
    above = axes.twiny()
    above.set_xscale(axes.get_xscale(), linthresh=_threshold(found))
    above.set_xlim(axes.get_xlim())
    ticks = sorted({line.entry.beta for line in found})
    labels = [shown_epsilon(worth[beta]) if beta in worth else "∞" if not beta else "-" for beta in ticks]
    above.set_xticks(ticks, labels, fontsize=7)
    above.minorticks_off()
    above.set_xlabel("nominal ε of the landmarks; end to end ε = ∞", fontsize=8)


def _threshold(found: Sequence[Comparison]) -> float:
    """Below the smallest noise level the axis is linear, down to none at all."""
    return min(line.entry.beta for line in found if line.entry.beta > 0)
