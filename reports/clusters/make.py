"""Fed-SpeClust beside Table 5 of the paper, without noise.

    DPFEDVIS_DATA=... python reports/clusters/make.py --affinities neighbors --seeds 3
    DPFEDVIS_DATA=... python reports/clusters/make.py --affinities kernel --seeds 1

Settings of the published runs: first 10,000 images of MNIST, 10 clients, 500 landmarks, largest biased MMD over seven
bandwidths, batches of 256, Adam with step 0.1; but 100 rounds, not 1000. Each finished cell is kept in `cells/`, so
that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from dpfedvis import FederatedData, FedSpectralClustering
from dpfedvis.data import load
from dpfedvis.mechanisms import PublishedFedDL

HERE = Path(__file__).parent
BANDWIDTHS = [1 / (2 * sigma**2) for sigma in (5, 10, 15, 20, 25, 30, 50)]
# The published setting "γ = 2" read as exp(−d²/γ²): so central clustering of COIL-20 gives the paper's figure.
KERNEL_GAMMA = 0.25
AFFINITIES: dict[str, dict[str, Any]] = {"neighbors": {}, "kernel": {"gamma": KERNEL_GAMMA}}
DATA: dict[str, dict[str, Any]] = {
    "mnist": {"records": 10_000},
    "coil20": {},
    "mice-protein": {"missing": "client-mean"},
}
# Table 5, NMI: mean and standard deviation of Fed-SpeClust, IID and one class a client.
PAPER = {
    ("mnist", "iid"): (0.5240, 0.0038),
    ("mnist", "by-class"): (0.5235, 0.0051),
    ("coil20", "iid"): (0.8425, 0.0218),
    ("coil20", "by-class"): (0.8339, 0.0216),
    ("mice-protein", "iid"): (0.3233, 0.0121),
    ("mice-protein", "by-class"): (0.3222, 0.0190),
}
NOTE = f"""\
*neighbors*: spectral clustering of the graph of 10 neighbours, found in the landmarks' affine span; the default.
*kernel*: the paper's way, K̂ = C W⁺ Cᵀ, with exp(−{KERNEL_GAMMA}·d²). Learned landmarks are far from most records for
so narrow a kernel, and it stays below Table 5 on MNIST and COIL-20; no width was found at which central spectral
clustering of MNIST gives the paper's 0.5415. That neighbours do better was seen on these data sets, with
scikit-learn's default of 10; central trials with 5, 15 and 20 were seen too. Missing values of Mice-Protein (1.7 %) are
filled with the client's means, which under `by-class` are those of one class."""


def cluster(fed: FederatedData, classes: int, affinity: str, rounds: int, seed: int) -> dict[str, float]:
    """Return the scores of one run."""
    started = time.perf_counter()
    estimator = FedSpectralClustering(
        n_clusters=classes,
        n_landmarks=500,
        mechanism=PublishedFedDL(),
        rounds=rounds,
        random_state=seed,
        affinity=affinity,
        feddl={
            "bandwidth": BANDWIDTHS,
            "bounds": (0.0, 1.0),
            "optimiser": "adam",
            "estimator": "biased",
            "weights": "equal",
        },
        **AFFINITIES[affinity],
    )
    found, truth = estimator.fit_predict(fed), fed.pooled()[1]
    return {
        "nmi": float(normalized_mutual_info_score(truth, found)),
        "ari": float(adjusted_rand_score(truth, found)),
        "seconds": time.perf_counter() - started,
    }


def run(arguments: argparse.Namespace) -> None:
    """Run all cells that are not there yet."""
    (HERE / "cells").mkdir(exist_ok=True)
    for name in arguments.data.split(","):
        dataset = load(name, **DATA[name])
        classes = len(np.unique(dataset.y))
        for seed in range(arguments.seeds):
            for partition in arguments.partitions.split(","):
                # One class each, as many clients as there are classes.
                clients = classes if partition == "by-class" else 10
                fed = FederatedData.from_dataset(dataset, clients=clients, partition=partition, seed=seed)
                for affinity in arguments.affinities.split(","):
                    path = HERE / "cells" / f"{name}-{partition}-{affinity}-{seed}.json"
                    if path.exists():
                        continue
                    scores = cluster(fed, classes, affinity, arguments.rounds, seed)
                    temporary = path.with_suffix(".tmp")
                    temporary.write_text(json.dumps(scores, indent=1) + "\n")
                    temporary.replace(path)
                    print(f"{path.stem}: {scores}", file=sys.stderr)


def table(arguments: argparse.Namespace) -> str:
    """Return all finished cells as Markdown."""
    lines = [
        "# Fed-SpeClust beside Table 5 of the paper",
        "",
        f"No noise, {arguments.rounds} rounds. Made by `python reports/clusters/make.py`, with `--affinities neighbors "
        "--seeds 3` and with `--affinities kernel --seeds 1`.",
        "",
        NOTE,
        "",
        "| data | partition | affinity | seeds | NMI | ARI | NMI in the paper |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, partition), (mean, deviation) in PAPER.items():
        for affinity in AFFINITIES:
            paths = sorted((HERE / "cells").glob(f"{name}-{partition}-{affinity}-*.json"))
            cells = [json.loads(path.read_text()) for path in paths]
            if cells:
                shown = []
                for score in ("nmi", "ari"):
                    values = [cell[score] for cell in cells]
                    shown.append(f"{np.mean(values):.4f} ± {np.std(values):.4f}")
                row = [name, partition, affinity, str(len(cells)), *shown, f"{mean:.4f} ± {deviation:.4f}"]
                lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--partitions", default="iid,by-class")
    parser.add_argument("--affinities", default=",".join(AFFINITIES))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    run(arguments)
    (HERE / "table5.md").write_text(table(arguments))
    print(table(arguments))


if __name__ == "__main__":
    main()
