"""Everything that a page about a run says, read from the run's folder.

Labels and places of records, which only clients have, are in ``simulation/``. It is read only for a simulation: a run
with real noise has no such folder, and if there is one all the same, it is not opened.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from accounting import Ledger
from accounting.spending import Step, privacy_curve, spending
from dpfedvis.estimators.known_tables import CLUSTERS
from dpfedvis.evaluation.metrics import METRICS
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.layouts import LAYOUTS
from dpfedvis.numerics.plain_text import from_spreadsheet
from dpfedvis.protocol.density import Density, DensityGrid
from dpfedvis.reporting.certified import Certified, certified
from dpfedvis.runs.folder import CONFIG
from dpfedvis.runs.provenance import PROVENANCE
from dpfedvis.runs.results import (
    DENSITY,
    PLACES,
    PROBLEMS,
    SCORES,
    SIMULATION,
    TABLE,
    TRACE,
    TRACE_COLUMNS,
    VERDICT,
    YARDSTICKS,
)
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording
from dpfedvis.runs.upload_writer import EMBEDDING, LANDMARKS, LEDGER, RecordingError


class StatementMismatch(RecordingError):
    """A statement that says another ε than the ledger beside it."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """A way of sorting points into named groups.

    Parameters
    ----------
    names : tuple of str
    codes : array of shape (n,)
        Index of each point's name.
    """

    names: tuple[str, ...]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, values: NDArray[Any], names_of: NDArray[np.str_] | None = None) -> Grouping:
        """Sort by value: numbers by size, names in the order in which they first come.

        Parameters
        ----------
        values : array of shape (n,)
        names_of : array of str, optional
            Names of the values 0, 1, …
        """
        names, first, codes = np.unique(values, return_index=True, return_inverse=True)
        order = np.argsort(first) if values.dtype.kind == "U" else np.arange(len(names))
        shown = names[order] if names_of is None or not len(names_of) else names_of[names]
        return cls(tuple(str(name) for name in shown.tolist()), np.argsort(order)[codes.reshape(-1)])


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points of a map.

    Parameters
    ----------
    places : array of shape (n, 2)
    noun : str
        What a point is: a record or an anchor.
    groupings : mapping of str to Grouping
        Ways to colour them; the first is shown first.
    """

    places: Array
    noun: str
    groupings: Mapping[str, Grouping]


@dataclass(frozen=True, eq=False)
class Simulation:
    """What nobody sees in a real federation.

    Parameters
    ----------
    cloud : Cloud
        All records of all clients.
    scores : mapping of str to float
    yardsticks : mapping of str to mapping of str to float
        The same scores of what a result is held against: chance and, where they were computed, a map without data and
        a central one.
    problems : tuple of str
        What could not be scored, in sentences.
    """

    cloud: Cloud
    scores: Mapping[str, float]
    yardsticks: Mapping[str, Mapping[str, float]]
    problems: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The first score that sweeps draw, with what it is held against; empty where there is none."""
        first = next((each for each in METRICS.values() if each.curve and each.key in self.scores), None)
        if first is None:
            return ""
        beside = [f"{name} {own[first.key]:.3f}" for name, own in self.yardsticks.items() if first.key in own]
        held = f" ({', '.join(beside)})" if beside else ""
        return f"score: {first.title} {self.scores[first.key]:.3f}{held}"


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether a map can show more than its own noise, by public numbers.

    Parameters
    ----------
    signal : {"yes", "partly", "no"}
    sentence : str
    weak : array of bool of shape (n,), optional
        Points of the map that stand out of no noise.
    regions : tuple of mapping
        What each region is; see `dpfedvis.runs.region_table.region_facts`.
    """

    signal: str
    sentence: str
    weak: NDArray[np.bool_] | None
    regions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, eq=False)
