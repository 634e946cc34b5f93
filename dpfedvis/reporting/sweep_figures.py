"""Privacy–utility curves, for the page (plotly) and for papers (PNG and SVG). ε on the x-axis, logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfedvis.reporting.figures import save_png
from dpfedvis.sweeps.cells import Kind
from dpfedvis.sweeps.summary import Context, Estimate, Metric, Point

# Okabe & Ito (2008), told apart with any colour vision; shapes change with every round of colours.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
_SHAPES = (("circle", "o"), ("square", "s"), ("diamond", "D"), ("triangle-up", "^"), ("x", "X"))
_APART = 3.0  # how far beyond the others, as a factor, ε = 0 and ε = ∞ are put
_BASELINES: dict[Kind, tuple[str, str, str]] = {
    "central": ("central, no privacy", "dash", "--"),
    "data-free": ("data-free, ε = 0", "dot", ":"),
}
COLUMNS = 3


@dataclass(frozen=True)
class Axis:
    """Where each ε goes on a logarithmic axis, also 0 and ∞.

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
        finite = sorted({float(f"{each:.3g}") for each in epsilons if 0 < each < math.inf}) or [1.0]
        zero, infinity = finite[0] / _APART, finite[-1] * _APART
        ticks = {each: f"{each:g}" for each in finite}
        if any(each == 0 for each in epsilons):
            ticks[zero] = "0"
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
        delta = max((point.delta for point in self.points), default=1e-5)
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
        """Return (place, score) by series, in the order of ε; ε = 0 has its place among those that are end to end."""
        axis, found = self.axis, {name: [] for name in self.names}  # type: ignore[var-annotated]
        for point in self.points:
            if metric.key in point.scores:
                found[point.series].append((axis.place(self.epsilon(point)), point.scores[metric.key]))
        free = None if self.landmarks_only else self.context.baseline("data-free", metric)
        if free is not None:
            found["data-free"] = [(axis.zero, free)]
        return {name: sorted(each, key=lambda pair: pair[0]) for name, each in found.items()}

    def limits(self, metric: Metric) -> tuple[float, float]:
        """Return the y-range: all means and their intervals, but no further than the score itself can go."""
        top = math.sqrt(2) if metric.key.startswith("mmd") else 1.0
        ends = [value for value, _ in _lines(self.context, metric)]
        for pairs in self.series(metric).values():
            _, lows, highs = _band(pairs)
            ends += [*lows, *highs]
        low, high = max(min(ends, default=0.0), 0.0), min(max(ends, default=top), top)
        room = 0.05 * (high - low) or 0.05
        return low - room, high + room

    @property
    def names(self) -> list[str]:
        """The series, in the order of the store."""
        return list(dict.fromkeys(point.series for point in self.points))


