"""Why is NPA on Fashion-MNIST below the paper's? The same maps by another program, and of fewer records.

    DPFEDVIS_DATA=... python reports/paper/npa.py

Records in one place (central), and the paper's distances estimated from 500 landmarks (Fed-tSNE), of MNIST and of
Fashion-MNIST. Writes npa.md and npa.csv beside itself; what is in the CSV is not run again.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpfedvis import FederatedData
from dpfedvis.data import load
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.evaluation.metrics import true_neighbors
from dpfedvis.experiments.paper.readings import read_csv
from dpfedvis.experiments.paper.recipes import MAP_SIGMAS
from dpfedvis.mechanisms import PublishedFedDL
from dpfedvis.numerics.distances import GramDistances, NystromDistances, nystrom_factor
from dpfedvis.numerics.kernels import Array, squared_distances
from dpfedvis.numerics.layouts import TSNELayout
from dpfedvis.numerics.layouts.base import Task
from dpfedvis.reporting.cells import markdown
from dpfedvis.runs.code_version import code_version

HERE = Path(__file__).parent
DATA, KS, LANDMARKS, ROUNDS, FULL = ("mnist", "fashion-mnist"), (1, 10, 50), 500, 500, 40_000
RECORDS = (10_000, 30_000)
# Data, distances, records and program → NPA, and where it is from.
Found = dict[tuple[str, str, int, str], tuple[list[float], str]]
Estimate = GramDistances | NystromDistances
TABLES = {"mnist": "table1", "fashion-mnist": "table2"}
SETTINGS = {"central": ("central", "central"), "Fed-tSNE": ("IID", "nystrom")}  # setting and way in the tables
NOTE = """\
# NPA on Fashion-MNIST

Made by `python reports/paper/npa.py --data fashion-mnist`. In Table 2 NPA of t-SNE and Fed-tSNE is .01 to .025 below
the paper's; in Table 1, with 10 and 50 neighbours, at most .004. **Fewer records explain it**: NPA falls as records are
added, and maps of 30,000 records of Fashion-MNIST, not 40,000, have the paper's, of all records in one place and from
landmarks. It is not the program, its start or its iterations: scikit-learn's t-SNE has the same NPA 10-NN and 50-NN.
The neighbours are exact and of the raw pixels, and how these are scaled does not matter. Perplexity is 30.

The paper says 40,000 for both data sets; that its maps of Fashion-MNIST have 30,000 is inferred, not known. Its central
accuracy agrees: it is below ours there, and accuracy rises with records. Other seeds, UMAP, and clients of one class
were not run at 30,000. NPA 1-NN of t-SNE is lower here than in the paper on MNIST, too; scikit-learn's is higher.

Number of records at which our maps have the paper's NPA, linear in the logarithm between those that were run:
"""
ALL = """\
t-SNE of all records in one place (*central*), and of the paper's distances from 500 landmarks, IID, without noise.
*tables*: as in the tables, openTSNE from a graph of exact neighbours in the raw pixels. *scikit-learn*: its t-SNE of
the dense matrix from a random start, as in the published code. One seed; the tables have theirs. NPA is always against
the true neighbours in the raw pixels."""


def exact(X: Array) -> GramDistances:
    """Return the distances of the records themselves."""
    return GramDistances((X - X.mean(axis=0, dtype=np.float64)).astype(np.float32))


def estimated(X: Array, y: np.ndarray) -> NystromDistances:
    """Return the paper's estimate from landmarks that ten clients learn, IID, without noise."""
    fed = FederatedData.split(X, y, clients=10, partition="iid", seed=0, bounds=(0.0, 1.0))
    Y = FedDL(
        mechanism=PublishedFedDL(),
        landmarks=LANDMARKS,
        rounds=ROUNDS,
        gamma=tuple(1 / (2 * sigma**2) for sigma in MAP_SIGMAS),
        optimiser="adam",
        mmd="biased",
        weights="equal",
        bounds=(0.0, 1.0),
    ).run(fed)
    B, W = (np.sqrt(squared_distances(points, Y.landmarks)) for points in (X, Y.landmarks))
    np.fill_diagonal(W, 0.0)
    matrix, signs = nystrom_factor(W)
    return NystromDistances((B @ matrix).astype(np.float32), signs.astype(np.float32))


def ours(estimate: Estimate, **further: object) -> Array:
    """Lay out as in the tables, with some settings of openTSNE changed."""
    task = Task(search="exact", seed=0, jobs=1)
    return TSNELayout(further=further).lay_out(estimate, task).places


