"""A study of bounds as a page, a figure and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dpfedvis.evaluation.theory.bound import FLOOR, NORMS, Bound, Norm
from dpfedvis.evaluation.theory.certificate import RowsCase
from dpfedvis.evaluation.theory.empirical import Norms
from dpfedvis.evaluation.theory.other_theorems import TheoremCase
from dpfedvis.evaluation.theory.study import Case, Study
from dpfedvis.reporting.drawing import svg
from dpfedvis.reporting.rendering import render_markdown
from dpfedvis.runs.code_version import code_version
from dpfedvis.runs.folder import write_texts

# Column → (statement or None for any, form).
COLUMNS = {
    "certificate": ("certificate", "ours"),
    "MMD of k²": ("MMD of k²", "ours"),
    "corrected": (None, "corrected"),
    "printed": (None, "printed"),
}
COLOURS = {"certificate": "C0", "MMD of k²": "C2", "corrected": "C1", "printed": "C3"}
THEOREMS = {"sampled": "Thm 2", "learned": "Thm 5", "noisy landmarks": "Thm 5", "noisy records": "Thm 3"}


def as_json(
    study: Study, cases: Sequence[Case], rows: Sequence[RowsCase], rest: Sequence[TheoremCase], command: str
) -> dict[str, Any]:
    """Return all numbers as plain values."""
    return {
        "command": command,
        "code": str(code_version()),
        "data": study.dataset.name,
        "records": len(study.X),
        "features": study.X.shape[1],
        "gamma": study.kernel.gammas[0],
        "failure": study.settings.failure,
        "seed": study.settings.seed,
        "diameter": study.diameter,
        "cases": [
            {
                "landmarks_are": case.kind,
                "landmarks": case.landmarks,
                "sigma": case.sigma,
                "truth": {norm: size(case.truth, norm) for norm in NORMS},
                "bounds": [_with_verdict(bound, case.truth) for bound in case.bounds],
                "distances": [
                    {
                        "estimator": each.estimator,
                        "truth": {norm: size(each.truth, norm) for norm in NORMS},
                        "relative_frobenius": each.relative,
                        "bounds": [bound.as_json() for bound in each.bounds],
                        "note": each.note,
                    }
                    for each in case.distances
                ],
            }
            for case in cases
        ],
        "noisy_rows": [
            {
                "landmarks": each.landmarks,
                "sigma": each.sigma,
                "rank": each.rank,
                "truth": {norm: size(each.truth, norm) for norm in NORMS},
                "bounds": [_with_verdict(bound, each.truth) for bound in each.bounds],
            }
            for each in rows
        ],
        "others": [
            {"what": other.what, "truth": other.truth, "bounds": [bound.as_json() for bound in other.bounds]}
            for other in rest
        ],
        "words": verdicts(cases),
    }


def size(truth: Norms, norm: Norm) -> float:
    """The norm by its name."""
    return truth.spectral if norm == "spectral" else truth.frobenius


def pick(case: Case, column: str, norm: Norm) -> Bound:
    """The bound of a case that belongs into a column."""
    statement, form = COLUMNS[column]
    return next(
        bound
        for bound in case.bounds
        if bound.norm == norm and bound.form == form and statement in (None, bound.statement)
    )


def verdicts(cases: Sequence[Case]) -> list[str]:
    """Sentences about which bounds say something, and which printed ones are below the truth."""
    found: dict[tuple[str, str, Norm], list[tuple[Bound, float]]] = {}
    for case in cases:
        for column in COLUMNS:
            for norm in NORMS:
                bound = pick(case, column, norm)
                key = (THEOREMS[case.kind] if COLUMNS[column][0] is None else bound.statement, bound.form, norm)
                found.setdefault(key, []).append((bound, size(case.truth, norm)))
    sentences = []
    for (statement, form, norm), each in found.items():
        name = statement if form == "ours" else f"{statement} {form}"
        vacuous = sum(bound.vacuous for bound, _ in each)
        false = sum(bound.below(truth) for bound, truth in each)
        if false:
            sentences.append(f"{name}, {norm}: FALSE in {false} of {len(each)} cases, where the truth is above it.")
        elif vacuous == len(each):
            sentences.append(f"{name}, {norm}: vacuous in all {len(each)} cases, not below the trivial bound.")
        else:
            ratios = [ratio for bound, truth in each if (ratio := _ratio(bound, truth)) is not None]
            note = (
                f"vacuous in {vacuous} of {len(each)} cases" if vacuous else f"below the trivial bound in {len(each)}"
            )
            middle = sorted(ratios)[len(ratios) // 2 :][:1]
            typical = f"typically {middle[0]:.3g} times the truth" if middle else "no error but rounding"
            sentences.append(f"{name}, {norm}: {note}; {typical}.")
    return sentences


def page(
    study: Study,
    cases: Sequence[Case],
    rows: Sequence[RowsCase],
    rest: Sequence[TheoremCase],
    command: str,
    figure: str = "",
) -> str:
    """Return the study as Markdown; `figure` is the file name of its figure, if it has one."""
    return render_markdown(
        "bounds.md",
        study=study,
        name=Path(study.dataset.name).stem,
        command=command,
        code=str(code_version()),
        verdicts=verdicts(cases),
        columns=list(COLUMNS),
        kernel={norm: [_kernel_row(case, norm) for case in cases] for norm in NORMS},
        distances=[row for case in cases for row in _distance_rows(case)],
        noisy_rows=list(map(_noisy_row, rows)),
        others=[row for case in rest for row in _theorem_rows(case)],
        figure=figure,
    )


def draw(study: Study, cases: Sequence[Case]) -> str:
    """Return all bounds against the number of landmarks as SVG, one panel for each kind, noise and norm."""
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((case.kind, case.sigma) for case in cases))
    shown = Figure(figsize=(2.6 * len(panels) + 1.6, 6.4), layout="constrained")
    axes = shown.subplots(2, len(panels), squeeze=False, sharex=True, sharey=True)
    for row, norm in enumerate(NORMS):
        for column, (kind, sigma) in enumerate(panels):
            axis = axes[row][column]
            chosen = [case for case in cases if (case.kind, case.sigma) == (kind, sigma)]
            x = [case.landmarks for case in chosen]
            for name, colour in COLOURS.items():
                values = [pick(case, name, norm).value for case in chosen]
                drawn = [math.nan if value is None else value for value in values]
                axis.plot(x, drawn, "o--" if name == "printed" else "o-", color=colour, label=name, ms=3, lw=1.2)
            axis.plot(x, [size(case.truth, norm) for case in chosen], "ko-", label="truth", ms=3, lw=1.6)
            trivial = [pick(case, "certificate", norm).trivial for case in chosen]
            axis.plot(x, [math.nan if t is None else t for t in trivial], ":", color="0.4", label="trivial", lw=1.2)
            axis.set(xscale="log", yscale="log")
            axis.set_xticks(x, [str(each) for each in x])
            axis.minorticks_off()
            if row == 0:
                noise = f", σ = {sigma:g}" if sigma else ""
                axis.set_title(f"{kind}{noise}\n{THEOREMS[kind]}", fontsize=9)
            else:
                axis.set_xlabel("landmarks")
            if column == 0:
                axis.set_ylabel(f"{norm} norm of K̂ − K")
    handles, labels = axes[0][0].get_legend_handles_labels()
    shown.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    shown.suptitle(f"{study.dataset.name}, {len(study.X)} records, γ = {study.kernel.gammas[0]:.3g}", fontsize=10)
    return svg(shown)


def write(
    folder: Path,
    study: Study,
    cases: Sequence[Case],
    rows: Sequence[RowsCase],
    rest: Sequence[TheoremCase],
    command: str,
) -> list[Path]:
    """Write NAME.json, NAME.md and NAME.svg, each whole or not at all; return their paths."""
    name = Path(study.dataset.name).stem
    texts = {
        f"{name}.json": json.dumps(as_json(study, cases, rows, rest, command), indent=1, allow_nan=False) + "\n",
        f"{name}.md": page(study, cases, rows, rest, command, figure=f"{name}.svg"),
        f"{name}.svg": draw(study, cases),
    }
    return write_texts(folder, texts)


def _kernel_row(case: Case, norm: Norm) -> list[str]:
    truth = size(case.truth, norm)
    found = {column: pick(case, column, norm) for column in COLUMNS}
    ratios = [_ratio(found[column], truth) for column in ("certificate", "MMD of k²")]
    trivial = found["certificate"].trivial
    bounds = [_cell(bound, truth) for bound in found.values()]
    last = ["" if trivial is None else f"{trivial:.5g}", *("" if each is None else f"{each:.3g}" for each in ratios)]
    return [case.kind, str(case.landmarks), f"{case.sigma:g}", f"{truth:.4g}", *bounds, *last]


def _cell(bound: Bound, truth: float) -> str:
    if bound.value is None:
        return "no statement"
    text = f"{'≥ ' if bound.is_floor else ''}{bound.value:.4g}"
    if bound.below(truth):
        return f"{text} †"
    return text if bound.vacuous else f"**{text}**"


def _ratio(bound: Bound, truth: float) -> float | None:
    """Bound over truth; None where there is no bound, or no error but rounding."""
    if bound.value is None or not truth > FLOOR * (bound.trivial or 0.0):
        return None
    return bound.value / truth


def _with_verdict(bound: Bound, truth: Norms) -> dict[str, Any]:
    return {**bound.as_json(), "below_truth": bound.norm is not None and bound.below(size(truth, bound.norm))}


def _distance_rows(case: Case) -> Iterator[list[str]]:
    for each in case.distances:
        own = [f"{bound.value:.4g}" for bound in each.bounds] or ["", ""]
        mark = " ‡" if each.relative < FLOOR else ""
        truth = [f"{size(each.truth, norm):.4g}{mark}" for norm in NORMS]
        cells = [case.kind, str(case.landmarks), f"{case.sigma:g}", each.estimator, *truth, f"{each.relative:.4f}"]
        yield [*cells, *own, "none holds"]


def _noisy_row(each: RowsCase) -> list[str]:
    cells = [str(each.landmarks), f"{each.sigma:g}", str(each.rank)]
    for bound, norm in zip(each.bounds, NORMS, strict=True):
        truth = size(each.truth, norm)
        cells += [f"{truth:.4g}", _cell(bound, truth)]
    return cells


def _theorem_rows(case: TheoremCase) -> Iterator[list[str]]:
    truth = "" if case.truth is None else f"{case.truth:.4g}"
    for bound in case.bounds:
        value = f"no statement: {bound.precondition}" if bound.value is None else f"{bound.value:.4g}"
        note = f" ({bound.note})" if bound.note else ""
        yield [case.what, truth, f"{bound.statement} {bound.form}{note}", value]
