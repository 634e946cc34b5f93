"""Privacy–utility curves as figures of a page: one panel a score, and one legend for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpfedvis.experiments.sweeps.figures import Axis, Curves, band, baselines
from dpfedvis.experiments.sweeps.summary import Estimate, Metric
from dpfedvis.reporting.html_parts import Html, Page, element, escape, together
from dpfedvis.reporting.page_figures import Spec, level

_LINES = {"dash": "dashed line", "dot": "dotted line"}


def panels(page: Page, key: str, curves: Curves) -> Html:
    """Put a panel for each score on a page, with buttons that show or hide a series in all of them."""
    metrics = curves.context.metrics()
    legend = page.legend(key, curves.looks)
    made = []
    for metric in metrics:
        better = "higher" if metric.higher else "lower"
        label = f"Curves: {metric.name} against {curves.xlabel}, one line a setting; {better} is better. See the table."
        spec = panel(curves, metric, family=key)
        lines = [f"{_LINES[dash]}: {words}" for _, (words, dash, _) in baselines(curves.context, metric)]
        caption = "; ".join([metric.name, f"{better} is better", *lines])
        made.append(page.figure(f"{key}-{metric.key}", spec, label=label, caption=caption))
    return together(element("h3", f"Scores against {curves.xlabel}"), legend, element("div", *made, class_="side"))


def panel(curves: Curves, metric: Metric, *, family: str) -> Spec:
    """One score against ε, with the intervals over seeds as bands."""
    axis, places = curves.axis, {name: number for number, name in enumerate(curves.looks)}
    data = [
        trace
        for name, pairs in curves.series(metric).items()
        for trace in _traces(curves, name, str(places[name]), pairs, axis)
    ]
    levels = baselines(curves.context, metric)
    layout: Spec = {
        "xaxis": {
            "type": "log",
            "tickvals": list(axis.ticks),
            "ticktext": list(axis.ticks.values()),
            "title": {"text": curves.short},
        },
        "yaxis": {"title": {"text": metric.name}, "range": list(curves.limits(metric))},
        "shapes": [level(value, dash) for value, (_, dash, _) in levels],
    }
    return {"kind": "plot", "family": family, "data": data, "layout": layout}


def _traces(
    curves: Curves, name: str, group: str, pairs: list[tuple[float, Estimate]], axis: Axis
) -> Iterator[dict[str, Any]]:
    look = curves.looks[name]
    colour = {"light": look.light, "dark": look.dark}
    x, low, high = band(pairs)
    common = {"type": "scatter", "legendgroup": group}
    if len(x) > 1:
        area = {"x": [*x, *x[::-1]], "y": [*high, *low[::-1]], "fill": "toself", "mode": "none", "hoverinfo": "skip"}
        yield {**common, **area, "fillcolor": colour, "opacity": curves.shade}
    told = [f"{escape(name)}<br>ε = {axis.shown(place)}: {score}, n = {score.n}" for place, score in pairs]
    yield {
        **common,
        "mode": "lines+markers",
        "x": x,
        "y": [score.mean for _, score in pairs],
        "error_y": {"array": [score.half or 0.0 for _, score in pairs], "thickness": 1, "color": colour},
        "text": told,
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": colour, "symbol": look.symbol, "size": 7},
        "line": {"color": colour, "width": 1.5, "dash": "solid" if look.first else "dash"},
        "name": escape(name),
    }
