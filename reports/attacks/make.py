"""What the published protocol reveals: attacks on recorded runs of MNIST, without and with a guarantee.

    DPFEDVIS_DATA=... python reports/attacks/make.py

First the paper's own setting (40,000 images, one class a client, 500 landmarks, 500 rounds with β = 1, exact
distances), without drawing its map. Then runs of the first 1,000 images, smaller so that there can be one for every
mechanism and ε, each attacked with every kind there is; gradient inversion, which is for small clients, has runs of its
own with one record a client. Each finished cell is kept in `cells/`, so that an interrupted
run resumes; runs themselves are recorded in a temporary folder and dropped.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Ledger
from accounting.statement import state
from attacks.reconstruction.report import Reconstruction
from attacks.shared.registry import KINDS, NothingToAttack, Truth, kind
from dpfedvis import FederatedData
from dpfedvis.cli.attack import truth_of
from dpfedvis.data import load
from dpfedvis.estimators.simulation import simulated
from dpfedvis.mechanisms import PublishedFedDL
from dpfedvis.numerics.files import write_text
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.reporting.cells import codes, keep
from dpfedvis.reporting.drawing import save_png
from dpfedvis.runs.code_version import code_version
from dpfedvis.runs.execute import execute
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording
from dpfedvis.runs.upload_writer import LEDGER, Recorder
from dpfedvis.server import Program, ProgramSettings

HERE = Path(__file__).parent
EPSILONS = (10.0, 3.0, 1.0)
NOISY = ("gradient", "clipped", "variable", "mean-embedding")
BANDWIDTHS = tuple(1 / (2 * sigma**2) for sigma in (10, 20, 30, 50))
PAPER, PUBLISHED, INVERSION = "paper", "published β = 1, exact", "inversion"
_SAMPLES = {"first": "First {:,} images", "random": "{:,} images drawn at random"}
_CAUTIONS = {
    "first": "Membership and exposure compare with the next images of the file, so that small differences may be the\n"
    "file's order and not leakage; the control shows how large they are. `--sample random` has none of that.",
    "random": "Membership and exposure compare with as many other images, drawn at random too.",
}


@dataclass(frozen=True)
class Job:
    """One run, and the kinds of attack on it; no settings for the paper's own."""

    name: str
    config: RunConfig | None
    kinds: tuple[str, ...]


def jobs(arguments: argparse.Namespace) -> Iterator[Job]:
    """All runs of the report."""
    kinds = tuple(name for name in KINDS if name != INVERSION)
    common: dict[str, Any] = {
        "data": arguments.data,
        "rounds": arguments.rounds,
        "jobs": 1,
        "sample": arguments.sample,
    }
    large = {**common, "records": arguments.records, "clients": 10, "landmarks": arguments.landmarks}
    published = {"mechanism": "published", "gamma": BANDWIDTHS, "optimiser": "adam", "mmd": "biased"}
    yield Job(PAPER, None, kinds)
    yield Job("none, exact", RunConfig(mechanism="none", **large), kinds)
    yield Job(PUBLISHED, RunConfig(**published, beta=1.0, weights="equal", **large), kinds)
    for epsilon in EPSILONS:
        for mechanism in NOISY:
            config = RunConfig(mechanism=mechanism, epsilon=epsilon, release="noisy", **large)
            yield Job(f"{mechanism}, noisy, ε = {epsilon:g}", config, kinds)
        yield Job(f"input, ε = {epsilon:g}", RunConfig(mechanism="input", epsilon=epsilon, **large), kinds)
        yield Job(f"private map, ε = {epsilon:g}", RunConfig(epsilon=epsilon, **{**large, "landmarks": None}), kinds)
    few = {**common, "records": 40, "clients": 40, "landmarks": 50, "rounds": 3, "map": "clusters"}
    yield Job("one record a client: none", RunConfig(mechanism="none", **few), (INVERSION,))
    yield Job("one record a client: heuristic β = 1", RunConfig(mechanism="heuristic", beta=1.0, **few), (INVERSION,))
    for epsilon in (500, *EPSILONS):  # 500 is the largest that noise on a grid has
        config = RunConfig(mechanism="gradient", epsilon=epsilon, **few)
        yield Job(f"one record a client: gradient, ε = {epsilon:g}", config, (INVERSION,))


