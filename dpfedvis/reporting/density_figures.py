"""Pictures of a private map: what everybody may see, and what one client sees with its own records on top.

Smoothing, clipping at zero and contours use nothing but the noisy shares: they are post-processing and cost nothing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, zoom

from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.density import Density
from dpfedvis.protocol.published_map import half_side
from dpfedvis.reporting.drawing import plain, save_png

SMOOTHED = 0.8  # standard deviation of the smoothing, in cells
STANDS_OUT = 4.0  # standard deviations of the noise that is left: about one false cell in 30,000
CONTOURS, FINER = 5, 6  # lines, drawn on a grid so many times finer
# Told apart with any colour vision: Paul Tol's "muted", and grey.
PALETTE = ("#332288", "#DDCC77", "#117733", "#CC6677", "#88CCEE", "#882255", "#44AA99", "#AA4499", "#999933", "#666666")
_HEAT, _ANCHOR, _OWN = "YlGnBu", "#707070", "#d55e00"


def draw_density(anchors: Array, density: Density, path: Path, *, title: str = "", caption: str = "") -> None:
    """Draw the density over the landmarks' map.

    Parameters
    ----------
    anchors : array of shape (k, 2)
        Their places on the published map.
    density : Density
    path : Path
    title, caption : str
        The caption stands below: ε and whom it trusts.
    """
    figure, axes = _canvas()
    colours = class_colours(density.layers)
    _background(figure, axes, anchors, density, colours)
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
    colours = class_colours(tuple(dict.fromkeys((*public, *own))))
    _background(figure, axes, anchors, density, colours)
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


def smoothed(density: Density) -> tuple[Array, float]:
    """Smooth the shares of every class.

    Returns
    -------
    shares : array of shape (layers, cells, cells)
        Some still negative: cut off at 0 before they are added up, they would add up to too much.
    noise : float
        Standard deviation of the noise that is left in each of them; at the edge, where fewer meet, there is less.
    """
    shares: Array = gaussian_filter(density.shares, (0.0, SMOOTHED, SMOOTHED), mode="constant")
    reach = int(4 * SMOOTHED + 0.5)  # scipy's kernel ends there
    impulse = np.zeros(2 * reach + 1)
    impulse[reach] = 1.0
    kernel = gaussian_filter(impulse, SMOOTHED, mode="constant")
    # Independent noise under weights k_i k_j has variance Σ k_i² k_j² = (Σ k_i²)².
    return shares, density.noise * float(kernel @ kernel)


def leading_class(density: Density) -> NDArray[np.int64]:
    """Index of the most frequent class in each cell, shape (cells, cells); −1 where none stands out of the noise."""
    shares, noise = smoothed(density)
    found = np.where(shares.max(axis=0) > STANDS_OUT * noise, shares.argmax(axis=0), -1)
    return found.astype(np.int64)


def contour_levels(total: Array, noise: float) -> Array:
    """Levels between what stands out of the noise and the peak; none where nothing does.

    Parameters
    ----------
    total : array of shape (cells, cells)
    noise : float
        Standard deviation of the noise in each value.
    """
    lowest, peak = max(STANDS_OUT * noise, 1e-3 * float(total.max())), float(total.max())
    return np.geomspace(lowest, peak, CONTOURS + 1)[:-1] if peak > lowest else np.empty(0)


def class_colours(classes: tuple[str, ...]) -> dict[str, str]:
    """Return a colour for each class; beyond ten, shades of one scale that are told apart by the names on the map."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    if len(classes) <= len(PALETTE):
        return dict(zip(classes, PALETTE, strict=False))
    shades = colormaps["viridis"](np.linspace(0, 1, len(classes)))
    return {each: to_hex(shade) for each, shade in zip(classes, shades, strict=True)}


def _canvas() -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 6.6), layout="constrained")
    return figure, figure.add_subplot()


def _background(figure: Any, axes: Any, anchors: Array, density: Density | None, colours: dict[str, str]) -> None:
    if density is not None:
        shares, noise = smoothed(density)
        total = np.maximum(shares.sum(axis=0), 0.0)
        box = (-density.grid.half, density.grid.half) * 2
        if density.classes:
            axes.imshow(_coloured(density, total, colours), origin="lower", extent=box, interpolation="nearest")
            _name_classes(axes, density, shares)
        else:
            peak = max(float(total.max()), np.finfo(np.float64).tiny)
            image = axes.imshow(
                100 * total, origin="lower", extent=box, cmap=_HEAT, vmin=0, vmax=100 * peak, interpolation="nearest"
            )
            figure.colorbar(image, ax=axes, location="left", shrink=0.7, label="share of all records in a cell, %")
        levels = contour_levels(total, noise * math.sqrt(len(shares)))
        if len(levels):
            fine = zoom(total, FINER, order=3, mode="nearest", grid_mode=True)
            middles = _middles(density.grid.half, len(fine))
            axes.contour(middles, middles, fine, levels=levels, colors="#303030", linewidths=0.6, alpha=0.7)
        else:
            axes.text(0.02, 0.98, "no cell stands out of the noise", transform=axes.transAxes, va="top", fontsize=9)
    axes.scatter(anchors[:, 0], anchors[:, 1], s=6, c=_ANCHOR, edgecolors="white", linewidths=0.3, zorder=3)


def _coloured(density: Density, total: Array, colours: dict[str, str]) -> Array:
    """Colours of the leading classes, the paler the fewer records; white where no class stands out."""
    from matplotlib.colors import to_rgb

    leading = leading_class(density)
    palette = np.array([to_rgb(colours[each]) for each in density.layers])
    strength = (0.2 + 0.6 * np.sqrt(total / max(float(total.max()), np.finfo(np.float64).tiny)))[..., None]
    mixed = 1 - strength * (1 - palette[leading])
    return np.where(leading[..., None] >= 0, mixed, 1.0)


def _name_classes(axes: Any, density: Density, shares: Array) -> None:
    """Write each class where it is most frequent, so that nobody has to rely on colours."""
    leading, middles = leading_class(density), _middles(density.grid.half, density.grid.cells)
    for index, name in enumerate(density.layers):
        own = np.where(leading == index, shares[index], 0.0)
        if own.max() > 0:
            row, column = np.unravel_index(own.argmax(), own.shape)
            box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
            axes.text(
                middles[column], middles[row], plain(name), ha="center", va="center", fontsize=10, bbox=box, zorder=5
            )


def _middles(half: float, cells: int) -> Array:
    return (np.arange(cells) + 0.5) / cells * 2 * half - half


def _legend(axes: Any, colours: dict[str, str], title: str) -> None:
    if not 0 < len(colours) <= 2 * len(PALETTE):
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
