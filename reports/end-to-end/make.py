"""Maps that are private end to end: cross-client accuracy at several budgets, every stage in one ledger.

    DPFEDVIS_DATA=... python reports/end-to-end/make.py --data mnist --seeds 3

First 40,000 images, 10 clients, δ = 1e-5, replace-one, one record as the unit; `FedTSNE(budget=Budget(ε, 1e-5))` and
nothing else chosen but the trust model. Each finished cell is kept in `cells/`, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from accounting import Budget
from accounting.events import Trust
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.billboard import ByWeights
from dpfedvis.data import load
from dpfedvis.evaluation import cross_client_accuracy
from dpfedvis.mechanisms import (
    ClippedGradientPerturbation,
    GradientPerturbation,
    KMeans,
    MeanEmbedding,
    Mechanism,
)

HERE = Path(__file__).parent
DELTA = 1e-5
NOTE = """\
Made by `python reports/end-to-end/make.py`; one row for each of its settings that was run. First 40,000 images, 10
clients, δ = 1e-5. *cross*: each client's points classified by those of the others (10-NN); *pooled*: a 7:3 split over
all; *by weights*: cross, without the client's own refinement. Defaults were chosen on digits and Fashion-MNIST; an
earlier setting had been tried on MNIST once before (cross .829 at ε = 1, *aggregate*), so that the figure below is the
second look at MNIST. What was aimed at, 0.85 at ε = 1 and *aggregate*, is not reached."""
KINDS = {
    "k-means": KMeans,
    "gradient": GradientPerturbation,
    "clipped": ClippedGradientPerturbation,
    "mean-embedding": MeanEmbedding,
}


def made(name: str, trust: Trust) -> Mechanism:
    """Return a mechanism under a trust model."""
    return KINDS[name](trust=trust)


def pooled_accuracy(places: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """10-NN accuracy of a 7:3 split over all clients' points."""
    known, new, classes, truth = train_test_split(places, labels, test_size=0.3, random_state=seed)
    return float(KNeighborsClassifier(10).fit(known, classes).score(new, truth))


def cell(fed: FederatedData, mechanism: str, trust: Trust, epsilon: float, seed: int, picture: Path) -> dict[str, Any]:
    """Make one map and score it."""
    started = time.perf_counter()
    estimator = FedTSNE(budget=Budget(epsilon, DELTA), mechanism=made(mechanism, trust), random_state=seed).fit(fed)
    places, labels = list(estimator.views().values()), [client.y for client in fed.clients]
    weights = [ByWeights()(estimator.board_, client.X) for client in fed.clients]
    draw(estimator, np.concatenate(labels), picture)
    return {
        "cross": cross_client_accuracy(places, labels),
        "pooled": pooled_accuracy(np.concatenate(places), np.concatenate(labels), seed),
        "cross_by_weights": cross_client_accuracy(weights, labels),
        "epsilon": estimator.ledger_.spent(DELTA, end_to_end=True),
        "landmarks": len(estimator.landmarks_),
        "components": int(estimator.board_.anchors.shape[1]),
        "seconds": time.perf_counter() - started,
    }


def draw(estimator: FedTSNE, labels: np.ndarray, path: Path) -> None:
    """Draw all clients' points, which in a real federation nobody has, over the published anchors."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 6), dpi=100)
    axes.scatter(*estimator.board_.places.T, s=6, c="0.8", linewidths=0)
    chosen = np.random.default_rng(0).permutation(len(labels))[:10_000]
    axes.scatter(*estimator.embedding_[chosen].T, s=1, c=labels[chosen], cmap="tab10", linewidths=0)
    axes.set_axis_off()
    figure.savefig(path, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def run(arguments: argparse.Namespace) -> None:
    """Run all cells that are not there yet."""
    dataset = load(arguments.data, records=arguments.records)
    (HERE / "cells").mkdir(exist_ok=True)
    for seed in range(arguments.seeds):
        fed = FederatedData.from_dataset(dataset, clients=10, partition=arguments.partition, seed=seed)
        for epsilon in arguments.epsilons:
            for trust in arguments.trusts.split(","):
                for mechanism in arguments.mechanisms.split(","):
                    name = f"{arguments.data}-{arguments.partition}-{mechanism}-{trust}-{epsilon:g}"
                    path = HERE / "cells" / f"{name}-{seed}.json"
                    if path.exists():
                        continue
                    facts = {"data": arguments.data, "partition": arguments.partition, "mechanism": mechanism}
                    facts |= {"trust": trust, "asked": f"{epsilon:g}"}
                    scores = facts | cell(fed, mechanism, trust, epsilon, seed, HERE / f"{name}.png")
                    temporary = path.with_suffix(".tmp")
                    temporary.write_text(json.dumps(scores, indent=1) + "\n")
                    temporary.replace(path)
                    print(f"{path.stem}: {scores}", file=sys.stderr, flush=True)


def table() -> str:
    """Return all finished cells as Markdown."""
    lines = [
        "# Maps that are private end to end",
        "",
        NOTE,
        "",
        "| data | partition | landmarks by | trust | ε | seeds | cross | pooled | by weights | n_y | dimensions |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((HERE / "cells").glob("*.json")):
        groups.setdefault(path.stem.rpartition("-")[0], []).append(json.loads(path.read_text()))
    for cells in groups.values():
        first = cells[0]
        scores = [f"{np.mean([each[key] for each in cells]):.3f}" for key in ("cross", "pooled", "cross_by_weights")]
        facts = [first[key] for key in ("data", "partition", "mechanism", "trust", "asked")]
        row = [*facts, len(cells), *scores, first["landmarks"], first["components"]]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--records", type=int, default=40_000)
    parser.add_argument("--partition", default="iid")
    parser.add_argument("--mechanisms", default="k-means")
    parser.add_argument("--trusts", default="aggregate,local")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=3)
    run(parser.parse_args())
    (HERE / "results.md").write_text(table())


if __name__ == "__main__":
    main()
