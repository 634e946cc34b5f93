"""The paper's tables and figures as Markdown, CSV and drawings, and the pages above all that a folder holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from dpfedvis.experiments.paper.comparisons import CLOSE, Comparison, met, prices, shown_epsilon, verdicts
from dpfedvis.experiments.paper.experiments import EXPERIMENTS, Experiment
from dpfedvis.experiments.paper.figures import draw_figure
from dpfedvis.experiments.paper.findings import FLAT, MONOTONE, STILL, Answer, findings, together
from dpfedvis.experiments.paper.paper import SCORES
from dpfedvis.experiments.paper.readings import ComparedNumber, Readings, Scale, as_csv, read_csv
from dpfedvis.experiments.paper.recipes import Shrink
from dpfedvis.experiments.sweeps.summary import Estimate
from dpfedvis.reporting.rendering import render_markdown
from dpfedvis.runs.code_version import CodeVersion, code_version
from dpfedvis.runs.folder import write_texts

INDEX, PLAIN = "index.md", "what-reproduces.md"
# From landmarks to a map or to clusters: ours, which the paper does not have.
_OURS = ("gram", "neighbors")
# Pages of other scripts that say why numbers differ.
_BESIDE = {
    "central.md": "Settings that give Table 5's central numbers",
    "npa.md": "Table 2's NPA is that of maps of 30,000 records, not 40,000",
}
_TITLES: dict[Answer, str] = {
    "yes": "reproduces",
    "in part": "in part",
    "no": "**does not**",
    "open": "cannot tell",
}


def write_experiment(
    experiment: Experiment,
    shrink: Shrink,
    found: Sequence[Comparison],
    folder: Path,
    command: str,
    cells_by: CodeVersion | None,
) -> list[Path]:
    """Write the page, the numbers and, for figures, the drawing; return their paths.

    `cells_by` is the code whose numbers have no star; None if there are none.
    """
    scale = Scale.of(experiment, shrink)
    texts = {"md": page(experiment, shrink, found, command, cells_by), "csv": as_csv(found, scale, command)}
    if experiment.axis:
        texts["svg"] = draw_figure(experiment, scale, found)
    return write_texts(folder, {f"{experiment.name}.{end}": text for end, text in texts.items()})


def page(
    experiment: Experiment, shrink: Shrink, found: Sequence[Comparison], command: str, cells_by: CodeVersion | None
) -> str:
    """Return the page of a table or figure as Markdown."""
    settings = {line.entry: line.ours is not None for line in found}
    groups = {group: [line for line in found if line.entry.group == group]
              for group in dict.fromkeys(line.entry.group for line in found)}  # fmt: skip
    return render_markdown(
        "paper.md",
        experiment=experiment,
        command=command,
        cells_by=cells_by,
        version=code_version(),
        shrunk=shrink.sentences(experiment.records, experiment.rounds),
        arms=list(dict.fromkeys(line.entry.arm for line in found)),
        verdicts=list(map(str, verdicts(found))),
        settings=len(settings),
        absent=sum(not there for there in settings.values()),
        other_code=any(line.other_code for line in found),
        prices=[
            [column, f"{beta:g}", shown_epsilon(nominal), shown_epsilon(spent), f"{delta:g}"]
            for (column, beta), (nominal, spent, delta) in prices(found).items()
        ],
        tables=[
            (group, *(_curve(own, experiment) if experiment.axis else _table(own))) for group, own in groups.items()
        ],
    )


def held_in(folder: Path, *, without: Collection[str] = ()) -> dict[str, Readings]:
    """Return the numbers that a folder holds, in the order of the paper, except some that will be made anew."""
    return {
        name: read_csv(path)
        for name in EXPERIMENTS
        if name not in without and (path := folder / f"{name}.csv").exists()
    }


def write_index(folder: Path) -> list[Path]:
    """Write the index and what reproduces, from the numbers that a folder holds; return their paths."""
    found = held_in(folder)
    held = [_held(EXPERIMENTS[name], own) for name, own in found.items()]
    facts: dict[str, Any] = {
        "held": held,
        "titles": _TITLES,
        "plain": PLAIN,
        "close": CLOSE,
        "monotone": MONOTONE,
        "still": STILL,
        "flat": FLAT,
        "ours": _OURS,
        "beside": {name: text for name, text in _BESIDE.items() if (folder / name).exists()},
        "absent": [each.title for each in EXPERIMENTS.values() if each.name not in found],
    }
    return write_texts(
        folder,
        {INDEX: render_markdown("paper_index.md", **facts), PLAIN: render_markdown("what_reproduces.md", **facts)},
    )


def _held(experiment: Experiment, own: Readings) -> dict[str, Any]:
    """Return what both pages say of a table or figure."""
    found = findings(experiment, own.scale, own.numbers)
    return {
        "name": experiment.name,
        "title": experiment.title,
        "command": own.command,
        "seeds": "1 seed" if own.scale.seeds[0] == 1 else f"{own.scale.seeds[0]} seeds",
        "axis": experiment.axis,
        "claim": experiment.claim if experiment.axis else "",
        "findings": found,
        "rows": [together(experiment, own.scale, found)] if experiment.axis else found,
        "compared": [] if experiment.axis or own.scale.shrunk else _compared(own.numbers),
    }


def _compared(numbers: Sequence[ComparedNumber]) -> list[list[str]]:
    """How the numbers of each way and score compare with the paper's."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for each in numbers:
        if each.deviation is not None:
            groups.setdefault((each.way, each.score), []).append((each.apart, each.deviation))
    rows = []
    for (way, score), own in groups.items():
        apart = [each for each, _ in own]
        between = f"{min(apart):+.4f} to {max(apart):+.4f}"
        rows.append([way, SCORES[score], _met(own), f"{fmean(apart):+.4f}", between])
    return rows


