"""What `dpfedvis run --resume` refuses, with nothing lost, and that it sends the same bytes again."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Ledger
from dpfedvis.cli.main import main
from dpfedvis.federation import Outbox
from dpfedvis.federation.checkpoint import SnapshotMismatch
from dpfedvis.runs.execute import execute
from dpfedvis.runs.resume import ResumeFolder, RunInterrupted, SettingsDiffer
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording
from dpfedvis.runs.upload_writer import RecordingError
from tests.crash.folders import content, copy, events_of, kept, recorded
from tests.crash.nursery import NOISY, SMALL, Nursery


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["run", *arguments])
    return code, capsys.readouterr().err


def test_the_same_bytes_are_sent_after_a_kill(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = kept(copied)
    assert len(waiting) == 3
    before = recorded(copied)
    assert not waiting.keys() & before.keys()
    assert called(capsys, "--out", str(copied), "--resume") == (0, "")
    after = recorded(copied)
    assert {key: after[key] for key in (*before, *waiting)} == {**before, **waiting}


def test_noise_that_is_drawn_again_is_refused(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that all of this is against, planted: the kept uploads are not found."""
    before = events_of(copied)
    monkeypatch.setattr(Outbox, "find", lambda *_: None)
    code, said = called(capsys, "--out", str(copied), "--resume")
    assert code == 2
    assert "client-0 has already released its gradient of round 2" in said
    assert events_of(copied) == before


