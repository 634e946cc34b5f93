"""`dpfedvis sweep report`: a store of cells as a page that answers what privacy costs."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from dpfedvis.errors import DpfedvisError
from dpfedvis.recorder import write_text
from dpfedvis.reporting.rounding import rounded_up
from dpfedvis.reporting.sweep_figures import Curves, draw
from dpfedvis.reporting.sweep_page import Block, Heading, Paragraph, Picture, Table, html_page, markdown
from dpfedvis.reporting.sweep_panels import panels
from dpfedvis.sweeps.choices import Best, best, cheapest, pareto, together
from dpfedvis.sweeps.store import Row
from dpfedvis.sweeps.summary import CONFIDENCE, Context, Metric, Point, contexts
from dpfedvis.version import CodeVersion, code_version

_HOW = (
    f"Means over seeds with their {CONFIDENCE:.0%} t-intervals (n is the number of seeds; one seed has no interval). "
    "ε is that of one record unless a setting says otherwise, and is taken from each run's ledger: of *everything* "
    "that left a client. Runs whose budget covers the landmarks alone have ε = ∞ end to end; they are drawn apart, by "
    "the ε of their landmarks. *central* lays out the pooled records themselves. *data-free* lays out public random "
    "points among which each client places its own records at home: nothing leaves, so that ε = 0. MMD and certificate "
    "are taken at one kernel for all runs on the same records. All scores look at every record and every label, so "
    "that this page is for whoever holds the data."
)
_TUNING = (
    "Every setting was run on the same records, and every run was scored against all records and labels. No ledger saw "
    "that. Whoever picks a setting from this page for a release on *these* records must count more than the ε of the "
    "run that is picked, for two reasons.",
    "*The runs.* To publish all of them, or one that was chosen by looking at what they released, costs at most the "
    "composition of all of them, below. *The scores.* They read the records exactly and carry no noise, so that no ε "
    "on this page covers a choice made by them.",
    "There are cheaper ways than composition, if each run *together with its score* is differentially private: try "
    "settings drawn at random, a random number of times whose law has nothing to do with the data, and publish the "
    "best alone. For candidates of pure ε-DP (δ = 0) and a geometric number of tries that is 3ε-DP (Liu & Talwar 2019, "
    "Private selection from private candidates). For a truncated negative binomial number with parameter η > −1 it is "
    "(2 + η)ε, where η = 1 is the geometric one, and there are bounds of this kind for Rényi DP (Papernot & Steinke "
    "2022, Hyperparameter tuning with Rényi differential privacy). Runs here have δ > 0, so that the bounds for pure "
    "DP do not apply to them as they stand; and for a number of tries that is fixed, as in a grid, composition is what "
    "is sure. Choose on public data or on other records, or account for the choice.",
)
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
        Of the running code; rows of others are marked.
    """
    version = version or code_version()
    found = [context for context in contexts(rows, version) if context.runs]
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
    blocks: list[Block] = [Heading("Privacy and utility", 1), Paragraph(f"Made by `{command}`."), Paragraph(_HOW)]
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
        blocks += [_numbers(context), *_answers(context)]
    blocks += [Heading("What tuning costs"), *map(Paragraph, _TUNING), *_tuning(found)]
    return blocks, stems


def _state(rows: Sequence[Row], version: CodeVersion) -> list[Block]:
    counts = Counter(row.status for row in rows)
    words = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    blocks: list[Block] = [Paragraph(f"Cells in the store: {words}. Code: {version}.")]
    others = Counter(str(row.version) for row in rows if row.version != version)
    if others:
        listed = ", ".join(f"{name} ({count} {'cell' if count == 1 else 'cells'})" for name, count in others.items())
        blocks.append(Paragraph(f"Made by other code, and marked with * below: {listed}."))
    reasons = Counter((row.status, row.error) for row in rows if row.status != "done")
    if reasons:
        listed_reasons = [[status, str(count), reason] for (status, reason), count in reasons.most_common()]
        blocks.append(Table(["", "cells", "why they are not here"], listed_reasons, "Cells without scores"))
    return blocks


def _answers(context: Context) -> list[Block]:
    metrics = context.metrics()
    blocks: list[Block] = [Heading("Best mechanism at a given ε", 3)]
    blocks.append(Paragraph("By the mean; in brackets those whose intervals meet that of the best."))
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
        [metric.name, _epsilon(point.epsilon), point.name, str(point.scores[metric.key]), str(point.seeds)]
        for metric in metrics
        for point in pareto(context, metric)
    ]
    blocks.append(Heading("Pareto front", 3))
    blocks.append(Paragraph("Nothing in the store has both a smaller ε end to end and a better mean."))
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
        [_epsilon(epsilon), *(_shown(own.get(metric.key), metric) for metric in metrics)]
        for epsilon, own in sorted(answers.items())
    ]
    return Table([column, *(metric.name for metric in metrics)], rows, f"Best setting by {column}")


def _shown(answer: Best | None, metric: Metric) -> str:
    if answer is None:
        return "-"
    ties = f" ({'; '.join(point.name for point in answer.ties)})" if answer.ties else ""
    return f"{answer.point.name}: {answer.point.scores[metric.key]}{ties}"


def _named(point: Point | None) -> str:
    return "-" if point is None else f"{_epsilon(point.epsilon)} ({point.name}, n = {point.seeds})"


def _epsilon(value: float) -> str:
    return rounded_up(value)


def _tuning(found: Sequence[Context]) -> list[Block]:
    rows = []
    for context in found:
        tried = [point for point in context.runs if 0 < point.epsilon < math.inf and not point.sampled]
        total = together(tried)
        if total is not None:
            most, runs = max(point.epsilon for point in tried), sum(point.seeds for point in tried)
            rows.append([context.title, str(len(tried)), str(runs), _epsilon(most), _epsilon(total)])
    if not rows:
        return []
    words = (
        "At most what all runs of a kind come to together, had they all been released, without their scores: runs "
        "compose as Gaussian mechanisms do, μ² adds up. Runs that sample records and runs with ε = ∞ are left out."
    )
    header = ["", "settings", "runs", "largest ε of one", "ε of all together"]
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
