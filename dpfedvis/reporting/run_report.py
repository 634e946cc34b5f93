"""What a finished run shows to people: pictures, figures and report.html.

    map.png  density.png  figures/  report.html

All of it is made from the run's folder, so ``dpfedvis report`` can make it again. Only private views need the records,
and are drawn while the run has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from accounting.rounding import rounded_up
from accounting.wording import STAND_IN
from dpfedvis.estimators.known_tables import CLUSTERS
from dpfedvis.evaluation.metrics import METRICS
from dpfedvis.numerics.files import write_text
from dpfedvis.numerics.layouts import LAYOUTS
from dpfedvis.protocol.density import Density
from dpfedvis.reporting import interactive_maps
from dpfedvis.reporting.density_figures import draw_density
from dpfedvis.reporting.drawing import save_png, svg
from dpfedvis.reporting.private_views import OwnRecords, stems_of, write_view
from dpfedvis.reporting.rendering import render_html, shown
from dpfedvis.reporting.risk_figures import STATEMENT_PAGE, statement_page
from dpfedvis.reporting.run_facts import Cloud, RunFacts, number
from dpfedvis.reporting.run_figures import BELOW, draw_map, drawings
from dpfedvis.runs.execute import Run
from dpfedvis.runs.results import SIMULATION, places_of

REPORT, MAP, DENSITY_PICTURE, FIGURES = "report.html", "map.png", "density.png", "figures"
NOT_PROTECTED = "Simulation: records of all clients, which nobody sees in a real federation; no ε covers them"
# Of the trust models in a run, the one that asks for most.
_TRUSTED = {
    "central": "The server",
    "aggregate": "Most sites, not the server",
    "local": "Nobody",
}
# What a verdict estimates; see `dpfedvis.runs.results.truth_of`.
_TRUTH = {
    "anchor_coverage": "anchors that lie among the records (share)",
    "share_in_clear_regions": "records in regions that are clear of noise (share)",
}
_ORIGIN = ("started", "commit", "seed", "python", "machine")


def show(run: Run) -> None:
    """Write everything to look at of a run whose data are written."""
    write_report(run.folder)
    if run.views is not None:
        write_views(run.views, run)


def write_report(folder: str | Path) -> Path:
    """Write pictures, figures and report.html from what is in the folder of a run; return the page's path."""
    facts = RunFacts.read(folder)
    config, name = facts.config, facts.config.data_name
    if facts.density is not None:
        dots = facts.verdict is None or facts.verdict.signal != "no"
        draw_density(
            facts.cloud.places,
            facts.density,
            facts.folder / DENSITY_PICTURE,
            title=f"{config.map} of {name}: density on the landmarks' map",
            caption=caption(facts.statement, facts.density, dots),
            dots=dots,
        )
    drawn = drawings(facts)
    title = f"{config.map} of {name}, {config.mechanism}, release {config.release}"
    picture = draw_map(facts.cloud, title, facts.verdict, facts.statement["headline"])
    save_png(picture, facts.folder / MAP)
    _write_figures(facts.folder, {**drawn, "map": svg(picture)})
    if facts.simulation is not None:
        places, groupings = facts.simulation.cloud.places, facts.simulation.cloud.groupings
        private = {
            f"by-{key}": svg(draw_map(Cloud(places, "record", {key: each}), f"{facts.title}: simulation, by {key}"))
            for key, each in groupings.items()
        }
        _write_figures(facts.folder / SIMULATION, private)
    write_text(facts.folder / STATEMENT_PAGE, statement_page(facts.statement, drawn["risk"]))
    path = facts.folder / REPORT
    write_text(path, report(facts, drawn))
    return path


def report(facts: RunFacts, drawn: Mapping[str, str | None]) -> str:
    """Return the page, by the template report.html.

    Parameters
    ----------
    facts : RunFacts
    drawn : mapping of str to str
        Figures as SVG; see `dpfedvis.reporting.run_figures.drawings`.
    """
    config, statement, origin = facts.config, facts.statement, facts.provenance
    figures = {"map": published(facts)}
    if facts.simulation is not None:
        # Records among the anchors that they were placed by, in the same coordinates.
        anchors = facts.cloud.places if facts.cloud.noun == "anchor" else None
        figures["places"] = interactive_maps.points(facts.simulation.cloud, anchors=anchors, note=NOT_PROTECTED)
    made = f"{config.spectral.clusters} clusters" if config.map == CLUSTERS else f"a {LAYOUTS[config.map].title}"
    simulation = facts.simulation
    scores = {} if simulation is None else simulation.scores
    yardsticks = {} if simulation is None else simulation.yardsticks
    return render_html(
        "report.html",
        run=facts,
        figures=figures,
        drawings=drawn,
        made=made,
        guesses=statement["best_guess"] if math.isfinite(facts.epsilon) else None,
        trusted=trusted(statement),
        regions=region_rows([] if facts.verdict is None else facts.verdict.regions),
        unprotected=next((each.label for each in facts.steps if math.isinf(each.end_to_end)), "the first release"),
        steps=[
            [each.label, each.stage, rounded_up(each.in_scope), rounded_up(each.end_to_end)] for each in facts.steps
        ],
        accountants=[
            [name, rounded_up(number(each["epsilon"])), each["note"]] for name, each in statement["accountants"].items()
        ],
        curve=[[shown(delta, 2), rounded_up(number(epsilon))] for delta, epsilon in statement["curve"]],
        rounds=[[str(int(row[0])), float(row[1]), float(row[2])] for row in facts.trace],
        has_change=len(facts.trace) > 0 and not math.isnan(facts.trace[-1, 2]),
        yardsticks=list(yardsticks),
        scores=[
            [
                METRICS[key].title if key in METRICS else _TRUTH.get(key, key),
                float(value),
                *(own.get(key) for own in yardsticks.values()),
            ]
            for key, value in scores.items()
        ],
        origin=[
            *([name, str(origin.get(name) or "–")] for name in _ORIGIN),
            *([name, str(found)] for name, found in origin.get("packages", {}).items()),
        ],
    )


