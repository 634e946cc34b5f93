"""The pages above all tables and figures of a folder, from the numbers beside it: an index, and what reproduces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from dpfedvis.recorder import write_text
from dpfedvis.reporting.sweep_page import Block, Heading, Paragraph, Table, markdown
from dpfedvis.reproduce.compare import CLOSE, met
from dpfedvis.reproduce.experiments import EXPERIMENTS
from dpfedvis.reproduce.findings import FLAT, MONOTONE, STILL, Answer, Finding, findings
from dpfedvis.reproduce.paper import SCORES
from dpfedvis.reproduce.readings import Reading, Readings, read_csv

INDEX, PLAIN = "index.md", "what-reproduces.md"
_HOW = (
    f"Every number is in the CSV beside its page. *Met*: our mean is within {CLOSE:g} of the paper's standard "
    "deviations. *Difference*: ours minus the paper's, mean over the settings. Higher is better for all scores but SC, "
    "which rises as clusters collapse. ε of every run here is ∞ end to end: the paper's protocol uploads an exact row "
    f"for every record, with or without its noise. [What reproduces and what does not]({PLAIN}), in plain words."
)
_PLAIN = (
    "Computed from the CSV files in this folder; nothing is written by hand. A group of numbers or of changes is here "
    "as in the paper if all of them are, in part if at least half are. A number is met within "
    f"{CLOSE:g} of the paper's standard deviations; a change is compared by its direction, and counts as none within "
    f"{CLOSE:g} standard deviations of the paper's difference. A curve rises or falls from a rank correlation of "
    f"{MONOTONE:g} on, and is flat if at most {STILL:.0%} of its change are left after round {FLAT}."
)
_PRIVACY = (
    "One thing does not reproduce at any scale: privacy. The paper's noise has no ε, for its scale is taken from the "
    "data, and every record's exact row is uploaded afterwards, so that ε = ∞ end to end."
)
_TITLES: dict[Answer, str] = {
    "yes": "Reproduces",
    "in part": "Reproduces in part",
    "no": "Does not reproduce",
    "open": "These runs cannot tell",
}


def write_index(folder: Path) -> list[Path]:
    """Write both pages over all that the folder holds; return their paths."""
    held = {
        name: read_csv(path) for name in EXPERIMENTS if (path := folder / f"{name}.csv").exists()
    }  # in the order of the paper
    write_text(folder / PLAIN, markdown(_plain(held)))
    write_text(folder / INDEX, markdown(_index(held)))
    return [folder / INDEX, folder / PLAIN]


def _plain(held: dict[str, Readings]) -> list[Block]:
    blocks: list[Block] = [Heading("What reproduces and what does not", 1), Paragraph(_PLAIN), Paragraph(_PRIVACY)]
    scales = [f"- [{EXPERIMENTS[name].title}]({name}.md): {_scale(own)}" for name, own in held.items()]
    blocks.append(Paragraph("\n".join(scales)))
    found = {name: findings(EXPERIMENTS[name], own.scale, own.numbers) for name, own in held.items()}
    for answer, title in _TITLES.items():
        said = [_said(name, each) for name, own in found.items() for each in own if each.answer == answer]
        blocks += [Heading(title), Paragraph("\n".join(said) if said else "Nothing.")]
    absent = [each.title for each in EXPERIMENTS.values() if each.name not in held]
    if absent:
        blocks += [Heading("Not run"), Paragraph("\n".join(f"- {title}" for title in absent))]
    return blocks


def _scale(own: Readings) -> str:
    ours, repeats = own.scale.seeds
    seeds = f"{'1 seed' if ours == 1 else f'{ours} seeds'} where the paper has {repeats} repeats"
    if own.scale.data is not None:
        return f"on {own.scale.data}, which is not the paper's data."
    return f"{own.scale.shrunk or 'records and rounds as in the paper'}; {seeds}."


def _said(name: str, finding: Finding) -> str:
    short = EXPERIMENTS[name].title.partition(":")[0]
    title = EXPERIMENTS[name].title if short == "Figure" else short
    return f"- [{title}]({name}.md) {finding.sentence}"


def _index(held: dict[str, Readings]) -> list[Block]:
    blocks: list[Block] = [Heading("The paper's experiments, run again", 1), Paragraph(_HOW)]
    for name, own in held.items():
        experiment = EXPERIMENTS[name]
        blocks += [Heading(f"[{experiment.title}]({name}.md)"), Paragraph(f"Made by `{own.command}`.")]
        if experiment.axis:
            blocks += [Paragraph(experiment.claim), *_sentences(findings(experiment, own.scale, own.numbers))]
        else:
            blocks += _table(own.numbers)
    return blocks


def _sentences(found: Sequence[Finding]) -> list[Block]:
    return [Paragraph("\n".join(f"- {_TITLES[each.answer]}. {each.sentence}" for each in found))]


def _table(numbers: Sequence[Reading]) -> list[Block]:
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for each in numbers:
        if each.deviation is not None:
            groups.setdefault((each.way, each.score), []).append((each.apart, each.deviation))
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