def paper_run(folder: Path, arguments: argparse.Namespace) -> tuple[Recording, Truth, float | None]:
    """Record the published protocol up to its exact distances; return it with the nominal ε of its β noise."""
    dataset = load(arguments.data, records=arguments.paper_records)
    fed = FederatedData.from_dataset(dataset, clients=10, partition="by-class", seed=0)
    mechanism = PublishedFedDL(beta=1.0)
    settings = ProgramSettings(
        mechanism=mechanism,
        release="exact",
        landmarks=arguments.landmarks,
        rounds=arguments.paper_rounds,
        feddl={
            "gamma": BANDWIDTHS,
            "optimiser": "adam",
            "mmd": "biased",
            "weights": "equal",
            "bounds": dataset.feature_range,  # as in the paper's tables: landmarks start all over the box
        },
    )
    folder.mkdir()
    recorder = Recorder(folder, rounds=5)  # of the gradients; 500 rounds are 8 GB
    with Ledger(folder / LEDGER) as ledger:
        with simulated(fed, budget=None, noise="seeded") as link:
            published = link.run(Program(settings), ledger=ledger, witness=recorder, callbacks=(recorder.landmarks,))
        facts = {"release": "exact", "bounds": dataset.feature_range, "image_shape": dataset.image_shape}
        recorder.finish(published.feddl, mechanism, facts)
        nominal = state(ledger).nominal
    fresh = load(arguments.data).X[arguments.paper_records :].astype(np.float32)
    return Recording.read(folder), Truth(fed, fresh, dataset.image_shape), nominal


