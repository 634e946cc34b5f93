"""CONTRIBUTING.md is true: a part is one file and one line, and then runs, sweeps and pages have it.

The packages are copied, and a toy of each kind is added to the copy as a contributor would add it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import Done

ROOT = Path(__file__).parents[1]

MECHANISM = '''
"""A toy: the gradient of the first features."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpfedvis.mechanisms.base import PlainMechanism
from dpfedvis.mechanisms.gradient import GradientUpload


@dataclass(frozen=True)
class ToyUpload(PlainMechanism, GradientUpload):
    """Leaving coordinates out is a projection, which makes no contribution longer.

    Parameters
    ----------
    keep : int
        Features that are uploaded.
    """

    keep: int = 32
    name: ClassVar[str] = "toy-upload"

    def contribution(self, records, Y, public):
        gamma, offsets = public.kernel.mean_gamma, records[:, None] - Y
        pulls = offsets * np.exp(-gamma * np.square(offsets).sum(axis=2, keepdims=True))
        pulls[:, :, self.keep :] = 0
        return -4 * gamma / public.landmarks * pulls

    def bound(self, public):
        """max_r r exp(−γr²) = 1/√(2eγ), for each of n_y landmarks."""
        return math.sqrt(8 * public.kernel.mean_gamma / (math.e * public.landmarks))
'''

METRIC = '''
"""A toy: small for wide maps."""


def score(evaluated):
    return float(1 / (1 + abs(evaluated.places[:, 0]).max()))
'''

ACCOUNTANT = '''
"""A toy: twice the exact value, which is a bound as well."""

from accounting.accountants import closed


def epsilon(composition, delta):
    return 2 * closed.gdp(composition, delta)
'''

LAYOUT = '''
"""A toy: the first two coordinates of the distance estimate."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpfedvis.numerics.layouts.base import LaidOut
from dpfedvis.numerics.neighbors import nearest


@dataclass(frozen=True)
class ToyLayout:
    """Two coordinates.

    Parameters
    ----------
    stretch : float
        Factor on the coordinates.
    """

    stretch: float = 1.0
    name: ClassVar[str] = "toy-map"
    title: ClassVar[str] = "Toy map"
    refinement: ClassVar[Mapping[str, Any]] = {}
    threads: ClassVar[bool] = True

    def lay_out(self, estimate, task):
        neighbors = nearest(estimate, min(5, len(estimate.left) - 1), method=task.search, seed=task.seed)
        return LaidOut(self._flat(estimate.left), neighbors, self._flat)

    def lay_out_anchors(self, anchors, seed):
        return self._flat(anchors)

    def place_among(self, anchors, places, points, seed):
        return self._flat(points)

    def _flat(self, points):
        return self.stretch * np.asarray(points, np.float64)[:, :2]
'''

# File to write, its text, and the lines to change: (registry, line that is there, what stands there afterwards).
PARTS = {
    "mechanism": (
        "dpfedvis/mechanisms/toy.py",
        MECHANISM,
        "dpfedvis/mechanisms/__init__.py",
        [
            ('    "none": NoPerturbation,\n', '    "none": NoPerturbation,\n    "toy-upload": ToyUpload,\n'),
            ("\nMECHANISMS: ", "from dpfedvis.mechanisms.toy import ToyUpload\n\nMECHANISMS: "),
        ],
    ),
    "map": (
        "dpfedvis/numerics/layouts/toy.py",
        LAYOUT,
        "dpfedvis/numerics/layouts/__init__.py",
        [
            ('    "umap": UMAPLayout,\n', '    "umap": UMAPLayout,\n    "toy-map": ToyLayout,\n'),
            ("\nLAYOUTS: ", "from dpfedvis.numerics.layouts.toy import ToyLayout\n\nLAYOUTS: "),
        ],
    ),
    "metric": (
        "dpfedvis/evaluation/metrics/toy.py",
        METRIC,
        "dpfedvis/evaluation/metrics/__init__.py",
        [
            (
                '        Metric("nmi"',
                '        Metric("toy", "toy score", "a toy score", toy.score, ("map",), higher=False, curve=True),\n'
                '        Metric("nmi"',
            ),
            (", neighbors\n", ", neighbors, toy\n"),
        ],
    ),
    "accountant": (
        "accounting/accountants/toy.py",
        ACCOUNTANT,
        "accounting/accountants/__init__.py",
        [
            (
                '        Accountant("pld"',
                '        Accountant("toy", toy.epsilon, "twice the exact value"),\n        Accountant("pld"',
            ),
            ("closed, google, opacus\n", "closed, google, opacus, toy\n"),
        ],
    ),
}
SUITES = {
    "mechanism": "tests/mechanisms/test_every_mechanism.py",
    "map": "tests/numerics/layouts/test_every_layout.py",
    "metric": "tests/evaluation/metrics/test_every_metric.py",
    "accountant": "tests/accounting/test_every_accountant.py",
}
SWEEP = """
data = "digits"
records = 80
clients = 2
landmarks = 8
rounds = 2
mechanism = "toy-upload"
map = "toy-map"
scope = "landmarks"
epsilon = [4]
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages and tests with a toy of each kind."""
    copy = tmp_path_factory.mktemp("tree")
    for package in ("accounting", "dpfedvis", "attacks", "tests"):
        shutil.copytree(ROOT / package, copy / package)  # with bytecode: it starts faster
    shutil.copy(ROOT / "pyproject.toml", copy)
    for file, text, registry, lines in PARTS.values():
        (copy / file).write_text(text.lstrip())
        changed = (copy / registry).read_text()
        for there, then in lines:
            assert changed.count(there) == 1, there
            changed = changed.replace(there, then)
        (copy / registry).write_text(changed)
    return copy


def command(tree: Path, *words: str) -> Done:
    """Run Python in the copy."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def dpfedvis(tree: Path, *words: str) -> Done:
    return command(tree, "-m", "dpfedvis", *words)