def scikit(estimate: Estimate, **further: object) -> Array:
    """Lay out by scikit-learn, from the dense matrix and a random start, as the published code."""
    from sklearn.manifold import TSNE

    n = len(estimate.left)
    D = np.concatenate([estimate.block(estimate.left[start : start + 500]) for start in range(0, n, 500)])
    D = (D + D.T) / 2
    np.fill_diagonal(D, 0.0)
    settings = {"metric": "precomputed", "init": "random", "random_state": 0, "n_jobs": 1, **further}
    return np.asarray(TSNE(**settings).fit_transform(D))


WAYS: dict[str, Callable[[Estimate], Array]] = {
    "tables": ours,
    "scikit-learn": scikit,
}


def kept(X: Array, places: Array) -> dict[int, float]:
    """NPA: share of the true k neighbours of the raw records that are among the k in the map."""
    true, seen = true_neighbors(X, max(KS)), true_neighbors(np.asarray(places, np.float32), max(KS))
    return {
        k: float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(true[:, :k], seen[:, :k], strict=True)]) / k)
        for k in KS
    }


def run(path: Path, data: list[str], records: int, ways: list[str]) -> None:
    """Run what is not in the CSV yet."""
    rows = list(csv.reader(path.read_text().splitlines())) if path.exists() else []
    done = {tuple(row[:4]) for row in rows}
    for name in data:
        dataset = load(name, records=records)
        makers = {"central": lambda: exact(dataset.X), "Fed-tSNE": lambda: estimated(dataset.X, dataset.y)}  # noqa: B023
        for distances, maker in makers.items():
            estimate = None
            for way in ways:
                if (name, str(records), distances, way) in done:
                    continue
                estimate = estimate or maker()
                started = time.process_time()
                found = kept(dataset.X, WAYS[way](estimate))
                facts = [name, str(records), distances, way, *(f"{found[k]:.4f}" for k in KS)]
                row = [*facts, f"{time.process_time() - started:.0f}", str(code_version())]
                with path.open("a", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerow(row)
                print(*row, file=sys.stderr, flush=True)


def numbers() -> Found:
    """Return all NPA that there are, one for each k, and where they are from."""
    found: Found = {}
    for data, records, distances, way, *rest in csv.reader((HERE / "npa.csv").read_text().splitlines()):
        found[data, distances, int(records), way] = ([float(each) for each in rest[: len(KS)]], f"code {rest[-1]}")
    for data, name in TABLES.items():
        for distances, setting in SETTINGS.items():
            own = {
                each.score: each
                for each in read_csv(HERE / f"{name}.csv").numbers
                if (each.group, each.setting, each.way) == ("t-SNE", *setting)
            }
            ours, paper = ([getattr(own[f"npa_{k}"], who) or np.nan for k in KS] for who in ("mean", "paper"))
            found[data, distances, FULL, "tables"] = (ours, f"[{name}]({name}.md)")
            found[data, distances, FULL, "the paper"] = (paper, "the paper")
    return found


def records_for(found: Found, data: str, distances: str) -> list[str]:
    """Return the number of records at which our maps have the paper's NPA, by each k, linear in the logarithm."""
    paper = found[data, distances, FULL, "the paper"][0]
    own = {key[2]: values for key, (values, _) in found.items() if (*key[:2], key[3]) == (data, distances, "tables")}
    shown = []
    for place, wanted in enumerate(paper):
        curve = sorted((values[place], records) for records, values in own.items())
        npa, records = zip(*curve, strict=True)
        inside = len(curve) > 1 and npa[0] <= wanted <= npa[-1]
        n = round(float(np.exp(np.interp(wanted, npa, np.log(records)))), -2)
        shown.append(f"{n:,.0f}" if inside else "above 40,000" if wanted < npa[0] else "-")
    return shown


def page() -> str:
    """Return the page."""
    found, scores = numbers(), [f"NPA {k}-NN" for k in KS]
    rows = [
        [data, distances, f"{n:,}", way, *(f"{value:.4f}" for value in values), source]
        for (data, distances, n, way), (values, source) in sorted(found.items())
    ]
    several = dict.fromkeys(key[:2] for key in found if key[2] != FULL)
    sizes = [[*pair, *records_for(found, *pair)] for pair in several]
    lines = [NOTE, *markdown(["data", "distances", *scores], sizes), "", "## All numbers", "", ALL, ""]
    return "\n".join([*lines, *markdown(["data", "distances", "records", "program", *scores, "from"], rows)]) + "\n"


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", choices=DATA, default=list(DATA), help="none writes the page alone")
    parser.add_argument("--records", type=int, nargs="+", default=RECORDS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    arguments = parser.parse_args()
    for records in arguments.records:
        run(HERE / "npa.csv", arguments.data, records, arguments.ways)
    (HERE / "npa.md").write_text(page())


if __name__ == "__main__":
    main()
