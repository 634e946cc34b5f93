"""What the paper says, put as questions to the numbers: does it hold here too? Every answer is computed.

A *level* is a number of the paper, and is met within `CLOSE` of its standard deviations. An *effect* is the change of a
score between two settings, such as without and with noise. It goes up, goes down, or stays within `CLOSE` standard
deviations of the paper's difference; the paper's own repeats are the yardstick for both sides, since ours are few. A
*trend* is what the paper says about a figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from dpfedvis.experiments.paper.comparisons import CLOSE, met
from dpfedvis.experiments.paper.experiments import Experiment
from dpfedvis.experiments.paper.paper import SCORES
from dpfedvis.experiments.paper.readings import ComparedNumber, Scale

Answer = Literal["yes", "in part", "no", "open"]
FLAT = 50  # rounds after which the paper's metrics are said to be flat
STILL = 0.1  # of the whole change, that may be left after them
MONOTONE = 0.7  # rank correlation from which a curve counts as rising or falling
FEWEST = 3  # places on the x-axis that a trend needs

# From one setting to another, and what the change between them is.
_SETTINGS = {
    ("central", "IID"): "from pooled records to clients",
    ("IID", "non-IID"): "from mixed clients to one class a client",
    ("IID", "IID +"): "from no noise to the paper's β, mixed clients",
    ("non-IID", "non-IID +"): "from no noise to the paper's β, one class a client",
    ("k = 5", "k = 10"): "from 5 clients to 10",
    ("k = 10", "k = 100"): "from 10 clients to 100",
}


@dataclass(frozen=True)
class Finding:
    """An answer: one row of a table.

    Parameters
    ----------
    answer : {"yes", "in part", "no", "open"}
        Whether it is as in the paper; "open" where these runs cannot tell.
    claim : str
        What the paper says, in a few words.
    ours, paper : str
        What was found here, and what the paper has.
    way : str
        From landmarks to a map; empty where it is about several or none.
    short : str
        What was found here, of one curve, in a word.
    """

    answer: Answer
    claim: str
    ours: str
    paper: str = "-"
    way: str = ""
    short: str = ""


def findings(experiment: Experiment, scale: Scale, numbers: Sequence[ComparedNumber]) -> list[Finding]:
    """Answer all questions that a table or figure has numbers for."""
    own = [each for each in numbers if each.mean is not None]
    if not own:
        return [Finding("open", "all", "not run")]
    if scale.data is not None:
        return [Finding("open", "all", f"run on {scale.data}, which is not the paper's data")]
    if experiment.axis:
        groups = list(dict.fromkeys(each.group for each in own))
        scores = _JUDGED.get(experiment.name, experiment.scores)
        trends = [_trend(experiment, group, score, own) for group in groups for score in scores]
        return [_shrunk(_unsure(each, scale), scale) for each in trends]
    ways = list(dict.fromkeys(each.way for each in own))
    levels = [_levels(way, scale, own) for way in ways]
    return [*levels, *(_shrunk(each, scale) for way in ways for each in _effects(way, own))]


def _unsure(finding: Finding, scale: Scale) -> Finding:
    """A single seed is too noisy to deny a trend."""
    if finding.answer != "no" or scale.seeds[0] > 1:
        return finding
    return replace(finding, answer="open", ours=f"{finding.ours}; one seed may hide the trend")


def _shrunk(finding: Finding, scale: Scale) -> Finding:
    """Add the scale, if it is not the paper's."""
    return replace(finding, ours=f"{finding.ours} ({scale.shrunk})") if scale.shrunk else finding


def _levels(way: str, scale: Scale, numbers: Sequence[ComparedNumber]) -> Finding:
    own = [each for each in numbers if each.way == way and each.deviation is not None]
    claim = f"the numbers, {way}"
    if scale.shrunk:
        return Finding("open", claim, f"{scale.shrunk}: they do not compare", way=way)
    if not own:
        return Finding("open", claim, "the paper has no numbers to compare with", way=way)
    close = sum(met(each.deviation) for each in own if each.deviation is not None)
    apart = signed(fmean([each.apart for each in own]))
    return Finding(
        _share(close, len(own)),
        claim,
        f"{close} of {len(own)} met; mean difference {apart}",
        f"{len(own)} numbers",
        way,
    )


def _effects(way: str, numbers: Sequence[ComparedNumber]) -> Iterator[Finding]:
    found: Mapping[tuple[str, str, str, str], ComparedNumber] = {
        (each.group, each.setting, each.way, each.score): each for each in numbers
    }
    for (before, after), words in _SETTINGS.items():
        pairs = []
        for group, setting, own, score in found:
            if (setting, own) == (after, way):
                # Pooled records are laid out in one way, whatever the estimate.
                first = found.get((group, before, way, score)) or found.get((group, before, before, score))
                if first is not None:
                    pairs.append((first, found[group, setting, own, score]))
        compared = [(one, other) for one, other in pairs if one.paper is not None and other.paper is not None]
        if compared:
            yield _effect(way, words, compared)


