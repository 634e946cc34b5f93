"""The demo: maps of the same records, collected, federated and private, on one page.

Attacks are the command's part. Every number on the page comes from the runs that it is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from accounting.rounding import rounded_up
from dpfedvis.data import load
from dpfedvis.data.example import hospitals
from dpfedvis.evaluation.metrics import METRICS, Evaluated
from dpfedvis.evaluation.scores import score
from dpfedvis.evaluation.theory.bound import NORMS, Norm
from dpfedvis.evaluation.theory.study import Case, Settings, Study
from dpfedvis.experiments.sweeps.baselines import central_map
from dpfedvis.reporting import interactive_maps
from dpfedvis.reporting.bounds import COLUMNS, pick, size, verdicts
from dpfedvis.reporting.palette import looks
from dpfedvis.reporting.rendering import render_html, shown
from dpfedvis.reporting.run_facts import Cloud, Grouping, RunFacts, number
from dpfedvis.runs.folder import write_texts
from dpfedvis.runs.settings import RunConfig

PRIVATE = ("private-low", "private-high")
HOSPITAL_PATIENTS = 400  # of a hospital, on average
_SCORES = ("ca_10", "npa_10", "nmi", "mmd_common")
_KINDS = ("learned", "noisy landmarks")


@dataclass(frozen=True, eq=False)
class Attacked:
    """The result of an attack on one run.

    Parameters
    ----------
    run : str
        Key of the run.
    picture : bytes, optional
        PNG of originals above reconstructions.
    numbers : mapping of str to float
    refused : str
        Why there was nothing to attack; empty if there was.
    """

    run: str
    picture: bytes | None = None
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True, eq=False)
class Story:
    """Everything on the page.

    Parameters
    ----------
    central : Cloud
        t-SNE of the collected records; see `central`.
    central_scores : mapping of str to float
    runs : mapping of str to RunFacts
        ``exact``, ``plus``, ``noisy``, and private ones in the order in which to show them.
    private : sequence of str
        Keys of the private ones.
    attacks : sequence of Attacked
    study : Study
    cases : sequence of Case
    command : str
        That makes the same page again.
    hospitals : RunFacts
        A private map of the example's CSV files; see `hospital_run`.
    """

    central: Cloud
    central_scores: Mapping[str, float]
    runs: Mapping[str, RunFacts]
    private: Sequence[str]
    attacks: Sequence[Attacked]
    study: Study
    cases: Sequence[Case]
    command: str
    hospitals: RunFacts

    @property
    def names(self) -> dict[str, str]:
        """Names of the runs for people."""
        private = {key: f"private end to end, ε = {rounded_up(self.runs[key].epsilon)}" for key in self.private}
        rows = f"noisy rows, ε = {rounded_up(self.runs['noisy'].epsilon)}"
        return {"exact": "Fed-tSNE, exact distances", "plus": "Fed-tSNE+, the paper's noise", **private, "noisy": rows}


def plan(
    records: int | None, clients: int, epsilons: tuple[float, float], seed: int, jobs: int
) -> dict[str, RunConfig]:
    """Return the settings of every run, by its key; `epsilons` are the budgets of the private maps."""
    common: dict[str, Any] = {"data": "digits", "records": records, "clients": clients, "seed": seed, "jobs": jobs}
    common |= {"noise": "seeded", "evaluate": True}  # a simulation, to be judged by records and labels
    exact, private = {**common, "landmarks": 100}, {**common, "trust": "aggregate", "release": "none"}
    low, high = epsilons
    settings: dict[str, dict[str, Any]] = {
        "exact": {**exact, "mechanism": "none"},
        "plus": {**exact, "mechanism": "heuristic", "beta": 1.0},
        "private-low": {**private, "epsilon": low},
        "private-high": {**private, "epsilon": high, "density": True, "classes": tuple(range(10))},
        "noisy": {**exact, "epsilon": high, "release": "noisy"},
    }
    return {key: RunConfig.from_mapping(each) for key, each in settings.items()}


def hospital_run(folder: Path, seed: int, jobs: int) -> RunConfig:
    """Write the example's files into a folder, and return the settings of a private map of them."""
    files = write_texts(folder, hospitals(HOSPITAL_PATIENTS, seed))
    *tables, schema = map(str, files)
    return RunConfig.from_mapping(
        {
            "data": tables,
            "schema": schema,
            "epsilon": 2.0,
            "trust": "aggregate",
            "noise": "seeded",
            "evaluate": True,
            "seed": seed,
            "jobs": jobs,
        }
    )


