"""Pictures of maps. They are drawn on a `Figure` of their own, without pyplot and its global state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dpfedvis.reporting.palette import looks
from dpfedvis.reporting.run_facts import Cloud, Grouping


def save_png(figure: Any, path: Path) -> None:
    """Write a figure so that the file is there whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    figure.savefig(temporary, format="png", dpi=120, metadata={"Software": None})
    temporary.replace(path)


def save(figure: Any, path: Path) -> None:
    """Write PATH.png and PATH.svg, each whole or not at all, and the same for the same figure whenever it is drawn."""
    from matplotlib import rc_context

    save_png(figure, path.with_name(path.name + ".png"))
    temporary = path.with_name(path.name + ".svg.tmp")
    # Names inside an SVG are random and its date is today, unless told otherwise.
    with rc_context({"svg.hashsalt": path.name}):
        figure.savefig(temporary, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    temporary.replace(path.with_name(path.name + ".svg"))


def draw_map(cloud: Cloud, title: str, path: Path) -> None:
    """Draw the points of a map in the colours of the first of its groupings.

    Parameters
    ----------
    cloud : Cloud
    title : str
    path : Path
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot()
    places = cloud.places
    legend, grouping = next(
        iter(cloud.groupings.items()), ("", Grouping(("anchors",), np.zeros(len(places), np.int64)))
    )
    names, codes = grouping.names, grouping.codes
    size = max(0.5, min(12.0, 2e4 / len(places)))
    for code, (name, look) in enumerate(zip(names, looks(len(names)), strict=True)):
        own = places[codes == code]
        axes.scatter(own[:, 0], own[:, 1], s=size, c=look.light, marker=look.marker, linewidths=0)
        if len(names) <= 20:
            axes.scatter([], [], s=20, c=look.light, marker=look.marker, linewidths=0, label=plain(name))
    if 1 < len(names) <= 20:
        axes.legend(title=legend, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.set_title(title)
    axes.set_xticks([])
    axes.set_yticks([])
    save_png(figure, path)


def plain(text: str) -> str:
    """Return text that matplotlib shows as it is: a dollar sign would begin a formula, and a first underscore hides."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")
