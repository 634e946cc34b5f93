"""`dpfedvis attack`, on runs that `dpfedvis run` left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks.reconstruction.report import attack
from attacks.reconstruction.scores import CannotScore
from attacks.shared.registry import KINDS, NothingToAttack, Truth, kind
from dpfedvis.cli.attack import truth_of
from dpfedvis.runs.execute import execute
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording
from tests.command_line import called

Hush = Callable[[float], None]
BASE = RunConfig(data="digits", records=300, clients=3, landmarks=100, rounds=2, perplexity=5, jobs=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def exact(folder: Path) -> Path:
    execute(BASE, folder / "exact")
    return folder / "exact"


@pytest.fixture(scope="module")
def private(folder: Path) -> Path:
    execute(BASE.updated(epsilon=2, release="noisy"), folder / "private")
    return folder / "private"


def scores(run: Path, out: Path) -> dict[str, Any]:
    done = called("attack", "--run", str(run), "--kind", "reconstruction", "--out", str(out), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)["reconstruction"]
    return result


def test_exact_rows_give_every_record_back(exact: Path, tmp_path: Path) -> None:
    found = scores(exact, tmp_path / "out")
    assert found["relative_error"] < 1e-12
    assert (found["recognised"], found["pair_accuracy"], found["ssim"]) == (1, 1, pytest.approx(1))
    assert (found["mu"], found["largest_pair_accuracy"], found["scored"]) == ("inf", 1, 300)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "reconstruction.json", "reconstruction.md", "reconstruction.png"
    }  # fmt: skip
    assert json.loads((tmp_path / "out" / "reconstruction.json").read_text()) == found
    assert (tmp_path / "out" / "reconstruction.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "reconstruction.md").read_text()
    assert page.startswith("# Reconstruction\n")
    assert "| recognised: the nearest true record is the right one | 100.00% |" in page


@pytest.mark.parametrize(
    "changes",
    [
        {"map": "clusters", "clusters": 3},
        {"map": "clusters", "clusters": 3, "gamma": (0.01, 0.1)},
        {"mechanism": "heuristic", "beta": 1.0},
        {"epsilon": 0.1, "scope": "landmarks", "mechanism": "gradient"},
    ],
    ids=["kernel", "kernels", "heuristic", "landmarks only"],
)
def test_whatever_protects_only_the_landmarks_protects_no_record(changes: dict[str, Any], tmp_path: Path) -> None:
    execute(BASE.updated(**changes), tmp_path / "run")
    found = scores(tmp_path / "run", tmp_path / "out")
    assert found["relative_error"] < 1e-8
    assert (found["recognised"], found["mu"]) == (1, "inf")


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": "input"},
        {"distances": "nystrom", "release": "noisy"},
        {"map": "clusters", "clusters": 3, "release": "noisy"},
    ],
    ids=["input", "distance rows", "coordinates for clusters"],
)
def test_under_a_budget_records_stay_hidden(changes: dict[str, Any], tmp_path: Path) -> None:
    execute(BASE.updated(epsilon=1, **changes), tmp_path / "run")
    check_hidden(scores(tmp_path / "run", tmp_path / "out"))


@pytest.mark.parametrize(
    "changes",
    [{"mechanism": "input"}, {"distances": "nystrom", "release": "noisy"}, {"release": "noisy"}],
    ids=["input", "distance rows", "coordinates"],
)
def test_too_little_noise_hides_little(
    changes: dict[str, Any], tmp_path: Path, hushed: Callable[[float], None]
) -> None:
    """The other way round: with less noise the attack succeeds, so that its failure above says something."""
    hushed(20)
    execute(BASE.updated(epsilon=500, **changes), tmp_path / "run")
    assert scores(tmp_path / "run", tmp_path / "out")["pair_accuracy"] > 0.8


def test_noisy_rows_hide_records(private: Path, tmp_path: Path) -> None:
    found = scores(private, tmp_path / "out")
    check_hidden(found)
    assert found["rows"] == "gram rows"
    assert found["mu"] == pytest.approx(0.5, abs=0.01)


def check_hidden(found: dict[str, Any]) -> None:
    assert found["relative_error"] > 0.95 * found["baseline_error"]
    assert found["recognised"] < 0.03
    # 300 pairs: five standard deviations above what μ allows would be a leak.
    assert found["pair_accuracy"] < found["largest_pair_accuracy"] + 5 * 0.5 / 300**0.5
    assert found["largest_pair_accuracy"] < 0.65


def test_by_default_pictures_of_records_go_beside_the_run_and_not_into_it(exact: Path) -> None:
    before = set(exact.rglob("*"))
    done = called("attack", "--run", str(exact), "--kind", "reconstruction")
    assert done.returncode == 0
    assert "# Reconstruction" in done.stdout
    assert set(exact.rglob("*")) == before
    assert (exact.with_name("exact-attacks") / "reconstruction.png").exists()


def test_all_kinds_that_are_there(exact: Path, tmp_path: Path) -> None:
    done = called("attack", "--run", str(exact), "--out", str(tmp_path / "out"), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert tuple(report) == KINDS
    for name, each in report.items():
        if "skipped" not in each:
            for suffix in ("json", "md", "png"):
                assert (tmp_path / "out" / f"{name}.{suffix}").stat().st_size


def test_a_private_map_leaves_nothing_to_reconstruct(tmp_path: Path) -> None:
    execute(BASE.updated(epsilon=2), tmp_path / "run")
    done = called("attack", "--run", str(tmp_path / "run"), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "the run released none" in json.loads(done.stdout)["reconstruction"]["skipped"]


def test_an_attack_does_not_look_at_the_truth(exact: Path) -> None:
    """Other records as the truth change the score and not the guess."""
    recording, truth = Recording.read(exact), truth_of(exact)
    honest = attack(recording, truth, np.random.default_rng(0))
    wrong = Truth(BASE.updated(seed=1).federated(), image_shape=truth.image_shape)
    other = attack(recording, wrong, np.random.default_rng(0))
    np.testing.assert_array_equal(honest.guesses, other.guesses)
    assert other.closeness.recognised < 0.05 < honest.closeness.recognised


def test_the_truth_has_the_records_of_the_run_and_fresh_ones(exact: Path) -> None:
    truth = truth_of(exact)
    fed = BASE.federated()
    np.testing.assert_array_equal(truth.pooled, fed.pooled()[0])
    np.testing.assert_array_equal(truth.client("client-1"), fed.clients[1].X)
    assert truth.fresh is not None
    assert truth.fresh.shape == (1797 - 300, 64)
    known = {record.tobytes() for record in truth.pooled}
    assert sum(record.tobytes() in known for record in truth.fresh) == 0
    assert truth.image_shape == (8, 8)


def test_of_a_random_sample_fresh_records_are_the_rest_of_the_file(tmp_path: Path) -> None:
    config = BASE.updated(sample="random", map="clusters", clusters=2, records=100, landmarks=5)
    execute(config, tmp_path / "run")
    truth = truth_of(tmp_path / "run")
    assert (truth.exchangeable, truth.caution) == (True, "")
    assert truth.fresh is not None
    parts = np.concatenate([truth.pooled, truth.fresh])
    whole = BASE.updated(records=None).dataset().X.astype(np.float32)
    np.testing.assert_array_equal(np.sort(parts.view("V256"), axis=0), np.sort(np.array(whole).view("V256"), axis=0))


def test_a_value_that_is_missing_among_fresh_records_stops_nobody(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((30, 3))
    X[25, 1] = np.nan
    np.savez(tmp_path / "table.npz", X=X)
    config = BASE.updated(data=str(tmp_path / "table.npz"), records=20, landmarks=4, map="clusters", clusters=2)
    execute(config, tmp_path / "run")
    truth = truth_of(tmp_path / "run")
    assert truth.fresh is not None
    np.testing.assert_array_equal(truth.fresh, np.delete(X, 25, axis=0)[20:].astype(np.float32))


def test_each_owner_gets_its_own_exposed_records_and_nobody_else(exact: Path, tmp_path: Path) -> None:
    pages, owners = tmp_path / "pages", tmp_path / "owners"
    arguments = ["attack", "--run", str(exact), "--kind", "exposure", "--out", str(pages)]
    done = called(*arguments, "--owner-out", str(owners))
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in owners.iterdir()} == {f"{p}-client-{p}.json" for p in range(3)}
    recording, truth = Recording.read(exact), truth_of(exact)
    for p, client in enumerate(truth.fed.clients):
        told = json.loads((owners / f"{p}-client-{p}.json").read_text())
        assert told["client"] == client.name
        assert len(told["exposed"]) == 10
        for each in told["exposed"]:
            distances = np.linalg.norm(recording.landmarks - client.X[each["index"]], axis=1)
            assert each["to_landmark"] == pytest.approx(distances.min(), rel=1e-5)
    public = done.stdout + "".join((pages / f"exposure.{suffix}").read_text() for suffix in ("md", "json"))
    assert "to_landmark" not in public
    assert "client-" not in public
    plain = called(*arguments)
    assert plain.stdout == done.stdout.replace(f"a file for each client, for that client only, is in {owners}\n", "")


@pytest.mark.parametrize("inside", ["{exact}", "{exact}/owners", "{pages}", "{pages}/owners"])
def test_lists_for_owners_do_not_get_among_public_files(inside: str, exact: Path, tmp_path: Path) -> None:
    before, pages = set(exact.rglob("*")), tmp_path / "pages"
    owners = inside.replace("{exact}", str(exact)).replace("{pages}", str(pages))
    done = called("attack", "--run", str(exact), "--out", str(pages), "--owner-out", owners)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "which others read" in done.stderr
    assert set(exact.rglob("*")) == before
    assert not pages.exists()


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def test_other_data_are_refused(exact: Path, tmp_path: Path) -> None:
    run = copied(exact, tmp_path / "run")
    path = run / "provenance.json"
    path.write_text(path.read_text().replace(json.loads(path.read_text())["data"]["sha256"], "0" * 64))
    done = called("attack", "--run", str(run))
    assert done.returncode == 2
    assert "digits has changed since the run" in done.stderr
    assert not run.with_name("run-attacks").exists()


def test_a_damaged_upload_leaves_no_part_of_a_report(exact: Path, tmp_path: Path) -> None:
    """The first gradient, which reconstruction, the first of all kinds, does not look at."""
    run = copied(exact, tmp_path / "run")
    with (run / "uploads" / "values.bin").open("r+b") as values:
        first = values.read(1)
        values.seek(0)
        values.write(bytes([first[0] ^ 1]))
    done = called("attack", "--run", str(run), "--out", str(tmp_path / "out"), "--owner-out", str(tmp_path / "owners"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is damaged at byte 0" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "owners").exists()


def test_rows_of_other_records_are_refused(exact: Path) -> None:
    fewer = Truth(BASE.updated(records=299).federated())
    with pytest.raises(CannotScore, match="100 rows of client-2 belong to other records"):
        attack(Recording.read(exact), fewer, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--run", "nowhere"], "nowhere holds no finished run"),
        (["--run", "{exact}", "--kind", "magic"], "--kind must be one of all, reconstruction"),
        (["--run", "{exact}", "--seed", "-1"], "--seed must be"),
        (["--run", "{exact}", "--kind", "reconstruction", "--out", "{exact}/config.toml"], "cannot be written to"),
        ([], "required: --run"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str, exact: Path) -> None:
    done = called("attack", *(each.replace("{exact}", str(exact)) for each in arguments))
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["config.toml", "provenance.json", "ledger.sqlite"])
def test_a_run_without_a_file_is_one_sentence(name: str, exact: Path, tmp_path: Path) -> None:
    run = copied(exact, tmp_path / "run")
    (run / name).unlink()
    done = called("attack", "--run", str(run), "--kind", "reconstruction")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert name in done.stderr


def test_nothing_to_attack_is_said(exact: Path, tmp_path: Path) -> None:
    run = copied(exact, tmp_path / "run")
    index = run / "uploads" / "index.jsonl"
    index.write_text("".join(line for line in index.read_text().splitlines(True) if '"distance rows"' not in line))
    done = called("attack", "--run", str(run), "--kind", "reconstruction")
    assert done.returncode == 2
    assert "the run released none" in done.stderr
    with pytest.raises(NothingToAttack):
        attack(Recording.read(run), truth_of(run), np.random.default_rng(0))


def test_records_that_are_no_images_get_a_picture_too(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((40, 3))
    path = tmp_path / "table.npz"
    np.savez(path, X=X)
    execute(RunConfig(data=str(path), clients=2, landmarks=8, rounds=2, perplexity=3, jobs=1), tmp_path / "run")
    found = scores(tmp_path / "run", tmp_path / "out")
    assert found["relative_error"] < 1e-5  # the clients hold float32
    assert (found["ssim"], found["psnr"]) == (None, None)
    assert (tmp_path / "out" / "reconstruction.png").exists()


def test_the_library_does_not_import_attacks() -> None:
    code = "import sys, dpfedvis.cli.main, dpfedvis.runs.execute; sys.exit('attacks' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_kinds_are_found_by_name() -> None:
    assert all(callable(kind(name)) for name in KINDS)
    assert kind("reconstruction") is attack