def region_rows(regions: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Return the head and the rows of a table of regions where records were seen, each value with its noise."""
    seen = [each for each in regions if each["clear"] != "no"]
    names = list(seen[0]["values"]) if seen else []
    rows = [
        [
            str(each["region"]),
            {"yes": "yes", "weak": "a hint"}[each["clear"]],
            f"{100 * each['share']:.1f} % ± {100 * each['share_noise']:.1f} %",
            *(_with_noise(**each["values"][name]) for name in names),
        ]
        for each in seen
    ]
    return ["region", "above the noise", "share of the records", *names], rows


def _with_noise(mean: float | str, noise: float | str) -> str:
    """A date or a step of an order has its noise as an interval."""
    if isinstance(mean, str):
        return f"{mean} ({noise})"
    return f"{shown(mean)} ± {shown(noise, 2) if isinstance(noise, float) else noise}"


def published(facts: RunFacts) -> interactive_maps.Spec:
    """Return the map that the server has: points, over the density where one was released."""
    records = facts.statement["facts"].get("records", facts.statement["facts"].get(STAND_IN))
    verdict, headline = facts.verdict, facts.statement["headline"]
    return interactive_maps.points(
        facts.cloud,
        measured=facts.density,
        records=None if records is None else int(records),
        weak=None if verdict is None else verdict.weak,
        noise=verdict.sentence if verdict is not None and verdict.signal == "no" else "",
        note=headline if verdict is None else f"{verdict.sentence}\n{headline}",
    )


def trusted(statement: Mapping[str, Any]) -> tuple[str, str]:
    """Return who must be trusted, in a few words and in a sentence or two."""
    who = next((name for name in _TRUSTED if name in statement["trusts"]), "")
    bare = statement["epsilon_end_to_end"] == "inf"
    if bare:
        few = "Everybody who sees the uploads"
    elif statement["one_machine"]:
        few = "Whoever ran this machine"  # it held all records, whatever the releases would ask for elsewhere
    else:
        few = _TRUSTED.get(who, "Nobody: nothing left a client")
    return few, " ".join(statement["words"]["trust"][:2])


def write_views(folder: Path, run: Run) -> None:
    """Write each client's private view. In a real federation each client writes its own, and nobody has them all."""
    estimator, clients = run.estimator, run.fed.clients
    published, density = getattr(estimator, "published_map_", None), getattr(estimator, "density_", None)
    text, places = caption(run.statement.to_dict(), density, published is not None), places_of(estimator)
    clusters = getattr(estimator, "labels_", None)
    parts = zip(stems_of([client.own_name for client in clients]), clients, run.fed.index.slices, strict=True)
    for stem, client, part in parts:
        own = OwnRecords(
            client.own_name,
            places[part],
            client.ids,
            run.fed.labels_of(client),
            client.own,
            None if clusters is None else clusters[part],
        )
        title = f"private view of {client.own_name}: for this client alone"
        anchors = None if published is None else published.places
        write_view(folder, stem, own, anchors=anchors, density=density, title=title, caption=text)


def caption(statement: Mapping[str, Any], density: Density | None, anchors: bool = True) -> str:
    """Say under a picture what its public part costs, and against whom that ε holds."""
    verdict = statement["facts"].get("verdict", {"words": ""})["words"]
    lines = [fill(verdict, BELOW), statement["headline"].replace("; ", ";\n"), statement["words"]["adversary"] or ""]
    if density is not None:
        lines.append(f"noise in a cell, before smoothing: {100 * density.noise:.2g} % of all records; lines: contours")
    return "\n".join(
        [*filter(None, lines), *(["grey dots: anchors, which stand for the landmarks"] if anchors else [])]
    )


def _write_figures(folder: Path, drawn: Mapping[str, str | None]) -> None:
    """Write the figures that exist into ``figures/`` of a folder."""
    (folder / FIGURES).mkdir(exist_ok=True)
    for name, text in drawn.items():
        if text is not None:
            write_text(folder / FIGURES / f"{name}.svg", text)