def central(config: RunConfig) -> tuple[Cloud, dict[str, float]]:
    """Return t-SNE of the collected records, in the order of the clients, and its scores."""
    fed = config.federated()
    places, (_, y) = central_map(config, fed), fed.pooled()
    groups = {} if y is None else {"class": Grouping.of(y)}
    groups["client"] = Grouping.of(np.repeat([client.name for client in fed.clients], fed.records))
    return Cloud(places, "record", groups), score(Evaluated(fed, places, seed=config.seed))


def bounds_study(config: RunConfig) -> Study:
    """Return a small study of error bounds, on the first records of the same data."""
    sample = min(300, len(config.dataset().X))
    settings = Settings(landmarks=(max(sample // 30, 2), max(sample // 6, 4)), sigmas=(0.0, 0.1), seed=config.seed)
    return Study(load(config.data, records=sample), settings)


def page(story: Story) -> str:
    """Return the page as HTML."""
    runs, last = story.runs, story.runs[story.private[-1]]
    simulated = {key: runs[key].simulation for key in story.names}
    clouds = {"central": story.central} | {key: each.cloud for key, each in simulated.items() if each is not None}
    figures = {
        f"map-{key}": {**interactive_maps.points(each, webgl=False), "compact": True} for key, each in clouds.items()
    }
    if story.hospitals.simulation is not None:
        figures["hospitals"] = interactive_maps.points(story.hospitals.simulation.cloud, webgl=False)
    if last.density is not None:
        figures["public"] = interactive_maps.density(last.density, last.cloud.places)
    classes = story.central.groupings["class"].names if "class" in story.central.groupings else ()
    budget = last.folder / "figures" / "budget.svg"
    return render_html(
        "demo.html",
        story=story,
        runs=runs,
        names=story.names,
        metrics=[METRICS[key].name for key in _SCORES],
        central_scores=_scores(story.central_scores),
        scores={key: _scores({} if each is None else each.scores) for key, each in simulated.items()},
        maps={key: len(each.places) for key, each in clouds.items()},
        hospital_score=_scores(_simulated(story.hospitals))[0],
        key=list(zip(classes, looks(len(classes)), strict=True)),
        nominal=number(runs["plus"].statement["nominal_epsilon"]),
        budget=budget.read_text(encoding="utf-8") if budget.exists() else "",
        bounds={norm: [_bounds(case, norm) for case in story.cases if case.kind in _KINDS] for norm in NORMS},
        columns=list(COLUMNS),
        verdicts=verdicts(story.cases),
        figures=figures,
    )


def _simulated(facts: RunFacts) -> Mapping[str, float]:
    return {} if facts.simulation is None else facts.simulation.scores


def _scores(scores: Mapping[str, float]) -> list[str]:
    return [f"{scores[key]:.3f}" if key in scores else "–" for key in _SCORES]


def _bounds(case: Case, norm: Norm) -> list[str | float | None]:
    truth = size(case.truth, norm)
    cells = []
    for column in COLUMNS:
        bound = pick(case, column, norm)
        floor, false = "≥ " if bound.is_floor else "", " †" if bound.below(truth) else ""
        known = bound.value is not None and math.isfinite(bound.value)
        cells.append(f"{floor}{shown(bound.value)}{false}" if known else "no statement")
    noise = f", σ = {shown(case.sigma)}" if case.sigma else ""
    return [f"{case.kind}{noise}", str(case.landmarks), truth, *cells, pick(case, "certificate", norm).trivial]
