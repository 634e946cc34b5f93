"""`dpfedvis run`, as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import BudgetExceeded, Ledger
from accounting.statement import state
from dpfedvis.cli.main import parser
from dpfedvis.estimators.known_tables import known_tables
from dpfedvis.runs import execute as runs
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording
from dpfedvis.server.private_map import BudgetShares
from tests.command_line import called, check_refused, once, started

SMALL = ["--data", "digits", "--records", "100", "--clients", "3", "--landmarks", "10", "--rounds", "3"]
SMALL += ["--perplexity", "5", "--jobs", "1", "--no-yardsticks"]
FILES = {
    "config.toml", "embedding.csv", "embedding.npz", "figures", "landmarks.npz", "ledger.sqlite", "map.png",
    "provenance.json", "public.json", "report.html", "simulation", "statement.html", "statement.json", "statement.md",
    "trace.csv", "uploads", "verdict.json",
}  # fmt: skip


def ran(folder: Path, *arguments: str) -> dict[str, Any]:
    done = called("run", *once(*SMALL, *arguments), "--out", str(folder), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def test_the_first_run_as_a_user_types_it(tmp_path: Path) -> None:
    choice = ["--partition", "dirichlet:0.5", "--map", "tsne", "--epsilon", "2", "--release", "noisy"]
    done = started("run", *once(*SMALL, *choice), "--out", "runs/first", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "with real noise this would be ε = 2 end to end at δ = 1e-05" in done.stdout
    assert "chosen, since not given" in done.stdout
    assert "mechanism = mean-embedding" in done.stdout
    assert re.search(r"^score: class accuracy .* 0\.\d{3} \(chance 0\.\d{3}\)$", done.stdout, flags=re.MULTILINE)
    assert done.stdout.splitlines()[-1] == "open runs/first/report.html"
    folder = tmp_path / "runs" / "first"
    assert {path.name for path in folder.iterdir()} == FILES
    assert not list(folder.rglob("*.tmp"))
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        assert ledger.spent() == pytest.approx(2)
        statement = state(ledger)
    assert {path.name for path in folder.iterdir()} == FILES  # reading the ledger leaves nothing beside it
    assert statement.headline in (folder / "statement.md").read_text()
    assert json.loads((folder / "statement.json").read_text())["epsilon_end_to_end"] == pytest.approx(2)
    assert (folder / "map.png").read_bytes().startswith(b"\x89PNG")
    with np.load(folder / "embedding.npz") as stored:
        embedding = stored["embedding"]
    assert embedding.shape == (100, 2)
    rows = list(csv.DictReader((folder / "embedding.csv").read_text().splitlines()))
    assert [float(row["x"]) for row in rows] == embedding[:, 0].tolist()
    sizes = [sum(row["client"] == f"client-{p}" for row in rows) for p in range(3)]
    assert sum(sizes) == 100
    assert [int(row["record"]) for row in rows] == [i for size in sizes for i in range(size)]
    facts = json.loads((folder / "provenance.json").read_text())
    assert facts["packages"]["numpy"] == np.__version__
    assert (facts["seed"], facts["data"]["name"], len(facts["data"]["sha256"])) == (0, "digits", 64)


def test_a_run_can_be_repeated_from_its_config(tmp_path: Path) -> None:
    first = ran(tmp_path / "a", "--epsilon", "3", "--seed", "5", "--release", "noisy")
    again = called("run", "--config", str(tmp_path / "a" / "config.toml"), "--out", str(tmp_path / "b"), "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["epsilon_end_to_end"] == first["epsilon_end_to_end"]
    assert json.loads(again.stdout)["chosen"] == {}  # all of it stood in the file
    for name in (
        "config.toml",
        "embedding.csv",
        "statement.md",
        "uploads/values.bin",
        "uploads/index.jsonl",
        "public.json",
    ):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    other = called(
        "run", "--config", str(tmp_path / "a" / "config.toml"), "--seed", "6", "--out", str(tmp_path / "c")
    )  # fmt: skip
    assert other.returncode == 0
    assert RunConfig.from_toml(tmp_path / "c" / "config.toml").seed == 6
    assert (tmp_path / "a" / "embedding.csv").read_bytes() != (tmp_path / "c" / "embedding.csv").read_bytes()


def test_under_a_budget_the_default_releases_nothing_of_a_record(tmp_path: Path) -> None:
    summary = ran(tmp_path / "run", "--epsilon", "2", "--yardsticks")
    assert list(summary["yardsticks"]) == ["chance", "no data", "central"]
    assert (summary["chosen"]["release"], summary["chosen"]["mechanism"]) == ("none", "k-means")
    assert summary["epsilon_end_to_end"] == pytest.approx(2)
    assert set(summary["files"]) == FILES | {"regions.csv"}
    header, *lines = (tmp_path / "run" / "embedding.csv").read_text().splitlines()
    assert header == "anchor,x,y"
    assert len(lines) == len(Recording.read(tmp_path / "run").published["places"])


def test_without_a_budget_it_says_infinity(tmp_path: Path) -> None:
    summary = ran(tmp_path / "run")
    assert list(summary["yardsticks"]) == ["chance"]
    assert (summary["mechanism"], summary["release"], summary["epsilon_end_to_end"]) == ("none", "exact", "inf")
    assert summary["chosen"]["mechanism"] == "none"
    assert set(summary["files"]) == FILES


def test_the_papers_claim_by_name(tmp_path: Path) -> None:
    summary = ran(tmp_path / "run", "--epsilon", "2", "--scope", "landmarks", "--mechanism", "gradient")
    assert summary["release"] == "exact"
    assert summary["epsilon_end_to_end"] == "inf"
    assert summary["epsilon_in_scope"] == pytest.approx(2)


def test_clusters_instead_of_a_map(tmp_path: Path) -> None:
    ran(tmp_path / "run", "--map", "clusters", "--clusters", "3")
    recording = Recording.read(tmp_path / "run")
    assert recording.labels is not None
    assert set(recording.labels.tolist()) <= {0, 1, 2}
    assert (tmp_path / "run" / "embedding.csv").read_text().startswith("client,record,cluster\n")
    assert (tmp_path / "run" / "map.png").exists()


def test_every_setting_has_a_flag_and_every_flag_a_setting() -> None:
    line = ["run", "--data", "digits", "--out", "x", "--bounds", "0", "1"]
    given = vars(parser().parse_args(line))
    assert set(given) - {"run", "json", "out", "resume", "replace", "anyway", "quiet"} == {
        "data",
        "bounds",
    }  # a flag that is not given sets nothing
    import argparse

    from dpfedvis.cli.settings_flags import add_settings

    settings = argparse.ArgumentParser(add_help=False)
    add_settings(settings)
    flags = {action.dest for action in settings._actions}
    every = {name for table in known_tables().values() for name, each in table.items() if each.hint is not None}
    assert flags == set(RunConfig.model_fields) - {"tables"} | every - {"further"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "digit"], "did you mean 'digits'"),
        (["--epsilon", "-1"], "epsilon must be a finite number above 0, but is -1.0"),
        (["--epsilon", "nan"], "epsilon must be"),
        (["--delta", "1"], "delta must be"),
        (["--map", "pca"], "map must be one of tsne, umap, clusters, but is 'pca'"),
        (["--mechanism", "laplace"], "mechanism must be one of"),
        (["--partition", "by-hand"], "unknown partition 'by-hand'"),
        (["--clients", "500"], "500 clients cannot share 100 records"),
        (["--records", "0"], "records must be"),
        (["--landmarks", "0"], "landmarks must be"),
        (["--gamma", "wide"], "gamma must be a number or"),
        (["--gamma", "-1"], "gamma must be"),
        (["--epsilon", "2", "--release", "exact"], "Ways out"),
        (["--epsilon", "2", "--mechanism", "none"], "protects nothing"),
        (["--release", "noisy"], "--epsilon must be given, with scope 'end-to-end', for --release noisy"),
        (["--beta", "1"], "beta must be left out"),
        (["--config", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["--bounds", "1", "0"], "bounds must be"),
        (["--landmarks", "many"], "must be a whole number, as N, but is 'many'"),
        (["--density"], "density must be left out with --release exact"),
        (
            ["--density", "--epsilon", "2", "--map", "clusters", "--release", "noisy"],
            "density must be left out with --release noisy",
        ),
        (["--classes", "0,1", "--epsilon", "2"], "classes must be left out without a density"),
        (["--classes", "0,0", "--density", "--epsilon", "2"], "classes must be distinct labels"),
        (["--classes", "0,one", "--density", "--epsilon", "2"], "class must be one of 0, 1, 2, 3"),
        (["--classes", "0,other", "--density", "--epsilon", "2"], "without 'other'"),
        (["--evaluate", "--noise", "discrete", "--epsilon", "2"], "evaluate must be left out with real noise"),
        (["--lifetime-epsilon", "3", "--epsilon", "2"], "--lifetime-epsilon must be left out in a simulation"),
        (["--unit", "hospital", "--epsilon", "2"], "unit must be one of record, person, client"),
        (["--shares", "subspace=0.3"], "shares must be left out with --release exact"),
        (["--components", "4", "--epsilon", "2", "--release", "noisy"], "components must be left out with --release "),
        (
            ["--placement", "weights", "--epsilon", "2", "--map", "clusters", "--release", "noisy"],
            "placement must be left out with --release ",
        ),
        (["--placement", "random", "--epsilon", "2"], "placement must be one of anchored, diffused, weights, transfo"),
        (["--shares", "space=0.3", "--epsilon", "2"], "stage of shares must be one of scale, moments, subspace, den"),
        (["--shares", "subspace=0", "--epsilon", "2"], "share of subspace must be a number from 1e-06 to 0.999999"),
        (["--shares", "subspace=0.5,moments=0.5", "--epsilon", "2"], "below 1 together"),
        (["--shares", "subspace=0.97", "--epsilon", "2"], "below 1 together"),  # with that of the moments
        (
            ["--shares", "subspace", "--epsilon", "2"],
            "--shares: must be a table of numbers, as NAME=NUMBER,..., but is 'subspace'",
        ),
        (
            ["--shares", "scale=0.1,scale=0.1", "--epsilon", "2"],
            "as NAME=NUMBER,..., but is 'scale=0.1,scale=0.1'",
        ),
        (["--classes", ",", "--density", "--epsilon", "2"], "--classes must be distinct labels, none of them empty"),
        (["--noise", "system"], "--noise must be seeded (a simulation) or discrete (real noise), but is 'system'"),
        (["--sampling-rate", "0.1", "--epsilon", "2"], "--sampling-rate must be left out with --release none, but is"),
        (["--epsilon", "2", "--release", "exact"], "Ways out: --release noisy, which adds"),
        (["--epsilon", "2", "--release", "exact"], "narrower claim by name: --scope landmarks, with"),
        (["--epsilon", "2", "--mechanism", "heuristic"], "--mechanism heuristic protects nothing: leave --epsilon out"),
        (["--epsilon", "2", "--unit", "client", "--scope", "landmarks"], "--unit must be record where each record has"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = called("run", *once(*SMALL, *arguments), "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_flag_that_is_like_no_other_suggests_none(tmp_path: Path) -> None:
    done = called("run", *SMALL, "--foo", "--out", str(tmp_path / "run"))
    assert (done.returncode, done.stderr) == (2, "dpfedvis run: there is no --foo (see dpfedvis run --help)\n")
    assert "did you mean --landmarks?" in called("run", *SMALL, "--landmakrs=3", "--out", str(tmp_path / "run")).stderr


def test_a_missing_value_is_named_by_its_column_and_can_be_filled(tmp_path: Path) -> None:
    data = tmp_path / "patients.csv"
    data.write_text("age,pressure,hospital\n0.5,,north\n0.1,0.2,south\n")
    flags = ["--data", str(data), "--client-column", "hospital", "--partition", "groups", "--epsilon", "1"]
    done = called("run", *flags, "--out", str(tmp_path / "run"))
    check_refused(done, "patients.csv has 1 NaN value in column 'pressure'; choose --missing public-value to fill")
    assert "or --missing client-mean where there is no budget" in done.stderr
    done = called("run", *flags, "--missing", "client-mean", "--out", str(tmp_path / "run"))
    check_refused(done, "--missing must be public-value or refuse under a budget")


def test_help_says_what_bounds_are() -> None:
    shown = " ".join(called("run", "--help").stdout.split())
    assert "public range that all features share; values outside may be clipped" in shown
    assert "--bounds LOW HIGH is one public range for all of them" in shown


def test_a_bad_key_in_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('data = "digits"\nlandmark = 3\n')
    done = called("run", "--config", str(path), "--out", str(tmp_path / "run"))
    assert (done.returncode, done.stderr) == (
        2,
        "dpfedvis: there is no setting 'landmark'; did you mean 'landmarks'?\n",
    )


def test_it_refuses_a_folder_with_another_run(tmp_path: Path) -> None:
    ran(tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    done = called("run", *SMALL, "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "holds another run; choose another folder" in done.stderr
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes").touch()
    assert "holds other files" in called("run", *SMALL, "--out", str(tmp_path / "files")).stderr
    assert "is a file" in called("run", *SMALL, "--out", str(tmp_path / "files" / "notes")).stderr


def test_an_empty_folder_is_taken_and_kept_empty_after_an_error(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = called("run", *SMALL, "--epsilon", "2", "--release", "exact", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert list((tmp_path / "run").iterdir()) == []
    ran(tmp_path / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        done = called("run", *SMALL, "--out", str(tmp_path / "run"))
    finally:
        tmp_path.chmod(0o700)
    assert done.returncode == 2
    assert "cannot be written to" in done.stderr


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = called("run", *SMALL, "--out", str(tmp_path / "file" / "run"))
    assert done.returncode == 2
    assert "cannot be written to: Not a directory" in done.stderr


def test_a_run_that_fails_after_a_release_keeps_its_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spend must not be forgotten, so that the folder stays; and it is no finished run."""

    def fail(*_: object) -> None:
        raise BudgetExceeded(spent=0, requested=1, total=1, budget=RunConfig(data="x", epsilon=1).budget, client="c")

    monkeypatch.setattr(runs, "write_results", fail)
    done = called("run", *SMALL, "--epsilon", "2", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    with Ledger.read(tmp_path / "run" / "ledger.sqlite") as ledger:
        assert ledger.spent() == pytest.approx(2)
    assert not (tmp_path / "run" / "public.json").exists()
    assert "holds an unfinished run" in called("run", *SMALL, "--out", str(tmp_path / "run")).stderr


# A picture for everyone, and private views

TEN = ["--epsilon", "2", "--density", "--classes", ",".join(map(str, range(10)))]


def test_a_density_by_class_is_one_release_and_a_picture(tmp_path: Path) -> None:
    first = ran(tmp_path / "a", *TEN, "--views", str(tmp_path / "views"))
    assert set(first["files"]) == FILES | {"density.npz", "density.png", "regions.csv"}
    assert first["epsilon_end_to_end"] == pytest.approx(2)
    with Ledger.read(tmp_path / "a" / "ledger.sqlite") as ledger:
        events = list(ledger.events(what="density"))
    assert sorted(event.client for event in events) == ["client-0", "client-1", "client-2"]
    assert "| density | density | gaussian" in (tmp_path / "a" / "statement.md").read_text()
    with np.load(tmp_path / "a" / "density.npz") as stored:
        cells = stored["shares"].shape[-1]
        assert stored["shares"].shape == (11, cells, cells)  # the last is "other"
        assert stored["classes"].tolist() == list("0123456789")
        assert stored["half"] > 0
        assert stored["noise"] > 0
    # Each client's view, none of them in the folder of the run.
    views = {path.name for path in (tmp_path / "views").iterdir()}
    assert views == {f"client-{number}.{kind}" for number in range(3) for kind in ("csv", "html", "png")}
    assert {path.name for path in (tmp_path / "a").glob("*.png")} == {"map.png", "density.png"}
    # From the file alone, without views: the same public picture.
    again = called("run", "--config", str(tmp_path / "a" / "config.toml"), "--out", str(tmp_path / "b"))
    assert (again.returncode, again.stderr) == (0, "")
    for name in ("density.png", "density.npz", "statement.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "views"}


def test_settings_of_a_private_map_come_from_flags_and_stand_in_its_file(tmp_path: Path) -> None:
    flags = ["--epsilon", "4", "--shares", "subspace=0.4, moments=0.1", "--components", "3", "--placement", "weights"]
    ran(tmp_path / "a", *flags)
    text = (tmp_path / "a" / "config.toml").read_text()
    assert tomllib.loads(text)["private_map"]["shares"] == {
        "scale": 0.02, "moments": 0.1, "subspace": 0.4, "density": 0.1
    }  # fmt: skip
    published = Recording.read(tmp_path / "a").published
    assert published["anchors"].shape[1] <= 3
    with Ledger.read(tmp_path / "a" / "ledger.sqlite") as ledger:
        noise = {event.what: event.noise_multiplier for event in ledger.events(client="client-0")}
        assert ledger.spent() == pytest.approx(4)
    assert (noise["moments"] / noise["second moments"]) ** 2 == pytest.approx(4)
    read = RunConfig.from_toml(tmp_path / "a" / "config.toml").recipe
    assert (read.shares, read.components, read.placement) == (BudgetShares(moments=0.1, subspace=0.4), 3, "weights")


def test_a_whole_client_as_the_unit_is_said_to_be_too_much(tmp_path: Path) -> None:
    summary = ran(tmp_path / "run", "--epsilon", "2", "--unit", "client", "--anyway")
    assert "this would be ε = 2 end to end at δ = 1e-05, for one client, replace-one" in summary["headline"]
    text = (tmp_path / "run" / "statement.md").read_text()
    assert "The privacy unit is a client, and there are 3" in text
    assert "So the map is mostly noise" in text


def test_classes_need_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "bare.npz", X=np.random.default_rng(0).normal(size=(40, 3)))
    flags = ["--data", str(tmp_path / "bare.npz"), "--records", "40", "--views", str(tmp_path / "views")]
    done = called("run", *once(*SMALL, *flags, *TEN), "--out", str(tmp_path / "run"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "labels must be given, for a density by class" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bare.npz"]


@pytest.mark.parametrize(
    ("views", "sentence"),
    [("run", "in the run's folder"), ("run/views", "in the run's folder"), ("taken", "holds other files")],
)
def test_views_are_refused_where_they_do_not_belong(views: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").touch()
    flags = ["--epsilon", "2", "--out", str(tmp_path / "run"), "--views", str(tmp_path / views)]
    done = called("run", *once(*SMALL, *flags))
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_folder_for_views_that_cannot_be_made_is_named_before_anything_is_released(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    flags = ["--epsilon", "2", "--out", str(tmp_path / "run"), "--views", str(tmp_path / "file" / "views")]
    done = called("run", *once(*SMALL, *flags))
    assert done.returncode == 2
    assert "cannot be written to: Not a directory" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_client_column_makes_one_client_of_each_value(tmp_path: Path) -> None:
    """Also of more than ten; they are merged only where a number of clients is given."""
    rows = [f"{i % 7},{i % 5},ward {i % 13:02d}" for i in range(130)]
    (tmp_path / "wards.csv").write_text("\n".join(["age,dose,ward", *rows]) + "\n")
    flags = [
        "--data",
        str(tmp_path / "wards.csv"),
        "--client-column",
        "ward",
        "--mechanism",
        "none",
        "--landmarks",
        "8",
    ]
    flags += ["--rounds", "1", "--map", "clusters", "--clusters", "2", "--json"]
    done = called("run", *flags, "--out", str(tmp_path / "all"))
    assert done.returncode == 0, done.stderr
    with Ledger.read(tmp_path / "all" / "ledger.sqlite") as ledger:
        assert ledger.clients == [f"ward {i:02d}" for i in range(13)]
    done = called("run", *flags, "--clients", "4", "--out", str(tmp_path / "merged"))
    assert done.returncode == 0, done.stderr
    with Ledger.read(tmp_path / "merged" / "ledger.sqlite") as ledger:
        assert len(ledger.clients) == 4
