"""Figures of a page, as plain values that page.js gives to plotly.

Colours are names of the page's theme ("@accent"), which page.js resolves for light and for dark ground. Text that
comes from outside is escaped, for plotly reads tags in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from accounting.rounding import rounded_up
from accounting.spending import Step
from dpfedvis.federation.private_map import Density
from dpfedvis.numerics.kernels import Array
from dpfedvis.reporting.density_figures import smoothed
from dpfedvis.reporting.html_parts import escape, packed, shown
from dpfedvis.reporting.palette import looks
from dpfedvis.reporting.run_facts import Cloud

Spec = dict[str, Any]


def points(cloud: Cloud, *, webgl: bool = True) -> Spec:
    """A map, to be coloured by any of its groupings.

    Parameters
    ----------
    cloud : Cloud
    webgl : bool
        Browsers have a few WebGL pictures at a time; a page of many small maps does without.
    """
    places = np.asarray(cloud.places, dtype=np.float32)
    found = np.isfinite(places).all(axis=1)
    groupings = []
    for name, grouping in cloud.groupings.items():
        own = [{"light": each.light, "dark": each.dark, "symbol": each.symbol, "glyph": each.glyph}
               for each in looks(len(grouping.names))]  # fmt: skip
        codes = grouping.codes[found].astype(np.uint16 if len(own) < 1 << 16 else np.uint32)
        groupings.append({"key": name, "names": list(grouping.names), "looks": own, "codes": packed(codes)})
    return {
        "kind": "points",
        "webgl": webgl,
        "noun": cloud.noun,
        "x": packed(places[found, 0]),
        "y": packed(places[found, 1]),
        "numbers": packed(_numbers(cloud)[found].astype(np.uint32)),
        "groupings": groupings,
    }


def density(measured: Density, anchors: Array) -> Spec:
    """Noisy shares on the grid, smoothed and cut off at 0, under the anchors; for all records and for each class."""
    shares, noise = smoothed(measured)
    layers = [{"name": "all records", "z": packed(_percent(shares.sum(axis=0)))}]
    if measured.classes:
        layers += [{"name": f"class {name}", "z": packed(_percent(each))}
                   for name, each in zip(measured.classes, shares, strict=True)]  # fmt: skip
    return {
        "kind": "density",
        "half": measured.grid.half,
        "cells": measured.grid.cells,
        "noise": 100 * noise,
        "layers": layers,
        "x": packed(anchors[:, 0].astype(np.float32)),
        "y": packed(anchors[:, 1].astype(np.float32)),
    }


def spent(steps: Sequence[Step], budget: float | None) -> Spec | None:
    """ε after each release; None if there is no finite one to draw."""
    finite = [each.in_scope for each in steps if math.isfinite(each.in_scope)]
    if not finite:
        return None
    ceiling = 1.25 * max(*finite, budget or 0.0) or 1.0
    labels = [escape(each.label) for each in steps]
    x = [each.number for each in steps]
    data = [_line(x, [each.in_scope for each in steps], labels, ceiling, "in the budget's scope", "@accent", "circle")]
    if any(each.end_to_end != each.in_scope for each in steps):
        y = [each.end_to_end for each in steps]
        data.append(_line(x, y, labels, ceiling, "end to end", "@warn", "x"))
    layout: Spec = {
        "xaxis": {"title": {"text": "releases, in the order of the ledger"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": "ε so far"}, "range": [0, 1.08 * ceiling]},
        "showlegend": len(data) > 1,
    }
    if len(steps) <= 12:
        layout["xaxis"] |= {"tickvals": x, "ticktext": labels, "title": None, "automargin": True}
    if budget is not None:
        layout["shapes"] = [level(budget)]
        layout["annotations"] = [note(f"budget ε = {shown(budget)}", budget)]
    return {"kind": "plot", "data": data, "layout": layout}


def _line(
    x: list[int], y: list[float], labels: list[str], ceiling: float, name: str, colour: str, symbol: str
) -> dict[str, Any]:
    """Steps of ε; infinity is drawn at the ceiling and marked as what it is."""
    return {
        "type": "scatter",
        "mode": "lines+markers+text" if any(map(math.isinf, y)) else "lines+markers",
        "x": x,
        "y": [ceiling if math.isinf(each) else each for each in y],
        "text": ["∞" if math.isinf(each) else "" for each in y],
        "textposition": "top center",
        "hovertext": [f"{label}: ε = {rounded_up(each)}" for label, each in zip(labels, y, strict=True)],
        "hoverinfo": "text",
        "line": {"color": colour, "width": 2, "shape": "hv"},
        "marker": {"size": 6, "color": colour, "symbol": symbol},
        "name": name,
    }


def level(y: float, dash: str = "dash") -> dict[str, Any]:
    """A line across the figure."""
    line = {"color": "@soft", "width": 1.5, "dash": dash}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def note(text: str, y: float) -> dict[str, Any]:
    """Words above such a line."""
    place = {"xref": "paper", "x": 0, "xanchor": "left", "y": y, "yanchor": "bottom", "showarrow": False}
    return {"text": text, "font": {"color": "@quiet", "size": 12}, **place}


def _percent(shares: Array) -> Array:
    percent: Array = (100 * np.maximum(shares, 0.0)).astype(np.float32)
    return percent


def _numbers(cloud: Cloud) -> Array:
    """Number of each record at its client, or of each point."""
    if "client" not in cloud.groupings:
        return np.arange(len(cloud.places), dtype=np.float64)
    codes = cloud.groupings["client"].codes
    numbers = np.empty(len(codes))
    for client in range(len(cloud.groupings["client"].names)):
        own = codes == client
        numbers[own] = np.arange(own.sum())
    return numbers
