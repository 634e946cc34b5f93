"""`dpfedvis reproduce`, as a user runs it, on few digits."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from dpfedvis.cli.reproduce import _EXAMPLE, _NAMES
from dpfedvis.experiments.paper.experiments import EXPERIMENTS
from dpfedvis.experiments.sweeps.store import SweepStore
from tests.command_line import called, examples, pasted

SMALL = ["--data", "digits", "--records", "100", "--rounds", "2", "--seeds", "1", "--jobs", "1"]


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()[2:]))


def test_the_help_names_what_there_is() -> None:
    assert tuple(EXPERIMENTS) == _NAMES
    listed = json.loads(called("reproduce", "--list", "--json").stdout)
    assert [each["name"] for each in listed] == list(_NAMES)
    assert listed[0]["cells"] == 36


def test_the_example_of_the_help_works_when_pasted(tmp_path: Path) -> None:
    line = examples(_EXAMPLE)[1]
    assert "figure-ny" in line
    done = pasted(line, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in (tmp_path / "try").iterdir()) == [
        "figure-ny.csv", "figure-ny.md", "figure-ny.svg", "index.md", "what-reproduces.md",
    ]  # fmt: skip
    assert f"Made by `{line}`." in (tmp_path / "try" / "figure-ny.md").read_text()


def test_a_table_runs_goes_on_and_stands_beside_the_paper(tmp_path: Path) -> None:
    store, out = tmp_path / "s.sqlite", tmp_path / "out"
    common = ["reproduce", "table1", *SMALL, "--maps", "tsne", "--store", str(store), "--out", str(out), "--json"]
    (first,) = json.loads(called(*common, "--estimates", "nystrom").stdout)
    assert (first["settings"], first["settings_run"]) == (5, 5)
    with SweepStore(store) as made:
        before = made.rows()
    (second,) = json.loads(called(*common).stdout)
    assert (second["settings"], second["settings_run"]) == (9, 9)
    with SweepStore(store) as made:
        after = made.rows()
    assert after[:5] == before
    assert len(after) == 9
    # One set of landmarks for each partition and β, whatever is made of it.
    assert len(list((tmp_path / "s.sqlite.cache" / "landmarks").glob("*.npz"))) == 4
    lines = rows_of(out / "table1.csv")
    assert len(lines) == 9 * 8
    noisy = [line for line in lines if line["setting"] == "non-IID +" and line["score"] == "nmi"]
    assert {line["paper_mean"] for line in noisy} == {"0.7025"}
    assert all(float(line["epsilon_nominal"]) > 10 and line["epsilon_end_to_end"] == "inf" for line in noisy)
    page = (out / "table1.md").read_text()
    for words in ("0.7025 ± 0.0149", "| central |", "ε = ∞ end to end", "Shrunk: 100 records", "--rounds 2 --seeds 1"):
        assert words in page
    assert "run on digits, which is not the paper's data" in (out / "index.md").read_text()
    assert "within 2 of the paper" not in page
    assert "run on digits, which is not the paper's data" in (out / "what-reproduces.md").read_text()


def test_clusters_in_both_ways(tmp_path: Path) -> None:
    store, out = str(tmp_path / "s.sqlite"), tmp_path / "out"
    (done,) = json.loads(called("reproduce", "table5", *SMALL, "--store", store, "--out", str(out), "--json").stdout)
    assert done["settings_run"] == 30
    lines = rows_of(out / "table5.csv")
    assert {line["way"] for line in lines} == {"kernel", "neighbors"}
    assert {line["score"] for line in lines} == {"nmi", "ari"}


def test_pages_alone_need_a_store_and_run_nothing(tmp_path: Path) -> None:
    words = [
        "reproduce",
        "table3",
        *SMALL,
        "--store",
        str(tmp_path / "s.sqlite"),
        "--out",
        str(tmp_path),
        "--only-report",
    ]
    missing = called(*words)
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
    SweepStore(tmp_path / "s.sqlite", create=True).close()
    done = called(*words)
    assert done.returncode == 0
    assert "table3: 0 of 8 settings run" in done.stdout
    assert "Not run yet, or not successfully: 8 of 8 settings." in (tmp_path / "table3.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table6"], "what to reproduce must be some of table1"),
        ([], "what to reproduce"),
        (["table1", "--maps", "pca"], "maps must be some of tsne, umap, each once, but is 'pca'"),
        (["table1", "--seeds", "0"], "seeds must be"),
        (["table1", "--data", "digit"], "did you mean 'digits'"),
        (["table1", "--estimates", "nystrom,nystrom"], "each once, but is 'nystrom,nystrom'"),
        (["table1", "--backend", "slurm"], "backend must be one of"),
        (["table5", "--backend", "dask", "--scheduler", "tcp://127.0.0.1:1"], "no dask cluster answers at"),
        (["table1", "--data", "digits", "--records", "50", "--only-report"], "there is no store of a sweep"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = called("reproduce", *arguments, "--store", str(tmp_path / "s.sqlite"), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_made_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store, out = tmp_path / "file" / "s.sqlite", tmp_path / "out"
    done = called("reproduce", "figure-ny", *SMALL, "--maps", "tsne", "--store", str(store), "--out", str(out))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_used_is_found_before_the_work(tmp_path: Path) -> None:
    store, out = tmp_path / "s.sqlite", tmp_path / "out"
    words = ["reproduce", "figure-ny", *SMALL, "--maps", "tsne", "--store", str(store), "--out", str(out)]
    out.mkdir()
    (out / "table1.csv").write_text("junk")
    junk = called(*words)
    assert (junk.returncode, junk.stderr.count("\n"), store.exists()) == (2, 1, False)
    assert "table1.csv is damaged or of another version; move it away" in junk.stderr
    assert sorted(path.name for path in out.iterdir()) == ["table1.csv"]
    (out / "table1.csv").unlink()
    (out / "index.md").mkdir()
    taken = called(*words)
    assert (taken.returncode, taken.stderr.count("\n")) == (2, 1)
    assert f"{out} cannot be written to" in taken.stderr
    assert not list(out.glob("*.tmp"))
