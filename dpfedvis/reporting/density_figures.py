"""Pictures of a private map: what everybody may see, and what one client sees with its own records on top.

What is drawn of the density are its areas above the noise; see `dpfedvis.reporting.density_areas`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.density import OTHER, Density
from dpfedvis.protocol.published_map import half_side
from dpfedvis.reporting.density_areas import Rings, areas
from dpfedvis.reporting.drawing import plain, save_png
from dpfedvis.reporting.palette import ALL, REST, Look, looks

NAMED = 20  # classes up to which a legend names them
_ANCHOR, _OWN = "#707070", "#d55e00"


def draw_density(
    anchors: Array, density: Density, path: Path, *, title: str = "", caption: str = "", dots: bool = True
) -> None:
    """Draw the density over the landmarks' map.

    Parameters
    ----------
    anchors : array of shape (k, 2)
        Their places on the published map.
    density : Density
    path : Path
    title, caption : str
        The caption stands below: ε and whom it trusts.
    dots : bool
        Whether the anchors are drawn: not where they are noise.
    """
    figure, axes = _canvas()
    colours = _colours(density.layers)
    _background(axes, anchors if dots else anchors[:0], density, colours)
    _legend(axes, colours, "most frequent class")
    _finish(axes, half_side(anchors), title, caption)
    save_png(figure, path)


def draw_private_view(
    anchors: Array,
    density: Density | None,
    places: Array,
    labels: NDArray[np.str_] | None,
    path: Path,
    *,
    title: str = "",
    caption: str = "",
    named: str = "class",
) -> None:
    """Draw the same map with a client's own records: for that client alone.

    Parameters
    ----------
    anchors : array of shape (k, 2)
        Their places on the published map.
    density : Density, optional
        None if it was not released.
    places : array of shape (n, 2)
        Where the client has placed its records.
    labels : array of shape (n,), optional
        The client's own classes or clusters, by name.
    path : Path
    title, caption : str
    named : str
        What the labels are.
    """
    figure, axes = _canvas()
    public = () if density is None else density.layers
    own = () if labels is None else tuple(np.unique(labels).tolist())
    colours = _colours(tuple(dict.fromkeys((*public, *own))))
    _background(axes, anchors, density, colours)
    points: Any = _OWN if labels is None else np.array([colours[label] for label in labels.tolist()])
    size = max(6.0, min(24.0, 8e3 / max(len(places), 1)))
    axes.scatter(places[:, 0], places[:, 1], s=size, c=points, edgecolors="white", linewidths=0.4, zorder=4)
    if labels is None:
        colours = {"own records": _OWN}
    _legend(axes, colours, "" if labels is None else named)
    # A record may lie outside of the box that is published; one whose layout failed lies nowhere.
    reach = float(np.abs(places[np.isfinite(places).all(axis=1)]).max(initial=half_side(anchors) / 1.02))
    _finish(axes, 1.02 * reach, title, caption)
    save_png(figure, path)


def class_looks(names: Sequence[str]) -> dict[str, Look]:
    """Return how each class is drawn; all labels that the public list does not name are grey."""
    named = [name for name in names if name != OTHER]
    return {**dict(zip(named, looks(len(named)), strict=True)), **({OTHER: REST} if OTHER in names else {})}


def _canvas() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 6.6), layout="constrained")
    return figure, figure.add_subplot()


def _background(axes: Any, anchors: Array, density: Density | None, colours: dict[str, str]) -> None:
    if density is not None:
        area, *_ = areas(density)
        for layer, rings in area.fills:
            colour = colours[density.layers[layer]] if density.classes else ALL.light
            _paint(axes, rings, colour, alpha(len(area.levels)))
        for name, x, y in area.names:
            box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
            axes.text(x, y, plain(name), ha="center", va="center", fontsize=10, bbox=box, zorder=5)
        steps = ", ".join(f"{100 * level:.2g}" for level in area.levels)
        said = f"areas: from {steps} % of all records in a cell" if steps else "no cell stands out of the noise"
        axes.text(0.02, 0.98, said, transform=axes.transAxes, va="top", fontsize=8, color=_ANCHOR)
    axes.scatter(anchors[:, 0], anchors[:, 1], s=6, c=_ANCHOR, edgecolors="white", linewidths=0.3, zorder=3)


def alpha(levels: int) -> float:
    """Opacity of each of some areas that are painted on each other, so that all together are nearly opaque."""
    return float(1 - 0.25 ** (1 / max(levels, 1)))


def _paint(axes: Any, rings: Rings, colour: str, opacity: float) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    if len(rings.points):
        outline = Outline.make_compound_path(*(Outline(line, closed=True) for line in rings.lines))
        axes.add_patch(PathPatch(outline, facecolor=colour, edgecolor=colour, alpha=opacity, linewidth=0.4, zorder=1))


def _colours(names: Sequence[str]) -> dict[str, str]:
    return {name: look.light for name, look in class_looks(names).items()}


def _legend(axes: Any, colours: dict[str, str], title: str) -> None:
    if not 0 < len(colours) <= NAMED:
        return
    for name, colour in colours.items():
        axes.scatter([], [], s=30, color=colour, label=plain(name))
    axes.legend(title=title, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _finish(axes: Any, half: float, title: str, caption: str) -> None:
    axes.set_xlim(-half, half)
    axes.set_ylim(-half, half)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(caption, fontsize=9)
