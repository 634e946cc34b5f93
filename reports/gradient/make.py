"""Alg. 1 under a budget: how many rounds are best, and what gradients come to beside k-means and mean embedding.

    python reports/gradient/make.py rounds --data digits
    python reports/gradient/make.py mechanisms --data digits
    python reports/gradient/make.py maps --data digits
    DPFEDVIS_DATA=... python reports/gradient/make.py rounds mechanisms maps --data fashion-mnist --records 10000

Each finished cell is a line of `cells.jsonl`, so that an interrupted run resumes. Without a part, only the page is
made.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.data import Dataset, load
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.evaluation import cross_client_accuracy
from dpfedvis.mechanisms import MECHANISMS
from dpfedvis.numerics.mmd import mmd2
from dpfedvis.reporting.cells import codes
from dpfedvis.runs.code_version import code_version

HERE = Path(__file__).parent
CELLS = HERE / "cells.jsonl"
DELTA = 1e-5
EPSILONS = (0.5, 1.0, 3.0, 10.0)
TRUSTS = ("local", "aggregate")
TRIED = (1, 2, 4, 8, 16, 32, 64)
PER_ROUND = ("gradient", "clipped", "variable")
ONCE = ("k-means", "mean-embedding")
FORMER = 50  # rounds that were the default before
LANDMARKS = 100
BEFORE = "63c6c0e or before"  # code of cells that do not name theirs
SAMPLE = 5000  # records that MMD is computed with
TITLE = "# Algorithm 1 under a budget: how many rounds"
NOTE = """\
Made by `python reports/gradient/make.py rounds mechanisms maps --data digits`; what was not run is said. δ = 1e-5,
replace-one, 10 clients IID, or those that the data come with; noise seeded. With `--data fashion-mnist --records 10000`
and `--data hospitals` the same is made for these.

**What decides.** At equal budget S rounds need √S times the noise of one. A plain step of size η carries it into Y, so
that S rounds of noise alone move a landmark by S·η·s·√d, with s the noise of a single round. The descent lemma gives

    mean E‖∇f‖² ≤ 2f₀/T + L·n_y·d·s²·T,    T = S·η ≤ S/L,

so that only T counts, and not S: half the step in twice the rounds is no better. At the best T noise moves a landmark
by a fixed part of the kernel's width 1/√γ, whatever n, n_y, d, γ, ε and trust are (`dpfedvis/server/rounds.py`). So the
default S is the largest at which noise moves a landmark by no more than one width, where it starts at random, and 0.3
widths, where it starts with mean and variances of the records, as in a private map. With the step 1/L and the tight
sensitivity that is

    S = 1.7 · n·μ/(f·√(n_y·d)),    f = √P for noise at each site, and about 1 for a sum.

The bound leaves the constant open. Both were chosen on public data: the first on digits, by the table below; the second
by trials on digits and Fashion-MNIST in their first 16 principal axes, of which no results are kept.

