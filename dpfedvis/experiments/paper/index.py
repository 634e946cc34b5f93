"""The pages above all tables and figures of a folder, from the numbers beside it: an index, and what reproduces."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import fmean

from dpfedvis.experiments.paper.compare import CLOSE, met
from dpfedvis.experiments.paper.experiments import EXPERIMENTS
from dpfedvis.experiments.paper.findings import FLAT, MONOTONE, STILL, Answer, Finding, findings, signed
from dpfedvis.experiments.paper.paper import SCORES
from dpfedvis.experiments.paper.readings import Reading, Readings, read_csv
from dpfedvis.numerics.files import write_text
from dpfedvis.reporting.blocks import Block, Heading, Paragraph, Table, markdown
from dpfedvis.runs.folder import FolderUnusable

INDEX, PLAIN = "index.md", "what-reproduces.md"
_HOW = (
    f"Every number is in the CSV beside its page. *Met*: our mean is within {CLOSE:g} of the paper's standard "
    "deviations. *Difference*: ours minus the paper's, mean over the settings. Higher is better for all scores but SC, "
    "which rises as clusters collapse. ε of every run here is ∞ end to end: the paper's protocol uploads an exact row "
    f"for every record, with or without its noise. [What reproduces and what does not]({PLAIN}), in plain words."
)
_PLAIN = (
    "Every number and every answer below is computed from the CSV files in this folder. *nystrom* and *kernel* are the "
    "paper's ways from landmarks to a map or to clusters, *central* is the same with all records in one place, and "
    "*gram* and *neighbors* are ours, from the same landmarks; they stand apart. CA: records whose class their "
    "neighbours in the map tell. NPA: neighbours that a record keeps in the map. NMI and ARI: of clusters with the "
    "classes. SC: silhouette. A group of numbers or of changes is here "
    "as in the paper if all of them are, in part if at least half are. A number is met within "
    f"{CLOSE:g} of the paper's standard deviations; a change is compared by its direction, and counts as none within "
    f"{CLOSE:g} standard deviations of the paper's difference. A curve rises or falls from a rank correlation of "
    f"{MONOTONE:g} on, and is flat if at most {STILL:.0%} of its change are left after round {FLAT}."
)
_PRIVACY = (
    "One thing does not reproduce at any scale: privacy. The paper's noise has no ε, for its scale is taken from the "
    "data, and every record's exact row is uploaded afterwards, so that ε = ∞ end to end."
)
OURS = ("gram", "neighbors")
_OURS = "The same questions to our own ways, which are not the paper's: that they differ from it is what they are for."
_TITLES: dict[Answer, str] = {
    "yes": "Reproduces",
    "in part": "Reproduces in part",
    "no": "Does not reproduce",
    "open": "These runs cannot tell",
}


def held_in(folder: Path, *, without: Collection[str] = ()) -> dict[str, Readings]:
    """Return the numbers that a folder holds, in the order of the paper, but for some that will be made anew."""
    return {
        name: read_csv(path)
        for name in EXPERIMENTS
        if name not in without and (path := folder / f"{name}.csv").exists()
    }


def write_index(folder: Path) -> list[Path]:
    """Write both pages over all that the folder holds; return their paths."""
    held = held_in(folder)
    try:
        write_text(folder / PLAIN, markdown(_plain(held)))
        write_text(folder / INDEX, markdown(_index(held)))
    except OSError as error:
        raise FolderUnusable(f"{folder} cannot be written to: {error.strerror}") from error
    return [folder / INDEX, folder / PLAIN]


def _plain(held: dict[str, Readings]) -> list[Block]:
    blocks: list[Block] = [Heading("What reproduces and what does not", 1), Paragraph(_PLAIN), Paragraph(_PRIVACY)]
    scales = [f"- [{EXPERIMENTS[name].title}]({name}.md): {_scale(own)}" for name, own in held.items()]
    blocks.append(Paragraph("\n".join(scales)))
    short = [line for name, own in held.items() if (line := _by_score(name, own))]
    if short:
        blocks += [Heading("In short: the paper's numbers, met by score"), Paragraph("\n".join(short))]
    found = [(name, each) for name, own in held.items() for each in findings(EXPERIMENTS[name], own.scale, own.numbers)]
    for answer, title in _TITLES.items():
        said = [_said(name, each) for name, each in found if each.answer == answer and each.way not in OURS]
        blocks += [Heading(title), Paragraph("\n".join(said) if said else "Nothing.")]
    if own_ways := [_said(name, each) for name, each in found if each.way in OURS]:
        blocks += [Heading("Our own ways, beside the paper's"), Paragraph(_OURS), Paragraph("\n".join(own_ways))]
    absent = [each.title for each in EXPERIMENTS.values() if each.name not in held]
    if absent:
        blocks += [Heading("Not run"), Paragraph("\n".join(f"- {title}" for title in absent))]
    return blocks


def _by_score(name: str, own: Readings) -> str:
    """How many numbers of each score the paper's own way meets; empty where they do not compare."""
    if own.scale.shrunk or own.scale.data is not None:
        return ""
    groups: dict[str, list[Reading]] = {}
    for each in own.numbers:
        if each.deviation is not None and each.way not in (*OURS, "central"):
            groups.setdefault(each.score, []).append(each)
    parts = [
        f"{SCORES[score]} {sum(met(each.deviation) for each in some if each.deviation is not None)} of {len(some)} "
        f"({signed(fmean(each.apart for each in some))})"
        for score, some in groups.items()
    ]
    listed = ", ".join(parts)
    return f"- {_linked(name)}: {listed}; in brackets the mean difference, ours minus the paper's." if parts else ""


def _scale(own: Readings) -> str:
    ours, repeats = own.scale.seeds
    seeds = f"{'1 seed' if ours == 1 else f'{ours} seeds'} where the published runs have {repeats} repeats"
    if own.scale.data is not None:
        return f"on {own.scale.data}, which is not the paper's data."
    return f"{own.scale.shrunk or 'records and rounds as in the paper'}; {seeds}."


def _said(name: str, finding: Finding) -> str:
    return f"- {_linked(name)} {finding.sentence}"


def _linked(name: str) -> str:
    short = EXPERIMENTS[name].title.partition(":")[0]
    title = EXPERIMENTS[name].title if short == "Figure" else short
    return f"[{title}]({name}.md)"


def _index(held: dict[str, Readings]) -> list[Block]:
    blocks: list[Block] = [Heading("The paper's experiments, run again", 1), Paragraph(_HOW)]
    for name, own in held.items():
        experiment = EXPERIMENTS[name]
        blocks += [Heading(f"[{experiment.title}]({name}.md)"), Paragraph(f"Made by `{own.command}`.")]
        if experiment.axis:
            blocks += [Paragraph(experiment.claim), *_sentences(findings(experiment, own.scale, own.numbers))]
        else:
            compared = [] if own.scale.shrunk else _table(own.numbers)
            blocks += compared or _sentences(findings(experiment, own.scale, own.numbers))
    return blocks


def _sentences(found: Sequence[Finding]) -> list[Block]:
    return [Paragraph("\n".join(f"- {_TITLES[each.answer]}: {each.sentence}" for each in found))]


def _table(numbers: Sequence[Reading]) -> list[Block]:
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for each in numbers:
        if each.deviation is not None:
            groups.setdefault((each.way, each.score), []).append((each.apart, each.deviation))
    if not groups:
        return []
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