def _met(own: Sequence[tuple[float, float]]) -> str:
    return f"{sum(met(deviation) for _, deviation in own)} of {len(own)}"


def _table(found: Sequence[Comparison]) -> tuple[list[str], list[list[str]]]:
    """One line a setting and score, with a pair of columns for each way."""
    arms = [arm for arm in dict.fromkeys(line.entry.arm for line in found) if arm != "central"]
    by_place: dict[tuple[str, str], dict[str, Comparison]] = {}
    for line in found:
        by_place.setdefault((line.entry.column, line.score), {})[line.entry.arm] = line
    rows = []
    for (column, score), own in by_place.items():
        some = next(iter(own.values()))
        cells = [column, *_noise(own.values()), SCORES[score], some.paper.text if some.paper else "-"]
        for arm in arms:
            # Collected records know no estimate: the one central number stands in every column.
            ours = own.get(arm, own.get("central"))
            cells += [_ours(ours), _deviation(ours)]
        rows.append(cells)
    ways = [word for arm in arms for word in (arm, "deviation")]
    return ["setting", "β", "nominal ε", "score", "paper", *ways], rows


def _curve(found: Sequence[Comparison], experiment: Experiment) -> tuple[list[str], list[list[str]]]:
    """One line a place on the x-axis, one column a score."""
    by_place: dict[str, dict[str, Comparison]] = {}
    for line in found:
        by_place.setdefault(line.entry.column, {})[line.score] = line
    noisy = any(line.entry.beta for line in found)
    rows = [
        [column, *(_noise(own.values())[1:] if noisy else []), *(_ours(own.get(score)) for score in experiment.scores)]
        for column, own in by_place.items()
    ]
    scores = [SCORES[score] for score in experiment.scores]
    return [experiment.axis, *(["nominal ε"] if noisy else []), *scores], rows


def _noise(own: Iterable[Comparison]) -> list[str]:
    """β and what it would be worth."""
    own = list(own)
    nominal = max((line.nominal for line in own if line.nominal is not None), default=None)
    beta = own[0].entry.beta
    return [f"{beta:g}" if beta else "-", shown_epsilon(nominal) if beta or own[0].entry.x is None else "∞"]


def _ours(line: Comparison | None) -> str:
    if line is None or line.ours is None:
        return "-"
    return _estimate(line.ours) + ("*" if line.other_code else "")


def _deviation(line: Comparison | None) -> str:
    return "-" if line is None or line.deviation is None else f"{line.deviation:+.1f} sd"


def _estimate(ours: Estimate) -> str:
    """Mean ± standard deviation over seeds, and how many."""
    spread = "" if ours.sd is None else f" ± {ours.sd:.4f}"
    return f"{ours.mean:.4f}{spread} (n = {ours.n})"
