"""The demo: maps of the same records, collected, federated and private, on one page.

Attacks are the command's part. Every number on the page comes from the runs that it is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Ledger
from accounting.rounding import rounded_up
from dpfedvis.data.example import hospitals
from dpfedvis.evaluation.baselines import central_map, no_data_scores
from dpfedvis.evaluation.metrics import METRICS, Evaluated
from dpfedvis.evaluation.scores import score
from dpfedvis.numerics.files import write_text
from dpfedvis.reporting import interactive_maps
from dpfedvis.reporting.palette import looks
from dpfedvis.reporting.rendering import render_html
from dpfedvis.reporting.run_facts import Cloud, Grouping, RunFacts, number
from dpfedvis.reporting.run_report import NOT_PROTECTED, show
from dpfedvis.reporting.story_figures import curve, timeline
from dpfedvis.runs.execute import Run
from dpfedvis.runs.folder import write_texts
from dpfedvis.runs.results import SIMULATION, YARDSTICKS
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_writer import LEDGER

PRIVATE = ("private-low", "private-middle", "private-high")
HOSPITAL_PATIENTS = 400  # of a hospital, on average
_SCORES = ("ca_10", "ca_cross_10", "npa_10", "nmi")
_DRAWN = ("ca_10", "npa_10")
_MAPS = ("exact", "plus", *PRIVATE)


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
    yardsticks : mapping of str to mapping of str to float
        Scores of a central map and of one without data.
    runs : mapping of str to RunFacts
        ``exact``, ``plus``, ``noisy``, and private ones in the order in which to show them.
    private : sequence of str
        Keys of the private ones.
    attacks : sequence of Attacked
    command : str
        That makes the same page again.
    hospitals : RunFacts
        A private map of the example's CSV files; see `hospital_run`.
    """

    central: Cloud
    yardsticks: Mapping[str, Mapping[str, float]]
    runs: Mapping[str, RunFacts]
    private: Sequence[str]
    attacks: Sequence[Attacked]
    command: str
    hospitals: RunFacts

    @property
    def names(self) -> dict[str, str]:
        """Names of the runs for people."""
        private = {key: f"private end to end, ε = {rounded_up(self.runs[key].epsilon)}" for key in self.private}
        rows = f"noisy rows, ε = {rounded_up(self.runs['noisy'].epsilon)}"
        return {"exact": "Fed-tSNE, exact distances", "plus": "Fed-tSNE+, the paper's noise", **private, "noisy": rows}


def plan(
    records: int | None, clients: int, epsilons: tuple[float, float, float], seed: int, jobs: int
) -> dict[str, RunConfig]:
    """Return the settings of every run, by its key; `epsilons` are the budgets of the private maps."""
    common: dict[str, Any] = {"data": "digits", "records": records, "clients": clients, "seed": seed, "jobs": jobs}
    common |= {"noise": "seeded", "evaluate": True}  # a simulation, to be judged by records and labels
    common |= {"yardsticks": False}  # made once, for all
    exact, private = {**common, "landmarks": 100}, {**common, "trust": "aggregate", "release": "none"}
    low, middle, high = epsilons
    settings: dict[str, dict[str, Any]] = {
        "exact": {**exact, "mechanism": "none"},
        "plus": {**exact, "mechanism": "heuristic", "beta": 1.0},
        "private-low": {**private, "epsilon": low},
        "private-middle": {**private, "epsilon": middle},
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
            "yardsticks": True,
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


def without_data(config: RunConfig) -> dict[str, float]:
    """Return the scores of a private map by this recipe that sees no data."""
    return no_data_scores(config, config.federated())


def show_beside(yardsticks: Mapping[str, Mapping[str, float]], run: Run) -> None:
    """Write everything to look at of a run, with the scores of maps of the same records to hold it against."""
    path = run.folder / SIMULATION / YARDSTICKS
    known = json.loads(path.read_text(encoding="utf-8"))
    write_text(path, json.dumps({**known, **yardsticks}, indent=2, allow_nan=False) + "\n")
    show(run)


def page(story: Story) -> str:
    """Return the page as HTML."""
    runs, last = story.runs, story.runs[story.private[-1]]
    simulated = {key: runs[key].simulation for key in _MAPS}
    clouds = {"central": story.central} | {key: each.cloud for key, each in simulated.items() if each is not None}
    figures = {
        f"map-{key}": interactive_maps.points(_by_class(each), compact=True, note=NOT_PROTECTED)
        for key, each in clouds.items()
    }
    classes = story.central.groupings["class"].names if "class" in story.central.groupings else ()
    yardsticks = _yardsticks(last)
    private = [runs[key] for key in story.private]
    note = last.statement["words"]["short"]
    drawn = curve(
        [each.epsilon for each in private], [_simulated(each) for each in private], yardsticks,
        [METRICS[key] for key in _DRAWN], note,
    )  # fmt: skip
    with Ledger.read(last.folder / LEDGER) as ledger:
        left = timeline(ledger.events(), note)
    return render_html(
        "demo.html",
        story=story,
        runs=runs,
        names=story.names,
        metrics=[METRICS[key].name for key in _SCORES],
        yardsticks={name: _scores(each) for name, each in yardsticks.items()},
        scores={key: _scores(_simulated(each)) for key, each in runs.items()},
        maps={key: len(each.places) for key, each in clouds.items()},
        hospital_score=_scores(_simulated(story.hospitals))[0],
        hospital_yardsticks={name: _scores(each)[0] for name, each in _yardsticks(story.hospitals).items()},
        key=list(zip(classes, looks(len(classes)), strict=True)),
        nominal=number(runs["plus"].statement["nominal_epsilon"]),
        curve=drawn,
        timeline=left,
        figures=figures,
    )


def _by_class(cloud: Cloud) -> Cloud:
    """The cloud, with classes first and nothing else to colour it by."""
    return Cloud(cloud.places, cloud.noun, dict(list(cloud.groupings.items())[:1]))


def _yardsticks(facts: RunFacts) -> Mapping[str, Mapping[str, float]]:
    return {} if facts.simulation is None else facts.simulation.yardsticks


def _simulated(facts: RunFacts) -> Mapping[str, float]:
    return {} if facts.simulation is None else facts.simulation.scores


def _scores(scores: Mapping[str, float]) -> list[str]:
    return [f"{scores[key]:.3f}" if key in scores else "–" for key in _SCORES]
