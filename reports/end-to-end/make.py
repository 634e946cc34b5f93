"""Maps that are private end to end: cross-client accuracy at several budgets, every stage in one ledger.

    DPFEDVIS_DATA=... python reports/end-to-end/make.py                                  # writes results.md from cells/
    DPFEDVIS_DATA=... python reports/end-to-end/make.py --data mnist fashion-mnist       # makes what is missing
    DPFEDVIS_DATA=... python reports/end-to-end/make.py --data mnist --partitions by-class dirichlet:0.1
    DPFEDVIS_DATA=... python reports/end-to-end/make.py --data mnist --records 2000 --seeds 1 --out try       # a trial

First 40,000 images, 10 clients, δ = 1e-5, replace-one, one record as the unit; `FedTSNE(budget=Budget(ε, 1e-5))` and
nothing else chosen but the trust model and public features. Each finished cell is kept in `cells/`, so that an
interrupted run resumes; cells are made seed by seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from accounting import Budget
from accounting.rounding import rounded_down, rounded_up
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.data import load
from dpfedvis.data.features import with_features
from dpfedvis.evaluation import METRICS, cross_client_accuracy
from dpfedvis.reporting.cells import MAP_SCORES, Cell, codes, keep, kept, map_scores, markdown, span, spread
from dpfedvis.reporting.palette import looks
from dpfedvis.runs.code_version import code_version
from dpfedvis.site.placement import ByWeights, Diffused

HERE = Path(__file__).parent
DELTA = 1e-5
NO_DATA = 1e-3  # at this ε a map of 40,000 records is one of noise
DATA, FEATURES, SEEDS, RECORDS = ("mnist", "fashion-mnist"), ("pixels", "hog"), 3, 40_000
EPSILONS = (1.0, 3.0, 0.5, 10.0)
# Of a map where sites lack classes there are fewer.
SETTINGS = {
    "iid": (*((trust, epsilon) for epsilon in EPSILONS for trust in ("aggregate", "local")), ("aggregate", NO_DATA)),
    "by-class": (("aggregate", 1.0), ("local", 1.0), ("aggregate", NO_DATA)),
    "dirichlet:0.1": (("aggregate", 1.0), ("local", 1.0), ("aggregate", NO_DATA)),
}
DRAWN = 1.0  # the ε at which a map is drawn
COMPONENTS = 50  # of the collected records, for t-SNE
NOTE = """\
Made by `python reports/end-to-end/make.py --data mnist fashion-mnist`; one row for each of its settings that was run.
First 40,000 images, 10 clients (IID), δ = 1e-5, one record as the unit, replace-one; noise seeded, t and c at their
defaults (t = 9 and c = 1 for ten sites). *cross*: each client's points classified by those of the others (10-NN).
*pooled*: a 7:3 split over all. *by weights*, *diffused*: cross, with simpler placements in the same published map. With
several seeds: mean ± standard deviation of one; without ± there is one seed. *processor s*: of the whole map, all sites
together, in one thread.

**Rows of different features are different questions.** *pixels*: what a private map of raw images costs. *hog*: records
are mapped by public histograms of gradients before anything else; that adds what hog knows of images, for any map, and
says nothing about pixels. Compare within the features only.

