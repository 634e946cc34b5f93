"""The numbers of a page, written to and read from its CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpfedvis.errors import DpfedvisError
from dpfedvis.experiments.paper.comparisons import Comparison
from dpfedvis.experiments.paper.experiments import Experiment
from dpfedvis.experiments.paper.recipes import REPEATS, Shrink

_HEADER = (
    *("group", "setting", "way", "beta", "epsilon_nominal", "epsilon_end_to_end", "delta", "score", "paper_mean"),
    *("paper_sd", "mean", "sd", "n", "deviation_in_paper_sd", "other_code"),
)
_SCALES = ("records", "rounds", "seeds")


class UnreadableNumbers(DpfedvisError):
    """The CSV beside a page is missing or damaged."""


@dataclass(frozen=True)
class Scale:
    """How much of the paper's scale was run.

    Parameters
    ----------
    records, rounds, seeds : tuple of int
        At most ours, and the paper's.
    data : str, optional
        Instead of the paper's.
    """

    records: tuple[int, int]
    rounds: tuple[int, int]
    seeds: tuple[int, int]
    data: str | None = None

    @classmethod
    def of(cls, experiment: Experiment, shrink: Shrink) -> Scale:
        """Return the scale of a table or figure."""
        records, rounds = experiment.records, experiment.rounds
        return cls(
            (shrink.fewer("records", records), records),
            (shrink.fewer("rounds", rounds), rounds),
            (shrink.seeds, REPEATS),
            shrink.data,
        )

    @property
    def shrunk(self) -> str:
        """What is smaller than the paper's, apart from seeds; empty if nothing is."""
        facts = {"records": self.records, "rounds": self.rounds}
        return ", ".join(f"{ours} of {full} {name}" for name, (ours, full) in facts.items() if ours < full)

    def __str__(self) -> str:
        seeds = "1 seed" if self.seeds[0] == 1 else f"{self.seeds[0]} seeds"
        other = f"here of {self.data}" if self.data is not None else ""
        return ", ".join(word for word in (other, self.shrunk, seeds) if word)

    def to_json(self) -> str:
        """Return it in one line."""
        return json.dumps({**{name: getattr(self, name) for name in _SCALES}, "data": self.data})

    @classmethod
    def from_json(cls, text: str) -> Scale:
        """Return what `to_json` gave."""
        facts = json.loads(text)
        records, rounds, seeds = ((int(ours), int(full)) for ours, full in map(facts.get, _SCALES))
        return cls(records, rounds, seeds, facts["data"])


@dataclass(frozen=True)
class ComparedNumber:
    """One number, ours and the paper's; None where there is none.

    `sd` is the standard deviation of ours over `n` seeds.
    """

    group: str
    setting: str
    way: str
    score: str
    paper: float | None
    paper_sd: float | None
    mean: float | None
    deviation: float | None
    sd: float | None = None
    n: int = 1

    @property
    def apart(self) -> float:
        """Ours minus the paper's; 0 without either."""
        return 0.0 if self.mean is None or self.paper is None else self.mean - self.paper


@dataclass(frozen=True)
class Readings:
    """Everything in a CSV."""

    command: str
    scale: Scale
    numbers: tuple[ComparedNumber, ...]


def as_csv(found: Sequence[Comparison], scale: Scale, command: str) -> str:
    """Return one line a number; the first two say by which command, and at which scale."""
    text = io.StringIO()
    text.write(f"# {command}\n# {scale.to_json()}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    for line in found:
        entry, paper, ours = line.entry, line.paper, line.ours
        facts = [entry.group, entry.column, entry.arm, entry.beta, line.nominal, line.end_to_end, line.delta]
        printed = (paper.mean, paper.sd) if paper else (None, None)
        measured = (ours.mean, ours.sd, ours.n) if ours else (None, None, 0)
        writer.writerow([*facts, line.score, *printed, *measured, line.deviation, "*" if line.other_code else ""])
    return text.getvalue()


def read_csv(path: Path) -> Readings:
    """Return what `as_csv` wrote to a file."""
    try:
        command, scale, *rest = path.read_text(encoding="utf-8").splitlines()
        rows = [_reading(each) for each in csv.DictReader(rest)]
        return Readings(command.removeprefix("# "), Scale.from_json(scale.removeprefix("# ")), tuple(rows))
    except OSError as error:
        raise UnreadableNumbers(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        again = f"move it away, or rewrite it with dpfedvis reproduce {path.stem} --only-report and its store"
        raise UnreadableNumbers(f"{path} is damaged or of another version; {again}") from error


def _reading(row: dict[str, str]) -> ComparedNumber:
    def number(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    return ComparedNumber(
        group=row["group"],
        setting=row["setting"],
        way=row["way"],
        score=row["score"],
        paper=number("paper_mean"),
        paper_sd=number("paper_sd"),
        mean=number("mean"),
        deviation=number("deviation_in_paper_sd"),
        sd=number("sd"),
        n=int(row["n"]),
    )
