"""From CSV files to a map through the command line: example, draft, schema, files, persons, features, views."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from accounting import gaussian_epsilon, gaussian_mu
from dpfedvis.data.example import HOSPITALS
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.ledger_file import ledger_path
from tests.command_line import Done, called
from tests.command_line import check_refused as check_one_line

FAST = ("--placement", "weights", "--sweeps", "1", "--landmarks", "20", "--anchors", "40", "--jobs", "1",
        "--no-yardsticks")  # fmt: skip


def check_refused(done: Done, words: str) -> None:
    """One sentence, after what the owner reads of the files."""
    home = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith("dpfedvis: at home: ")]
    check_one_line(Done(done.args, done.returncode, done.stdout, "".join(home)), words)


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("example") / "hospitals"
    done = called("data", "example", "hospitals", "--out", str(folder), "--patients", "60")
    assert done.returncode == 0, done.stderr
    return folder


def files(network: Path) -> list[str]:
    return [str(network / f"{name}.csv") for name in HOSPITALS]


def run(network: Path, out: Path, *more: str, data: list[str] | None = None, noise: str = "seeded"):
    """A run of the example; a simulation unless real noise is asked for, which is charged to the files' ledgers."""
    schema = () if "--schema" in more else ("--schema", str(network / "schema.toml"))
    common = [*schema, *FAST, "--noise", noise, *more, "--out", str(out), "--json"]
    return called("run", "--data", *(data or files(network)), *common)


@pytest.fixture
def own(network, tmp_path) -> Path:
    """The example for one test alone."""
    return Path(shutil.copytree(network, tmp_path / "own"))


def facts(done) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Example and draft


def test_the_example_is_files_and_one_schema(network):
    assert sorted(path.name for path in network.iterdir()) == [*(f"{name}.csv" for name in HOSPITALS), "schema.toml"]
    check_refused(called("data", "example", "hospitals", "--out", str(network)), "holds other files")
    check_refused(called("data", "example", "hospitals", "--out", "x", "--patients", "0"), "--patients")


def test_a_draft_must_be_filled_in_before_it_runs(network, tmp_path):
    out = tmp_path / "draft.toml"
    done = called("data", "schema", *files(network)[:2], "--out", str(out), "--json")
    assert facts(done)["open"] == 13
    refused = run(network, tmp_path / "run", "--epsilon", "1", "--schema", str(out))
    check_refused(refused, "column 'age': its range is open; give [low, high], from public knowledge")
    assert not (tmp_path / "run").exists()
    check_refused(called("data", "schema", *files(network), "--out", str(out)), "exists")


def test_ranges_from_data_are_said_in_every_statement(network, tmp_path):
    out = tmp_path / "measured.toml"
    assert called("data", "schema", *files(network), "--out", str(out), "--ranges-from-data").returncode == 0
    found = facts(run(network, tmp_path / "run", "--epsilon", "1", "--schema", str(out)))
    said = "the ranges of the columns were measured on private data: not covered by ε"
    assert said in found["warnings"]
    assert said in (tmp_path / "run" / "statement.md").read_text()
    assert said in (tmp_path / "run" / "report.html").read_text()
    assert said in called("statement", str(tmp_path / "run")).stdout


