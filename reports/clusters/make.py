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
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from accounting import Budget
from dpfedvis import FederatedData, FedSpectralClustering, FedUMAP
from dpfedvis.data import load
from dpfedvis.data.example import hospitals
from dpfedvis.evaluation import METRICS
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.reporting.cells import MAP_SCORES, Cell, codes, keep, kept, map_scores, markdown, span, spread
from dpfedvis.runs.code_version import code_version
from dpfedvis.site.placement import ByWeights, Diffused, Placement

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
private clusters are held against. Mean of the seeds ± the standard deviation of one; *difference* with its standard
error."""
TRIED = """\
Tried on the same landmarks: k-means, Ward and spectral clustering of the landmarks, and the clusters that are
published, each with the nearest landmark (or anchor) in the subspace instead of the place on the map. There a client's
own neighbours have no say, and that is what they lose by. A share of the budget for final counts was not kept: by hand
(commit 788ec4e, digits, four seeds), weights of exact counts, which are an upper bound, bring private clusters from
-.015 / -.032 to -.009 / -.007 of k-means in the map at ε = 3 with *local* noise, and no nearer elsewhere; nor did
refining the centres at each client (1 to 10 steps)."""
MAPS = """\
*Across clients*: each client's points classified by the others' (10-NN). *Shared classes*: the same, over classes of
which the others hold ten records or more, classes counting alike. *Purity*: share of a point's ten nearest, of all
clients, that are of its class, classes counting alike. *CA*: a 7:3 split over all. *At home*: of a record's ten nearest
among its client's own, the share kept. Under `by-class` each client has one class: the first two have no meaning, and
purity and CA can be had by drawing each client's records to one place: read them beside *at home*."""
PICTURE = """\
Private clusters, which are published, agree with the classes about as well as k-means of all records' places in the
same private map, which nobody could run; less so where much noise meets the few records of digits."""
LACKING = """\
What a client can do that lacks a class: of each class of which it has fewer than ten records and the others 40 or more,
20 are drawn from the others and placed by it as new ones, together with its own; they are classified by the other
clients' points, the drawn ones left out (10-NN, classes counting alike; chance is one over the number of classes). They
are new to this client; at theirs they took part in the map. *None of it*: the same for a client that has no records but
the new ones, as `transform` places them."""
DRAWN, SCARCE, NEIGHBORS = 20, 10, 10


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


def lacking(fed: FederatedData, published: PublishedMap, place: Placement, places: np.ndarray) -> list[float] | None:
    """Score new records of classes that a client lacks: placed among its own, and by themselves.

    Parameters
    ----------
    fed : FederatedData
    published : PublishedMap
    place : Placement
    places : array of shape (n, 2)
        Of all clients' records, by the same placement.
    """
    X, y = fed.pooled()
    names, classes = np.unique(y, return_inverse=True)
    asked, right = np.zeros(len(names)), np.zeros((2, len(names)))
    for client, part in enumerate(fed.index.slices):
        own = np.bincount(classes[part], minlength=len(names))
        others = np.ones(len(y), dtype=bool)
        others[part] = False
        generator = np.random.default_rng([published.seed, client])
        there = [
            generator.permutation(np.flatnonzero(others & (classes == each))) for each in np.flatnonzero(own < SCARCE)
        ]
        # What is left of a class must be enough to be voted for.
        drawn = np.concatenate([np.empty(0, int), *(each[:DRAWN] for each in there if len(each) >= 2 * DRAWN)])
        if len(drawn) == 0:
            continue
        others[drawn] = False
        among = place(published, np.concatenate([X[part], X[drawn]]))[-len(drawn) :]
        vote = KNeighborsClassifier(NEIGHBORS).fit(places[others], classes[others])
        asked += np.bincount(classes[drawn], minlength=len(names))
        for way, found in enumerate((among, place(published, X[drawn]))):
            right[way] += np.bincount(classes[drawn][vote.predict(found) == classes[drawn]], minlength=len(names))
    if not asked.any():
        return None
    return [float(np.mean(each[asked > 0] / asked[asked > 0])) for each in right]


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


def cell(fed: FederatedData, partition: str, kind: str, trust: str, epsilon: float, seed: int) -> dict[str, Any]:
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
    scores: dict[str, Any] = {"in_map": agreement(y, found)}
    if kind == "clusters":
        scores["clusters"] = agreement(y, estimator.labels_)
        scores["tried"] = tried(estimator, fed, count, seed)
    published = estimator.published_map_
    for name, place in (("anchored", estimator.at_home), ("diffused", Diffused()), ("weights", ByWeights())):
        if name != "anchored":
            places = np.concatenate([place(published, client.X) for client in fed.clients])
        scores[name] = map_scores(fed, places)
        if partition != "iid":
            scores[name]["lacking"] = lacking(fed, published, place, places)
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
                    made |= cell(fed, arguments.partition, kind, trust, epsilon, seed)
                    keep(path, made)
                    print(f"{path.stem}: {made}", file=sys.stderr, flush=True)


def cells() -> list[Cell]:
    """Return all finished cells."""
    found = kept(HERE / "cells").values()
    return sorted(found, key=lambda each: (each["data"], each["partition"], each["trust"], each["asked"], each["seed"]))