def style(index: int) -> tuple[str, str, str]:
    """Return the colour of a series, and its shape for plotly and for matplotlib."""
    return _COLOURS[index % len(_COLOURS)], *_SHAPES[index // len(_COLOURS) % len(_SHAPES)]


def plotly_figure(curves: Curves) -> Any:
    """Return the picture for the page."""
    from plotly.subplots import make_subplots

    metrics = curves.context.metrics()
    rows, axis = math.ceil(len(metrics) / COLUMNS), curves.axis
    figure = make_subplots(rows, COLUMNS, subplot_titles=[metric.name for metric in metrics], vertical_spacing=0.18)
    for number, metric in enumerate(metrics):
        place = {"row": number // COLUMNS + 1, "col": number % COLUMNS + 1}
        for index, (name, pairs) in enumerate(curves.series(metric).items()):
            colour, shape, _ = style(index)
            x, low, high = _band(pairs)
            if len(x) > 1:
                band = {"x": [*x, *x[::-1]], "y": [*high, *low[::-1]], "fill": "toself", "mode": "lines"}
                hidden = {"line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "legendgroup": name}
                figure.add_scatter(**band, **hidden, fillcolor=colour, opacity=0.15, **place)
            figure.add_scatter(
                x=x,
                y=[score.mean for _, score in pairs],
                error_y={"array": [score.half or 0.0 for _, score in pairs], "thickness": 1},
                customdata=[[str(score), score.n, axis.ticks.get(float(f"{x:.3g}"), f"{x:.3g}")] for x, score in pairs],
                hovertemplate="%{fullData.name}<br>ε = %{customdata[2]}: %{customdata[0]}, n = %{customdata[1]}"
                "<extra></extra>",
                mode="lines+markers",
                marker={"color": colour, "symbol": shape},
                line={"color": colour},
                name=name,
                legendgroup=name,
                showlegend=number == 0,
                **place,
            )
        for value, (words, dash, _) in _lines(curves.context, metric):
            figure.add_hline(y=value, line={"dash": dash, "color": "#777", "width": 1}, annotation_text=words,
                             annotation_font_size=10, **place)  # fmt: skip
        figure.update_yaxes(range=list(curves.limits(metric)), **place)
        figure.update_xaxes(
            type="log", tickvals=list(axis.ticks), ticktext=list(axis.ticks.values()), title_text=curves.xlabel, **place
        )
    figure.update_layout(
        template="plotly_white", height=340 * rows + 80, legend={"orientation": "h", "y": -0.12}, margin={"t": 40}
    )
    return figure


def draw(curves: Curves, title: str, stem: Path) -> None:
    """Write the picture as PNG and SVG, with bands for the intervals."""
    from matplotlib.figure import Figure

    metrics = curves.context.metrics()
    rows, axis = math.ceil(len(metrics) / COLUMNS), curves.axis
    figure = Figure(figsize=(4.2 * COLUMNS, 3.4 * rows + 0.8), layout="constrained")
    grid = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes, metric in zip(grid, metrics, strict=False):
        for index, (name, pairs) in enumerate(curves.series(metric).items()):
            colour, _, shape = style(index)
            x, low, high = _band(pairs)
            axes.plot(x, [score.mean for _, score in pairs], color=colour, marker=shape, markersize=4, label=name)
            axes.vlines(x, low, high, color=colour, linewidth=1)
            if len(x) > 1:
                axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        for value, (words, _, dash) in _lines(curves.context, metric):
            axes.axhline(value, color="0.45", linestyle=dash, linewidth=1, label=words)
        axes.set_xscale("log")
        axes.set_xticks(list(axis.ticks), list(axis.ticks.values()))
        axes.minorticks_off()
        axes.set(title=metric.name, xlabel=curves.xlabel, ylim=curves.limits(metric))
    for axes in grid[len(metrics) :]:
        axes.set_axis_off()
    handles = {label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(title)
    save_both(figure, stem)


def save_both(figure: Any, stem: Path) -> None:
    """Write a figure as PNG and as SVG, each whole or not at all."""
    from matplotlib import rc_context

    save_png(figure, stem.with_name(stem.name + ".png"))
    path = stem.with_name(stem.name + ".svg")
    temporary = path.with_name(path.name + ".tmp")
    # Without a date and with fixed names of parts, so that the same figure is the same file.
    with rc_context({"svg.hashsalt": "dpfedvis"}):
        figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
    temporary.replace(path)


def _band(pairs: list[tuple[float, Estimate]]) -> tuple[list[float], list[float], list[float]]:
    """Places, and both ends of the intervals."""
    ends = [(x, score.mean - (score.half or 0.0), score.mean + (score.half or 0.0)) for x, score in pairs]
    x, low, high = ([each[part] for each in ends] for part in range(3))
    return x, low, high


def _lines(context: Context, metric: Metric) -> list[tuple[float, tuple[str, str, str]]]:
    found = [(context.baseline(kind, metric), words) for kind, words in _BASELINES.items()]
    return [(score.mean, words) for score, words in found if score is not None]
