"""What each idea gave for the end-to-end private map, on public data: the defaults were chosen here.

    DPFEDVIS_DATA=... python reports/end-to-end/ideas.py

40,000 records, 10 clients, ε = 1 and 3, δ = 1e-5, *aggregate*, one seed. The score is cross-client 10-NN accuracy over
the first three clients. Two data sets: Fashion-MNIST, and *drawn digits*, which are scikit-learn's embedded digits
enlarged to 28 × 28 and moved, turned, sheared and scaled at random. Each finished row is kept in `ideas.json`, so that
an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_digits

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.data import load
from dpfedvis.evaluation import cross_client_accuracy
from dpfedvis.mechanisms import (
    ClippedGradientPerturbation,
    GradientPerturbation,
    KMeans,
    MeanEmbedding,
    Mechanism,
    Update,
)
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.distances import GramDistances
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.neighbors import nearest
from dpfedvis.numerics.optimisers import Optimiser
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.server.recipe import Recipe
from dpfedvis.site.placement import Anchored, ByTransform, ByWeights, Diffused, Placement

HERE = Path(__file__).parent
RECORDS, CLIENTS, JUDGED = 40_000, 10, 3
EPSILONS = (1.0, 3.0)


@dataclass(frozen=True)
class Unfiltered(KMeans):
    """k-means that takes each step as it comes, with its noise."""

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Move as if there were no noise."""
        return super().update(Y, average, replace(public, noise=0.0), optimiser)


@dataclass(frozen=True)
class Whole(Diffused):
    """Diffusion among records as they are, not among a client's own components."""

    def weights(self, published: PublishedMap, records: Array, alike: Array) -> Array:
        """Compare whole records."""
        return super().weights(published, records, records)


@dataclass(frozen=True)
class Idea:
    """One way to make the map, all else being the default."""

    mechanism: Mechanism = field(default_factory=lambda: KMeans(trust="aggregate"))
    recipe: Mapping[str, Any] = field(default_factory=dict)
    landmarks: float | None = None
    placement: Placement = field(default_factory=Diffused)
    calming: int = 0


IDEAS: dict[str, Idea] = {
    "defaults, anchored": Idea(placement=Anchored()),
    "defaults, diffused": Idea(),
    "placed by weights": Idea(placement=ByWeights()),
    "placed by openTSNE's transform": Idea(placement=ByTransform()),
    "anchored, without diffusion": Idea(placement=Anchored(diffused=Diffused(steps=0))),
    "anchored, anchors pull from anywhere": Idea(placement=Anchored(reach=100.0)),
    "anchored, pull 0.6": Idea(placement=Anchored(pull=0.6)),
    "anchored, pull 0.85": Idea(placement=Anchored(pull=0.85)),
    "anchored, a quarter of the landmarks": Idea(placement=Anchored(), landmarks=0.25),
    "diffused, records compared whole": Idea(placement=Whole()),
    "diffused, window 0.03": Idea(placement=Diffused(window=0.03)),
    "diffused, window 0.08": Idea(placement=Diffused(window=0.08)),
    "diffused, keep 0.9": Idea(placement=Diffused(keep=0.9)),
    "diffused, keep 0.98, 80 steps": Idea(placement=Diffused(keep=0.98, steps=80)),
    "k-means without the filter": Idea(Unfiltered(trust="aggregate")),
    "k-means, 4 sweeps": Idea(KMeans(trust="aggregate", sweeps=4)),
    "k-means, reach 0.75": Idea(KMeans(trust="aggregate", reach=0.75)),
    "a quarter of the landmarks": Idea(landmarks=0.25),
    "twice the landmarks": Idea(landmarks=2.0),
    "8 dimensions": Idea(recipe={"components": 8}),
    "32 dimensions": Idea(recipe={"components": 32}),
    "subspace gets 0.4 of the budget": Idea(recipe={"shares": {"subspace": 0.4}}),
    "anchors averaged with their neighbours before the layout": Idea(calming=2),
    "gradient": Idea(GradientPerturbation(trust="aggregate")),
    "clipped": Idea(ClippedGradientPerturbation(trust="aggregate")),
    "mean-embedding": Idea(MeanEmbedding(trust="aggregate")),
    "mean-embedding, three bandwidths": Idea(MeanEmbedding(trust="aggregate"), {"factors": (0.5, 1.0, 2.0)}),
}


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


