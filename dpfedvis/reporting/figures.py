"""Pictures of maps. They are drawn on a `Figure` of their own, without pyplot and its global state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.kernels import Array


def save_png(figure: Any, path: Path) -> None:
    """Write a figure so that the file is there whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    figure.savefig(temporary, format="png", dpi=120, metadata={"Software": None})
    temporary.replace(path)


def draw_map(places: Array, groups: NDArray[Any], title: str, legend: str, path: Path) -> None:
    """Draw points in the colours of their groups.

    Parameters
    ----------
    places : array of shape (n, 2)
    groups : array of shape (n,)
        Name of each point's group.
    title, legend : str
    path : Path
    """
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot()
    names, codes = np.unique(groups, return_inverse=True)
    palette = colormaps["tab10" if len(names) <= 10 else "tab20" if len(names) <= 20 else "turbo"]
    shades = palette(np.arange(len(names)) if len(names) <= 20 else np.linspace(0, 1, len(names)))
    axes.scatter(places[:, 0], places[:, 1], s=max(0.5, min(12.0, 2e4 / len(places))), c=shades[codes], linewidths=0)
    if len(names) <= 20:
        for name, shade in zip(names, shades, strict=True):
            axes.scatter([], [], s=20, color=[shade], label=str(name))
        axes.legend(title=legend, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.set_title(title)
    axes.set_xticks([])
    axes.set_yticks([])
    save_png(figure, path)
