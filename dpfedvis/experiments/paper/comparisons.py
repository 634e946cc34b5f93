"""Our numbers beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from accounting.rounding import rounded_up
from dpfedvis.experiments.paper.experiments import Entry, Experiment
from dpfedvis.experiments.paper.paper import Number
from dpfedvis.experiments.paper.recipes import Shrink
from dpfedvis.experiments.sweeps.execution import addressed
from dpfedvis.experiments.sweeps.store import CellRow
from dpfedvis.experiments.sweeps.summary import Estimate
from dpfedvis.runs.code_version import CodeVersion

CLOSE = 2.0  # standard deviations of the paper within which a number counts as met
_ROUNDING = 1e-9  # differences of printed numbers are not exact in binary


@dataclass(frozen=True)
class Comparison:
    """One number.

    Parameters
    ----------
    entry : Entry
    score : str
    paper : Number, optional
    ours : Estimate, optional
        None where no seed has been run.
    nominal : float, optional
        ε that the β noise would be worth, had its scale been public and not the data's. No guarantee.
    end_to_end : float, optional
        ε of the run, by its ledger.
    delta : float
    other_code : bool
        Whether a seed was run by another version of the code.
    comparable : bool
        Whether it was run on the paper's data.
    """

    entry: Entry
    score: str
    paper: Number | None
    ours: Estimate | None
    nominal: float | None
    end_to_end: float | None
    delta: float
    other_code: bool
    comparable: bool = True

    @property
    def deviation(self) -> float | None:
        """(ours − the paper's) in the paper's standard deviations."""
        if self.ours is None or self.paper is None or self.paper.sd == 0 or not self.comparable:
            return None
        return (self.ours.mean - self.paper.mean) / self.paper.sd


def lines(
    experiment: Experiment, shrink: Shrink, rows: Mapping[str, CellRow], version: CodeVersion | None
) -> list[Comparison]:
    """Return all numbers of a table or figure, from the rows of a store by address."""
    entries = list(experiment.entries(shrink))
    addresses = {cell: address for address, (cell, _) in addressed(experiment.cells(shrink)).items()}
    found = []
    for entry in entries:
        own = [rows[addresses[cell]] for cell in entry.cells(shrink.seeds) if addresses[cell] in rows]
        done = [row for row in own if row.status == "done"]
        made = [_line(experiment, entry, score, done, version) for score in experiment.scores]
        found += [replace(line, comparable=shrink.whole(experiment.records, experiment.rounds)) for line in made]
    return found


def _line(
    experiment: Experiment, entry: Entry, score: str, rows: list[CellRow], version: CodeVersion | None
) -> Comparison:
    values = [row.scores[score] for row in rows if score in row.scores]
    nominal = [row.epsilon_nominal for row in rows if row.epsilon_nominal is not None]
    spent = [row.epsilon_end_to_end for row in rows if row.epsilon_end_to_end is not None]
    return Comparison(
        entry=entry,
        score=score,
        paper=experiment.number(entry, score),
        ours=Estimate.of(values) if values else None,
        nominal=max(nominal, default=None),
        end_to_end=max(spent, default=None),
        delta=entry.cell.config.stated_delta,
        other_code=any(row.version != version for row in rows),
    )


@dataclass(frozen=True)
class Verdict:
    """How the numbers of one way compare with the paper's.

    Parameters
    ----------
    arm : str
    numbers : int
        That can be compared.
    close, above, below : int
        Within `CLOSE` standard deviations of the paper's, above them, below them.
    typical : float
        Median distance, in the scores' own units.
    """

    arm: str
    numbers: int
    close: int
    above: int
    below: int
    typical: float

    def __str__(self) -> str:
        return (
            f"*{self.arm}*: {self.close} of {self.numbers} numbers are within {CLOSE:g} of the paper's standard "
            f"deviations, {self.above} above them and {self.below} below; the median distance is {self.typical:.4f}."
        )


def met(deviation: float) -> bool:
    """Whether a number is within the spread of the paper's own repeats."""
    return abs(deviation) <= CLOSE + _ROUNDING


def verdicts(found: Sequence[Comparison]) -> list[Verdict]:
    """Count by arm. No number is called better, as for some scores lower is better."""
    answers = []
    for arm in dict.fromkeys(line.entry.arm for line in found):
        compared = [
            (line.deviation, abs(line.ours.mean - line.paper.mean))
            for line in found
            if line.entry.arm == arm and line.deviation is not None and line.ours and line.paper
        ]
        if compared:
            apart = [deviation for deviation, _ in compared if deviation is not None]
            answers.append(
                Verdict(
                    arm=arm,
                    numbers=len(apart),
                    close=sum(map(met, apart)),
                    above=sum(each > 0 and not met(each) for each in apart),
                    below=sum(each < 0 and not met(each) for each in apart),
                    typical=median(distance for _, distance in compared),
                )
            )
    return answers


def prices(found: Sequence[Comparison]) -> dict[tuple[str, float], tuple[float, float, float]]:
    """Return (setting, β) → (nominal ε, ε end to end, δ): the largest over all ways and seeds that were run."""
    answers: dict[tuple[str, float], tuple[float, float, float]] = {}
    for line in found:
        if line.nominal is not None and line.end_to_end is not None:
            key = (line.entry.column, line.entry.beta)
            before = answers.get(key, (0.0, 0.0, line.delta))
            answers[key] = (max(before[0], line.nominal), max(before[1], line.end_to_end), line.delta)
    return answers


def shown_epsilon(value: float | None) -> str:
    """Return ε for printing: rounded up, to two digits if it is large."""
    if value is None:
        return "-"
    if value < 1000 or value == math.inf:
        return rounded_up(value, 3)
    return f"{float(rounded_up(value, 2)):.1e}".replace("e+0", "e").replace("e+", "e")
