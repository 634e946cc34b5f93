"""Privacy–utility curves: one panel a score, ε on a logarithmic x-axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from accounting.events import Trust
from accounting.rounding import rounded_up
from dpfedvis.evaluation.metrics import Metric
from dpfedvis.experiments.sweeps.cells import Kind
from dpfedvis.experiments.sweeps.summary import Context, Estimate, Point
from dpfedvis.reporting.drawing import plain, svg
from dpfedvis.reporting.palette import Look, paired

_APART = 3.0  # how far beyond the others, as a factor, a map without data and ε = ∞ are put
_BASELINES: dict[Kind, str] = {"central": "central", "data-free": "no data", "chance": "chance"}
_FEW = 5  # seeds: below that each is a point, as an interval of so few says little
# Trust is told by the line and by the strength of its colour.
_LINES: dict[str, tuple[str, float]] = {"aggregate": ("-", 1.0), "local": ("--", 0.55), "central": (":", 0.8)}
_COLUMNS = 3


@dataclass(frozen=True)
class Axis:
    """Where each ε goes on a logarithmic axis, also that of a map without data, and ∞.

    Parameters
    ----------
    ticks : dict of float to str
        Place → label.
    """

    ticks: dict[float, str]
    zero: float
    infinity: float

    @classmethod
    def over(cls, epsilons: Sequence[float]) -> Axis:
        """Return the axis for these values."""
        finite = sorted({float(rounded_up(each, 3)) for each in epsilons if 0 < each < math.inf}) or [1.0]
        zero, infinity = finite[0] / _APART, finite[-1] * _APART
        ticks = {each: f"{each:g}" for each in finite}
        if any(each == 0 for each in epsilons):
            ticks[zero] = "no data"
        if any(each == math.inf for each in epsilons):
            ticks[infinity] = "∞"
        return cls(dict(sorted(ticks.items())), zero, infinity)

    def place(self, epsilon: float) -> float:
        """Return where an ε is drawn."""
        return self.zero if epsilon == 0 else min(epsilon, self.infinity)


@dataclass(frozen=True)
class Curves:
    """What one picture shows.

    Parameters
    ----------
    context : Context
    landmarks_only : bool
        Runs whose budget covers the landmarks alone, drawn by that ε, or all others, by ε end to end.
    """

    context: Context
    landmarks_only: bool = False

    @property
    def points(self) -> list[Point]:
        """Its points."""
        return [point for point in self.context.runs if point.landmarks_only == self.landmarks_only]

    @property
    def xlabel(self) -> str:
        """Words for the axis."""
        delta = self.context.facts["delta"]
        if self.landmarks_only:
            return f"ε of the landmarks alone, δ = {delta:g}; end to end ε = ∞"
        return f"ε end to end, δ = {delta:g}"

    def epsilon(self, point: Point) -> float:
        """Return the ε that a point is drawn at."""
        return point.in_scope if self.landmarks_only and point.in_scope is not None else point.epsilon

    @property
    def axis(self) -> Axis:
        """The x-axis."""
        free = any(point.kind == "data-free" for point in self.context.points) and not self.landmarks_only
        return Axis.over([self.epsilon(point) for point in self.points] + [0.0] * free)

    def series(self, metric: Metric) -> dict[str, list[tuple[float, Estimate]]]:
        """Return (place, score) by series, in the order of ε; no data has its place among those that are end to end."""
        axis = self.axis
        found: dict[str, list[tuple[float, Estimate]]] = {name: [] for name in self.names}
        for point in self.points:
            if metric.key in point.scores:
                found[point.series].append((axis.place(self.epsilon(point)), point.scores[metric.key]))
        free = None if self.landmarks_only else self.context.baseline("data-free", metric)
        if free is not None:
            found["data-free"] = [(axis.zero, free)]
        return {name: sorted(each, key=lambda pair: pair[0]) for name, each in found.items()}

    def limits(self, metric: Metric) -> tuple[float, float]:
        """Return the y-range: all that is drawn, but no further than the score itself can go."""
        bottom, top = metric.limits
        ends = [value for value, _ in _baselines(self.context, metric)]
        for pairs in self.series(metric).values():
            if all(score.n >= _FEW for _, score in pairs):
                _, lows, highs = _band(pairs)
                ends += [*lows, *highs]
            ends += [value for _, score in pairs for value in (score.mean, *score.values)]
        low, high = max(min(ends, default=bottom), bottom), min(max(ends, default=top), top)
        room = 0.05 * (high - low) or 0.05
        return low - room, high + room

    @property
    def names(self) -> list[str]:
        """The series in the order of the store, those that differ in trust alone beside each other."""
        found = dict.fromkeys(point.series for point in self.points)
        kinds = list(dict.fromkeys(_but_for_trust(name) for name in found))
        return sorted(found, key=lambda name: kinds.index(_but_for_trust(name)))

    @property
    def looks(self) -> dict[str, Look]:
        """How each series is drawn, the same in every panel; those that differ in trust alone share a colour."""
        free = [] if self.landmarks_only else ["data-free"]
        names = [*self.names, *free]
        return paired(names, [_but_for_trust(name) for name in names])

    @property
    def shade(self) -> float:
        """Opacity of bands, less where many lie on each other."""
        return 0.15 * min(1.0, 4 / max(len(self.names), 1))


def draw(curves: Curves, title: str) -> str:
    """Return the figure as SVG: bands for intervals over many seeds, points for few."""
    from matplotlib.figure import Figure

    metrics = curves.context.metrics()
    rows, axis = math.ceil(len(metrics) / _COLUMNS), curves.axis
    figure = Figure(figsize=(4.2 * _COLUMNS, 3.4 * rows + 0.8), layout="constrained")
    grid = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for axes, metric in zip(grid, metrics, strict=False):
        for name, pairs in curves.series(metric).items():
            look = curves.looks[name]
            dash, strength = _line(name)
            colour = _paler(look.light, strength)
            x, low, high = _band(pairs)
            means = [score.mean for _, score in pairs]
            axes.plot(x, means, dash, color=colour, marker=look.marker, markersize=4, label=plain(name))
            if all(score.n >= _FEW for _, score in pairs):
                axes.vlines(x, low, high, color=colour, linewidth=1, alpha=0.4)
                if len(x) > 1:
                    axes.fill_between(x, low, high, color=colour, alpha=curves.shade, linewidth=0)
            else:
                seeds = [(place, value) for place, score in pairs if score.n > 1 for value in score.values]
                if seeds:
                    places, values = zip(*seeds, strict=True)
                    axes.plot(places, values, ".", color=colour, markersize=3, alpha=0.5)
        for value, words in _baselines(curves.context, metric):
            axes.axhline(value, color="0.55", linewidth=0.8, zorder=0)
            axes.annotate(
                words, (1.0, value), xycoords=("axes fraction", "data"), xytext=(3, 0), textcoords="offset points",
                va="center", fontsize=7, color="0.35",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(list(axis.ticks), list(axis.ticks.values()))
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(title=metric.name, xlabel=curves.xlabel, ylim=curves.limits(metric))
    for axes in grid[len(metrics) :]:
        axes.set_axis_off()
    handles = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(plain(f"{title} (simulations, on one machine)"))
    return svg(figure)


def sentence(curves: Curves, metric: Metric) -> str:
    """Say what a picture shows: what is best, and from which ε on a setting beats a map without data.

    Parameters
    ----------
    curves : Curves
    metric : Metric
        One that is drawn.
    """
    context = curves.context
    known = [point for point in curves.points if metric.key in point.scores and curves.epsilon(point) < math.inf]
    if not known:
        return f"No run at a finite ε has a score by {metric.name}."
    best = max(known, key=lambda point: point.scores[metric.key].mean * (1 if metric.higher else -1))
    what = f"By {metric.name}, the best is {best.name}: {best.scores[metric.key].mean:.2f} at ε = "
    what += f"{rounded_up(curves.epsilon(best), 3)}{' of the landmarks' if curves.landmarks_only else ''}"
    beside = [f"{value:.2f} {words}" for value, words in _told(context, metric)]
    held = f", beside {', '.join(beside[:-1])}{' and ' if beside[1:] else ''}{beside[-1]}" if beside else ""
    if curves.landmarks_only or context.baseline("data-free", metric) is None:
        return f"{what}{held}."
    clear = [curves.epsilon(point) for point in known if not context.meets_data_free(point, metric)]
    least = (
        f"The least ε at which a setting is clearly better than no data is {rounded_up(min(clear), 3)}."
        if clear
        else "At no ε here is a setting clearly better than no data."
    )
    return f"{what}{held}. {least}"


def _told(context: Context, metric: Metric) -> list[tuple[float, str]]:
    words = {"central": "of a central map", "no data": "without data", "chance": "by chance"}
    return [(value, words[name]) for value, name in _baselines(context, metric)]


def _line(series: str) -> tuple[str, float]:
    """Dashes and strength of a series, by the trust in its name."""
    return next((_LINES[part] for part in series.split(", ") if part in _LINES), ("-", 1.0))


def _paler(colour: str, strength: float) -> str:
    """Return a colour mixed with white."""
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - strength * (255 - part)):02x}" for part in parts)


def _but_for_trust(series: str) -> str:
    return ", ".join(part for part in series.split(", ") if part not in get_args(Trust))


def _band(pairs: list[tuple[float, Estimate]]) -> tuple[list[float], list[float], list[float]]:
    """Places, and both ends of the intervals."""
    ends = [(x, score.mean - (score.half or 0.0), score.mean + (score.half or 0.0)) for x, score in pairs]
    x, low, high = ([each[part] for each in ends] for part in range(3))
    return x, low, high


def _baselines(context: Context, metric: Metric) -> list[tuple[float, str]]:
    """Levels to compare curves with: the score and its name."""
    found = [(context.baseline(kind, metric), name) for kind, name in _BASELINES.items()]
    return [(score.mean, name) for score, name in found if score is not None]
