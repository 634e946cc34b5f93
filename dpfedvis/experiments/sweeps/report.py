"""`dpfedvis sweep report`: a store of cells as a page that answers what privacy costs."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from accounting.rounding import rounded_up
from dpfedvis.errors import DpfedvisError
from dpfedvis.experiments.sweeps.choices import Best, against_clients, best, cheapest, composable, pareto, together
from dpfedvis.experiments.sweeps.figures import Curves, draw
from dpfedvis.experiments.sweeps.panels import panels
from dpfedvis.experiments.sweeps.store import Row
from dpfedvis.experiments.sweeps.summary import Context, Metric, Point, contexts, latest_version
from dpfedvis.experiments.sweeps.words import AGAINST, HOW, MARKED, NO_LIMIT, PICKED, SHARED, TUNING
from dpfedvis.numerics.files import write_text
from dpfedvis.reporting.blocks import Block, Heading, Paragraph, Picture, Table, html_page, markdown
from dpfedvis.runs.code_version import CodeVersion, code_version

_OFFLINE = "The page is complete in itself: it loads nothing and sends nothing."


class ReportUnusable(DpfedvisError):
    """A folder that cannot be written to, or a store with nothing to report."""


def write_report(rows: Sequence[Row], folder: Path, command: str, version: CodeVersion | None = None) -> list[Path]:
    """Leave report.html, report.md, points.csv and the figures in a folder; return their paths.

    Parameters
    ----------
    rows : sequence of Row
        Of the whole store.
    folder : Path
    command : str
        That makes the same report again.
    version : CodeVersion, optional
        Of the running code, which the page names. Rows of other code than the last are marked.
    """
    version = version or code_version()
    found = [context for context in contexts(rows, latest_version(rows)) if context.runs]
    if not found:
        raise ReportUnusable("the store has no finished run to report on")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        blocks, stems = _blocks(rows, found, folder, command, version)
        write_text(folder / "points.csv", points_csv(found))
        write_text(folder / "report.md", markdown(blocks))
        write_text(folder / "report.html", html_page(blocks, f"Made by `{command}`. {_OFFLINE}"))
    except OSError as error:
        raise ReportUnusable(f"{folder} cannot be written to: {error.strerror}") from error
    names = ["report.html", "report.md", "points.csv", *(f"{stem}.{end}" for stem in stems for end in ("png", "svg"))]
    return [folder / name for name in names]


def _blocks(
    rows: Sequence[Row], found: Sequence[Context], folder: Path, command: str, version: CodeVersion
) -> tuple[list[Block], list[str]]:
    blocks: list[Block] = [Heading("Privacy and utility", 1), Paragraph(f"Made by `{command}`."), Paragraph(HOW)]
    blocks += _state(rows, version)
    stems = []
    for number, context in enumerate(found, 1):
        blocks.append(Heading(context.title))
        for landmarks_only, ending in ((False, ""), (True, "-landmarks")):
            curves = Curves(context, landmarks_only)
            if curves.points:
                stem = f"curves-{number}{ending}"
                draw(curves, context.title, folder / stem)
                caption = f"{context.title}: scores against {curves.xlabel}."
                blocks.append(Picture(f"{stem}.png", caption, partial(panels, key=stem, curves=curves)))
                stems.append(stem)
        blocks += [*_caveats(context), _numbers(context), *_answers(context)]
    blocks += [Heading("What tuning costs"), *map(Paragraph, TUNING), *_tuning(found)]
    return blocks, stems


def _state(rows: Sequence[Row], version: CodeVersion) -> list[Block]:
    counts = Counter(row.status for row in rows)
    words = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    last = latest_version(rows)
    blocks: list[Block] = [Paragraph(f"Cells in the store: {words}. Made by code {last}; this page by {version}.")]
    others = Counter(str(row.version) for row in rows if row.status == "done" and row.version != last)
    if others:
        listed = ", ".join(f"{name} ({count} {'cell' if count == 1 else 'cells'})" for name, count in others.items())
        blocks.append(Paragraph(f"Made by other code, and marked with * below: {listed}."))
    reasons = Counter((row.status, row.error) for row in rows if row.status != "done")
    if reasons:
        listed_reasons = [[status, str(count), reason] for (status, reason), count in reasons.most_common()]
        blocks.append(Table(["", "cells", "why they are not here"], listed_reasons, "Cells without scores"))
    return blocks


def _caveats(context: Context) -> list[Block]:
    """What a picture does not say by itself."""
    blocks: list[Block] = []
    finite = [point for point in context.runs if 0 < point.epsilon < math.inf]
    exact = any(point.epsilon == math.inf and not point.landmarks_only for point in context.runs)
    if finite and exact and context.facts["map"] != "clusters":
        blocks.append(Paragraph(NO_LIMIT))
    first = context.metrics()[0]
    if worse := context.below_data_free(first):
        blocks.append(
            Paragraph(f"Worse than a map without any data at every ε here, by {first.name}: {'; '.join(worse)}.")
        )
    clients = context.facts["clients"]
    noisy = [point for point in finite if point.trust == "aggregate" and not point.sampled]
    shared = sorted({(point.epsilon, point.delta) for point in noisy})
    if shared and clients is None:
        blocks.append(Paragraph(SHARED))
    elif shared and clients > 1:
        # Of two clients, one other is all others.
        others = {clients - 1: f"against {clients - 1} together", 1: "against one other client"}
        names = dict(sorted(others.items()))
        rows = [[_epsilon(epsilon), *(_epsilon(against_clients(epsilon, delta, clients, each)) for each in names)]
                for epsilon, delta in shared]  # fmt: skip
        unique = list({tuple(row): row for row in rows}.values())
        header = ["ε against the server", *names.values()]
        blocks += [Paragraph(AGAINST), Table(header, unique, "Shared noise against other clients")]
    return blocks


def _answers(context: Context) -> list[Block]:
    metrics = context.metrics()
    blocks: list[Block] = [Heading("Best mechanism at a given ε", 3)]
    blocks.append(Paragraph(f"By the mean; in brackets those whose intervals meet that of the best. {MARKED} {PICKED}"))
    blocks.append(_best_table(context, metrics, landmarks_only=False, column="ε end to end"))
    if any(point.landmarks_only for point in context.runs):
        blocks.append(Paragraph("The same by the ε of the landmarks alone; end to end all of these have ε = ∞."))
        blocks.append(_best_table(context, metrics, landmarks_only=True, column="ε of the landmarks"))
    levels = [
        [metric.name, f"{'≥' if metric.higher else '≤'} {each.level:g}", _named(each.by_mean), _named(each.by_band)]
        for metric in metrics
        for each in cheapest(context, metric)
    ]
    if levels:
        header = ["score", "level", "ε, by the mean", "ε, by the whole interval"]
        blocks.append(Heading("Cheapest ε for a given utility", 3))
        blocks.append(Table(header, levels, "Least ε end to end that reaches a level"))
    front = [
        [metric.name, _epsilon(point.epsilon), point.name, _marked(context, point, metric), str(point.seeds)]
        for metric in metrics
        for point in pareto(context, metric)
    ]
    blocks.append(Heading("Pareto front", 3))
    blocks.append(Paragraph("Nothing in the store has both no larger ε end to end and a better mean."))
    blocks.append(Table(["score", "ε end to end", "setting", "mean", "n"], front, "Pareto front"))
    return blocks


def _numbers(context: Context) -> Table:
    """Everything that is drawn, for those who do not see it."""
    metrics = context.metrics()
    rows = [
        [point.name, _epsilon(point.epsilon), "-" if point.in_scope is None else _epsilon(point.in_scope),
         *(str(point.scores.get(metric.key, "-")) for metric in metrics), str(point.seeds)]
        for point in context.points
    ]  # fmt: skip
    header = ["setting", "ε end to end", "ε in the budget's scope", *(metric.name for metric in metrics), "n"]
    return Table(header, rows, "All numbers as a table", folded=True)


def _best_table(context: Context, metrics: Sequence[Metric], *, landmarks_only: bool, column: str) -> Table:
    answers: dict[float, dict[str, Best]] = {}
    for metric in metrics:
        for each in best(context, metric, landmarks_only=landmarks_only):
            answers.setdefault(each.epsilon, {})[metric.key] = each
    rows = [
        [_epsilon(epsilon), *(_shown(context, own.get(metric.key), metric) for metric in metrics)]
        for epsilon, own in sorted(answers.items())
    ]
    return Table([column, *(metric.name for metric in metrics)], rows, f"Best setting by {column}")


def _shown(context: Context, answer: Best | None, metric: Metric) -> str:
    if answer is None:
        return "-"
    ties = f" ({'; '.join(point.name for point in answer.ties)})" if answer.ties else ""
    return f"{answer.point.name}: {_marked(context, answer.point, metric)}{ties}"


def _marked(context: Context, point: Point, metric: Metric) -> str:
    """A score, with a dagger where it is no better than one without data."""
    finite = 0 < point.epsilon < math.inf
    return f"{point.scores[metric.key]}{' †' if finite and context.meets_data_free(point, metric) else ''}"


def _named(point: Point | None) -> str:
    return "-" if point is None else f"{_epsilon(point.epsilon)} ({point.name}, n = {point.seeds})"


def _epsilon(value: float) -> str:
    return rounded_up(value)


def _tuning(found: Sequence[Context]) -> list[Block]:
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
            rows.append([title, str(len(tried)), str(runs), _epsilon(most), _epsilon(total), f"{delta:g}"])
    if not rows:
        return []
    words = (
        "At most what all runs of a kind come to together, had they all been released, without their scores: runs "
        "compose as Gaussian mechanisms do, μ² adds up. Runs that sample records and runs with ε = ∞ are left out."
    )
    header = ["", "settings", "runs", "largest ε of one", "ε of all together", "δ"]
    return [Paragraph(words), Table(header, rows, "All runs together")]


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
            facts = [context.title, point.kind, point.series, point.epsilon, point.in_scope, point.nominal, point.delta]
            other = "*" if point.other_code else ""
            for key, score in sorted(point.scores.items()):
                writer.writerow([*facts, key, score.mean, score.sd, score.n, score.half, other])
    return text.getvalue()
