"""`dpfedvis sweep report`: a store of cells as a page that answers what privacy costs."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accounting.rounding import rounded_up
from dpfedvis.errors import DpfedvisError
from dpfedvis.evaluation.baselines import NO_DATA
from dpfedvis.evaluation.metrics import Metric
from dpfedvis.experiments.sweeps.cells import Kind
from dpfedvis.experiments.sweeps.choices import Best, best, cheapest, composable, pareto, together
from dpfedvis.experiments.sweeps.figures import Curves, draw, sentence
from dpfedvis.experiments.sweeps.grid import BASELINES
from dpfedvis.experiments.sweeps.store import CellRow
from dpfedvis.experiments.sweeps.summary import CONFIDENCE, Context, Point, contexts, latest_version
from dpfedvis.numerics.plain_text import in_spreadsheet
from dpfedvis.reporting.rendering import render_html, render_markdown
from dpfedvis.runs.code_version import CodeVersion, code_version
from dpfedvis.runs.folder import write_texts

_TEMPLATE = "sweep.page"


class NothingToReport(DpfedvisError):
    """A store without a finished run."""


def write_report(rows: Sequence[CellRow], folder: Path, command: str, version: CodeVersion | None = None) -> list[Path]:
    """Write report.html, report.md, points.csv and the figures into a folder; return their paths.

    Parameters
    ----------
    rows : sequence of CellRow
        Of the whole store.
    folder : Path
    command : str
        That makes the same report again.
    version : CodeVersion, optional
        Of the running code, which the page names. Rows of other code than the last are marked.
    """
    last = latest_version(rows)
    found = [context for context in contexts(rows, last) if context.runs]
    if not found:
        raise NothingToReport("the store has no finished run to report on")
    parts = [_context(number, context) for number, context in enumerate(found, 1)]
    facts = {
        "command": command,
        "confidence": f"{CONFIDENCE:.0%}",
        "version": version or code_version(),
        "last": last,
        "counts": sorted(Counter(row.status for row in rows).items()),
        "others": list(
            Counter(str(row.version) for row in rows if row.status == "done" and row.version != last).items()
        ),
        "reasons": [
            [status, str(count), reason]
            for (status, reason), count in Counter(
                (row.status, row.error) for row in rows if row.status != "done"
            ).most_common()
        ],
        "contexts": parts,
        "together": _together(found),
    }
    texts = {
        "report.html": render_html(_TEMPLATE, **facts),
        "report.md": render_markdown(_TEMPLATE, **facts),
        "points.csv": points_csv(found),
    }
    return write_texts(folder, texts | {each["file"]: each["svg"] for part in parts for each in part["drawings"]})


def _context(number: int, context: Context) -> dict[str, Any]:
    """Return what the page shows of a context."""
    metrics = context.metrics()
    drawings = []
    for landmarks_only, ending in ((False, ""), (True, "-landmarks")):
        curves = Curves(context, landmarks_only)
        if curves.points:
            drawings.append(
                {
                    "file": f"curves-{number}{ending}.svg",
                    "svg": draw(curves, context.heading),
                    "axis": curves.xlabel,
                    "sentence": sentence(curves, metrics[0]) if metrics else "",
                }
            )
    finite = [point for point in context.runs if 0 < point.epsilon < math.inf]
    exact = any(point.epsilon == math.inf and not point.landmarks_only for point in context.runs)
    return {
        "link": (f"part-{number}", context.heading),
        "drawings": drawings,
        "metrics": [metric.name for metric in metrics],
        "has_exact": bool(finite) and exact and context.facts["map"] != "clusters",
        "worse": context.below_data_free(metrics[0]),
        "shared": any(point.trust == "aggregate" for point in finite),
        "numbers": [
            [point.name, rounded_up(point.epsilon), "-" if point.in_scope is None else rounded_up(point.in_scope),
             *(str(point.scores.get(metric.key, "-")) for metric in metrics), str(point.seeds)]
            for point in context.points
        ],
        "yardsticks": _yardsticks(context, metrics),
        "missing": [kind for kind in BASELINES if all(point.kind != kind for point in context.points)],
        "best": _best(context, metrics, landmarks_only=False),
        "best_landmarks": _best(context, metrics, landmarks_only=True),
        "levels": [
            [metric.name, f"{'≥' if metric.higher else '≤'} {each.level:g}", _named(each.by_mean), _named(each.by_band)]
            for metric in metrics
            for each in cheapest(context, metric)
        ],
        "front": [
            [metric.name, rounded_up(point.epsilon), point.name, _marked(context, point, metric), str(point.seeds)]
            for metric in metrics
            for point in pareto(context, metric)
        ],
    }  # fmt: skip


def _yardsticks(context: Context, metrics: Sequence[Metric]) -> list[list[str]]:
    """What every score is held against, one row a baseline."""
    rows: list[list[str]] = []
    named: tuple[tuple[Kind, str], ...] = (
        ("chance", "chance"),
        ("data-free", f"no data, ε = {NO_DATA:g}"),
        ("central", "central, no privacy"),
    )
    for kind, name in named:
        found = [context.baseline(kind, metric) for metric in metrics]
        if any(found):
            rows.append([name, *("-" if score is None else str(score) for score in found)])
    return rows


def _best(context: Context, metrics: Sequence[Metric], *, landmarks_only: bool) -> list[list[str]]:
    answers: dict[float, dict[str, Best]] = {}
    for metric in metrics:
        for each in best(context, metric, landmarks_only=landmarks_only):
            answers.setdefault(each.epsilon, {})[metric.key] = each
    return [
        [rounded_up(epsilon), *(_shown(context, own.get(metric.key), metric) for metric in metrics)]
        for epsilon, own in sorted(answers.items())
    ]


def _shown(context: Context, answer: Best | None, metric: Metric) -> str:
    if answer is None:
        return "-"
    ties = f" ({'; '.join(point.name for point in answer.ties)})" if answer.ties else ""
    return f"{answer.point.name}: {_marked(context, answer.point, metric)}{ties}"


def _marked(context: Context, point: Point, metric: Metric) -> str:
    """A score, with a dagger where it is no better than one without data."""
    finite = point.kind == "run" and point.epsilon < math.inf
    return f"{point.scores[metric.key]}{' †' if finite and context.meets_data_free(point, metric) else ''}"


def _named(point: Point | None) -> str:
    return "-" if point is None else f"{rounded_up(point.epsilon)} ({point.name}, n = {point.seeds})"


def _together(found: Sequence[Context]) -> list[list[str]]:
    """What all runs of each context cost together."""
    kinds = {context.title: composable(context.runs) for context in found}
    # Neighbouring data sets of different kinds have no ε in common.
    if len(kinds) > 1 and len({(context.facts["adjacency"], context.facts["unit"]) for context in found}) == 1:
        kinds["all of these"] = [point for tried in kinds.values() for point in tried]
    rows = []
    for title, tried in kinds.items():
        total = together(tried)
        if total is not None:
            most, runs = max(point.epsilon for point in tried), sum(point.seeds for point in tried)
            delta = max(point.delta for point in tried)
            rows.append([title, str(len(tried)), str(runs), rounded_up(most), rounded_up(total), f"{delta:g}"])
    return rows


def points_csv(found: Sequence[Context]) -> str:
    """Return one line for each point and score."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["context", "kind", "series", "epsilon_end_to_end", "epsilon_landmarks", "epsilon_nominal", "delta", "score",
         "mean", "sd", "n", "half_width_95", "other_code"]
    )  # fmt: skip
    for context in found:
        for point in context.points:
            facts = [
                in_spreadsheet(context.title),
                point.kind,
                in_spreadsheet(point.series),
                point.epsilon,
                point.in_scope,
                point.nominal,
                point.delta,
            ]
            other = "*" if point.other_code else ""
            for key, score in sorted(point.scores.items()):
                writer.writerow([*facts, key, score.mean, score.sd, score.n, score.half, other])
    return text.getvalue()
