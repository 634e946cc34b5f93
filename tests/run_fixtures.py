"""Small finished runs, made once, for the tests of pages about them."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dpfedvis.experiments.sweeps.store import Row
from dpfedvis.reporting.run_report import show
from dpfedvis.runs.code_version import CodeVersion
from dpfedvis.runs.execute import execute
from dpfedvis.runs.settings import RunConfig
from tests.command_line import called

HOSTILE = ('"><script>alert(1)</script>', "</script><!-- & 'x'", "a <b>bold</b> client")
SMALL: dict[str, Any] = {"rounds": 3, "perplexity": 5.0, "jobs": 1}
HERE = CodeVersion("1.0", "a" * 40)
MARKED = (70001, 70002)  # labels that nothing else in a page looks like


def make(folder: Path, **settings: Any) -> Path:
    """Run with few records and return the folder."""
    digits = {"data": "digits", "records": 100, "clients": 3} if "data" not in settings else {}
    return execute(RunConfig(**{**SMALL, **digits, **settings}), folder, show=show).folder


@pytest.fixture(scope="session")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper's claim: protected landmarks, exact rows."""
    settings = {"epsilon": 2.0, "scope": "landmarks", "mechanism": "gradient", "landmarks": 10}
    return make(tmp_path_factory.mktemp("runs") / "exact", **settings)


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private map with a density, simulated."""
    settings = {"epsilon": 4.0, "trust": "aggregate", "density": True, "classes": tuple(range(10))}
    return make(tmp_path_factory.mktemp("runs") / "private", **settings)


@pytest.fixture(scope="session")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No budget at all."""
    return make(tmp_path_factory.mktemp("runs") / "open", mechanism="none", landmarks=10)


@pytest.fixture(scope="session")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clusters instead of a map."""
    return make(tmp_path_factory.mktemp("runs") / "clusters", map="clusters", clusters=3, landmarks=10)


@pytest.fixture(scope="session")
def marked_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of records with labels and client names that can be found again, whatever was made of them."""
    path = tmp_path_factory.mktemp("data") / "marked.csv"
    X, y = load_digits(return_X_y=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"f{number}" for number in range(8)), "label", "site"])
        for number, (row, label) in enumerate(zip(X[:90, 20:28] / 16, y, strict=False)):
            writer.writerow([*row.tolist(), MARKED[int(label > 4)], HOSTILE[number % 3]])
    return path


def marked(folder: Path, data: Path, **settings: Any) -> Path:
    """Run on the marked file."""
    columns = {"label_column": "label", "client_column": "site", "partition": "groups", "bounds": (0.0, 1.0)}
    return make(folder, data=str(data), **columns, **settings)


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory, marked_data: Path) -> Path:
    """The marked records under seeded noise."""
    return marked(tmp_path_factory.mktemp("runs") / "simulated", marked_data, epsilon=8.0, noise="seeded")


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory, marked_data: Path) -> Path:
    """The marked records under noise from the operating system."""
    return marked(tmp_path_factory.mktemp("runs") / "real", marked_data, epsilon=8.0, noise="system")


def coordinates(folder: Path) -> np.ndarray:
    """Where a simulation's records lie."""
    with np.load(folder / "simulation" / "places.npz") as stored:
        places: np.ndarray = stored["places"]
    return places


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole story of a few records."""
    folder = tmp_path_factory.mktemp("runs") / "demo"
    done = called("demo", "--out", str(folder), "--records", "200", "--clients", "3")
    assert done.returncode == 0
    folder.with_name("said.txt").write_text(done.stdout)
    return folder


def swept(kind: str = "run", seed: int = 0, score: float = 0.5, **settings: Any) -> Row:
    """A row made by hand."""
    end = {"central": math.inf, "data-free": 0.0}.get(kind, settings.get("epsilon", math.inf))
    facts = {"data": HOSTILE[0], "seed": seed, **settings}
    return Row(repr((kind, facts)), kind, "done", facts, "d", {"nmi": score, "ca_10": score / 2}, end,
               settings.get("epsilon"), None, 1e-5, 1.0, HERE, "", "2025-01-01T00:00:00+00:00")  # fmt: skip


@pytest.fixture
def sweep_rows() -> list[Row]:
    """A sweep of two mechanisms, with both baselines, on data with a bad name."""
    made = [swept("central", score=0.9), swept("data-free", score=0.2)]
    for seed in range(3):
        for epsilon in (1.0, 10.0):
            made.append(swept(seed=seed, score=0.3 + epsilon / 40 + seed / 100, mechanism="k-means", epsilon=epsilon))
            made.append(swept(seed=seed, score=0.25 + seed / 100, mechanism="gradient", epsilon=epsilon))
    return made
