"""What tests are made of: records, federations, maps that take a fraction of a second, small runs, rows of sweeps.

Every maker takes its sizes and its seed, and gives the same for the same. What only one file needs stays in that file.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE, FedUMAP
from dpfedvis.data import Dataset
from dpfedvis.experiments.sweeps.store import CellRow
from dpfedvis.reporting.run_report import show
from dpfedvis.runs.code_version import CodeVersion
from dpfedvis.runs.execute import execute
from dpfedvis.runs.settings import RunConfig

BUDGET = Budget(2.0, 1e-5)
DIGITS, CLASSES = load_digits(return_X_y=True)
DIGITS = (DIGITS / 16).astype(np.float32)


# Records


def points(records=40, landmarks=12, features=5, seed=0, dtype=np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal records and landmarks."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(records, features)).astype(dtype), rng.normal(size=(landmarks, features)).astype(dtype)


def three_blobs(sizes=(30, 40, 50), features=3, spread=0.04, seed=0) -> tuple[np.ndarray, np.ndarray]:
    """Three groups in the unit cube, far apart, and which record is of which."""
    rng = np.random.default_rng(seed)
    corners = np.array([[0.2, 0.2, 0.2], [0.8, 0.2, 0.5], [0.4, 0.8, 0.7]])[:, :features]
    X = np.concatenate([c + rng.normal(0, spread, (n, features)) for c, n in zip(corners, sizes, strict=True)])
    return X, np.repeat(np.arange(3), sizes)


def as_dataset(X, y=None, groups=None, missing="client-mean", feature_range=None) -> Dataset:
    names = () if y is None else tuple(str(c) for c in range(int(np.max(y)) + 1))
    return Dataset("test", X, y, names, groups, feature_range, None, "memory", "0", missing)


# Federations


def federation(
    sizes: Sequence[int] = (20, 30, 45), features=4, *, shift=0.3, centre=0.0, spread=1.0, seed=5, **options
) -> FederatedData:
    """Normal records; each client lies by `shift` further along all axes than the one before."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(centre + shift * p, spread, (n, features)) for p, n in enumerate(sizes)]
    return FederatedData(parts, **options)


def blobs(parts: Sequence[int] = (30, 30, 30), features=3, seed=0) -> FederatedData:
    """One blob for each client, in the unit cube, float64."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(0.2, 0.8, (len(parts), features))
    return FederatedData(
        [c + rng.normal(0, 0.05, (n, features)) for c, n in zip(centres, parts, strict=True)],
        [np.full(n, p) for p, n in enumerate(parts)],
        dtype=np.float64,
    )


def groups(sizes: Sequence[int] = (60, 40, 50), *, features=8, seed=0, dtype=np.float32) -> FederatedData:
    """Four groups that lie in three directions of eight, in every client."""
    rng = np.random.default_rng(seed)
    centres = np.zeros((4, features))
    centres[:, :3] = 3 * rng.normal(size=(4, 3))
    labels = [rng.integers(0, 4, n) for n in sizes]
    records = [centres[y] + rng.normal(0, 0.4, (len(y), features)) + 2 for y in labels]
    return FederatedData(records, labels, dtype=dtype)


def digits(n=300, clients=3, seed=0, classes=10, **options) -> FederatedData:
    """The first `n` digits of the first classes, dealt out."""
    chosen = np.flatnonzero(classes > CLASSES)[:n]
    return FederatedData.split(DIGITS[chosen], CLASSES[chosen], clients=clients, seed=seed, **options)


# Maps

FAST = {"early_exaggeration_iter": 30, "n_iter": 60}
SPAN = {"start": np.random.default_rng(7).uniform(size=(10, 3)), "bounds": (0.0, 1.0)}


def tsne(**options) -> FedTSNE:
    given = {"n_landmarks": 40, "mechanism": "none", "rounds": 3, "perplexity": 10.0, "n_jobs": 1}
    return FedTSNE(**{**given, "feddl": {"bounds": (0.0, 1.0)}, "tsne": FAST, **options})


def umap(**options) -> FedUMAP:
    given = {"n_landmarks": 40, "mechanism": "none", "rounds": 3, "n_neighbors": 10}
    return FedUMAP(**{**given, "feddl": {"bounds": (0.0, 1.0)}, "umap": {"n_epochs": 60}, **options})


# Runs

SMALL_RUN: dict[str, Any] = {"rounds": 3, "perplexity": 5.0, "jobs": 1, "yardsticks": False}
HOSTILE = ('"><script>alert(1)</script>', "</script><!-- & 'x'", "a <b>bold</b> client")
MARKED = (70001, 70002)  # labels that nothing else in a page looks like


def run(folder: Path, **settings: Any) -> Path:
    """Run with few records, show the run, and return its folder."""
    records = {"data": "digits", "records": 100, "clients": 3} if "data" not in settings else {}
    return execute(RunConfig(**{**SMALL_RUN, **records, **settings}), folder, show=show).folder


def marked_records(path: Path) -> Path:
    """Write records with labels and client names that can be found again, whatever was made of them."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"f{number}" for number in range(8)), "label", "site"])
        for number, (row, label) in enumerate(zip(DIGITS[:90, 20:28], CLASSES, strict=False)):
            writer.writerow([*row.tolist(), MARKED[int(label > 4)], HOSTILE[number % 3]])
    return path


def marked_run(folder: Path, data: Path, **settings: Any) -> Path:
    """Run on a file of marked records."""
    columns = {"label_column": "label", "client_column": "site", "partition": "groups", "bounds": (0.0, 1.0)}
    return run(folder, data=str(data), **columns, **settings)


# Sweeps

HERE = CodeVersion("1.0", "a" * 40)


def row(settings: dict[str, Any] | None = None, **facts: Any) -> CellRow:
    """A row of a sweep that nothing has computed."""
    settings = {"data": "digits", **(settings or {})}
    common: dict[str, Any] = {
        "kind": "run", "status": "done", "settings": settings, "data_sha256": "d", "scores": {"nmi": 0.5},
        "epsilon_end_to_end": settings.get("epsilon", math.inf), "epsilon_in_scope": settings.get("epsilon"),
        "epsilon_nominal": None, "delta": 1e-5, "seconds": 1.0, "version": HERE, "error": "",
        "finished": "2025-01-01T00:00:00+00:00",
    }  # fmt: skip
    common |= facts
    return CellRow(address=facts.get("address", repr((common["kind"], settings))), **common)