def federation(data: str, records: int) -> FederatedData:
    """Deal one of the two data sets to the clients."""
    if data == "drawn digits":
        return FederatedData.split(*drawn_digits(records), clients=CLIENTS, partition="iid", seed=0)
    return FederatedData.from_dataset(load(data, records=records), clients=CLIENTS, partition="iid", seed=0)


def calmed(points: Array, times: int) -> Array:
    """Move points half-way to the mean of their five nearest others, so many times over."""
    for _ in range(times):
        near = nearest(GramDistances(points.astype(np.float32)), 5, method="exact").indices
        points = (points + points[near].mean(axis=1)) / 2
    return points


def row(idea: Idea, fed: FederatedData, epsilon: float, usual: int) -> dict[str, Any]:
    """Make the map in one way and score it."""
    started, recipe = time.perf_counter(), Recipe(**idea.recipe)
    learner = recipe.learner(
        budget=Budget(epsilon, 1e-5),
        mechanism=idea.mechanism,
        landmarks=None if idea.landmarks is None else int(idea.landmarks * usual),
        rounds=50,
        tau_x=None,
        seed=0,
        further={},
    )
    learned = learner.run(fed)
    each = learner.records_a_client(fed)
    anchors = recipe.anchored_points(learned, each, 0)
    places = FedTSNE().lay_out_anchors(calmed(anchors, idea.calming))
    published = PublishedMap(learned.subspace, anchors, recipe.scaled(places, each), 0)
    judged = fed.clients[:JUDGED]
    placed = [idea.placement(published, client.X) for client in judged]
    return {
        "cross": cross_client_accuracy(placed, [client.y for client in judged]),
        "landmarks": len(learned.feddl.landmarks),
        "dimensions": int(anchors.shape[1]),
        "seconds": time.perf_counter() - started,
    }


def table(found: Mapping[str, Mapping[str, dict[str, Any]]]) -> str:
    """Return all rows as Markdown."""
    names = list(found)
    lines = [
        "# What each idea gave",
        "",
        "Made by `python reports/end-to-end/ideas.py`. 40,000 records, 10 clients, δ = 1e-5, *aggregate*, one seed, so",
        "that differences below about 0.01 mean nothing. Cross-client 10-NN accuracy over the first three clients; in",
        "brackets the number of landmarks and of dimensions. Rows without another word place by diffusion.",
        "*Drawn digits* are scikit-learn's digits, enlarged and moved at random. What is blank was not run.",
        "",
        "| idea | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for idea in IDEAS:
        cells = [found[name].get(idea) for name in names]
        shown = ["" if c is None else f"{c['cross']:.3f} ({c['landmarks']}, {c['dimensions']})" for c in cells]
        lines.append(f"| {idea} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=RECORDS)
    records = parser.parse_args().records
    path = HERE / "ideas.json"
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text()) if path.exists() else {}
    for epsilon in EPSILONS:
        for data in ("drawn digits", "fashion-mnist"):
            rows = found.setdefault(f"{data}, ε = {epsilon:g}", {})
            if len(rows) == len(IDEAS):
                continue
            fed = federation(data, records)
            for name, idea in IDEAS.items():
                if name not in rows:
                    rows[name] = row(idea, fed, epsilon, next(iter(rows.values()))["landmarks"] if rows else 0)
                    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
                    (HERE / "ideas.md").write_text(table(found))
                    print(data, epsilon, name, rows[name], file=sys.stderr, flush=True)
    (HERE / "ideas.md").write_text(table(found))


if __name__ == "__main__":
    main()