def cell(job: Job, recording: Recording, truth: Truth, facts: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Attack one recording; pictures of what was reconstructed go to the folder."""
    found: dict[str, Any] = {}
    for each in job.kinds:
        started = time.perf_counter()
        try:
            result = kind(each)(recording, truth, Streams(0).generator("attack", each))
        except NothingToAttack as reason:
            found[each] = {"skipped": str(reason)}
            continue
        except np.linalg.LinAlgError as error:
            # One attack that breaks down must not cost the others; the next run tries it again.
            found[each] = {"failed": f"failed: {error}"}
            continue
        found[each] = {"summary": dict(result.summary), "seconds": round(time.perf_counter() - started, 1)}
        print(f"{job.name}: {each} {found[each]}", file=sys.stderr)
        if isinstance(result, Reconstruction):
            pictures = {"originals": result.originals, "guesses": result.guesses.astype(np.float32)}
            np.savez_compressed(folder / path_of(job.name, "npz").name, **pictures)
    return {"name": job.name, "code": str(code_version()), **facts, "attacks": found}


def path_of(name: str, suffix: str) -> Path:
    """Return where a cell is kept."""
    plain = name.replace("ε = ", "epsilon").replace("β = ", "beta")
    slug = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in plain)
    return HERE / "cells" / f"{slug}.{suffix}"


def finished(path: Path, job: Job) -> bool:
    """Whether a cell of the same sample is there with every attack on it."""
    if not path.exists():
        return False
    kept = json.loads(path.read_text())
    if job.config is not None and kept.get("sample", "first") != job.config.sample:
        return False
    found = kept["attacks"]
    return all(each in found and "failed" not in found[each] for each in job.kinds)


def run(arguments: argparse.Namespace) -> None:
    """Run all cells that are not there yet, or that lack an attack that is there now."""
    (HERE / "cells").mkdir(exist_ok=True)
    for job in jobs(arguments):
        path = path_of(job.name, "json")
        if finished(path, job):
            continue
        started = time.perf_counter()
        keep(path, attacked(job, arguments, path.parent))
        print(f"{job.name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)


def attacked(job: Job, arguments: argparse.Namespace, pictures: Path) -> dict[str, Any]:
    """Record a run and attack it."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        facts: dict[str, Any] = {}
        if job.config is None:
            recording, truth, nominal = paper_run(folder, arguments)
            facts = {"epsilon": math.inf, "nominal_epsilon": nominal}
        else:
            done = execute(job.config, folder)
            recording, truth = Recording.read(folder), truth_of(folder)
            facts = {"epsilon": done.statement.end_to_end, "nominal_epsilon": done.statement.nominal}
            facts["sample"] = job.config.sample
        if truth.fresh is not None:
            # By chance, if that chose the records; else the next of the file, which are the most like them.
            order = np.random.default_rng(0).permutation if truth.exchangeable else np.arange
            truth = replace(truth, fresh=truth.fresh[order(len(truth.fresh))[: len(truth.pooled)]])
        facts = {key: "inf" if value == math.inf else value for key, value in facts.items()}
        facts["run_seconds"] = round(time.perf_counter() - started, 1)
        return cell(job, recording, truth, facts, pictures)


def picture(arguments: argparse.Namespace) -> None:
    """Draw originals above their reconstructions, run by run."""
    from matplotlib.figure import Figure

    chosen = [PUBLISHED]
    chosen += [f"mean-embedding, noisy, ε = {epsilon:g}" for epsilon in EPSILONS]
    chosen += [f"input, ε = {epsilon:g}" for epsilon in EPSILONS]
    rows: list[tuple[str, Any]] = []
    for name in chosen:
        with np.load(path_of(name, "npz")) as stored:
            rows = rows or [("original", stored["originals"])]
            rows.append((name, stored["guesses"]))
    _montage(Figure, rows, HERE / "reconstruction.png")
    with np.load(path_of(PAPER, "npz")) as stored:
        _montage(Figure, [("original", stored["originals"]), ("from its distances", stored["guesses"])],
                 HERE / "paper.png")  # fmt: skip


def _montage(make: Any, rows: list[tuple[str, Any]], path: Path) -> None:
    count, side = len(rows[0][1]), math.isqrt(rows[0][1].shape[1])
    figure = make(figsize=(0.85 * count + 2, 0.9 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), count, squeeze=False)
    for line, (name, images) in zip(grid, rows, strict=True):
        for axes, image in zip(line, images, strict=True):
            axes.imshow(image.reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
            axes.set_xticks([])
            axes.set_yticks([])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    save_png(figure, path)


def page(arguments: argparse.Namespace) -> str:
    """Return the report as Markdown, from the cells."""
    kept = {job.name: job.kinds for job in jobs(arguments)}
    cells = {name: json.loads(path_of(name, "json").read_text()) for name in kept}
    paper, found = cells[PAPER], cells[PAPER]["attacks"]["reconstruction"]["summary"]
    text = f"""\
# What the published protocol reveals

Made by `python reports/attacks/make.py` with its defaults: {arguments.data}, {arguments.landmarks} landmarks, 10
clients, one seed. An attack sees what an honest-but-curious server sees: uploads, ledger, landmarks and map. Records
are used to score it. Code: {codes(cells.values())}.

## The paper's setting

First {arguments.paper_records:,} images, one class a client, {arguments.paper_rounds} rounds with batches of 256 and
noise of β = 1 on every gradient, then the exact distances of every record to the landmarks. Least squares on those
distances gives the records back with relative error {found["relative error"]:.2g}, and {found["recognised"]:.1%} of
them are recognised among all. {arguments.landmarks} landmarks do not span all features; what they leave open is filled
in by a prior from the landmarks.

![Records and their reconstructions](paper.png)

The β noise has no ε: its scale is the gradient's own standard deviation. Had that scale been public, it would be worth
ε = {_shown(paper["nominal_epsilon"])} at δ = 1e-5 for the landmarks alone, by the tight sensitivity and without
amplification. End to end ε is ∞ either way.

## What remains under a budget

{_SAMPLES[arguments.sample].format(arguments.records)}, dealt at random, {arguments.rounds} rounds, δ = 1e-5,
replace-one, local trust, end to end.
`noisy` releases Gram coordinates with noise for half of the budget, `input` computes everything from perturbed
records, and a *private map* (`release="none"`) lets clients place their records at home: the server has the landmarks
and their map, and no row. A client holds {arguments.records // 10} records here, far fewer than above, which makes
mechanisms that average over a client noisier; rows stand for one record each, and nothing about them changes.

Landmarks learned from so little are close to noise at these ε, and then a prior from them is a poor one: an empty
picture has relative error 1, and landmarks that stay where they started, all over the box, have 1.45. What the rows
themselves say does not depend on it: `pairs told apart` is the likelihood test between a record and another one of the
run, and stands beside the most that anyone can reach against the worst pair of records. Inversion has one record a
client, the easiest case; its error is relative to a trivial guess, and above 1 where noisy landmarks mislead it.
{_CAUTIONS[arguments.sample]}
Records, rounds and clients of this section were chosen for what one core does in ten minutes.

![Reconstructions run by run](reconstruction.png)
"""
    lines = [*text.splitlines(), ""]
    for each in KINDS:
        results = {name: value["attacks"][each] for name, value in cells.items() if each in kept[name]}
        lines += _table(each, results, cells)
    return "\n".join(lines)


def _table(title: str, results: dict[str, dict[str, Any]], cells: dict[str, Any]) -> list[str]:
    columns = list(dict.fromkeys(key for each in results.values() for key in each.get("summary", {})))
    lines = [f"### {title.capitalize()}", ""]
    lines += [f"| run | ε end to end | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for name, each in results.items():
        epsilon = _shown(cells[name]["epsilon"])
        if "summary" not in each:
            lines.append(
                f"| {name} | {epsilon} | {each.get('skipped') or each['failed']} |" + " |" * (len(columns) - 1)
            )
            continue
        lines.append(f"| {name} | {epsilon} | {' | '.join(_shown(each['summary'].get(key)) for key in columns)} |")
    return [*lines, ""]


def _shown(value: float | str | None) -> str:
    if value is None:
        return "-"
    return "∞" if value == "inf" else f"{value:.3g}"


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--sample", choices=("first", "random"), default="first")
    parser.add_argument("--landmarks", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--paper-records", type=int, default=40_000)
    parser.add_argument("--paper-rounds", type=int, default=500)
    return parser.parse_args(words)


def main() -> None:
    """Run from the command line."""
    arguments = parsed()
    run(arguments)
    picture(arguments)
    write_text(HERE / f"{arguments.data}.md", page(arguments))
    print(page(arguments))


if __name__ == "__main__":
    main()