The recipe was chosen on Fashion-MNIST and on drawn digits, both public ([budget](budget.md)). MNIST had been looked at
six times with [earlier recipes](ideas.md), and variants of hog had been compared on it when that was written."""
LACKING = """\
The same maps where sites lack classes: *by-class*, each site has one; *dirichlet:0.1*, few. Made with `--partitions
by-class dirichlet:0.1`. *Shared classes*: cross, over classes of which the others hold ten records or more, classes
counting alike. *Purity*: share of a point's ten nearest, of all clients, that are of its class, classes counting alike.
*CA*: a 7:3 split over all. *At home*: of a record's ten nearest among its client's own, the share kept. Under
*by-class* cross and shared classes have no meaning, and purity and CA can be had by drawing each client's records to
one place: read them beside *at home*, and beside *no data*, the map at ε = 0.001 whose budget sees nothing."""
BESIDE = """\
On the same features. *collected*: t-SNE (openTSNE) of all records in one place, of their first 50 principal components;
no privacy. *protocol*: the paper's, landmarks and exact distances with our estimate between records
(`FedTSNE().fit(...)`), unprotected: ε = ∞. *no data*: the private map at ε = 0.001, whose budget sees nothing; sites
still place their own records in it."""
AUDITED = """\
All stages as one mechanism, with far, orthogonal records of its own and no one's data. With `--out
reports/end-to-end/audits/TRUST-EPSILON` the commands leave what is in `audits/`; the statement there carries the
result. *Certified*: the larger of two lower bounds, at 95 % confidence each. *Right guesses*, *AUC*: a membership
attack by the same games, in which all other records are known, beside the most that the guarantee allows any."""


@dataclass(frozen=True)
class Wanted:
    """The settings of a cell.

    Parameters
    ----------
    data, features, partition : str
    way : {"private", "collected", "protocol"}
    seed, records : int
    trust : str
        Of a private map, as is what follows.
    asked : float
        Its ε.
    """

    data: str
    features: str
    partition: str
    way: str
    seed: int
    records: int = RECORDS
    trust: str = ""
    asked: float = 0.0

    @classmethod
    def of(cls, cell: Cell) -> Wanted:
        """Return the settings of a finished cell."""
        return cls(**{name: cell[name] for name in cls.__dataclass_fields__})

    @property
    def row(self) -> str:
        """Name of the cells that differ in their seeds alone."""
        parts = [self.data, self.features]
        parts += [] if self.partition == "iid" else [self.partition.replace(":", "-")]
        parts += [] if self.records == RECORDS else [str(self.records)]
        return "-".join([*parts, f"{self.trust}-{self.asked:g}" if self.way == "private" else self.way])

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.row}-{self.seed}.json"


def wanted(arguments: argparse.Namespace) -> Iterator[Wanted]:
    """Yield all cells that were asked for, seed by seed."""
    for seed in range(arguments.seeds):
        for data in arguments.data:
            for partition in arguments.partitions:
                for features in arguments.features.split(","):
                    common = (data, features, partition)
                    for way in arguments.ways.split(","):
                        if way == "private":
                            for trust, epsilon in arguments.settings or SETTINGS[partition]:
                                yield Wanted(*common, way, seed, arguments.records, trust, epsilon)
                        elif partition == "iid":  # of the others no table shows more
                            yield Wanted(*common, way, seed, arguments.records)


def federation(cell: Wanted) -> FederatedData:
    """Deal the records to ten clients."""
    dataset = load(cell.data, records=cell.records)
    fed = FederatedData.from_dataset(dataset, clients=10, partition=cell.partition, seed=cell.seed)
    return with_features(fed, None if cell.features == "pixels" else cell.features)


def made(cell: Wanted, picture: Path | None = None) -> Cell:
    """Make one cell; a picture of a private map is drawn if there is a place for it."""
    fed = federation(cell)
    if cell.way == "private":
        scores = private(fed, cell, picture)
    else:
        scores = {"collected": collected, "protocol": protocol}[cell.way](fed, cell.seed)
    return asdict(cell) | scores | {"code": str(code_version())}


def pooled_accuracy(places: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """10-NN accuracy of a 7:3 split over all clients' points."""
    known, new, classes, truth = train_test_split(places, labels, test_size=0.3, random_state=seed)
    return float(KNeighborsClassifier(10).fit(known, classes).score(new, truth))


def private(fed: FederatedData, cell: Wanted, picture: Path | None) -> Cell:
    """Make one private map and score it."""
    started = time.process_time()
    settings: dict[str, Any] = {"trust": cell.trust, "noise": "seeded", "random_state": cell.seed, "n_jobs": 1}
    estimator = FedTSNE(budget=Budget(cell.asked, DELTA), **settings).fit(fed)
    processor = time.process_time() - started
    places, labels = list(estimator.views().values()), [client.y for client in fed.clients]
    if picture is not None:
        draw(estimator, np.concatenate(labels), picture)
    scores = scored(fed, places, cell.seed)
    for key, place in (("cross_by_weights", ByWeights()), ("cross_diffused", Diffused())):
        other = [place(estimator.published_map_, client.X) for client in fed.clients]
        scores[key] = cross_client_accuracy(other, labels)
    return {
        **scores,
        "epsilon": estimator.ledger_.spent(DELTA, end_to_end=True),
        "landmarks": len(estimator.landmarks_),
        "components": int(estimator.published_map_.anchors.shape[1]),
        "processor": processor,
    }


def collected(fed: FederatedData, seed: int) -> Cell:
    """Score t-SNE of all records in one place."""
    from openTSNE import TSNE

    X, _ = fed.pooled()
    started = time.process_time()
    places = np.array(TSNE(n_jobs=1, random_state=seed).fit(PCA(COMPONENTS, random_state=seed).fit_transform(X)))
    processor = time.process_time() - started
    ends = np.cumsum([len(client.y) for client in fed.clients])[:-1]
    return {**scored(fed, np.split(places, ends), seed), "processor": processor}


def protocol(fed: FederatedData, seed: int) -> Cell:
    """Score the paper's protocol, without protection."""
    started = time.process_time()
    estimator = FedTSNE(random_state=seed, n_jobs=1).fit(fed)
    processor = time.process_time() - started
    return {**scored(fed, list(estimator.views().values()), seed), "processor": processor}


def scored(fed: FederatedData, places: list[np.ndarray], seed: int) -> Cell:
    """Cross-client and pooled accuracy of a map, and the scores that have a meaning where sites lack classes."""
    labels, together = [client.y for client in fed.clients], np.concatenate(places)
    return {
        "cross": cross_client_accuracy(places, labels),
        "pooled": pooled_accuracy(together, np.concatenate(labels), seed),
        "map": map_scores(fed, together),
    }


def draw(estimator: FedTSNE, labels: np.ndarray, path: Path) -> None:
    """Draw all clients' points, which in a real federation nobody has, over the published anchors."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.6, 6), dpi=100)
    axes.scatter(*estimator.published_map_.places.T, s=6, c="0.8", linewidths=0, label="anchors")
    chosen = np.random.default_rng(0).permutation(len(labels))[:10_000]
    classes, numbers = np.unique(labels, return_inverse=True)
    colours = np.array([look.light for look in looks(len(classes))])
    axes.scatter(*estimator.embedding_[chosen].T, s=1, c=colours[numbers[chosen]], linewidths=0)
    for name, colour in zip(classes, colours, strict=True):
        axes.scatter([], [], s=30, c=colour, linewidths=0, label=str(name))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.set_axis_off()
    figure.savefig(path, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def cells(folder: Path = HERE) -> dict[str, Cell]:
    """Return all finished cells; the first ones were written before there were other partitions."""
    found = kept(folder / "cells")
    return {
        stem: {"partition": "iid", "records": RECORDS, "trust": "", "asked": 0.0, "seed": int(stem.rpartition("-")[2])}
        | cell
        for stem, cell in found.items()
    }


def run(arguments: argparse.Namespace) -> None:
    """Run all cells that are not there yet."""
    for cell in wanted(arguments):
        path = arguments.out / "cells" / cell.file
        if path.exists():
            continue
        drawn = (cell.seed, cell.asked, cell.partition) == (0, DRAWN, "iid")
        started = time.process_time()
        path.parent.mkdir(parents=True, exist_ok=True)
        found = made(cell, arguments.out / f"{cell.row}.png" if drawn else None)
        keep(path, found)
        print(f"{path.stem}: {time.process_time() - started:.0f} s, {found}", file=sys.stderr, flush=True)


def rows(found: dict[str, Cell]) -> list[list[Cell]]:
    """Return the cells of each row, its seeds in order."""
    groups: dict[str, list[Cell]] = {}
    for cell in sorted(found.values(), key=lambda each: (*_facts(each), each["trust"], each["asked"], each["seed"])):
        groups.setdefault(Wanted.of(cell).row, []).append(cell)
    return list(groups.values())


def _facts(cell: Cell) -> tuple[str, str]:
    less = "" if cell["records"] == RECORDS else f", {cell['records']:,}"
    return cell["data"] + less, cell["features"]


def _way(cell: Cell) -> str:
    return "no data" if cell["way"] == "private" and cell["asked"] == NO_DATA else str(cell["way"])


def table(folder: Path = HERE) -> str:
    """Return all finished cells as Markdown."""
    private_rows, others, lacking = [], [], []
    for own in rows(cells(folder)):
        first, way = own[0], _way(own[0])
        seconds = f"{np.mean([each['processor'] for each in own]):.0f}"
        shown = {key: spread([each[key] for each in own]) for key in ("cross", "pooled")}
        private_facts = [first["trust"], f"{first['asked']:g}"] if way == "private" else ["", "no data"]
        if way in ("private", "no data") and all("map" in each for each in own):
            scores = [spread([each["map"][key] for each in own]) for key in MAP_SCORES]
            lacking.append([*_facts(first), first["partition"], *private_facts, *scores, len(own), codes(own)])
        if first["partition"] != "iid":
            continue
        if way == "private":
            further = [spread([each[key] for each in own]) for key in ("cross_diffused", "cross_by_weights")]
            sizes = [span([each[key] for each in own]) for key in ("landmarks", "components")]
            row = [*_facts(first), *private_facts, shown["cross"], len(own), shown["pooled"], *further, *sizes]
            private_rows.append([*row, seconds, codes(own)])
        else:
            others.append([*_facts(first), way, shown["cross"], len(own), shown["pooled"], seconds, codes(own)])
    columns = ["data", "features", "trust", "ε", "cross", "seeds", "pooled", "diffused", "by weights"]
    lines = ["# Maps that are private end to end", "", NOTE, "", there(cells(folder)), ""]
    lines += markdown([*columns, "n_y", "dimensions", "processor s", "code"], private_rows)
    lines += ["", "## Beside them", "", BESIDE, ""]
    lines += markdown(["data", "features", "map", "cross", "seeds", "pooled", "processor s", "code"], others)
    if any(row[2] != "iid" for row in lacking):
        columns = [
            "data",
            "features",
            "partition",
            "trust",
            "ε",
            *(METRICS[key].name for key in MAP_SCORES),
            "seeds",
            "code",
        ]
        lines += ["", "## Sites that lack classes", "", LACKING, "", *markdown(columns, lacking)]
    return "\n".join([*lines, *audited()]) + "\n"


def there(found: dict[str, Cell]) -> str:
    """Say how much of the report there is."""
    asked = list(wanted(parsed(["--data", *DATA, "--partitions", *SETTINGS])))
    missing = {each.row for each in asked if each.file.removesuffix(".json") not in found}
    done = sum(each.file.removesuffix(".json") in found for each in asked)
    rows = len({each.row for each in asked})
    return f"Of {len(asked)} cells {done} are here; {len(missing)} of {rows} rows lack one or all of {SEEDS} seeds."


def audited() -> list[str]:
    """Return what the audits in `audits/` found, with the command of each."""
    columns = ["trust", "claimed ε", "certified ε", "verdict", "right guesses", "allowed", "AUC", "allowed", "games"]
    rows: list[list[Any]] = []
    for path in sorted((HERE / "audits").glob("*/*-statement.json")):
        audit = json.loads(path.read_text())["audit"]
        guesses, auc = audit["membership"][:2]
        rates = [f"{each[key]:.3f}" for each in (guesses, auc) for key in ("found", "allowed")]
        link = f"[`{audit['command']}`]({path.relative_to(HERE).with_suffix('.md')})"
        found = [
            rounded_up(audit["claimed_epsilon"]),
            f"≥ {rounded_down(max(audit['lower_bounds'].values()), 3)}",
            audit["verdict"],
        ]
        code = json.loads(path.with_name(path.name.replace("-statement", "")).read_text()).get(
            "code", "30560cc or before"
        )
        rows.append([audit["trust"], *found, *rates, audit["games"], link, code])
    return ["", "## Audited", "", AUDITED, "", *markdown([*columns, "made by", "code"], rows)]


def setting(text: str) -> tuple[str, float]:
    """Read a trust model and an ε."""
    trust, epsilon = text.split(":")
    return trust, float(epsilon)


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=[], help="without it nothing is run")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--partitions", nargs="+", choices=SETTINGS, default=["iid"])
    parser.add_argument("--features", default=",".join(FEATURES))
    parser.add_argument("--ways", default="private,collected,protocol", help="the last two of IID records only")
    parser.add_argument("--settings", type=setting, nargs="+", help="instead of all, such as aggregate:1 local:1")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default=HERE, help="for cells, pictures and page, of trials")
    return parser.parse_args(words)


def main() -> None:
    """Run what was asked for."""
    arguments = parsed()
    run(arguments)
    (arguments.out / "results.md").write_text(table(arguments.out))


if __name__ == "__main__":
    main()
