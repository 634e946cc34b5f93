"""Private clusters, private UMAP, and sites that lack classes: scores of maps that are private end to end.

    DPFEDVIS_DATA=... python reports/clusters/make.py                       # writes results.md from what is in cells/
    DPFEDVIS_DATA=... python reports/clusters/make.py --data digits --maps clusters,umap --seeds 3

10 clients (the hospitals: their own 5), δ = 1e-5, replace-one, one record as the unit, nothing else chosen but the
trust model. Each finished cell is kept in `cells/`, so that an interrupted run resumes. A cell of `clusters` is one
fit of `FedSpectralClustering`: its private map is that of `FedTSNE` with the same seed, so that clusters, the map and
k-means in the map are scored on the same release.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from accounting import Budget
from dpfedvis import FederatedData, FedSpectralClustering, FedUMAP
from dpfedvis.data import load
from dpfedvis.data.example import hospitals
from dpfedvis.evaluation.metrics import METRICS, Evaluated
from dpfedvis.site.placement import ByWeights, Diffused

HERE = Path(__file__).parent
DELTA = 1e-5
RECORDS = {"fashion-mnist": 10_000, "mnist": 10_000}
SCORES = ("ca_cross_10", "ca_shared_10", "purity_10", "ca_10", "npa_home_10")


def federation(name: str, partition: str, seed: int) -> FederatedData:
    """Return the data at their clients."""
    if name != "hospitals":
        dataset = load(name, records=RECORDS[name]) if name in RECORDS else load(name)
        return FederatedData.from_dataset(dataset, clients=10, partition=partition, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        for file, text in hospitals(seed=seed).items():
            (Path(folder) / file).write_text(text)
        return FederatedData.from_dataset(load(f"{folder}/*.csv", schema=f"{folder}/schema.toml"))


def agreement(y: np.ndarray, labels: np.ndarray) -> list[float]:
    """NMI and ARI."""
    return [float(each(y, labels)) for each in (normalized_mutual_info_score, adjusted_rand_score)]


def map_scores(fed: FederatedData, places: np.ndarray) -> dict[str, float | None]:
    """Scores of a map of all clients' records, which in a real federation nobody has."""
    evaluated = Evaluated(fed, places)
    return {key: METRICS[key].function(evaluated) for key in SCORES}


def cell(fed: FederatedData, kind: str, trust: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Make one map, or clusters, and score it."""
    started, y = time.perf_counter(), fed.pooled()[1]
    count = len(np.unique(y))
    common: dict[str, Any] = {"budget": Budget(epsilon, DELTA), "trust": trust, "random_state": seed, "noise": "seeded"}
    if kind == "noisy":
        rows = FedSpectralClustering(count, release="noisy", **common).fit(fed)
        return {"clusters": agreement(y, rows.labels_), "seconds": time.perf_counter() - started}
    estimator = FedUMAP(**common) if kind == "umap" else FedSpectralClustering(count, **common)
    estimator.fit(fed)
    seconds, places = time.perf_counter() - started, estimator.embedding_
    found = KMeans(count, n_init=10, random_state=seed).fit_predict(places)
    scores: dict[str, Any] = {"map": agreement(y, found), "anchored": map_scores(fed, places)}
    if kind == "clusters":
        scores["clusters"] = agreement(y, estimator.labels_)
    for name, place in (("weights", ByWeights()), ("diffused", Diffused())):
        placed = [place(estimator.published_map_, client.X) for client in fed.clients]
        scores[name] = map_scores(fed, np.concatenate(placed))
    return {
        **scores,
        "epsilon": estimator.ledger_.spent(DELTA, end_to_end=True),
        "landmarks": len(estimator.landmarks_),
        "dimensions": int(estimator.published_map_.anchors.shape[1]),
        "seconds": seconds,
    }


def run(arguments: argparse.Namespace) -> None:
    """Run all cells that are not there yet."""
    for seed in range(arguments.seeds):
        fed = federation(arguments.data, arguments.partition, seed)
        for epsilon in arguments.epsilons:
            for trust in arguments.trusts.split(","):
                for kind in arguments.maps.split(","):
                    name = f"{arguments.data}-{arguments.partition}-{kind}-{trust}-{epsilon:g}-{seed}"
                    path = HERE / "cells" / f"{name.replace(':', '-')}.json"
                    if path.exists():
                        continue
                    facts = {"data": arguments.data, "partition": arguments.partition, "map": kind, "trust": trust}
                    made = facts | {"asked": f"{epsilon:g}", "seed": seed} | cell(fed, kind, trust, epsilon, seed)
                    temporary = path.with_suffix(".tmp")
                    temporary.write_text(json.dumps(made, indent=1) + "\n")
                    temporary.replace(path)
                    print(f"{path.stem}: {made}", file=sys.stderr, flush=True)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="digits, fashion-mnist, mnist or hospitals; without it nothing is run")
    parser.add_argument("--partition", default="iid")
    parser.add_argument("--maps", default="clusters", help="some of clusters, umap, noisy")
    parser.add_argument("--trusts", default="local,aggregate")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    (HERE / "cells").mkdir(exist_ok=True)
    if arguments.data is not None:
        run(arguments)


if __name__ == "__main__":
    main()