class RunFacts:
    """A finished run, ready to be shown.

    Parameters
    ----------
    folder : Path
    config : RunConfig
    toml : str
        The settings as they stand in the folder.
    statement : mapping
        As in statement.json.
    statement_md : str
        The statement in full, as in statement.md.
    provenance : mapping
    epsilon, in_scope, delta : float
        What the ledger says, end to end and in scope.
    steps : tuple of Step
    curve : tuple of (float, float)
        (ε, δ) in scope.
    trace : array of shape (rounds, 3)
        Round, step, change; see `dpfedvis.server.round_log.Round`.
    cloud : Cloud
        What the server has.
    density : Density, optional
    certificate : Certified, optional
    simulation : Simulation, optional
    verdict : Verdict, optional
    """

    folder: Path
    config: RunConfig
    toml: str
    statement: Mapping[str, Any]
    statement_md: str
    provenance: Mapping[str, Any]
    epsilon: float
    in_scope: float
    delta: float
    steps: tuple[Step, ...]
    curve: tuple[tuple[float, float], ...]
    trace: Array
    cloud: Cloud
    density: Density | None
    certificate: Certified | None
    simulation: Simulation | None
    verdict: Verdict | None

    @classmethod
    def read(cls, folder: str | Path) -> RunFacts:
        """Read the folder of a finished run."""
        folder = Path(folder)
        recording = Recording.read(folder)
        try:
            return cls(folder=folder, **_files(folder), **_ledger(folder), certificate=certified(recording))
        except (OSError, EOFError, BadZipFile, KeyError, IndexError, TypeError, ValueError) as error:
            if isinstance(error, RecordingError):
                raise
            raise RecordingError(f"{folder} holds a damaged run ({type(error).__name__}: {error})") from error

    @property
    def title(self) -> str:
        """What was made of what."""
        made = "Clusters" if self.config.map == CLUSTERS else LAYOUTS[self.config.map].title
        return f"{made} of {self.config.data_name}"


def is_simulation(config: RunConfig, statement: Mapping[str, Any]) -> bool:
    """Whether a run is a simulation by its settings and by every line of its statement."""
    return config.noise == "seeded" and all(line["noise"] in ("seeded", "none") for line in statement["releases"])


def number(value: float | str | None) -> float:
    """Inverse of the statement's JSON: infinity is the string "inf"."""
    return math.nan if value is None else float(value)


def _files(folder: Path) -> dict[str, Any]:
    config = RunConfig.from_toml(folder / CONFIG)
    statement = json.loads((folder / "statement.json").read_text(encoding="utf-8"))
    shown, cloud = config.evaluate and is_simulation(config, statement), _cloud(folder, config)
    return {
        "config": config,
        "toml": (folder / CONFIG).read_text(encoding="utf-8"),
        "statement": statement,
        "statement_md": (folder / "statement.md").read_text(encoding="utf-8"),
        "provenance": json.loads((folder / PROVENANCE).read_text(encoding="utf-8")),
        "trace": _trace(folder / TRACE),
        "cloud": cloud,
        "density": _density(folder / DENSITY),
        "simulation": simulation_in(folder) if shown else None,
        "verdict": _verdict(folder / VERDICT, len(cloud.places)),
    }


def _ledger(folder: Path) -> dict[str, Any]:
    statement = json.loads((folder / "statement.json").read_text(encoding="utf-8"))
    delta = float(statement["delta"])
    with Ledger.read(folder / LEDGER) as ledger:
        epsilon, in_scope = ledger.spent(delta, end_to_end=True), ledger.spent(delta)
        steps = spending(ledger.events(), ledger.budget, delta)
        curve = privacy_curve(ledger)
    stated = number(statement["epsilon_end_to_end"])
    if not math.isclose(stated, epsilon, rel_tol=1e-9, abs_tol=1e-12):
        raise StatementMismatch(f"{folder}: the statement says ε = {stated:g}, and its ledger ε = {epsilon:g}")
    if not curve:
        curve = tuple((number(each), float(at)) for at, each in statement["curve"])
    return {"epsilon": epsilon, "in_scope": in_scope, "delta": delta, "steps": steps, "curve": curve}