def test_noise_that_is_drawn_again_does_not_pass_as_the_same(
    stopped: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way to go wrong, planted: new noise is taken for what the ledger has."""
    folder = copy(stopped[4], tmp_path / "run")
    before = recorded(folder)
    monkeypatch.setattr(
        Outbox, "get_or_create", lambda _, what, round, make: [replace(each, resent=True) for each in make()]
    )
    code, said = called(capsys, "--out", str(folder), "--resume")
    assert code == 2
    assert "gradient of client-0 is already recorded with other values" in said
    assert recorded(folder) == before


def test_what_is_only_drawn_may_change(
    stopped: dict[int, Path], copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that could not be drawn is finished with other settings of the drawing; what was released stays."""
    same = copy(next(iter(stopped.values())), tmp_path / "same")
    assert called(capsys, "--out", str(same), "--resume") == (0, "")
    before = recorded(copied)
    assert called(capsys, "--out", str(copied), "--resume", "--perplexity", "7", "--jobs", "2", "--no-evaluate") == (
        0,
        "",
    )
    config = RunConfig.from_toml(copied / "config.toml")
    assert (config.layout.perplexity, config.jobs, config.evaluate) == (7.0, 2, False)
    assert not (copied / "simulation").exists()
    after = recorded(copied)
    assert {key: after[key] for key in before} == before
    assert events_of(copied) == events_of(same)
    places = [np.load(folder / "embedding.npz")["embedding"] for folder in (copied, same)]
    assert not np.array_equal(*places)


def interrupted(folder: Path, config: RunConfig, stage: str) -> None:
    """Stop a run with Ctrl-C when a stage after the rounds begins."""

    def stop(name: str, done: int, total: int) -> None:
        if name == stage:
            raise KeyboardInterrupt

    with pytest.raises(RunInterrupted, match="--resume"):
        execute(config, folder, progress=stop)


def test_settings_on_which_rows_depend_do_not_only_draw(tmp_path: Path) -> None:
    """Exact kernel rows are those of one affinity: another one would be another release."""
    kernel = {"map": "clusters", "clusters": 2, "affinity": "kernel", "affinity_gamma": 0.1}
    config = RunConfig(data="digits", records=60, clients=2, landmarks=8, rounds=2, **kernel)
    interrupted(tmp_path / "run", config, "rows")
    before = (tmp_path / "run" / "config.toml").read_text()
    for change in ({"affinity_gamma": 1.0}, {"affinity": "neighbors"}):
        with pytest.raises(SnapshotMismatch, match="different settings"):
            execute(config.updated(**change), tmp_path / "run", resume=True, changed=list(change))
    assert (tmp_path / "run" / "config.toml").read_text() == before
    done = execute(config.updated(clusters=3), tmp_path / "run", resume=True)
    assert done.config.spectral.clusters == 3
    with Ledger.read(tmp_path / "run" / "ledger.sqlite") as ledger:
        assert {event.what for event in ledger.events() if event.stage == "release"} == {"kernel rows"}


def test_a_published_map_is_not_laid_out_another_way(tmp_path: Path) -> None:
    config = RunConfig(data="digits", records=60, clients=2, landmarks=20, epsilon=8.0, density=True, perplexity=5.0)
    interrupted(tmp_path / "run", config, "placement at home")
    with pytest.raises(SnapshotMismatch, match=r"published already, as TSNELayout\(perplexity=5"):
        execute(config.updated(perplexity=9.0), tmp_path / "run", resume=True)
    done = execute(config.updated(placement="weights"), tmp_path / "run", resume=True)
    assert RunConfig.from_toml(tmp_path / "run" / "config.toml").layout.perplexity == 5.0
    assert done.statement.end_to_end == pytest.approx(8.0)


@pytest.mark.parametrize("change", [{"sweeps": 20}, {"components": 3}, {"density": True}, {"clip": 0.5}])
def test_settings_given_in_python_are_compared_too(change: dict[str, Any], tmp_path: Path) -> None:
    config = RunConfig(data="digits", records=60, clients=2, landmarks=20, epsilon=8.0, evaluate=False)
    interrupted(tmp_path / "run", config, "placement at home")
    with pytest.raises(SettingsDiffer, match=next(iter(change))):
        execute(RunConfig(data="digits", **change), tmp_path / "run", resume=True)
    execute(RunConfig(data="digits"), tmp_path / "run", resume=True)
    assert not (tmp_path / "run" / "simulation").exists()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--rounds", "4"], "rounds is 3, not 4"),
        (["--epsilon", "3", "--seed", "1"], "epsilon is 2.0, not 3.0, seed is 0, not 1"),
        (["--noise", "seeded"], "noise is 'discrete', not 'seeded'"),
        (["--data", "mnist"], "data is 'digits', not 'mnist'"),
        (["--views", "views"], "views is None, not views"),
        (["--rounds", "many"], "must be a whole number"),
    ],
)
def test_other_settings_are_refused_by_name(
    flags: list[str], sentence: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(copied)
    try:
        code, said = called(capsys, "--out", str(copied), "--resume", *flags)
    except SystemExit as stop:
        code, said = int(stop.code or 0), capsys.readouterr().err
    assert code == 2
    assert sentence in said
    assert said.count("\n") == 1
    assert content(copied) == before


def test_the_same_settings_may_be_given_again(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*SMALL, *NOISY, "--noise", "discrete", "--bounds", "0", "1"]
    assert called(capsys, *flags, "--out", str(copied), "--resume") == (0, "")


@pytest.mark.parametrize(
    ("name", "content_of_file", "sentence"),
    [
        ("run/config.toml", b"rounds = ", "config.toml is not TOML"),
        ("run/config.toml", None, "holds no run to resume"),
        ("run/provenance.json", b"{}", "provenance.json is damaged"),
        ("run/provenance.json", None, "provenance.json cannot be read"),
        ("run/ledger.sqlite", b"SQLite?", "ledger.sqlite"),
        ("run/ledger.sqlite", None, "has no entry for the gradient of client-0, which was released"),
        ("run/uploads/index.jsonl", b"{}\n{}\n", "it has lost the gradient of client-0 in round 1"),
        ("run/uploads/index.jsonl", None, "it has lost the gradient of client-0 in round 1"),
        ("run/uploads/values.bin", b"", "it has lost the gradient of client-0 in round 1"),
        ("run.unfinished/views.json", b"{", "views.json is damaged"),
        ("run.unfinished/checkpoint/run.npz", b"PK", "run.npz is damaged"),
        ("run.unfinished/checkpoint/landmarks/snapshot.npz", b"PK", "snapshot.npz is damaged"),
        ("run.unfinished/checkpoint/landmarks/outbox/gradient-000002.npz", b"PK", "gradient-000002.npz is damaged"),
        (
            "run.unfinished/checkpoint/landmarks/outbox/gradient-000002.npz",
            None,
            "client-0 has already released its gradient",
        ),
        (
            "run.unfinished/checkpoint/landmarks/snapshot.npz",
            None,
            "client-0 has already released its gradient of round 1",
        ),
    ],
)
def test_damage_is_named_and_nothing_is_lost(
    name: str, content_of_file: bytes | None, sentence: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied.parent / name
    assert path.is_file()
    if path.name == "ledger.sqlite":
        for log in copied.glob("ledger.sqlite-*"):
            log.unlink()
    if content_of_file is None:
        path.unlink()
    else:
        path.write_bytes(content_of_file)
    before = events_of(copied) if content_of_file is None and path.name != "ledger.sqlite" else None
    damaged = path.read_bytes() if path.exists() else None
    code, said = called(capsys, "--out", str(copied), "--resume")
    assert code == 2
    assert sentence in said
    assert said.count("\n") == 1
    assert (path.read_bytes() if damaged is not None else None) == damaged
    assert ResumeFolder(copied).checkpoint.is_dir()
    if before is not None:
        assert events_of(copied) == before


def test_a_finished_run_says_so(wholes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    shutil.copytree(wholes("exact"), folder)
    before = content(folder)
    code, said = called(capsys, "--out", str(folder), "--resume")
    assert (code, said) == (2, f"dpfedvis: {folder} is finished; there is nothing to resume\n")
    assert content(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    (folder / "provenance.json").write_text((folder / "provenance.json").read_text().replace("finished", "ended"))
    code, said = called(capsys, "--out", str(folder), "--resume")
    assert code == 2
    assert "what its clients kept" in said
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_other_data_are_refused(nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, folder = tmp_path / "records.npz", tmp_path / "run"
    records = np.random.default_rng(0).random((60, 5))
    np.savez(path, X=records)
    flags = [*SMALL, *NOISY, "--data", str(path), "--bounds", "0", "1", "--out", str(folder)]
    assert nursery.run(*flags, at=12)[0] == -signal.SIGKILL
    before = events_of(folder)
    assert before
    records[0, 0] = 0.5
    np.savez(path, X=records)
    code, said = called(capsys, "--out", str(folder), "--resume")
    assert code == 2
    assert "have changed (sha256 was" in said
    assert said.count("\n") == 1
    assert events_of(folder) == before


def test_other_code_may_go_on_with_a_warning(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied / "provenance.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "commit": "another"}))
    code = main(["run", "--out", str(copied), "--resume", "--json"])
    printed = capsys.readouterr()
    assert code == 0
    assert printed.err.startswith(f"dpfedvis: warning: {copied} went on with other code than it began with: commit was")
    assert printed.err.count("\n") == 1
    (warning,) = json.loads(printed.out)["warnings"]
    assert f"commit was another, is {facts['commit']}" in warning
    after = json.loads(path.read_text())
    assert (after["commit"], after["started"]) == ("another", facts["started"])
    assert [each["commit"] for each in after["resumed"]] == [facts["commit"]]


def test_two_processes_do_not_work_on_one_run(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(copied)
    with ResumeFolder(copied).held():
        code, said = called(capsys, "--out", str(copied), "--resume")
    assert (code, said) == (2, f"dpfedvis: another process is working on {copied}\n")
    assert content(copied) == before


def test_an_unfinished_run_is_not_written_over(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(copied)
    code, said = called(capsys, *SMALL, "--out", str(copied))
    assert code == 2
    assert "holds an unfinished run; resume it (--resume)" in said
    assert content(copied) == before


def test_what_is_left_of_a_deleted_run_is_not_gone_on_with(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its ledger nobody knows what was spent: a new run in its place starts from nothing."""
    old = kept(copied)
    shutil.rmtree(copied)
    assert called(capsys, *SMALL, *NOISY, "--noise", "discrete", "--out", str(copied)) == (0, "")
    new = recorded(copied)
    assert old.keys() <= new.keys()
    assert all(new[key] != old[key] for key in old)
    assert not ResumeFolder(copied).path.exists()


def test_other_files_next_to_the_run_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.unfinished").mkdir()
    (tmp_path / "run.unfinished" / "essay.txt").write_text("to be continued")
    code, said = called(capsys, *SMALL, "--out", str(tmp_path / "run"))
    assert code == 2
    assert "holds other files" in said
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == [
        "run.unfinished",
        "run.unfinished/essay.txt",
    ]


def test_what_clients_keep_is_not_in_the_folder_and_for_its_owner_alone(stopped: dict[int, Path]) -> None:
    names = {path.name for path in stopped[3].rglob("*") if not path.name.startswith("ledger.sqlite-")}
    assert names == {"config.toml", "provenance.json", "ledger.sqlite", "uploads", "index.jsonl", "values.bin"}
    assert ResumeFolder(stopped[3]).path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(RecordingError, match="holds no finished run"):
        Recording.read(stopped[3])