def test_plain_numbers_run_without_a_schema_and_say_so(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "plain.csv"
    rows = ["a,b,c", *(",".join(f"{value:.3f}" for value in row) for row in rng.random((60, 3)))]
    path.write_text("\n".join(rows) + "\n")
    done = called("run", "--data", str(path), "--epsilon", "1", *FAST, "--out", str(tmp_path / "run"), "--json")
    found = facts(done)
    assert found["clients"] == ["plain"]
    assert any("measured on private data is not covered by ε" in each for each in found["warnings"])


def test_info_tells_the_owner_what_is_in_the_files(network):
    done = called("data", "info", *files(network), "--schema", str(network / "schema.toml"), "--json")
    found = facts(done)
    assert found["clients"] == list(HOSPITALS)
    assert found["groups"]["count"] == 5
    assert any("column 'crp'" in note for note in found["notes"])
    assert "clients:" in called("data", "info", *files(network), "--schema", str(network / "schema.toml")).stdout


# Files and clients


def test_each_file_is_a_client_with_its_own_ledger(own, tmp_path):
    network, out = own, tmp_path / "run"
    found = facts(run(network, out, "--epsilon", "1", noise="discrete"))
    assert found["clients"] == list(HOSPITALS)
    assert found["simulation"] is False
    statement = json.loads((out / "statement.json").read_text())
    assert {line["clients"] for line in statement["releases"]} == {5}
    assert "schema" in statement["facts"]
    # Another run takes only some of the files: their records add up, those of the others do not.
    again = facts(run(network, tmp_path / "again", "--epsilon", "1", data=files(network)[:2], noise="discrete"))
    two = gaussian_epsilon(np.sqrt(2) * gaussian_mu(1.0, 1e-5), 1e-5)
    assert again["all_runs"]["runs"] == 2
    assert again["all_runs"]["epsilon"] == pytest.approx(two, rel=1e-4)
    runs = {}
    for name in HOSPITALS:
        with SiteLedger.read(ledger_path(network / f"{name}.csv")) as ledger:
            runs[name] = ledger.all_runs(1e-5).runs
    assert list(runs.values()) == [2, 2, 1, 1, 1]
    for name in HOSPITALS:
        with SiteLedger.read(ledger_path(network / f"{name}.csv")) as ledger:
            assert {event.client.partition("/")[2] for event in ledger._events()} == {name}
    more = ("--epsilon", "1", "--lifetime-epsilon", "1.2")
    refused = run(network, tmp_path / "more", *more, data=files(network)[1:3], noise="discrete")
    check_refused(refused, "no room in the lifetime budget")
    assert "all together" in called("statement", str(out)).stdout


def test_a_lifetime_budget_is_kept_for_each_file(own, tmp_path):
    both, second = files(own)[:2], files(own)[1:2]
    facts(run(own, tmp_path / "a", "--epsilon", "1", "--lifetime-epsilon", "1.2", data=both, noise="discrete"))
    for data in (both[:1], second):
        refused = run(own, tmp_path / "b", "--epsilon", "1", data=data, noise="discrete")
        check_refused(refused, "no room in the lifetime budget")


def test_persons_of_another_column_are_not_added_up(own, tmp_path):
    person = ("--epsilon", "1", "--unit", "person")
    facts(run(own, tmp_path / "a", *person, data=files(own)[:1], noise="discrete"))
    other = tmp_path / "other.toml"
    text = (own / "schema.toml").read_text()
    other.write_text(text.replace('[columns.patient]\nrole = "person"', '[columns.patient]\nrole = "drop"').replace(
        '[columns.case]\nrole = "id"', '[columns.case]\nrole = "person"'))  # fmt: skip
    refused = run(own, tmp_path / "b", *person, "--schema", str(other), data=files(own)[:1], noise="discrete")
    check_refused(refused, "made persons by persons of column patient, and this one by persons of column case")


@pytest.mark.parametrize("more", [("--clients", "4"), ("--records", "20")])
def test_rows_of_persons_are_private(more, own, tmp_path):
    """Who gets a row, and which rows there are, would follow from how many rows others have."""
    refused = run(
        own, tmp_path / "x", "--epsilon", "1", "--unit", "person", *more, data=files(own)[:1], noise="discrete"
    )
    check_refused(refused, "private")


def test_nothing_of_the_records_is_in_the_folder(own, tmp_path):
    out = tmp_path / "run"
    done = run(own, out, "--epsilon", "1", noise="discrete")
    assert "at home: aachen.csv, column 'crp'" in done.stderr, "the owner reads it on the terminal"
    for path in out.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for private in (b"aa-000001", b"A00001", b"dpfedvis: at home", b"values are missing"):
                assert private not in content, path


def test_merging_files_is_a_simulation_and_called_one(network, tmp_path):
    refused = run(network, tmp_path / "a", "--epsilon", "1", "--clients", "2", noise="discrete")
    check_refused(refused, "--clients must be left out with several")
    out = tmp_path / "b"
    facts(run(network, out, "--epsilon", "1", "--clients", "2"))
    said = "The clients are a simulation: records were dealt to them"
    assert said in (out / "statement.md").read_text()


def test_a_flag_that_is_given_twice_is_refused(network, tmp_path):
    one, two, *_ = files(network)
    check_refused(called("run", "--data", one, "--data", two, "--out", str(tmp_path / "x")), "--data is given twice")


def test_a_run_goes_on_with_files_and_schema(own, tmp_path, monkeypatch):
    import dpfedvis.runs.execute as module

    def stop(*_args, **_named):
        raise KeyboardInterrupt

    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_results", stop)
        assert run(own, out, "--epsilon", "1", noise="discrete").returncode == 130
    done = called("run", "--out", str(out), "--resume", "--json")
    assert facts(done)["clients"] == list(HOSPITALS)
    assert facts(done)["all_runs"]["runs"] == 1
    config = (out / "config.toml").read_text()
    assert re.search(r'^schema = ".*schema.toml"$', config, re.M)


# Persons


def test_a_person_is_the_unit(own, network, tmp_path):
    out = tmp_path / "run"
    person = ("--epsilon", "3", "--unit", "person", "--trust", "aggregate")
    found = facts(run(own, out, *person, "--rows-per-person", "2", noise="discrete"))
    assert "for one person with at most 2 records taking part, replace-one" in found["headline"]
    statement = json.loads((out / "statement.json").read_text())
    assert statement["unit"] == "person"
    assert statement["epsilon_end_to_end"] == pytest.approx(3.0, rel=1e-5)
    text = (out / "statement.md").read_text()
    assert "Each person is at one site, under one name there." in text
    assert "number of persons at each are treated as public" in text
    with_two = statement["releases"][-1]
    other = tmp_path / "one"
    facts(run(network, other, *person))
    with_one = json.loads((other / "statement.json").read_text())["releases"][-1]
    # Twice the records of a person over twice the denominator: the same Δ for a mean, and half the rows in it.
    assert with_two["sensitivity"][1] == pytest.approx(with_one["sensitivity"][1], rel=1e-3)


def test_epsilon_of_a_person_with_several_rows_is_said(network, tmp_path):
    out = tmp_path / "run"
    facts(run(network, out, "--epsilon", "1", "--rows-per-person", "4"))
    several = gaussian_epsilon(4 * gaussian_mu(1.0, 1e-5), 1e-5)
    statement = json.loads((out / "statement.json").read_text())
    assert statement["epsilon_of_rows"] == pytest.approx(several, rel=1e-4)
    assert re.search(
        r"for a person with 4 rows ε is 4\.\d+ \(4·μ\); with more, more", (out / "statement.md").read_text()
    )


def test_persons_need_a_column_and_no_rows(network, tmp_path):
    unknown = ("run", "--data", "digits", "--records", "60", "--epsilon", "1", "--unit", "person")
    check_refused(called(*unknown, "--out", str(tmp_path / "x")), "the data do not say who each record is of")
    words = ["run", "--data", *files(network), "--schema", str(network / "schema.toml"), "--epsilon", "1"]
    refused = called(*words, "--unit", "person", "--release", "noisy", "--out", str(tmp_path / "y"))
    check_refused(refused, "record where each record has a row")


# Views


def test_a_site_finds_its_own_patients_on_the_map(network, tmp_path):
    views = tmp_path / "views"
    facts(run(network, tmp_path / "run", "--epsilon", "2", "--views", str(views), "--evaluate"))
    assert views.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in views.iterdir()) == sorted(
        f"{name}.{kind}" for name in HOSPITALS for kind in ("csv", "html", "png")
    )
    with (views / "bremen.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    with (network / "bremen.csv").open(newline="") as stream:
        own = list(csv.DictReader(stream))
    assert rows[0] == ["id", "x", "y", "cluster"]
    assert [row[0] for row in rows[1:]] == [row["case"] for row in own]
    assert all(np.isfinite([float(row[1]), float(row[2])]).all() for row in rows[1:])
    with np.load(tmp_path / "run" / "simulation" / "places.npz") as stored:
        placed = stored["places"][stored["clients"] == "bremen"]
    np.testing.assert_allclose([[float(row[1]), float(row[2])] for row in rows[1:]], placed, rtol=1e-5)
    page = (views / "bremen.html").read_text()
    assert "temperature" in page
    assert "smoker" in page


def test_clusters_have_views_too(network, tmp_path):
    views = tmp_path / "views"
    more = ("--map", "clusters", "--clusters", "3", "--epsilon", "50", "--views", str(views), *FAST)
    done = called(
        "run", "--data", *files(network), "--schema", str(network / "schema.toml"), *more,
        "--noise", "seeded", "--out", str(tmp_path / "run"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with (views / "essen.csv").open(newline="") as stream:
        clusters = [row["cluster"] for row in csv.DictReader(stream)]
    assert set(clusters) <= {"0", "1", "2"}
    assert len(set(clusters)) > 1
    anchors = (tmp_path / "run" / "embedding.csv").read_text().splitlines()
    assert anchors[0] == "anchor,x,y,cluster"
    assert {line.rsplit(",", 1)[1] for line in anchors[1:]} == {"0", "1", "2"}
    assert "each in its cluster" in " ".join((tmp_path / "run" / "report.html").read_text().split())


# Features


def test_features_stand_in_the_statement(tmp_path):
    out = tmp_path / "run"
    common = ("run", "--data", "digits", "--records", "80", "--clients", "2", "--epsilon", "5", *FAST)
    done = called(*common, "--features", "hog", "--compare-features", "hog", "--out", str(out), "--json")
    facts(done)
    text = (out / "statement.md").read_text()
    assert re.search(r"by public features \(hog 8x8[^)]*, sha256 [0-9a-f]{64}\), which costs no ε", text)
    assert re.search(r'^features = "hog"$', (out / "config.toml").read_text(), re.M)
    check_refused(called(*common, "--features", "hgo", "--out", str(tmp_path / "x")), "did you mean hog?")


def test_features_of_a_table_of_pixels_need_a_shape_and_a_range(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "pixels.csv"
    rows = [",".join(f"p{i}" for i in range(64)), *(",".join(map(str, row)) for row in rng.integers(0, 256, (50, 64)))]
    path.write_text("\n".join(rows) + "\n")
    common = ("run", "--data", str(path), "--epsilon", "5", *FAST)
    check_refused(
        called(*common, "--features", "hog", "--bounds", "0", "255", "--out", str(tmp_path / "x")), "hog:28x28"
    )
    check_refused(called(*common, "--features", "hog:8x8", "--out", str(tmp_path / "y")), "public range of the pixels")
    done = called(*common, "--features", "hog:8x8", "--bounds", "0", "255", "--out", str(tmp_path / "z"), "--json")
    facts(done)


def test_vectors_of_a_file_are_taken_on_trust(network, tmp_path):
    rng = np.random.default_rng(0)
    lines = ["case,a,b,c"]
    for name in HOSPITALS:
        with (network / f"{name}.csv").open(newline="") as stream:
            lines += [f"{row['case']},{','.join(map(str, rng.random(3)))}" for row in csv.DictReader(stream)]
    path = tmp_path / "vectors.csv"
    path.write_text("\n".join(lines) + "\n")
    out = tmp_path / "run"
    facts(run(network, out, "--epsilon", "2", "--features", str(path)))
    assert (
        "That each was made from its own record alone, by something public, is taken on trust."
        in (out / "statement.md").read_text()
    )
    path.write_text("\n".join(lines[:-3]) + "\n")
    refused = run(network, tmp_path / "less", "--epsilon", "2", "--features", str(path))
    check_refused(refused, "essen")
    assert "3 " in refused.stderr
