"""Two figures of the demo: what privacy costs, and what left each site, when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accounting.events import Event, Unprotected
from dpfedvis.evaluation.metrics import Metric
from dpfedvis.reporting.drawing import plain, svg
from dpfedvis.reporting.palette import looks

_INK, _SOFT, _RULE, _ACCENT = "#1d2327", "#55606a", "#e4e1d9", "#0b5f94"
_DASHES = {"central": "-", "no data": "--", "chance": ":"}
_ROOM = 1.5  # beyond the first and the last ε, as a factor
MANY_SITES = 30  # beyond so many only the number of a site stands beside its line


def curve(
    epsilons: Sequence[float],
    scores: Sequence[Mapping[str, float]],
    yardsticks: Mapping[str, Mapping[str, float]],
    metrics: Sequence[Metric],
    note: str,
) -> str:
    """Draw scores against ε, one panel a metric, between what they are held against.

    Parameters
    ----------
    epsilons : sequence of float
    scores : sequence of mapping of str to float
        At each ε, by the key of the metric.
    yardsticks : mapping of str to mapping of str to float
        The same for chance, no data and central.
    metrics : sequence of Metric
    note : str
        What stands wherever ε does.

    Returns
    -------
    str
        SVG.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(metrics), 3.6), layout="constrained")
    for axes, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
        for name, own in yardsticks.items():
            if metric.key in own:
                axes.axhline(own[metric.key], color=_SOFT, ls=_DASHES[name], lw=1)
                # The names stand on their lines, at the end that the curve leaves free.
                axes.annotate(
                    name, (1.0, own[metric.key]), xycoords=("axes fraction", "data"), xytext=(4, 0),
                    textcoords="offset points", va="center", fontsize=8, color=_SOFT,
                )  # fmt: skip
        known = [(each, own[metric.key]) for each, own in zip(epsilons, scores, strict=True) if metric.key in own]
        if known:
            x, y = zip(*known, strict=True)
            axes.plot(x, y, "o-", color=_ACCENT, lw=1.8, ms=7)
        for epsilon, value in known:
            axes.annotate(
                f"{value:.2f}", (epsilon, value), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=9
            )
        axes.set_xscale("log")
        axes.set_xticks(list(epsilons), [f"{each:.3g}" for each in epsilons])
        axes.minorticks_off()
        reach = (min(epsilons) / _ROOM, max(epsilons) * _ROOM)
        axes.set(title=metric.name, xlabel="ε end to end", xlim=reach, ylim=(0, 1.05))
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(plain(note), fontsize=7, color=_SOFT, x=0.99, ha="right")
    return svg(figure)


def timeline(events: Iterable[Event], note: str) -> str:
    """Draw a line for each site, with a mark for each release in the order of the ledger.

    Parameters
    ----------
    events : iterable of Event
    note : str
        What stands wherever ε does.

    Returns
    -------
    str
        SVG.
    """
    from matplotlib.figure import Figure

    steps: dict[tuple[str, str, int | None], int] = {}
    sites: dict[str, int] = {}
    marks: list[tuple[int, int, str, bool]] = []
    for event in events:
        step = steps.setdefault((event.what, event.stage, event.round), len(steps))
        site = sites.setdefault(event.client, len(sites))
        marks.append((step, site, event.stage, not isinstance(event, Unprotected)))
    stages = list(dict.fromkeys(stage for _, _, stage, _ in marks))
    figure = Figure(figsize=(max(6.0, 0.55 * len(steps) + 2.6), 0.26 * len(sites) + 2.2), layout="constrained")
    axes = figure.add_subplot()
    for row in sites.values():
        axes.axhline(row, color=_RULE, lw=1, zorder=0)
    for stage, look in zip(stages, looks(len(stages)), strict=True):
        for protected in (True, False):
            own = [(step, site) for step, site, found, safe in marks if found == stage and safe == protected]
            if own:
                style: dict[str, Any] = (
                    {"c": look.light} if protected else {"facecolors": "none", "edgecolors": look.light}
                )
                name = stage if protected else f"{stage}, unprotected"
                x, y = zip(*own, strict=True)
                axes.scatter(x, y, s=46, marker=look.marker, label=name, zorder=2, **style)
    rounds = Counter((what, stage) for what, stage, _ in steps)
    labels = [what if rounds[what, stage] == 1 else f"{what} {at}" for what, stage, at in steps]
    axes.set_xticks(
        range(len(steps)), [plain(each) for each in labels], rotation=40, ha="right", fontsize=8, color=_INK
    )
    names = [plain(name) if len(sites) <= MANY_SITES else str(row) for name, row in sites.items()]
    axes.set_yticks(range(len(sites)), names, fontsize=8)
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), title="stage", title_fontsize=8)
    figure.supxlabel(plain(note), fontsize=7, color=_SOFT, x=0.99, ha="right")
    return svg(figure)
