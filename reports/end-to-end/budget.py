"""What the budget of a private map is best spent on, on public data: today's defaults were chosen here.

    DPFEDVIS_DATA=... python reports/end-to-end/budget.py

10,000 records, 10 clients, and the ε at which their noise is that of 40,000 records at ε = 1. The score is cross-client
10-NN accuracy over all clients, whose records are placed by diffusion. Two data sets: Fashion-MNIST, and *drawn
digits*, which are scikit-learn's embedded digits enlarged to 28 × 28 and moved, turned, sheared and scaled at random.
Each finished cell is kept in `budget.json`, so that an interrupted run resumes.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits

from accounting import Budget, gaussian_epsilon, gaussian_mu
from accounting.events import Trust
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.data import load
from dpfedvis.data.features import with_features
from dpfedvis.evaluation import cross_client_accuracy
from dpfedvis.mechanisms import KMeans
from dpfedvis.numerics.kernels import Array
from dpfedvis.site.placement import Diffused

HERE = Path(__file__).parent
STORE = HERE / "budget.json"
RECORDS, CLIENTS, SEEDS, DELTA = 10_000, 10, 3, 1e-5
EPSILON = gaussian_epsilon(40_000 / RECORDS * gaussian_mu(1.0, DELTA), DELTA)
TRUSTS: tuple[Trust, ...] = ("aggregate", "local")
# Settings of FedTSNE; "landmarks" is a factor of the default, "whole" takes second moments of all values.
WAYS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "twice the landmarks": {"landmarks": 2.0},
    "half the landmarks": {"landmarks": 0.5},
    "at most 16 dimensions": {"components": 16},
    "subspace gets 0.4 of the budget": {"subspace": 0.4},
    "6 sweeps": {"sweeps": 6},
    "second moments of all values": {"whole": True},
}
NOTE = f"""\
# What the budget is best spent on

Made by `python reports/end-to-end/budget.py`. 10,000 records, 10 clients, ε = {EPSILON:.2f}, δ = 1e-5, which gives each
upload the noise of 40,000 records at ε = 1; t = 9 and c = 1 under *aggregate*. Cross-client 10-NN accuracy over all
clients, placed by diffusion: mean of {SEEDS} seeds, each with records dealt and noise drawn anew. In brackets landmarks
and dimensions of the first seed. What is blank was not run. *Drawn digits* are scikit-learn's digits, enlarged and
moved at random. In the last column all columns' mean difference from the defaults on the same seeds, ± its standard
error.
"""


def drawn_digits(records: int, seed: int = 0) -> tuple[Array, np.ndarray]:
    """Return images of digits, shape (records, 784), and their classes."""
    digits, rng = load_digits(), np.random.default_rng(seed)
    large = np.zeros((len(digits.images), 28, 28), np.float32)
    for image, canvas in zip(digits.images / 16, large, strict=True):
        canvas[3:25, 3:25] = ((ndimage.zoom(image, 22 / 8, order=3).clip(0, 1) - 0.25) / 0.5).clip(0, 1)
    chosen, middle = rng.integers(0, len(large), records), np.full(2, 13.5)
    images = np.empty((records, 28, 28), np.float32)
    for row, source in enumerate(chosen):
        angle, scale, shear = rng.normal(0, 0.13), rng.normal(1, 0.08, 2), rng.normal(0, 0.12)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        matrix = turn @ np.array([[1, shear], [0, 1]]) @ np.diag(1 / scale)
        images[row] = ndimage.affine_transform(
            large[source], matrix, middle - matrix @ middle + rng.normal(0, 0.7, 2), order=1
        )
    return images.reshape(records, 784), digits.target[chosen]


def federation(data: str, features: str, seed: int) -> FederatedData:
    """Deal one of the two data sets to the clients."""
    dataset = load("fashion-mnist", records=RECORDS)
    if data == "drawn digits":
        images, labels = drawn_digits(RECORDS)
        dataset = replace(dataset, name=data, X=images, y=labels)  # of the same shape and range
    fed = FederatedData.from_dataset(dataset, clients=CLIENTS, partition="iid", seed=seed)
    return with_features(fed, None if features == "pixels" else features, None)


def score(fed: FederatedData, trust: Trust, way: dict[str, Any], usual: int, seed: int) -> dict[str, Any]:
    """Make the map in one way and score it."""
    recipe: dict[str, Any] = {"placement": "weights"}
    if "subspace" in way:
        recipe["shares"] = {"subspace": way["subspace"]}
    if "components" in way:
        recipe["components"] = way["components"]
    longest = fed.norm or math.sqrt(fed.n_features)
    if way.get("whole"):
        # Arrays without a shape: nobody knows which values are neighbours.
        fed = FederatedData([each.X for each in fed.clients], [each.y for each in fed.clients])
    estimator = FedTSNE(
        budget=Budget(EPSILON, DELTA),
        mechanism=KMeans(trust=trust, sweeps=way.get("sweeps", KMeans.sweeps)),
        n_landmarks=int(way["landmarks"] * usual) if "landmarks" in way else None,
        tau_x=longest,
        feddl={"bounds": (0.0, 1.0)} if fed.bounds is None else None,
        private_map=recipe,
        random_state=seed,
    ).fit(fed)
    published = estimator.published_map_
    places = [Diffused()(published, client.X) for client in fed.clients]
    return {
        "cross": float(cross_client_accuracy(places, [client.y for client in fed.clients])),
        "landmarks": len(estimator.landmarks_),
        "dimensions": int(published.anchors.shape[1]),
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    """Return all cells as Markdown."""
    columns = list(dict.fromkeys(key.split(" | ")[0] for key in found))
    head = ["way", *columns, "difference"]
    lines = [NOTE, "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for way in WAYS:
        cells, differences = [], []
        for column in columns:
            known = {seed: found.get(f"{column} | {way} | {seed}") for seed in range(SEEDS)}
            scores = {seed: each["cross"] for seed, each in known.items() if each}
            first = known[0]
            cells.append(
                f"{np.mean(list(scores.values())):.3f} ({first['landmarks']}, {first['dimensions']})"
                if scores and first
                else ""
            )
            usual = {seed: found.get(f"{column} | defaults | {seed}") for seed in scores}
            differences += [score - usual[seed]["cross"] for seed, score in scores.items() if usual[seed]]
        error = np.std(differences, ddof=1) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
        last = "" if way == "defaults" else f"{np.mean(differences):+.4f} ± {error:.4f}" if differences else ""
        lines.append(f"| {way} | " + " | ".join([*cells, last]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all cells that are not there yet."""
    found: dict[str, dict[str, Any]] = json.loads(STORE.read_text()) if STORE.exists() else {}
    for seed in range(SEEDS):
        for data in ("fashion-mnist", "drawn digits"):
            for features in ("hog", "pixels"):
                fed = None
                for trust in TRUSTS:
                    column, usual = f"{data}, {features}, {trust}", 0
                    for way, settings in WAYS.items():
                        key = f"{column} | {way} | {seed}"
                        if key not in found:
                            fed = fed or federation(data, features, seed)
                            found[key] = score(fed, trust, settings, usual, seed)
                            STORE.write_text(json.dumps(found, indent=1) + "\n")
                            print(key, found[key], file=sys.stderr, flush=True)
                        usual = usual or found[key]["landmarks"]
    (HERE / "budget.md").write_text(table(found))


if __name__ == "__main__":
    main()
