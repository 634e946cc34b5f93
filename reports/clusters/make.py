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
from sklearn.cluster import AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.neighbors import NearestNeighbors

from accounting import Budget
from dpfedvis import FederatedData, FedSpectralClustering, FedUMAP
from dpfedvis.data import load
from dpfedvis.data.example import hospitals
from dpfedvis.evaluation.metrics import METRICS, Evaluated
from dpfedvis.runs.code_version import code_version
from dpfedvis.site.placement import ByWeights, Diffused

HERE = Path(__file__).parent
DELTA = 1e-5
RECORDS = {"fashion-mnist": 10_000, "mnist": 10_000}
NOTE = """\
Made by `python reports/clusters/make.py --data DATA --partition PARTITION --maps clusters,umap,noisy`; one row for each
of its settings that was run. 10 clients, δ = 1e-5, one record as the unit, replace-one; noise seeded, t and c at their
defaults. Digits: all 1,797; Fashion-MNIST: 10,000. Nothing was chosen on MNIST, and it was not looked at."""
CLUSTERS = """\
NMI / ARI with the classes, as many clusters as classes. *Private clusters*: `FedSpectralClustering(budget=…)`. *k-means
in the map*: of the places of all clients' records in the same private map, which in a real federation nobody has: what
private clusters are held against. The next four columns were tried on the same landmarks: k-means, Ward and spectral
clustering of the landmarks, and the clusters that are published, each with the nearest landmark (or anchor) in the
subspace instead of the place on the map. There a client's own neighbours have no say, and that is what they lose by."""
MAPS = """\
*Across clients*: each client's points classified by the others' (10-NN). *Shared classes*: the same, over classes of
which the others hold ten records or more, classes counting alike. *Purity*: share of a point's ten nearest, of all
clients, that are of its class, classes counting alike. *CA*: a 7:3 split over all. *At home*: of a record's ten nearest
among its client's own, the share kept. Under `by-class` each client has one class: the first two have no meaning, and
purity and CA can be had by drawing each client's records to one place: read them beside *at home*."""
PICTURE = """\
Private clusters, which are published, agree with the classes about as well as k-means of all records' places in the
same private map, which nobody could run; but not on digits with *local* noise at ε = 3."""
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


def tried(estimator: FedSpectralClustering, fed: FederatedData, count: int, seed: int) -> dict[str, list[float]]:
    """Score other ways from the same landmarks to clusters; each record takes the cluster of its nearest landmark."""
    X, y = fed.pooled()
    published = estimator.published_map_
    records = published.subspace.coordinates(X)
    landmarks, anchors = estimator.feddl_.landmarks, published.anchors
    at, among = (NearestNeighbors(n_neighbors=1).fit(each) for each in (landmarks, anchors))
    graph = SpectralClustering(count, affinity="nearest_neighbors", n_neighbors=10, random_state=seed)
    ways = {
        "k-means": (KMeans(count, n_init=10, random_state=seed).fit_predict(landmarks), at),
        "ward": (AgglomerativeClustering(count).fit_predict(landmarks), at),
        "spectral": (graph.fit_predict(landmarks), at),
        "map, nearest anchor": (published.clusters_at(published.places), among),
    }
    return {way: agreement(y, labels[found.kneighbors(records)[1][:, 0]]) for way, (labels, found) in ways.items()}


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
    scores: dict[str, Any] = {"in_map": agreement(y, found), "anchored": map_scores(fed, places)}
    if kind == "clusters":
        scores["clusters"] = agreement(y, estimator.labels_)
        scores["tried"] = tried(estimator, fed, count, seed)
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
    code = str(code_version())
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
                    made = facts | {"asked": f"{epsilon:g}", "seed": seed, "code": code}
                    made |= cell(fed, kind, trust, epsilon, seed)
                    temporary = path.with_suffix(".tmp")
                    temporary.write_text(json.dumps(made, indent=1) + "\n")
                    temporary.replace(path)
                    print(f"{path.stem}: {made}", file=sys.stderr, flush=True)


