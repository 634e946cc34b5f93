"""Layouts: from estimated distances to places in the plane. One file and one line of `LAYOUTS` each.

A layout is the plug-in point of maps. Its fields are the settings of the map: command line, TOML and Python read their
names, types and defaults from it, and their help from the first sentence of its docstring's `Parameters`.
"""

from __future__ import annotations

from dpfedvis.numerics.layouts.base import LaidOut, Layout, Progress, Task
from dpfedvis.numerics.layouts.tsne import TSNELayout
from dpfedvis.numerics.layouts.umap import UMAPLayout

LAYOUTS: dict[str, type[Layout]] = {
    "tsne": TSNELayout,
    "umap": UMAPLayout,
}

__all__ = ["LAYOUTS", "LaidOut", "Layout", "Progress", "TSNELayout", "Task", "UMAPLayout"]