**What was found** (digits, one seed). The chosen S comes within 8 % of the best MMD of those tried, at each ε and
trust. The mean embedding is closer to the data up to ε = 3; at ε = 10 with a sum gradients are. In the private map
the chosen S scores higher than 50 rounds in 3 of 8 cases, by .22 with local noise at ε = 0.5, and lower in 5, by up to
.09: there it mainly saves rounds. k-means scores highest, or within .002 of it, from ε = 3 on, and at ε = 1 with a sum;
with less the mechanisms that upload once or a few times do. Other data and other seeds were not run."""
BY_ROUNDS = """\
MMD after S rounds of *gradient*, budget for the landmarks alone (scope landmarks), 100 landmarks from
uniform points within public bounds. Circles: the S that is chosen from public numbers."""
MECHANISMS_NOTE = """\
MMD of the mechanisms, scope landmarks, 100 landmarks; in brackets the S that was chosen. *k-means*
takes 12 sweeps. *mean-embedding* uploads once, and starts around a protected mean."""
MAPS_NOTE = """\
Cross-client 10-NN accuracy in the private map, end to end, with landmarks by each mechanism; in brackets
the S that was chosen."""
Cell = dict[str, Any]


def cells(part: str, data: str, records: int | None, seed: int) -> Iterator[Cell]:
    """Yield what a part consists of: scope landmarks for rounds and mechanisms, end to end for maps."""
    for trust in TRUSTS:
        for epsilon in EPSILONS:
            common = {"part": part, "data": data, "records": records, "seed": seed, "trust": trust, "epsilon": epsilon}
            if part == "rounds":
                yield from ({**common, "mechanism": "gradient", "rounds": each} for each in TRIED)
                continue
            yield from ({**common, "mechanism": each, "rounds": None} for each in (*PER_ROUND, *ONCE))
            if part == "maps":
                yield {**common, "mechanism": "gradient", "rounds": FORMER}


def learned(cell: Cell, fed: FederatedData) -> dict[str, Any]:
    """Learn landmarks, with the budget for them alone, and return their biased MMD to records."""
    name = cell["mechanism"]
    # A mean embedding says little about where the landmarks should go: it starts around a protected mean.
    start = {"start": "mean", "tau_x": float(np.sqrt(fed.n_features)) / 3} if name == "mean-embedding" else {}
    result = FedDL(
        landmarks=LANDMARKS,
        mechanism=MECHANISMS[name](trust=cell["trust"]),  # type: ignore[call-arg]  # all of these have a trust
        budget=Budget(cell["epsilon"], DELTA, scope="landmarks"),
        rounds=cell["rounds"],
        gamma="public",
        seed=cell["seed"],
        **start,
    ).run(fed)
    records, _ = fed.pooled()
    sample = records[np.random.default_rng(cell["seed"]).permutation(len(records))[:SAMPLE]]
    kernel, biased = result.public.kernel, "biased"
    found = {
        key: float(np.sqrt(max(mmd2(sample, Y, kernel, estimator=biased), 0.0)))  # type: ignore[arg-type]
        for key, Y in (("mmd", result.landmarks), ("start", result.start))
    }
    return {**found, "uploads": len(result.trace)}


def mapped(cell: Cell, fed: FederatedData) -> dict[str, Any]:
    """Make a private map, and return its score."""
    mechanism = MECHANISMS[cell["mechanism"]](trust=cell["trust"])  # type: ignore[call-arg]
    budget = Budget(cell["epsilon"], DELTA)
    estimator = FedTSNE(budget=budget, mechanism=mechanism, rounds=cell["rounds"], random_state=cell["seed"]).fit(fed)
    return {
        "cross": cross_client_accuracy(list(estimator.views().values()), [client.y for client in fed.clients]),
        "landmarks": len(estimator.landmarks_),
        "components": int(estimator.published_map_.anchors.shape[1]),
        "uploads": len(estimator.feddl_.trace),
    }


def federation(dataset: Dataset, seed: int) -> FederatedData:
    """Deal the records to ten clients, or to those that they come with."""
    dealt = {} if dataset.clients else {"clients": 10, "partition": "iid"}
    return FederatedData.from_dataset(dataset, **dealt, seed=seed)


def made(cell: Cell, fed: FederatedData) -> Cell:
    """Make one cell."""
    started = time.perf_counter()
    scores = (mapped if cell["part"] == "maps" else learned)(cell, fed)
    seconds = round(time.perf_counter() - started, 1)
    return {"settings": cell, "scores": scores, "code": str(code_version()), "seconds": seconds}


def finished() -> dict[str, Cell]:
    """Return the cells that are there, by their settings."""
    found: dict[str, Cell] = {}
    for line in CELLS.read_text().splitlines() if CELLS.exists() else []:
        cell = json.loads(line)
        found[key(cell["settings"])] = cell
    return found


def key(cell: Cell) -> str:
    """One line for the settings of a cell."""
    return json.dumps(cell, sort_keys=True)


def run(arguments: argparse.Namespace) -> None:
    """Run all cells that are not there yet."""
    known = finished()
    if not arguments.parts:
        return
    dataset = load(arguments.data, records=arguments.records)
    for part in arguments.parts:
        for seed in range(arguments.seeds):
            fed = federation(dataset, seed)
            for cell in cells(part, arguments.data, arguments.records, seed):
                wanted = cell["epsilon"] in arguments.epsilons and cell["mechanism"] in arguments.mechanisms
                if not wanted or key(cell) in known:
                    continue
                line = made(cell, fed)
                with CELLS.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps(line), file=sys.stderr, flush=True)


def table(known: dict[str, Cell], data: str, score: str, part: str) -> list[str]:
    """Return the scores of every mechanism at each ε, mean over seeds, with the uploads where they were chosen."""
    columns = [(trust, epsilon) for trust in TRUSTS for epsilon in EPSILONS]
    lines = ["| | " + " | ".join(f"{trust}, ε = {epsilon:g}" for trust, epsilon in columns) + " |"]
    lines += ["|---|" + "---|" * len(columns)]
    for name, rounds in [*((each, None) for each in (*PER_ROUND, *ONCE)), ("gradient", FORMER)]:
        row = []
        for trust, epsilon in columns:
            wanted = {"part": part, "data": data, "trust": trust, "epsilon": epsilon, "mechanism": name}
            found = [each for each in known.values() if matches(each, {**wanted, "rounds": rounds})]
            chosen = f" ({found[0]['scores']['uploads']})" if found and rounds is None and name in PER_ROUND else ""
            row.append(f"{np.mean([each['scores'][score] for each in found]):.3f}{chosen}" if found else "not run")
        if any(each != "not run" for each in row):
            label = name if rounds is None else f"{name}, {rounds} rounds"
            lines.append(f"| {label} | " + " | ".join(row) + " |")
    return lines


def by_rounds(known: dict[str, Cell], data: str) -> list[str]:
    """Return MMD by S, the best of each column in bold."""
    columns = [(trust, epsilon) for trust in TRUSTS for epsilon in EPSILONS]
    wanted = {"part": "rounds", "data": data}
    values = np.array(
        [
            [
                np.mean(
                    [
                        each["scores"]["mmd"]
                        for each in known.values()
                        if matches(each, {**wanted, "rounds": rounds, "trust": trust, "epsilon": epsilon})
                    ]
                    or [np.nan]
                )
                for trust, epsilon in columns
            ]
            for rounds in TRIED
        ]
    )
    lines = ["| S | " + " | ".join(f"{trust}, ε = {epsilon:g}" for trust, epsilon in columns) + " |"]
    lines += ["|---|" + "---|" * len(columns)]
    for rounds, row in zip(TRIED, values, strict=True):
        least = [value == np.nanmin(values[:, place]) for place, value in enumerate(row)]
        shown = [f"**{value:.3f}**" if best else f"{value:.3f}" for value, best in zip(row, least, strict=True)]
        lines.append(f"| {rounds} | " + " | ".join(shown) + " |")
    return lines


def matches(cell: Cell, wanted: Cell) -> bool:
    """Whether a cell has these settings."""
    return all(cell["settings"][name] == value for name, value in wanted.items())


def figure(known: dict[str, Cell], data: str) -> None:
    """Draw MMD against S for each ε; a circle is the S that is chosen from public numbers."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown, panels = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    for axes, trust in zip(panels, TRUSTS, strict=True):
        for colour, epsilon in enumerate(EPSILONS):
            wanted = {"data": data, "trust": trust, "epsilon": epsilon, "mechanism": "gradient"}
            line = {
                cell["settings"]["rounds"]: cell["scores"]["mmd"]
                for cell in known.values()
                if matches(cell, {**wanted, "part": "rounds"})
            }
            rounds = sorted(line)
            axes.plot(rounds, [line[each] for each in rounds], ".-", color=f"C{colour}", label=f"ε = {epsilon:g}")
            for cell in known.values():
                if matches(cell, {**wanted, "part": "mechanisms", "rounds": None}):
                    scores = cell["scores"]
                    place = (scores["uploads"], scores["mmd"])
                    axes.plot(*place, "o", ms=10, mfc="none", color=f"C{colour}")
        axes.set(xscale="log", xlabel="rounds S", title=f"trust {trust}")
        axes.set_xticks(TRIED, [str(each) for each in TRIED])
        axes.minorticks_off()
    panels[0].set_ylabel("MMD of records and landmarks")
    panels[1].legend(frameon=False, fontsize=8)
    shown.savefig(HERE / f"{data}.png", dpi=130, metadata={"Software": None})
    plt.close(shown)


def page() -> str:
    """Return everything that is there as Markdown."""
    known = finished()
    lines = [TITLE, "", f"{NOTE} Code: {codes(known.values(), BEFORE)}."]
    for data in sorted({cell["settings"]["data"] for cell in known.values()}):
        lines += ["", f"## {data}"]
        parts = {cell["settings"]["part"] for cell in known.values() if cell["settings"]["data"] == data}
        if "rounds" in parts:
            lines += ["", BY_ROUNDS, "", f"![MMD against S]({data}.png)", "", *by_rounds(known, data)]
        if "mechanisms" in parts:
            lines += ["", MECHANISMS_NOTE, "", *table(known, data, "mmd", "mechanisms")]
        if "maps" in parts:
            lines += ["", MAPS_NOTE, "", *table(known, data, "cross", "maps")]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["rounds", "mechanisms", "maps", []], default=[])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--records", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--mechanisms", nargs="+", default=(*PER_ROUND, *ONCE))
    run(parser.parse_args())
    known = finished()
    for data in {cell["settings"]["data"] for cell in known.values() if cell["settings"]["part"] == "rounds"}:
        figure(known, data)
    (HERE / "results.md").write_text(page())


if __name__ == "__main__":
    main()