@pytest.fixture(scope="module")
def run(tree: Path) -> Path:
    """A run with all toys."""
    flags = "--data digits --records 80 --clients 2 --landmarks 8 --rounds 2 --epsilon 4 --scope landmarks"
    dpfedvis(tree, "run", *shlex.split(flags), "--mechanism", "toy-upload", "--map", "toy-map", "--out", "runs/toy")
    return tree / "runs/toy"


def test_a_run_has_the_mechanism(run: Path) -> None:
    assert 'mechanism = "toy-upload"' in (run / "config.toml").read_text()
    assert json.loads((run / "statement.json").read_text())["facts"]["mechanism"] == "toy-upload"


def test_a_run_and_its_page_have_the_map(run: Path) -> None:
    assert 'map = "toy-map"' in (run / "config.toml").read_text()
    assert "Toy map" in (run / "report.html").read_text()
    assert len((run / "embedding.csv").read_text().splitlines()) == 81


def test_a_run_and_its_page_have_the_metric(run: Path) -> None:
    assert 0 < json.loads((run / "simulation/scores.json").read_text())["toy"] < 1
    assert "a toy score" in (run / "report.html").read_text()


def test_a_run_its_page_and_calibrate_have_the_accountant(tree: Path, run: Path) -> None:
    assert "toy" in json.loads((run / "statement.json").read_text())["accountants"]
    assert "toy" in (run / "statement.md").read_text()
    words = "--epsilon 1 --delta 1e-5 --rounds 5 --records 100 --landmarks 10 --gamma 0.1 --accountants gdp,toy --json"
    done = dpfedvis(tree, "calibrate", *shlex.split(words))
    opinions = json.loads(done.stdout)["accountants"]
    assert opinions["toy"]["epsilon"] == pytest.approx(2 * opinions["gdp"]["epsilon"])


def test_a_sweep_and_its_page_have_the_toys(tree: Path) -> None:
    (tree / "toy.toml").write_text(SWEEP)
    dpfedvis(tree, "sweep", "run", "toy.toml", "--store", "toy.sqlite")
    dpfedvis(tree, "sweep", "report", "toy.sqlite", "--out", "toy")
    page = (tree / "toy/report.md").read_text()
    for toy in ("toy-upload", "toy-map", "toy score"):
        assert toy in page


def test_the_shared_suites_cover_the_toys(tree: Path) -> None:
    done = command(tree, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "-vv", *SUITES.values(), "-k", "toy")
    for suite in SUITES.values():
        assert done.stdout.count(f"{suite}::") >= 4, done.stdout
