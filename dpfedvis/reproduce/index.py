"""The page above all tables and figures of a folder: what reproduces and what does not, from the numbers beside it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from dpfedvis.recorder import write_text
from dpfedvis.reporting.sweep_page import Block, Heading, Paragraph, Table, markdown
from dpfedvis.reproduce.compare import CLOSE, met
from dpfedvis.reproduce.experiments import EXPERIMENTS, Experiment
from dpfedvis.reproduce.paper import SCORES

FLAT = 50  # rounds after which the paper's metrics are said to be flat
_HOW = (
    f"Every number is in the CSV beside its page. *Met*: our mean is within {CLOSE:g} of the paper's standard "
    "deviations. *Difference*: ours minus the paper's, mean over the settings. Higher is better for all scores but SC, "
    "which rises as clusters collapse. ε of every run here is ∞ end to end: the paper's protocol uploads an exact row "
    "for every record, with or without its noise."
)

Numbers = list[dict[str, str]]


def write_index(folder: Path) -> Path:
    """Write index.md over all that the folder holds."""
    path = folder / "index.md"
    write_text(path, markdown(_blocks(folder)))
    return path


def _blocks(folder: Path) -> list[Block]:
    blocks: list[Block] = [Heading("The paper's experiments, run again", 1), Paragraph(_HOW)]
    for experiment in EXPERIMENTS.values():
        source = folder / f"{experiment.name}.csv"
        if source.exists():
            command, numbers = read_csv(source)
            blocks += [Heading(f"[{experiment.title}]({experiment.name}.md)"), Paragraph(f"Made by `{command}`.")]
            blocks += _figure(experiment, numbers) if experiment.axis else _table(numbers)
    return blocks


def read_csv(path: Path) -> tuple[str, Numbers]:
    """Return the command and the numbers of a page's CSV."""
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    return first.removeprefix("# "), list(csv.DictReader(rest))


def _table(numbers: Numbers) -> list[Block]:
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for each in numbers:
        if each["deviation_in_paper_sd"]:
            apart = float(each["mean"]) - float(each["paper_mean"])
            groups.setdefault((each["way"], each["score"]), []).append((apart, float(each["deviation_in_paper_sd"])))
    if not groups:
        return [Paragraph("Nothing here compares with the paper's numbers.")]
    rows = [
        [
            way,
            SCORES[score],
            f"{sum(met(deviation) for _, deviation in own)} of {len(own)}",
            f"{fmean(apart for apart, _ in own):+.4f}",
            f"{min((apart for apart, _ in own)):+.4f} to {max((apart for apart, _ in own)):+.4f}",
        ]
        for (way, score), own in groups.items()
    ]
    return [Table(["way", "score", "met", "difference", "from, to"], rows)]


def _figure(experiment: Experiment, numbers: Numbers) -> list[Block]:
    score = "nmi"
    rows = []
    for group in dict.fromkeys(each["group"] for each in numbers):
        own = [(float(each["setting"]), float(each["mean"])) for each in numbers
               if (each["group"], each["score"]) == (group, score) and each["mean"]]  # fmt: skip
        if len(own) > 1:
            rows.append([group, *(f"{value:.3f} at {x:g}" for x, value in (own[0], own[-1])), _trend(experiment, own)])
    header = ["", f"first {SCORES[score]}", "last", f"along {experiment.axis}"]
    return [Paragraph(experiment.claim), Table(header, rows)] if rows else [Paragraph(experiment.claim)]


def _trend(experiment: Experiment, own: Sequence[tuple[float, float]]) -> str:
    if experiment.axis == "rounds":
        late = [value for x, value in own if x >= FLAT]
        return f"changes by {max(late) - min(late):.3f} from {FLAT} rounds on" if len(late) > 1 else "-"
    from scipy.stats import spearmanr

    correlation = float(spearmanr([x for x, _ in own], [value for _, value in own]).statistic)
    return f"rank correlation {correlation:+.2f}"