def groups(done: list[Cell], kind: str) -> list[list[Cell]]:
    """Return the cells of a kind of map, those that differ by the seed alone together."""
    settings = ("data", "partition", "trust", "asked")
    chosen = [each for each in done if each["map"] == kind]
    return [list(each) for _, each in groupby(chosen, key=lambda cell: [cell[name] for name in settings])]


def pair(scores: list[list[float]]) -> str:
    """NMI / ARI."""
    return " / ".join(spread(values) for values in zip(*scores, strict=True)) or "-"


def gap(same: list[dict[str, Any]]) -> str:
    """How much better private clusters are than k-means in the map: mean ± its standard error, NMI / ARI."""
    differences = np.array([np.subtract(each["clusters"], each["in_map"]) for each in same])
    error = differences.std(axis=0, ddof=1) / np.sqrt(len(same)) if len(same) > 1 else None
    errors = ["", ""] if error is None else [f" ± {each:.3f}" for each in error]
    return " / ".join(f"{mean:+.3f}{about}" for mean, about in zip(differences.mean(axis=0), errors, strict=True))


def tabled(columns: list[str], rows: list[tuple[list[Cell], list[str]]]) -> list[str]:
    """Return the lines of a table, with the settings of each group and its number of seeds first."""
    settings = ("data", "partition", "trust", "asked")
    lines = [[*(same[0][name] for name in settings), len(same), *values] for same, values in rows]
    return markdown(["data", "partition", "trust", "ε", "seeds", *columns], lines)


def cluster_tables(done: list[Cell]) -> list[str]:
    """Return private clusters, and other ways from the same landmarks to clusters."""
    found, other, ways = [], [], ["k-means", "ward", "spectral", "map, nearest anchor"]
    for same in groups(done, "clusters"):
        scores = [pair([each[way] for each in same]) for way in ("clusters", "in_map")]
        sizes = [span([each[size] for each in same]) for size in ("landmarks", "dimensions")]
        found.append((same, [*scores, gap(same), *sizes]))
        other.append((same, [pair([each["tried"][way] for each in same]) for way in ways]))
    noisy = [(same, [pair([each["clusters"] for each in same])]) for same in groups(done, "noisy")]
    lines = tabled(["private clusters", "k-means in the map", "difference", "n_y", "dimensions"], found)
    lines += ["", TRIED, "", *tabled(ways, other), ""]
    return [
        *lines,
        'Noisy rows (`release="noisy"`), the release of clusters before:',
        "",
        *tabled(["noisy rows"], noisy),
    ]


def map_tables(done: list[Cell]) -> list[str]:
    """Return the scores of maps, and of records of classes that a client lacks."""
    maps, lack = [], []
    for kind, name in (("clusters", "tsne"), ("umap", "umap")):
        for same in groups(done, kind):
            for way in ("anchored", "diffused", "weights"):
                maps.append((same, [name, way, *(spread([each[way][key] for each in same]) for key in MAP_SCORES)]))
                known = [each[way]["lacking"] for each in same if each[way].get("lacking")]
                if known:
                    lack.append((same, [name, way, *map(spread, zip(*known, strict=True))]))
    lines = tabled(["map", "placement", *(METRICS[key].name for key in MAP_SCORES)], maps)
    lines += ["", "## Classes that a client lacks", "", LACKING, ""]
    return lines + tabled(["map", "placement", "among its own", "none of it"], lack)


def table() -> str:
    """Return all finished cells as Markdown."""
    done = cells()
    title = "# Private clusters, private UMAP, and sites that lack classes"
    lines = [
        title,
        "",
        "![agreement with the classes](clusters.png)",
        "",
        PICTURE,
        "",
        f"{NOTE} Code: {codes(done)}.",
        "",
        "## Clusters",
        "",
        CLUSTERS,
        "",
        *cluster_tables(done),
    ]
    return "\n".join([*lines, "", "## Maps", "", MAPS, "", *map_tables(done)]) + "\n"


def draw() -> None:
    """Draw the NMI of clusters beside that of k-means in the same map, a row a setting, the mean over its seeds."""
    from matplotlib import pyplot as plt

    found = groups(cells(), "clusters")
    figure, axes = plt.subplots(figsize=(7.2, 0.8 + 0.34 * len(found)), layout="constrained")
    names = []
    for height, same in enumerate(reversed(found)):
        first = same[0]
        dealt = "" if first["partition"] == "iid" else f", {first['partition']}"
        names.append(f"{first['data']}{dealt}, {first['trust']}, ε = {first['asked']} (n = {len(same)})")
        own, in_map = (np.mean([each[way][0] for each in same]) for way in ("clusters", "in_map"))
        axes.plot([own, in_map], [height, height], color="#9aa4ad", lw=1.5, zorder=0)
        axes.plot(
            in_map, height, "o", color="white", mec="#55606a", ms=9, label=None if height else "k-means in the map"
        )
        axes.plot(own, height, "o", color="#0b5f94", ms=6, label=None if height else "private clusters")
    axes.set_yticks(range(len(names)), names)
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
    if arguments.data is not None:
        run(arguments)
    (HERE / "results.md").write_text(table())
    draw()


if __name__ == "__main__":
    main()