def cells() -> list[dict[str, Any]]:
    """Return all finished cells."""
    found = [json.loads(path.read_text()) for path in sorted((HERE / "cells").glob("*.json"))]
    return sorted(found, key=lambda each: (each["data"], each["partition"], each["trust"], each["asked"], each["seed"]))


def row(each: dict[str, Any], *values: str) -> str:
    """Return a line of a table, with the settings first."""
    settings = [str(each[name]) for name in ("data", "partition", "trust", "asked", "seed")]
    return "| " + " | ".join([*settings, *values]) + " |"


def pair(scores: list[float] | None) -> str:
    """NMI / ARI."""
    return "-" if scores is None else " / ".join(f"{value:.3f}" for value in scores)


def head(*columns: str) -> list[str]:
    """Return the head of a table."""
    names = ["data", "partition", "trust", "ε", "seed", *columns]
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]


def table() -> str:
    """Return all finished cells as Markdown."""
    done = cells()
    ways = ("k-means", "ward", "spectral", "map, nearest anchor")
    title = "# Private clusters, private UMAP, and sites that lack classes"
    codes = ", ".join(sorted({each["code"] for each in done}))
    lines = [title, "", "![agreement with the classes](clusters.png)", "", PICTURE, ""]
    lines += [f"{NOTE} Code: {codes}.", "", "## Clusters", "", CLUSTERS, ""]
    lines += head("private clusters", "k-means in the map", *ways, "n_y", "dimensions")
    for each in done:
        if each["map"] == "clusters":
            others = [pair(each.get("tried", {}).get(way)) for way in ways]
            sizes = str(each["landmarks"]), str(each["dimensions"])
            lines.append(row(each, pair(each["clusters"]), pair(each["in_map"]), *others, *sizes))
    lines += ["", 'Noisy rows (`release="noisy"`), the release of clusters before:', "", *head("noisy rows")]
    lines += [row(each, pair(each["clusters"])) for each in done if each["map"] == "noisy"]
    lines += ["", "## Maps", "", MAPS, "", *head("map", "placement", *(METRICS[key].name for key in SCORES))]
    for each in done:
        for way in ("anchored", "diffused", "weights"):
            if way in each:
                values = ["-" if each[way][key] is None else f"{each[way][key]:.3f}" for key in SCORES]
                lines.append(row(each, "umap" if each["map"] == "umap" else "tsne", way, *values))
    return "\n".join(lines) + "\n"


def draw() -> None:
    """Draw the NMI of clusters beside that of k-means in the same map, a row a setting, the mean over its seeds."""
    from matplotlib import pyplot as plt

    found: dict[str, list[tuple[float, float]]] = {}
    for each in cells():
        if each["map"] == "clusters":
            dealt = "" if each["partition"] == "iid" else f", {each['partition']}"
            name = f"{each['data']}{dealt}, {each['trust']}, ε = {each['asked']}"
            found.setdefault(name, []).append((each["clusters"][0], each["in_map"][0]))
    figure, axes = plt.subplots(figsize=(7.2, 0.8 + 0.34 * len(found)), layout="constrained")
    for height, pairs in enumerate(reversed(found.values())):
        own, in_map = np.mean(pairs, axis=0)
        axes.plot([own, in_map], [height, height], color="#9aa4ad", lw=1.5, zorder=0)
        axes.plot(
            in_map, height, "o", color="white", mec="#55606a", ms=9, label=None if height else "k-means in the map"
        )
        axes.plot(own, height, "o", color="#0b5f94", ms=6, label=None if height else "private clusters")
    axes.set_yticks(range(len(found)), [f"{name} (n = {len(found[name])})" for name in reversed(found)])
    axes.set(xlabel="agreement with the classes (NMI; chance is 0)", xlim=(0, 1))
    axes.grid(axis="y", color="#e4e1d9", lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    axes.legend(loc="lower left", framealpha=1, edgecolor="white", fontsize=8)
    figure.savefig(HERE / "clusters.png", dpi=110, metadata={"Software": None})


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
    (HERE / "results.md").write_text(table())
    draw()


if __name__ == "__main__":
    main()
