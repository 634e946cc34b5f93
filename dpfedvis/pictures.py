"""Pictures and arrays of a billboard, as a run leaves them: the public ones in its folder, private views elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from dpfedvis.billboard import Billboard, Density
from dpfedvis.config import RunConfig
from dpfedvis.data import FederatedData
from dpfedvis.federated_map import FederatedMap
from dpfedvis.federation.outbox import write_arrays
from dpfedvis.reporting.billboard_figures import draw_billboard, draw_private_view

DENSITY, BILLBOARD = "density.npz", "billboard.png"


def write_density(folder: Path, board: Billboard, density: Density, config: RunConfig) -> None:
    """Write the noisy shares with their grid, and the picture for everyone."""
    arrays = {
        "shares": density.shares,
        "half": np.array(density.grid.half),
        "noise": np.array(density.noise),
        "classes": np.array(density.classes, dtype=np.int64),
    }
    write_arrays(folder / DENSITY, arrays)
    title = f"{config.map} of {Path(config.data).name}: density on the landmarks' map"
    draw_billboard(board, density, folder / BILLBOARD, title=title, caption=caption(config, density))


def write_views(folder: Path, estimator: FederatedMap, fed: FederatedData, config: RunConfig) -> None:
    """Draw each client's private view. In a real federation each client draws its own, and nobody has them all."""
    text, views = caption(config, estimator.density_), estimator.views()
    for number, client in enumerate(fed.clients):
        # A name may come from a file, and be no name for one.
        path = folder / f"{number}-{re.sub(r'[^A-Za-z0-9._-]', '_', client.name)}.png"
        title = f"private view of {client.name}: for this client alone"
        places = views[client.name]
        draw_private_view(estimator.board_, estimator.density_, places, client.y, path, title=title, caption=text)


def caption(config: RunConfig, density: Density | None) -> str:
    """Say what the public part of a picture costs, and whom that trusts."""
    lines = [f"ε = {config.epsilon:g}, δ = {config.delta:g} for one {config.unit}, trust {config.trust}"]
    if density is not None:
        lines.append(f"noise in a cell, before smoothing: {100 * density.noise:.2g} % of all records; lines: contours")
    return "\n".join([*lines, "grey dots: anchors, which stand for the landmarks"])
