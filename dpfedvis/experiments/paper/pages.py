"""A table or figure as Markdown, CSV and pictures, each with the command that made it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from dpfedvis.experiments.paper.compare import Line, prices, shown_epsilon, verdicts
from dpfedvis.experiments.paper.experiments import Experiment
from dpfedvis.experiments.paper.figures import draw_figure
from dpfedvis.experiments.paper.paper import SCORES
from dpfedvis.experiments.paper.readings import Scale, as_csv
from dpfedvis.experiments.paper.recipes import Shrink
from dpfedvis.experiments.sweeps.summary import Estimate
from dpfedvis.numerics.files import write_text
from dpfedvis.reporting.blocks import Block, Heading, Paragraph, Table, markdown
from dpfedvis.runs.code_version import CodeVersion, code_version
from dpfedvis.runs.folder import FolderUnusable

_WAYS = {
    "nystrom": "the paper's estimate of distances, D(X,Y) D(Y,Y)⁺ D(Y,X)",
    "gram": "ours, from coordinates in the landmarks' affine span; the same landmarks",
    "kernel": "the paper's affinity, exp(−d²/4) estimated from the landmarks",
    "neighbors": "ours, a graph of 10 neighbours in the landmarks' affine span; the same landmarks",
    "central": "the same layout of the pooled records",
}
_SETTINGS = (
    "Settings are the published ones where nothing else is said: mechanism `published`, 500 landmarks, the largest "
    "biased MMD over the bandwidths, batches of 256, Adam with step 0.1."
)
_MAPS_DIFFER = (
    "What differs from the published code besides the scale: t-SNE and UMAP work on a graph of neighbours and start "
    "from PCA or a spectral layout, where the paper has the dense matrix and random starts; the silhouette is taken on "
    "3000 records."
)
_CLUSTERS_DIFFER = (
    "What differs from the published code besides the scale: the clusters come from factors of the estimated kernel or "
    "a sparse graph, never a dense matrix; its entries are not clipped to [0, 1]. The published width γ = 2 is read as "
    "exp(−d²/γ²). Central clusters are scikit-learn's."
)
_NOISE = (
    "β is no privacy parameter: the noise is scaled by the gradient itself, and an exact row for every record is "
    "uploaded afterwards, so that ε = ∞ end to end. *Nominal*: what the noise on the landmarks alone would have been "
    "worth, had its scale been public, without amplification by sampling; the largest over seeds and data."
)


def write_experiment(
    experiment: Experiment,
    shrink: Shrink,
    found: Sequence[Line],
    folder: Path,
    command: str,
    cells_by: CodeVersion | None,
) -> list[Path]:
    """Leave the page, the numbers and, for figures, the pictures; return their paths.

    `cells_by` is the code whose numbers have no star; None if there are none.
    """
    stem, scale = folder / experiment.name, Scale.of(experiment, shrink)
    paths = [folder / f"{experiment.name}.{end}" for end in ("md", "csv")]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if experiment.axis:
            draw_figure(experiment, scale, found, stem)
            paths += [folder / f"{experiment.name}.{end}" for end in ("png", "svg")]
        write_text(paths[1], as_csv(found, scale, command))
        write_text(paths[0], markdown(page(experiment, shrink, found, command, cells_by)))
    except OSError as error:
        raise FolderUnusable(f"{folder} cannot be written to: {error.strerror}") from error
    return paths


def page(
    experiment: Experiment, shrink: Shrink, found: Sequence[Line], command: str, cells_by: CodeVersion | None
) -> list[Block]:
    """Return the page."""
    origin = f"Made by `{command}`."
    if cells_by is not None:
        origin += f" Its cells are by code {cells_by}, this page by {code_version()}."
    blocks: list[Block] = [Heading(experiment.title, 1), Paragraph(origin)]
    if experiment.printed is not None:
        source = f"Table {experiment.printed.number} (`{experiment.printed.label}`)"
        blocks.append(Paragraph(f"The paper's {source}: {experiment.printed.caption}."))
    if experiment.claim:
        blocks.append(Paragraph(experiment.claim))
    said = shrink.sentences(experiment.records, experiment.rounds)
    blocks.append(Paragraph(" ".join([*said, _SETTINGS, _CLUSTERS_DIFFER if experiment.clusters else _MAPS_DIFFER])))
    arms = list(dict.fromkeys(line.entry.arm for line in found))
    blocks.append(Paragraph(" ".join(f"*{arm}*: {_WAYS[arm]}." for arm in arms if arm in _WAYS)))
    if answers := verdicts(found):
        blocks += [Heading("In short"), Paragraph(" ".join(map(str, answers)))]
    blocks += _missing(found)
    blocks += [Heading("What the noise is worth"), Paragraph(_NOISE), *_prices(found)] if prices(found) else []
    if experiment.axis:
        blocks.append(Paragraph(f"![{experiment.title}]({experiment.name}.png)"))
    for group in dict.fromkeys(line.entry.group for line in found):
        own = [line for line in found if line.entry.group == group]
        blocks += [Heading(group), _curve(own, experiment) if experiment.axis else _table(own)]
    return blocks


def _missing(found: Sequence[Line]) -> list[Block]:
    settings = {line.entry: line.ours is not None for line in found}
    absent = sum(not there for there in settings.values())
    blocks: list[Block] = []
    if absent:
        blocks.append(Paragraph(f"Not run yet, or not successfully: {absent} of {len(settings)} settings."))
    if any(line.other_code for line in found):
        blocks.append(Paragraph("A star marks numbers of which other code has made a part."))
    return blocks


def _prices(found: Sequence[Line]) -> list[Block]:
    rows = [
        [column, f"{beta:g}", shown_epsilon(nominal), shown_epsilon(spent), f"{delta:g}"]
        for (column, beta), (nominal, spent, delta) in prices(found).items()
    ]
    return [Table(["setting", "β", "nominal ε of the landmarks", "ε end to end", "δ"], rows)]


def _table(found: Sequence[Line]) -> Table:
    """One line a setting and score, with a pair of columns for each way."""
    arms = [arm for arm in dict.fromkeys(line.entry.arm for line in found) if arm != "central"]
    by_place: dict[tuple[str, str], dict[str, Line]] = {}
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
    return Table(["setting", "β", "nominal ε", "score", "paper", *ways], rows)


def _curve(found: Sequence[Line], experiment: Experiment) -> Table:
    """One line a place on the x-axis, one column a score."""
    by_place: dict[str, dict[str, Line]] = {}
    for line in found:
        by_place.setdefault(line.entry.column, {})[line.score] = line
    noisy = any(line.entry.beta for line in found)
    rows = [
        [column, *(_noise(own.values())[1:] if noisy else []), *(_ours(own.get(score)) for score in experiment.scores)]
        for column, own in by_place.items()
    ]
    scores = [SCORES[score] for score in experiment.scores]
    return Table([experiment.axis, *(["nominal ε"] if noisy else []), *scores], rows)


def _noise(own: Iterable[Line]) -> list[str]:
    """β and what it would be worth."""
    own = list(own)
    nominal = max((line.nominal for line in own if line.nominal is not None), default=None)
    beta = own[0].entry.beta
    return [f"{beta:g}" if beta else "-", shown_epsilon(nominal) if beta or own[0].entry.x is None else "∞"]


def _ours(line: Line | None) -> str:
    if line is None or line.ours is None:
        return "-"
    return shown_estimate(line.ours) + ("*" if line.other_code else "")


def _deviation(line: Line | None) -> str:
    return "-" if line is None or line.deviation is None else f"{line.deviation:+.1f} sd"


def shown_estimate(ours: Estimate) -> str:
    """Mean ± standard deviation over seeds, and how many."""
    spread = "" if ours.sd is None else f" ± {ours.sd:.4f}"
    return f"{ours.mean:.4f}{spread} (n = {ours.n})"
