"""Exposure of the records of a recorded run by its last landmarks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from accounting import checks
from attacks.exposure.landmarks import Exposure, checked_points, exposure, nearest
from attacks.shared.registry import NothingToAttack, Truth
from attacks.shared.statistics import Limit
from dpfedvis.reporting.drawing import save_png
from dpfedvis.runs.upload_reader import Recording


@dataclass(frozen=True, eq=False)
class ExposureReport:
    """Exposure of the records by the landmarks.

    Parameters
    ----------
    found : Exposure
    control : Exposure
        The same for the landmarks before the first round. They have seen no record (a private map's: noisy second
        moments alone), so a finding here says that the fresh records differ from those of the run, and that `found` may
        mean no more.
    limit : Limit
        Of everything that the landmarks were made from.
    caution : str
        See `attacks.shared.registry.Truth`.
    """

    found: Exposure
    control: Exposure
    limit: Limit
    caution: str = ""

    @property
    def summary(self) -> Mapping[str, float | None]:
        """Numbers for tables."""
        return self.found.summary

    def to_json(self) -> str:
        """Return the public numbers."""
        values = {"kind": "exposure", **self.found.to_dict(), "control": self.control.to_dict()}
        return json.dumps({**values, "limit": self.limit.to_dict(), "caution": self.caution}, indent=2, allow_nan=False)

    def markdown(self) -> str:
        """Return the public page."""
        found = self.found
        verdict = ("nearer" if found.p_value < 0.01 else "no nearer") + " to the records than chance explains"
        lines = [
            "# Exposure",
            "",
            f"{found.landmarks} landmarks, {found.records} records behind them and as many fresh records of the same",
            f"data set. The landmarks are {verdict}. Which records are the most exposed is told to their owners only.",
            *([self.caution] if self.caution else []),
            "",
            "![Distances of landmarks to the nearest record and the nearest fresh record](exposure.png)",
            "",
            "| | |",
            "|---|---|",
            f"| landmarks whose nearest neighbour is a record and no fresh one (½ by chance, 95 %) | {found.share} |",
            f"| p-value, exact, one-sided, labels exchanged | {found.p_value:.3g} |",
            f"| control: p-value of the landmarks before the first round | {self.control.p_value:.3g} |",
            f"| median distance to the nearest record | {np.median(found.to_records):.4g} |",
            f"| median distance to the nearest fresh record | {np.median(found.to_fresh):.4g} |",
            f"| a hidden attribute is guessed better for a record than for a fresh one (½ by chance, 95 %) | "
            f"{found.attributes} |",
            f"| largest AUC between a record and a fresh one that the guarantee allows | {self.limit.auc():.4g} |",
        ]
        return "\n".join(lines) + "\n"

    def figure(self, path: Path) -> None:
        """Draw the distance to the nearest record against that to the nearest fresh one, for each landmark."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5, 5), layout="constrained")
        axes = figure.add_subplot()
        axes.scatter(self.found.to_fresh, self.found.to_records, s=8, linewidths=0)
        axes.axline((0, 0), slope=1, color="0.7", zorder=0)
        axes.set(xlabel="distance to the nearest fresh record", ylabel="distance to the nearest record", xlim=0, ylim=0)
        save_png(figure, path)


def attack(recording: Recording, truth: Truth, rng: np.random.Generator) -> ExposureReport:
    """Hold the last landmarks of a run against its records and against fresh ones."""
    if truth.fresh is None or len(truth.fresh) < 2:
        raise NothingToAttack("exposure needs records of the data set that took no part in the run, and there are none")
    found = exposure(recording.landmarks, truth.pooled, truth.fresh, rng=rng)
    control = exposure(recording.trajectory[0], truth.pooled, truth.fresh, rng=rng)
    with recording.ledger() as ledger:
        limit = Limit.of_ledger(ledger, 1e-5, rows=False)
    return ExposureReport(found, control, limit, truth.caution)


@dataclass(frozen=True)
class ExposedRecord:
    """One record and its nearest landmark.

    Parameters
    ----------
    index : int
        Row in the owner's data.
    to_landmark, to_neighbour : float
        Distance to the nearest landmark, and to the nearest other record of the owner.
    """

    index: int
    to_landmark: float
    to_neighbour: float

    @property
    def ratio(self) -> float:
        """Below 1 a landmark is nearer to the record than any of its own neighbours is."""
        return self.to_landmark / self.to_neighbour if self.to_neighbour else math.inf


@dataclass(frozen=True)
class OwnerView:
    """The most exposed records of one client, for that client only.

    Parameters
    ----------
    client : str
    exposed : tuple of ExposedRecord
        Most exposed first.
    """

    client: str
    exposed: tuple[ExposedRecord, ...]

    def to_json(self) -> str:
        """Return the list, to be given to the owner."""
        rows = [{**asdict(each), "ratio": None if each.ratio == math.inf else each.ratio} for each in self.exposed]
        return json.dumps({"client": self.client, "for": "the data owner only", "exposed": rows}, indent=2)

    def markdown(self) -> str:
        """Return a page for the owner."""
        lines = [
            f"# Most exposed records of {self.client}: for the data owner only",
            "",
            "| row | distance to the nearest landmark | to the nearest other record | ratio |",
            "|---|---|---|---|",
        ]
        for each in self.exposed:
            lines.append(f"| {each.index} | {each.to_landmark:.4g} | {each.to_neighbour:.4g} | {each.ratio:.3g} |")
        return "\n".join(lines) + "\n"


def most_exposed(client: str, landmarks: npt.ArrayLike, records: npt.ArrayLike, *, count: int = 10) -> OwnerView:
    """List the records that landmarks come nearest to, relative to their own neighbours, as a client does at home.

    Parameters
    ----------
    client : str
    landmarks : array of shape (n_y, m)
    records : array of shape (n_p, m)
        At least 2.
    count : int
        How many to list.
    """
    checks.count("count", count)
    X = checked_points(records, "records")
    _, to_landmark = nearest(X, checked_points(landmarks, "landmarks"))
    _, to_neighbour = nearest(X, X, apart=True)
    rows = [
        ExposedRecord(i, float(a), float(b)) for i, (a, b) in enumerate(zip(to_landmark, to_neighbour, strict=True))
    ]
    return OwnerView(client, tuple(sorted(rows, key=lambda each: each.ratio)[:count]))


def owner_views(recording: Recording, truth: Truth) -> tuple[OwnerView, ...]:
    """Return the private view of each client with more than one record: its own most exposed records."""
    return tuple(most_exposed(each.name, recording.landmarks, each.X) for each in truth.fed.clients if len(each.X) > 1)