def _trace(path: Path) -> Array:
    with path.open(encoding="utf-8", newline="") as lines:
        head, *lines_after = list(csv.reader(lines))
    if head != TRACE_COLUMNS:
        raise RecordingError(f"{path} is not a trace: it begins with {head}")
    rows = [[float(value) for value in row] for row in lines_after]
    return np.array(rows, dtype=np.float64).reshape(len(rows), 3)


def _cloud(folder: Path, config: RunConfig) -> Cloud:
    with (folder / TABLE).open(encoding="utf-8", newline="") as lines:
        head, *rows = list(csv.reader(lines))
    if head[0] == "anchor":
        with np.load(folder / LANDMARKS, allow_pickle=False) as stored:
            clusters = {"cluster": Grouping.of(stored["clusters"])} if "clusters" in stored else {}
            return Cloud(stored["places"], "anchor", clusters)
    clients = Grouping.of(np.array([from_spreadsheet(row[0]) for row in rows]))
    with np.load(folder / EMBEDDING, allow_pickle=False) as stored:
        if config.map == "clusters":
            groups = {"cluster": Grouping.of(stored["labels"]), "client": clients}
            return Cloud(stored["spectral"], "record", groups)
        return Cloud(stored["embedding"], "record", {"client": clients})


def _density(path: Path) -> Density | None:
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as stored:
        shares = stored["shares"]
        grid = DensityGrid(float(stored["half"]), shares.shape[-1])
        return Density(grid, shares, float(stored["noise"]), tuple(map(str, stored["classes"].tolist())))


def simulation_in(folder: Path) -> Simulation | None:
    """Read what a simulation knows, from the folder of a run; None where there is nothing.

    Runs of before have no yardsticks and no problems.
    """
    folder = folder / SIMULATION
    if not (folder / PLACES).exists():
        return None
    with np.load(folder / PLACES, allow_pickle=False) as stored:
        groups = {"class": Grouping.of(stored["labels"], stored["class_names"])} if "labels" in stored else {}
        groups["client"] = Grouping.of(stored["clients"])
        cloud = Cloud(stored["places"], "record", groups)
    scores = _numbers(SCORES, _json(folder / SCORES))
    beside, problems = _json(folder / YARDSTICKS, missing={}), _json(folder / PROBLEMS, missing=[])
    if not isinstance(beside, dict):
        raise ValueError(f"{YARDSTICKS} holds no scores by name")
    if not (isinstance(problems, list) and all(isinstance(each, str) for each in problems)):
        raise ValueError(f"{PROBLEMS} holds no sentences")
    return Simulation(cloud, scores, {name: _numbers(YARDSTICKS, own) for name, own in beside.items()}, tuple(problems))


def _json(path: Path, missing: Any = None) -> Any:
    """Return what a file holds, or `missing`, if there is such a stand-in, where there is no file."""
    if missing is not None and not path.exists():
        return missing
    return json.loads(path.read_text(encoding="utf-8"))


def _numbers(name: str, found: Any) -> dict[str, float]:
    if not (isinstance(found, dict) and all(isinstance(each, int | float) for each in found.values())):
        raise ValueError(f"{name} holds no scores by name")
    return found


def _verdict(path: Path, points: int) -> Verdict | None:
    """None for a map that has no verdict, and for a run that wrote none.

    A point of the map is weak if its landmark lies in no region that is clear of noise. All are, of a map of noise.
    """
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    if found is None:
        return None
    if found["signal"] == "no":
        return Verdict(found["signal"], found["sentence"], np.ones(points, dtype=bool))
    clear = [number for region in found["regions"] if region["clear"] for number in region["landmarks"]]
    weak = ~np.isin(np.asarray(found["anchors"], dtype=np.int64), clear)
    return Verdict(
        found["signal"], found["sentence"], weak if len(weak) == points else None, tuple(found.get("facts", ()))
    )
