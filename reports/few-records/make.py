"""From how many records, and which ε, is a private map better than one without data?

    python reports/few-records/make.py

Small public data; `FedTSNE(budget=Budget(ε, 1e-5))` and nothing else chosen but the trust model. Beside each map stands
the one of the same recipe at ε = 0.001, whose budget sees nothing. Each finished cell is kept in `cells.jsonl`, so that
an interrupted run resumes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.data import load
from dpfedvis.data.example import HOSPITALS, hospitals
from dpfedvis.evaluation import cross_client_accuracy
from dpfedvis.runs.code_version import code_version

HERE = Path(__file__).parent
STORE = HERE / "cells.jsonl"
DELTA, SEEDS, NO_DATA = 1e-5, 8, 1e-3
EPSILONS, TRUSTS = (0.1, 0.5, 1.0, 2.0, 8.0), ("local", "aggregate")
SIZES = {"hospitals": (500, 2000), "breast-cancer": (569,), "digits": (400, 1797)}
SITES = {"digits": 4, "breast-cancer": 4, "hospitals": len(HOSPITALS)}
NOTE = """\
# Few records

Made by `python reports/few-records/make.py`, code {code}. δ = 1e-5, one record as the unit, replace-one; noise seeded,
t and c at their defaults. Digits and breast cancer are dealt to 4 sites (IID); the hospitals of the example are 5.
Breast cancer has standardised features, whose scaling is not charged, and no public ranges.
*no data*: the same recipe at ε = 0.001, which sees nothing; sites still place their own records by themselves, so that
its map is far above chance. The other columns: 10-NN accuracy across sites in the map, mean of {seeds} seeds ± the
standard deviation of one. **Bold**: above *no data* by more than two standard errors of the difference of the means;
*italic*: below it by as much, which chance alone makes about two of {cells} cells, often together, since the rows of a
data set have one *no data*.

![accuracy against ε](frontier.png)
"""


def federation(name: str, records: int, seed: int) -> FederatedData:
    """Return so many records at their sites."""
    if name == "hospitals":
        with tempfile.TemporaryDirectory() as folder:
            for file, text in hospitals(patients=records // SITES[name], seed=seed).items():
                (Path(folder) / file).write_text(text)
            return FederatedData.from_dataset(load(f"{folder}/*.csv", schema=f"{folder}/schema.toml"))
    if name == "breast-cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return FederatedData.split(StandardScaler().fit_transform(X), y, clients=SITES[name], seed=seed)
    dataset = load(name)
    chosen = np.random.default_rng(seed).permutation(len(dataset.y))[:records]
    some = replace(dataset, X=dataset.X[chosen], y=dataset.y[chosen])
    return FederatedData.from_dataset(some, clients=SITES[name], partition="iid", seed=seed)


def score(fed: FederatedData, trust: Any, epsilon: float, seed: int) -> dict[str, Any]:
    """Make one map and score it."""
    estimator = FedTSNE(budget=Budget(epsilon, DELTA), trust=trust, noise="seeded", random_state=seed).fit(fed)
    cross = cross_client_accuracy(list(estimator.views().values()), [client.y for client in fed.clients])
    return {
        "cross": cross,
        "landmarks": len(estimator.landmarks_),
        "dimensions": int(estimator.published_map_.anchors.shape[1]),
        "code": str(code_version()),
    }


def stored() -> dict[str, dict[str, Any]]:
    """Return all finished cells by name."""
    lines = STORE.read_text().splitlines() if STORE.exists() else []
    return {each["name"]: each for each in map(json.loads, lines)}


def run() -> None:
    """Run all cells that are not there yet."""
    done = stored()
    for seed in range(SEEDS):
        for data, sizes in SIZES.items():
            for records in sizes:
                fed = None
                for trust, epsilon in [("local", NO_DATA), *((t, e) for t in TRUSTS for e in EPSILONS)]:
                    name = f"{data} {records} {trust} {epsilon:g} {seed}"
                    if name in done:
                        continue
                    fed = fed or federation(data, records, seed)
                    cell = {"name": name, **score(fed, trust, epsilon, seed)}
                    with STORE.open("a") as file:
                        file.write(json.dumps(cell) + "\n")
                    print(cell, file=sys.stderr, flush=True)


def scores(done: dict[str, dict[str, Any]], data: str, records: int, trust: str, epsilon: float) -> np.ndarray:
    """Return the scores of all seeds."""
    names = [f"{data} {records} {trust} {epsilon:g} {seed}" for seed in range(SEEDS)]
    return np.array([done[name]["cross"] for name in names])


def draw(done: dict[str, dict[str, Any]]) -> None:
    """Draw accuracy against ε, with that of no data."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels = [(data, records) for data, sizes in SIZES.items() for records in sizes]
    figure, every = plt.subplots(1, len(panels), figsize=(2.6 * len(panels), 3.1), dpi=110, sharey=True)
    for axes, (data, records) in zip(every, panels, strict=True):
        nothing = scores(done, data, records, "local", NO_DATA)
        axes.axhspan(nothing.min(), nothing.max(), color="0.9", lw=0)
        axes.axhline(nothing.mean(), c="0.5", ls="--", label="no data")
        for number, trust in enumerate(TRUSTS):
            found = [scores(done, data, records, trust, epsilon) for epsilon in EPSILONS]
            middle = np.array([each.mean() for each in found])
            around = [middle - [each.min() for each in found], [each.max() for each in found] - middle]
            axes.errorbar(EPSILONS, middle, around, fmt="o-", c=f"C{number}", capsize=3, label=trust)
        axes.set(xscale="log", xlabel="ε", title=f"{data}, {records:,}", ylim=(0, 1))
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    every[0].set_ylabel("10-NN accuracy across sites")
    every[-1].legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(HERE / "frontier.png", metadata={"Software": None})
    plt.close(figure)


def shown(found: np.ndarray, nothing: np.ndarray | None = None) -> str:
    """Mean ± standard deviation, marked where it differs from no data."""
    text = f"{found.mean():.3f} ± {found.std(ddof=1):.3f}"
    if nothing is None:
        return text
    # Not by seeds: what a map of noise scores hangs on the last bit, so that one seed's maps have little in common.
    difference = found.mean() - nothing.mean()
    sure = 2 * np.sqrt((found.var(ddof=1) + nothing.var(ddof=1)) / len(found))
    mark = "**" if difference > sure else "*" if difference < -sure else ""
    return f"{mark}{text}{mark}"


def page(done: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    columns = ["data", "records", "trust", "no data", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)]
    codes = ", ".join(sorted({each["code"] for each in done.values()}))
    cells = len(TRUSTS) * len(EPSILONS) * sum(map(len, SIZES.values()))
    note = NOTE.format(code=codes, seeds=SEEDS, cells=cells)
    lines = [note, "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for data, sizes in SIZES.items():
        for records in sizes:
            nothing = scores(done, data, records, "local", NO_DATA)
            for trust in TRUSTS:
                found = [shown(scores(done, data, records, trust, epsilon), nothing) for epsilon in EPSILONS]
                lines.append("| " + " | ".join([data, f"{records:,}", trust, shown(nothing), *found]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all, and write page and figure."""
    run()
    done = stored()
    draw(done)
    (HERE / "results.md").write_text(page(done))


if __name__ == "__main__":
    main()
