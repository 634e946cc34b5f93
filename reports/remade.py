"""One small cell of each report, and how its own script makes it again; nothing is computed here."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

Numbers = dict[str, float | None]


class Missing(Exception):
    """The store has no cell that today's script would make."""


@dataclass(frozen=True)
class Cell:
    """A published cell that can be made again.

    Parameters
    ----------
    what : str
        Its settings in words.
    code : str
        Code that made it.
    seconds : float
        It takes, on one quiet core.
    published : dict of str to float
    make : callable
        Make it again and return the same numbers; nothing is written beside the report.
    """

    what: str
    code: str
    seconds: float
    published: Numbers
    make: Callable[[], Numbers]


def script(path: Path) -> ModuleType:
    """Import a report's script, wherever it lies; all of them are called make.py."""
    spec = importlib.util.spec_from_file_location(f"report_{path.parent.name}_{path.stem}".replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for themselves there
    spec.loader.exec_module(module)
    return module


def some(scores: dict[str, Any], names: Iterable[str]) -> Numbers:
    """Return some numbers of a cell."""
    return {name: None if scores[name] is None else float(scores[name]) for name in names}


def end_to_end(folder: Path) -> Cell:
    """Return the cheapest private map by the code that made most of them."""
    make = script(folder / "make.py")
    names = ("cross", "pooled", "landmarks", "components", "epsilon")
    own = [each for each in make.cells().values() if each["way"] == "private" and each["asked"] != make.NO_DATA]
    if not own:
        raise Missing("no private map is in cells/")
    # Of the code that made most of them.
    many = Counter(each["code"] for each in own)
    cell = min(own, key=lambda each: (-many[each["code"]], each["processor"]))

    def again() -> Numbers:
        return some(make.made(make.Wanted.of(cell)), names)

    what = ", ".join(map(str, (cell["data"], cell["features"], cell["trust"], f"ε = {cell['asked']:g}")))
    # As much again to place all records in two other ways, and for the scores.
    return Cell(what, cell["code"], 2 * cell["processor"], some(cell, names), again)


AUDIT = "k-means-pipeline"


def audit(folder: Path) -> Cell:
    """Return one of the audits, with all its games."""
    from dpfedvis.cli.main import main

    def found(place: Path) -> tuple[dict[str, Any], str]:
        code = json.loads((place / f"{AUDIT}.json").read_text()).get("code", "30560cc or before")
        return json.loads((place / f"{AUDIT}-statement.json").read_text())["audit"], code

    def numbers(audited: dict[str, Any]) -> Numbers:
        certified = max(audited["lower_bounds"].values())
        return {"certified ε": certified, **{each["name"]: each["found"] for each in audited["membership"]}}

    published, code = found(folder / "audits" / "local-1")

    def again() -> Numbers:
        with tempfile.TemporaryDirectory() as place, redirect_stdout(StringIO()):
            main([*shlex.split(published["command"])[1:], "--out", place])
            return numbers(found(Path(place))[0])

    return Cell("local, ε = 1, all games", code, 30, numbers(published), again)


def budget(folder: Path) -> Cell:
    """Return the default way on Fashion-MNIST."""
    make = script(folder / "budget.py")
    data, features, trust, way = "fashion-mnist", "pixels", "local", "the default"
    key = f"{data}, {features}, {trust} | {way} | 0"
    cell = json.loads(make.STORE.read_text())[key]

    def again() -> Numbers:
        return some(make.score(make.federation(data, features, 0), trust, make.WAYS[way], 0), published)

    published = some(cell, ("cross", "landmarks", "dimensions"))
    return Cell(key, cell["code"], 15, published, again)


def few_records(folder: Path) -> Cell:
    """Return the smallest federation of the hospitals."""
    make = script(folder / "make.py")
    data, records, trust, epsilon = "hospitals", 500, "aggregate", 2.0
    what = f"{data} {records} {trust} {epsilon:g} 0"
    cell = make.stored()[what]
    names = ("cross", "landmarks", "dimensions")

    def again() -> Numbers:
        return some(make.score(make.federation(data, records, 0), trust, epsilon, 0), names)

    return Cell(what, cell["code"], 5, some(cell, names), again)


def clusters(folder: Path) -> Cell:
    """Return the cheapest clusters."""
    make = script(folder / "make.py")
    own = [each for each in make.cells() if each["map"] == "clusters"]
    if not own:
        raise Missing("no clusters are in cells/")
    cell = min(own, key=lambda each: each["seconds"])
    settings = [cell[name] for name in ("partition", "map", "trust")]

    def numbers(scores: dict[str, Any]) -> Numbers:
        pairs = {"clusters": scores["clusters"], "k-means in the map": scores["in_map"]}
        return {f"{name}, {score}": pair[place] for name, pair in pairs.items() for place, score in enumerate(_PAIR)}

    def again() -> Numbers:
        fed = make.federation(cell["data"], cell["partition"], cell["seed"])
        return numbers(make.cell(fed, *settings, float(cell["asked"]), cell["seed"]))

    what = ", ".join(map(str, (cell["data"], *settings, f"ε = {cell['asked']}")))
    return Cell(what, cell["code"], cell["seconds"], numbers(cell), again)


_PAIR = ("NMI", "ARI")


def verdict(folder: Path) -> Cell:
    """Return a small map of digits."""
    make = script(folder / "make.py")
    settings = ("digits", 300, 10.0, "aggregate", 0)
    cell = make.stored()[settings]
    names = ("coverage", "true_share", "landmarks", "regions", "clear_regions", "left_out", "least_direction")

    def again() -> Numbers:
        data, count, epsilon, trust, seed = settings
        return some(make.cell(make.records_of(data, count, seed), epsilon, trust, seed), names)

    return Cell(" ".join(map(str, settings)), cell.get("code", make.BEFORE), 2, some(cell, names), again)


def gradient(folder: Path) -> Cell:
    """Return a few rounds on digits."""
    make = script(folder / "make.py")
    settings = {"part": "rounds", "data": "digits", "records": None, "seed": 0, "trust": "aggregate", "epsilon": 1.0}
    settings |= {"mechanism": "gradient", "rounds": 4}
    cell = make.finished()[make.key(settings)]

    def again() -> Numbers:
        return some(make.made(settings, make.federation(make.load("digits"), 0))["scores"], published)

    published = some(cell["scores"], ("mmd", "start", "uploads"))
    return Cell("digits, aggregate, ε = 1, 4 rounds", cell.get("code", make.BEFORE), 2, published, again)


def mechanisms(folder: Path, data: str, seconds: float) -> Cell:
    """Return one column of three rows."""
    make = script(folder / "make.py")
    result = json.loads((folder / f"{data}.json").read_text())
    arguments, place = make.parsed(result["command"].split()[2:]), make.EPSILONS.index(1.0)
    names = [name for name in ("gradient", "k-means, aggregate", "mean-embedding") if name in result["rows"]]

    def again() -> Numbers:
        fed = make.federation(arguments, 0)
        runs = make.runs(fed, arguments.landmarks, 0)
        return {name: make.reached(fed, make.sampled(fed, 0), runs[name][place]) for name in names}

    rows = {name: result["rows"][name] for name in names}
    code = ", ".join(sorted({row["code"] for row in rows.values()}))
    return Cell(
        f"{data}, ε = 1, seed 0", code, seconds, {name: row["mmd"][0][place] for name, row in rows.items()}, again
    )


def attacks(folder: Path) -> Cell:
    """Return gradient inversion, one record a client."""
    make = script(folder / "make.py")
    arguments, name = make.parsed([]), "one record a client: none"
    job = next(each for each in make.jobs(arguments) if each.name == name)
    cell = json.loads(make.path_of(name, "json").read_text())

    def numbers(found: dict[str, Any]) -> Numbers:
        return dict(found["attacks"][make.INVERSION]["summary"])

    def again() -> Numbers:
        with tempfile.TemporaryDirectory() as pictures:
            return numbers(make.attacked(job, arguments, Path(pictures)))

    seconds = cell["run_seconds"] + cell["attacks"][make.INVERSION]["seconds"]
    return Cell(name, cell["code"], seconds, numbers(cell), again)


def scaling(folder: Path) -> Cell:
    """Return the smallest size on the page."""
    make = script(folder / "make.py")
    cell = make.cells()[1][0]
    names = ("landmarks", "cross")
    what = f"{cell['records']:,} records"
    return Cell(what, cell["code"], 40, some(cell, names), lambda: some(make.measured(cell["records"]), names))


def bounds(folder: Path, name: str, landmarks: int, seconds: float) -> Cell:
    """Return the errors of sampled and learned landmarks, without noise."""
    from dpfedvis.data import load
    from dpfedvis.evaluation.theory.study import Settings, Study
    from dpfedvis.reporting.bounds import as_json

    found = json.loads((folder / f"{name}.json").read_text())

    def numbers(cases: list[dict[str, Any]]) -> Numbers:
        return {
            f"{case['landmarks_are']}, {norm}": case["truth"][norm]
            for case in cases
            if case["landmarks"] == landmarks and case["sigma"] == 0
            for norm in ("spectral", "frobenius")
        }

    def again() -> Numbers:
        dataset = load(name, records=found["records"])
        study = Study(dataset, Settings(landmarks=(landmarks,), sigmas=(), seed=found["seed"]))
        return numbers(as_json(study, study.run(), [], [], "")["cases"])

    what = f"{name}, n_y = {landmarks}, σ = 0"
    return Cell(what, found.get("code", "30560cc or before"), seconds, numbers(found["cases"]), again)


def swept(path: Path, wanted: Callable[[Any], bool]) -> Cell:
    """Return the cheapest run of a sweep's store."""
    from dpfedvis.data.example import hospitals
    from dpfedvis.experiments.sweeps import Cell as Swept
    from dpfedvis.experiments.sweeps import SweepStore
    from dpfedvis.experiments.sweeps.work import Task, work
    from dpfedvis.runs.code_version import code_version
    from dpfedvis.runs.settings import RunConfig

    with SweepStore(path) as store:
        rows = [row for row in store.rows() if row.status == "done" and wanted(row)]
    if not rows:
        raise Missing(f"{path.name} has no cell of today's settings")
    # Runs that share landmarks: only one of them had to learn them, and its seconds say so.
    shared = {
        row.address: Swept(row.kind, RunConfig(**row.settings)).landmark_address(row.data_sha256, "") or row.address
        for row in rows
    }
    seconds = {
        address: max(row.seconds for row in rows if shared[row.address] == address) for address in shared.values()
    }
    row = min(rows, key=lambda each: (seconds[shared[each.address]], each.seconds))

    def again() -> Numbers:
        with tempfile.TemporaryDirectory() as folder:
            settings = dict(row.settings)
            if settings["data"] == "hospitals/*.csv":  # of `dpfedvis data example hospitals`
                for file, text in hospitals(500).items():
                    (Path(folder) / file).write_text(text)
                settings |= {"data": f"{folder}/*.csv", "schema_file": f"{folder}/schema.toml"}
            cell = Swept(row.kind, RunConfig(**settings))
            made = work(Task(cell, row.address, row.data_sha256, code_version()))
        if made.error:
            raise RuntimeError(made.error)
        return dict(made.scores)

    words = ", ".join(f"{name} {value}" for name, value in row.settings.items())
    return Cell(f"{row.kind}: {words}", str(row.version), seconds[shared[row.address]], dict(row.scores), again)


def npa(folder: Path) -> Cell:
    """Return the smallest map of Fashion-MNIST."""
    make = script(folder / "npa.py")
    settings = ("fashion-mnist", "central", 10_000, "tables")
    values, source = make.numbers()[settings]
    names = [f"NPA {k}-NN" for k in make.KS]

    def again() -> Numbers:
        X = make.load(settings[0], records=settings[2]).X
        return dict(zip(names, make.kept(X, make.ours(make.exact(X))).values(), strict=True))

    published = dict(zip(names, values, strict=True))
    return Cell(", ".join(map(str, settings)), source.removeprefix("code "), 40, published, again)


def table(folder: Path, name: str) -> Cell:
    """Return the cheapest run of a table or figure of the paper."""
    from dpfedvis.experiments.paper.experiments import EXPERIMENTS
    from dpfedvis.experiments.paper.readings import read_csv
    from dpfedvis.experiments.paper.recipes import Shrink

    scale = read_csv(folder / f"{name}.csv").scale
    experiment = EXPERIMENTS[name]
    records, rounds = (ours if ours < full else None for ours, full in (scale.records, scale.rounds))
    shrink = Shrink(records=records, rounds=rounds, seeds=scale.seeds[0])
    asked = [cell.settings for cell in experiment.cells(shrink) if cell.kind == "run"]
    return swept(folder / "paper.sqlite", lambda row: row.kind == "run" and row.settings in asked)
