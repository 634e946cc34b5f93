"""What a finished run shows to people: pictures, figures and report.html.

    map.png  density.png  figures/  report.html

All of it is made from the run's folder, so that ``dpfedvis report`` can make it again. Only private views need the
records, and are drawn while the run has them.
"""

from __future__ import annotations

import re
from pathlib import Path

from dpfedvis.estimators.maps import FederatedMap
from dpfedvis.federation.private_map import Density
from dpfedvis.numerics.files import write_text
from dpfedvis.reporting.density_figures import draw_density, draw_private_view
from dpfedvis.reporting.figures import draw_map
from dpfedvis.reporting.page import REPORT, report
from dpfedvis.reporting.run_facts import RunFacts
from dpfedvis.reporting.run_figures import write_figures
from dpfedvis.runs.execute import Run
from dpfedvis.runs.settings import RunConfig

MAP, DENSITY_PICTURE = "map.png", "density.png"


def show(run: Run) -> None:
    """Write everything to look at of a run whose data are written."""
    write_report(run.folder)
    if run.views is not None and isinstance(run.estimator, FederatedMap):
        write_views(run.views, run)


def write_report(folder: str | Path) -> Path:
    """Write pictures, figures and report.html from what is in the folder of a run; return the page's path."""
    facts = RunFacts.read(folder)
    config = facts.config
    name = Path(config.data).name
    title = f"{config.map} of {name}, {config.mechanism}, release {config.release}"
    draw_map(facts.cloud, title, facts.folder / MAP)
    if facts.density is not None:
        draw_density(
            facts.cloud.places,
            facts.density,
            facts.folder / DENSITY_PICTURE,
            title=f"{config.map} of {name}: density on the landmarks' map",
            caption=caption(config, facts.density),
        )
    write_figures(facts)
    path = facts.folder / REPORT
    write_text(path, report(facts))
    return path


def write_views(folder: Path, run: Run) -> None:
    """Draw each client's private view. In a real federation each client draws its own, and nobody has them all."""
    estimator = run.estimator
    text, views = caption(run.config, estimator.density_), estimator.views()
    for number, client in enumerate(run.fed.clients):
        # A name may come from a file, and be no name for one.
        path = folder / f"{number}-{re.sub(r'[^A-Za-z0-9._-]', '_', client.name)}.png"
        title = f"private view of {client.name}: for this client alone"
        places = views[client.name]
        draw_private_view(
            estimator.published_map_.places, estimator.density_, places, client.y, path, title=title, caption=text
        )


def caption(config: RunConfig, density: Density | None) -> str:
    """Say what the public part of a picture costs, and whom that trusts."""
    lines = [f"ε = {config.epsilon:g}, δ = {config.delta:g} for one {config.unit}, trust {config.trust}"]
    if density is not None:
        lines.append(f"noise in a cell, before smoothing: {100 * density.noise:.2g} % of all records; lines: contours")
    return "\n".join([*lines, "grey dots: anchors, which stand for the landmarks"])