def _effect(way: str, words: str, pairs: Sequence[tuple[ComparedNumber, ComparedNumber]]) -> Finding:
    same, theirs, ours = 0, [], []
    for one, other in pairs:
        spread = CLOSE * math.hypot(one.paper_sd or 0.0, other.paper_sd or 0.0)
        printed, measured = (other.paper or 0.0) - (one.paper or 0.0), (other.mean or 0.0) - (one.mean or 0.0)
        same += _direction(printed, spread) == _direction(measured, spread)
        theirs.append(printed)
        ours.append(measured)
    return Finding(
        _share(same, len(pairs)),
        words,
        f"{signed(fmean(ours))}; {same} of {len(pairs)} scores move, or stay, alike",
        signed(fmean(theirs)),
        way,
    )


def signed(value: float) -> str:
    """Return a difference to three digits after the point; one that rounds to nothing has no sign."""
    shown = f"{value:+.3f}"
    return shown[1:] if float(shown) == 0 else shown


def _direction(change: float, spread: float) -> int:
    return 0 if abs(change) <= spread + 1e-9 else (1 if change > 0 else -1)


def _share(count: int, total: int) -> Answer:
    return "yes" if count == total else "in part" if 2 * count >= total else "no"


def together(experiment: Experiment, scale: Scale, found: Sequence[Finding]) -> Finding:
    """Return one answer for all curves of a figure."""
    told = [each for each in found if each.short]
    if not told:
        return found[0]
    yes, no = (sum(each.answer == answer for each in told) for answer in ("yes", "no"))
    answer: Answer = _share(yes, yes + no) if yes + no else "open"
    scores: dict[str, list[str]] = {}
    for each in told:
        scores.setdefault(each.claim.partition(", ")[0], []).append(each.short)
    curves = "; ".join(f"{score} {', '.join(shorts)}" for score, shorts in scores.items())
    groups = list(dict.fromkeys(each.claim.partition(", ")[2] for each in told))
    ours = f"{_MEASURED[experiment.name]} ({'; '.join(groups)}): {curves}"
    return _shrunk(Finding(answer, "all curves", ours, told[0].paper), scale)


def _trend(experiment: Experiment, group: str, score: str, numbers: Sequence[ComparedNumber]) -> Finding:
    curve = sorted(
        (
            Point(float(each.setting), each.mean, each.sd or 0.0, each.n)
            for each in numbers
            if (each.group, each.score) == (group, score) and each.mean is not None
        ),
        key=lambda point: point.x,
    )
    if len(curve) < FEWEST:
        few = f"{len(curve)} places on the axis are too few for a trend"
        return Finding("open", f"{SCORES[score]}, {group}", few)
    return replace(_TRENDS[experiment.name](curve), claim=f"{SCORES[score]}, {group}")


@dataclass(frozen=True)
class Point:
    """A place on a curve: mean over n seeds and their standard deviation."""

    x: float
    y: float
    sd: float
    n: int


Curve = Sequence[Point]


def _flat(curve: Curve) -> Finding:
    paper = f"flat from round {FLAT} on"
    late = [point for point in curve if point.x >= FLAT]
    if len(late) < FEWEST - 1 or curve[0].x >= FLAT:
        return Finding("open", "", f"too few of these runs have {FLAT} rounds or more", paper)
    (low, high), (least, most) = (
        (min(part, key=lambda point: point.y), max(part, key=lambda point: point.y)) for part in (curve, late)
    )
    whole, rest = high.y - low.y, most.y - least.y
    scatter = CLOSE * math.hypot(most.sd / math.sqrt(most.n), least.sd / math.sqrt(least.n))
    ours = f"changes by {whole:.3f} over all rounds, by {rest:.3f} from then on"
    share = f"{100 * rest / whole if whole else 0:.0f}%"
    if rest <= STILL * whole:
        return Finding("yes", "", ours, paper, short=share)
    if rest <= scatter:
        return Finding(
            "open", "", f"{ours}, which is within {CLOSE:g} standard errors", paper, short=f"{share} (noise)"
        )
    return Finding("no", "", ours, paper, short=share)


def _monotone(sign: int) -> Callable[[Curve], Finding]:
    def judged(curve: Curve) -> Finding:
        x, y = [point.x for point in curve], [point.y for point in curve]
        correlation = 0.0 if len(set(y)) == 1 else _rank_correlation(x, y)
        ends = f"{y[0]:.3f} at {x[0]:g}, {y[-1]:.3f} at {x[-1]:g}"
        return Finding(
            "yes" if sign * correlation >= MONOTONE else "no",
            "",
            f"{ends}; rank correlation {correlation:+.2f}",
            "rises" if sign > 0 else "falls",
            short=f"{y[0]:.3f} to {y[-1]:.3f} ({correlation:+.2f})",
        )

    return judged


def _rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(x, y).statistic)


# What the paper says of two figures is about NMI alone; of the other, about all metrics.
_JUDGED = {"figure-ny": ("nmi",), "figure-beta": ("nmi",)}
_TRENDS = {"figure-convergence": _flat, "figure-ny": _monotone(1), "figure-beta": _monotone(-1)}
_ENDS = "first to last, and rank correlation"
_MEASURED = {
    "figure-convergence": f"share of the whole change that comes after round {FLAT}",
    "figure-ny": _ENDS,
    "figure-beta": _ENDS,
}
