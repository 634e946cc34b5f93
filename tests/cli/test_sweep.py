"""`dpfedvis sweep`, as a user runs it."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpfedvis.cli.sweep import _EXAMPLE
from dpfedvis.errors import DpfedvisError
from dpfedvis.experiments.sweeps.store import SweepStore
from tests.command_line import called, examples, pasted

TINY = """
data = "digits"
records = 80
clients = 3
landmarks = 8
rounds = 2
map = "clusters"
seeds = 2
mechanism = ["mean-embedding", "gradient"]
epsilon = [1, "inf"]
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of the help, pasted one after the other."""
    folder = tmp_path_factory.mktemp("example")
    lines = examples(_EXAMPLE)
    assert len(lines) == 4
    for line in lines:
        done = pasted(line, folder)
        assert (done.returncode, done.stderr) == (0, ""), line
    return folder


def test_the_example_of_the_help_leaves_a_report(example: Path) -> None:
    folder = example / "privacy-utility"
    assert sorted(path.name for path in folder.iterdir()) == [
        "curves-1-landmarks.svg", "curves-1.svg", "points.csv", "report.html", "report.md",
    ]  # fmt: skip
    page = (folder / "report.md").read_text()
    for words in (
        "Made by `dpfedvis sweep report sweep.sqlite --out privacy-utility`.",
        "Best mechanism at a given ε",
        "Cheapest ε for a given utility",
        "Pareto front",
        "What tuning costs",
        "20 done",
        "data-free",
    ):
        assert words in page
    assert "<svg" in (folder / "curves-1.svg").read_text()


def test_the_page_opens_offline_and_runs_no_script(example: Path) -> None:
    page = (example / "privacy-utility" / "report.html").read_text()
    assert "<script" not in page
    assert page.count('<img class="drawing wide" src="data:image/svg+xml;base64,') == 2
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="(?!data:)', page)
    assert page.count("<caption>") == page.count("<table>") >= 5
    assert "All numbers as a table" in page


def test_the_points_are_the_rows_of_the_store(example: Path) -> None:
    with SweepStore(example / "sweep.sqlite") as store:
        rows = store.rows()
    lines = list(csv.DictReader((example / "privacy-utility" / "points.csv").read_text().splitlines()))
    series = {(line["kind"], line["series"], round(float(line["epsilon_end_to_end"]))
               if line["epsilon_end_to_end"] != "inf" else "inf") for line in lines}  # fmt: skip
    assert ("data-free", "data-free", 0) in series
    assert ("central", "central", "inf") in series
    assert ("run", "k-means, aggregate", 20) in series
    assert ("run", "mean-embedding, local, scope landmarks", "inf") in series
    own = [row.scores["ca_10"] for row in rows if row.settings.get("mechanism") == "k-means"
           and row.settings["epsilon"] == 20]  # fmt: skip
    (line,) = [line for line in lines if line["series"] == "k-means, aggregate" and line["score"] == "ca_10"
               and line["epsilon_landmarks"].startswith("19.99")]  # fmt: skip
    assert float(line["mean"]) == pytest.approx(sum(own) / 2)
    assert line["n"] == "2"


def test_the_same_store_gives_the_same_report(example: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert called("sweep", "report", str(example / "sweep.sqlite"), "--out", str(tmp_path / name)).returncode == 0
    for path in (tmp_path / "one").iterdir():
        other = (tmp_path / "two" / path.name).read_bytes().replace(b"two", b"one")
        assert path.read_bytes().replace(b"two", b"one") == other, path.name


def test_a_grid_runs_once(grid: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "s.sqlite")
    dry = called("sweep", "run", str(grid), "--store", store, "--dry-run", "--json")
    assert json.loads(dry.stdout) == {"cells": 6, "known": 0}
    assert not Path(store).exists()
    first = called("sweep", "run", str(grid), "--store", store, "--jobs", "1", "--json")
    assert (first.returncode, json.loads(first.stdout)) == (
        0,
        {"cells": 6, "known": 0, "known_without_scores": 0, "done": 6},
    )
    again = called("sweep", "run", str(grid), "--store", store, "--jobs", "1")
    assert "6 cells, 6 in the store before; now none run" in again.stdout
    listed = json.loads(called("sweep", "list", store, "--json").stdout)
    assert len(listed) == 6
    assert not any(row["other_code"] for row in listed)
    assert {row["epsilon_end_to_end"] for row in listed if "epsilon" not in row["settings"]} == {"inf"}


def test_cells_without_scores_are_not_passed_over_in_silence(grid: Path, tmp_path: Path) -> None:
    grid.write_text(TINY.replace("seeds = 2", "seeds = 1") + '\n[[grid]]\nmechanism = "none"\nepsilon = 1\n')
    words = ["sweep", "run", str(grid), "--store", str(tmp_path / "s.sqlite"), "--jobs", "1"]
    assert "1 refused" in called(*words).stdout
    assert "in the store before (1 without scores; --retry reruns them); now none run" in called(*words).stdout
    assert json.loads(called(*words, "--json").stdout)["known_without_scores"] == 1


def test_a_cluster_that_is_not_there_leaves_no_store(grid: Path, tmp_path: Path) -> None:
    words = ["--backend", "dask", "--scheduler", "tcp://127.0.0.1:1"]
    done = called("sweep", "run", str(grid), "--store", str(tmp_path / "s.sqlite"), *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "no dask cluster answers at tcp://127.0.0.1:1" in done.stderr
    assert not (tmp_path / "s.sqlite").exists()


def test_rows_of_other_code_are_starred(grid: Path, tmp_path: Path) -> None:
    import sqlite3

    store = tmp_path / "s.sqlite"
    grid.write_text(TINY.replace("seeds = 2", "seeds = 1").replace('[1, "inf"]', "1"))
    assert called("sweep", "run", str(grid), "--store", str(store), "--jobs", "1").returncode == 0

    def made_by(version: str, mechanism: str) -> None:
        with sqlite3.connect(store) as raw:
            raw.execute("UPDATE cells SET package = ? WHERE settings LIKE ?", (version, f"%{mechanism}%"))
        raw.close()

    made_by("0.0.1", "gradient")
    listed = called("sweep", "list", str(store)).stdout
    assert [line[8] for line in listed.splitlines()[1:]] == [" ", "*"]
    made_by("0.0.2", "mean-embedding")
    assert called("sweep", "report", str(store), "--out", str(tmp_path / "out")).returncode == 0
    page = (tmp_path / "out" / "report.md").read_text()
    # The row that was finished last is of one of them, and the other is marked.
    last, other = re.search(r"Made by code (\S+).*marked with \* below: (\S+)", page, re.DOTALL).groups()
    assert {last, other} == {"0.0.1", "0.0.2"}
    with (tmp_path / "out" / "points.csv").open() as file:
        marked = {row["series"]: row["other_code"] for row in csv.DictReader(file) if row["kind"] == "run"}
    assert sorted(marked.values()) == ["", "*"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("landmarks", "landmark"), "there is no setting 'landmark'; did you mean 'landmarks'?"),
        (("= 8\n", '= "eight"\n'), "landmarks must be"),
        (('"digits"', '"digit"'), "did you mean 'digits'"),
        (("=", "!"), "is not TOML"),
        (("clients = 3", 'partition = "by-clas"'), "unknown partition 'by-clas'; valid forms"),
        (('[1, "inf"]', "[]"), "the axis 'epsilon' is empty"),
    ],
)
def test_a_bad_grid_is_one_sentence_and_no_store(
    change: tuple[str, str], sentence: str, grid: Path, tmp_path: Path
) -> None:
    grid.write_text(TINY.replace(*change, 1))
    done = called("sweep", "run", str(grid), "--store", str(tmp_path / "s.sqlite"))
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "s.sqlite").exists()


def test_bad_stores_and_folders_are_one_sentence(grid: Path, tmp_path: Path) -> None:
    missing = called("sweep", "report", str(tmp_path / "none.sqlite"), "--out", str(tmp_path / "out"))
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
    SweepStore(tmp_path / "empty.sqlite", create=True).close()
    empty = called("sweep", "report", str(tmp_path / "empty.sqlite"), "--out", str(tmp_path / "out"))
    assert (empty.returncode, empty.stderr) == (2, "dpfedvis: the store has no finished run to report on\n")
    assert not (tmp_path / "out").exists()
    backend = called("sweep", "run", str(grid), "--store", str(tmp_path / "s.sqlite"), "--backend", "slurm")
    assert (backend.returncode, backend.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / "s.sqlite").exists()


def test_why_cells_have_no_scores_is_said_at_once(grid: Path, tmp_path: Path) -> None:
    grid.write_text(TINY.replace('"mean-embedding", "gradient"', '"published"').replace('[1, "inf"]', "1"))
    store = str(tmp_path / "s.sqlite")
    done = called("sweep", "run", str(grid), "--store", store, "--jobs", "1")
    first, why, following = done.stdout.splitlines()
    assert following == f"next: dpfedvis sweep report {store} --out FOLDER"
    assert (done.returncode, done.stderr) == (0, "")
    assert "now 2 refused" in first
    assert re.match(r"2 cells without scores: .*published", why)
    again = json.loads(called("sweep", "run", str(grid), "--store", store, "--jobs", "1", "--retry", "--json").stdout)
    assert list(again["reasons"].values()) == [2]


def test_a_damaged_row_is_one_sentence(grid: Path, tmp_path: Path) -> None:
    import sqlite3

    store = tmp_path / "s.sqlite"
    grid.write_text(TINY.replace("seeds = 2", "seeds = 1").replace('[1, "inf"]', "1"))
    assert called("sweep", "run", str(grid), "--store", str(store), "--jobs", "1").returncode == 0
    with sqlite3.connect(store) as raw:
        raw.execute("UPDATE cells SET scores = '{' WHERE rowid = 1")
    raw.close()
    for words in (["list", str(store)], ["report", str(store), "--out", str(tmp_path / "out")]):
        done = called("sweep", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert "is damaged" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("backend", ["loky", "dask", "ray"])
def test_ctrl_c_reaches_all_processes_and_one_sentence_comes_out(backend: str, grid: Path, tmp_path: Path) -> None:
    """As a terminal does it: the signal goes to the workers, too."""
    if backend == "ray":
        pytest.importorskip("ray", reason="Ray is an extra: pip install 'dpfedvis[ray]'")
    grid.write_text(TINY.replace("seeds = 2", "seeds = 40"))
    store = tmp_path / "s.sqlite"
    command = [sys.executable, "-m", "dpfedvis", "sweep", "run", str(grid), "--store", str(store), "--jobs", "2"]
    process = subprocess.Popen(
        [*command, "--backend", backend],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while process.poll() is None and not _rows(store):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    kept = _rows(store)
    words = f"{kept} of 120 cells are in {store}; the same command resumes"
    assert (said, kept > 0) == (f"dpfedvis: interrupted; {words}\n", True)


def _rows(store: Path) -> int:
    if not store.exists():
        return 0
    with contextlib.suppress(DpfedvisError), SweepStore(store) as opened:
        return len(opened.rows())
    return 0
