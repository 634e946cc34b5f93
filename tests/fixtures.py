"""Fixtures that several folders share.

A whole run is made once a session, by the worker that asks first, and read by all: a test that changes a folder takes
a copy of it.
"""

from __future__ import annotations

import fcntl
import math
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks.shared import gradients
from dpfedvis.experiments.sweeps.store import CellRow
from dpfedvis.site import computation
from tests import makers
from tests.command_line import called, examples, pasted
from tests.crash.folders import copy, events_of, recorded
from tests.crash.nursery import KINDS, NOISY, SMALL, Nursery

MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture
def hushed(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that divides the noise of sites, and what attacks are told of it, by a number.

    No budget makes the noise small enough for some attacks: noise on a grid has ε of at most 500.
    """

    def hush(by: float) -> None:
        add, told = computation.add_noise, gradients.noise_of

        def less(source: Any, values: Any, *given: Any) -> Any:
            return values + np.rint((add(source, values, *given) - values) / by).astype(np.int64)

        monkeypatch.setattr(computation, "add_noise", less)
        monkeypatch.setattr(gradients, "noise_of", lambda event: told(event) / by)

    return hush


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Return a function that gives the path of a name, made when it is asked for the first time in a session."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-once"
    shared.mkdir(exist_ok=True)

    def once(name: str, make: Callable[[Path], object]) -> Path:
        path, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(path)
                done.touch()
        return path

    return once


# Data


@pytest.fixture
def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return rng.normal(size=(60, 5)), np.repeat(np.arange(6), 10)


@pytest.fixture
def real_data() -> Path:
    """Return the folder of real data files, or skip."""
    folder = os.environ.get("DPFEDVIS_DATA")
    if not folder:
        pytest.skip("DPFEDVIS_DATA is not set: no real data files to read")
    return Path(folder)


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have no data folder and an empty cache; return the cache folder."""
    monkeypatch.delenv("DPFEDVIS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dpfedvis"


@pytest.fixture
def dead_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send all requests to a port where nobody listens, so they fail at once and for real."""
    # urllib keeps the proxies of its first request.
    monkeypatch.setattr("urllib.request._opener", None)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


# Finished runs


@pytest.fixture(scope="session")
def exact(made_once: MadeOnce) -> Path:
    """The paper's claim: protected landmarks, exact rows."""
    settings = {"epsilon": 2.0, "scope": "landmarks", "mechanism": "gradient", "landmarks": 10}
    return made_once("exact", lambda path: makers.run(path, **settings))


@pytest.fixture(scope="session")
def private(made_once: MadeOnce) -> Path:
    """A private map with a density, simulated."""
    settings = {"epsilon": 4.0, "trust": "aggregate", "density": True, "classes": tuple(range(10))}
    return made_once("private", lambda path: makers.run(path, **settings))


@pytest.fixture(scope="session")
def open_run(made_once: MadeOnce) -> Path:
    """No budget at all."""
    return made_once("open", lambda path: makers.run(path, mechanism="none", landmarks=10))


@pytest.fixture(scope="session")
def clustered(made_once: MadeOnce) -> Path:
    """Clusters instead of a map."""
    return made_once("clusters", lambda path: makers.run(path, map="clusters", clusters=3, landmarks=10))


@pytest.fixture(scope="session")
def marked_data(made_once: MadeOnce) -> Path:
    """A file of records with labels and client names that can be found again."""
    return made_once("marked.csv", makers.marked_records)


@pytest.fixture(scope="session")
def simulated(made_once: MadeOnce, marked_data: Path) -> Path:
    """The marked records under seeded noise."""
    settings = {"epsilon": 8.0, "noise": "seeded", "evaluate": True}
    return made_once("simulated", lambda path: makers.marked_run(path, marked_data, **settings))


@pytest.fixture(scope="session")
def real(made_once: MadeOnce, marked_data: Path) -> Path:
    """The marked records under noise from the operating system."""
    return made_once("real", lambda path: makers.marked_run(path, marked_data, epsilon=8.0, noise="discrete"))


@pytest.fixture(scope="session")
def demo(made_once: MadeOnce) -> Path:
    """The example of `dpfedvis demo --help`, of a few records; what it said is in `said.txt` beside it."""

    def make(path: Path) -> None:
        path.mkdir()
        (line,) = examples(called("demo", "--help").stdout)
        done = pasted(f"{line} --records 200 --clients 3", path)
        assert (done.returncode, done.stderr) == (0, "")
        (path / "runs" / "said.txt").write_text(done.stdout)

    return made_once("demo", make) / "runs" / "story"


@pytest.fixture
def sweep_rows() -> list[CellRow]:
    """A sweep of two mechanisms, with both baselines, on data with a bad name."""

    def made(score: float, kind: str = "run", seed: int = 0, **settings: Any) -> CellRow:
        end = {"central": math.inf, "data-free": 0.0}.get(kind, settings.get("epsilon", math.inf))
        facts = {"data": makers.HOSTILE[0], "seed": seed, **settings}
        return makers.row(facts, kind=kind, scores={"nmi": score, "ca_10": score / 2}, epsilon_end_to_end=end)

    rows = [made(0.9, "central"), made(0.2, "data-free"), made(0.06, "chance")]
    for seed in range(3):
        for epsilon in (1.0, 10.0):
            rows.append(made(0.3 + epsilon / 40 + seed / 100, seed=seed, mechanism="k-means", epsilon=epsilon))
            rows.append(made(0.25 + seed / 100, seed=seed, mechanism="gradient", epsilon=epsilon))
    return rows


# Runs that were killed


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def wholes(made_once: MadeOnce, nursery: Nursery) -> Callable[[str], Path]:
    """Runs of every kind that nobody interrupted, made when they are asked for."""

    def whole(kind: str) -> Path:
        def make(path: Path) -> None:
            assert nursery.run(*SMALL, *KINDS[kind], "--out", str(path)) == (0, "")

        return made_once(f"whole-{kind.replace(', ', '-')}", make)

    return whole


@pytest.fixture(scope="session")
def stopped(made_once: MadeOnce, nursery: Nursery) -> dict[int, Path]:
    """Runs with real noise, killed when the second round had been accounted for, by how many uploads had passed.

    Three is none of that round, four one of it.
    """

    def make(path: Path) -> None:
        flags = [*SMALL, *NOISY, "--noise", "discrete"]
        for at in range(12, 40):
            folder = path / str(at)
            assert nursery.run(*flags, "--out", str(folder), at=at, after=True) == (-signal.SIGKILL, "")
            if len(events_of(folder)) == 6 and len(recorded(folder)) in (3, 4):
                copy(folder, path / f"uploads-{len(recorded(folder))}")
            if all((path / f"uploads-{count}").exists() for count in (3, 4)):
                return
        raise AssertionError("no write is of that moment")

    path = made_once("stopped", make)
    return {count: path / f"uploads-{count}" for count in (3, 4)}


@pytest.fixture
def copied(stopped: dict[int, Path], tmp_path: Path) -> Path:
    return copy(stopped[3], tmp_path / "run")
