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
from dpfedvis.numerics.files import read_arrays, write_arrays
from dpfedvis.runs.execute import execute
from dpfedvis.runs.resume import ResumeFolder, RunInterrupted, SettingsDiffer
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording
from dpfedvis.runs.upload_writer import RecordingError
from dpfedvis.server.checkpoint import SnapshotMismatch
from dpfedvis.site.outbox import Outbox
from tests.command_line import once
from tests.crash.folders import by_site, content, copy, events_at_sites, events_of, kept, recorded, sites_of
from tests.crash.nursery import NOISY, SMALL, Nursery

LOST = "gradient was released already, and the bytes to send again are not kept"
SITE = "run.unfinished/checkpoint/sites/1"
UNREADABLE = "the files of this site cannot be read or written"


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
    before, spent = events_of(copied), events_at_sites(copied)
    monkeypatch.setattr(Outbox, "find", lambda *_: None)
    code, said = called(capsys, "--out", str(copied), "--resume")
    assert code == 2
    assert f"client-0 failed in round 2: {LOST}" in said
    assert (events_of(copied), events_at_sites(copied)) == (before, spent)


def test_noise_that_is_drawn_again_does_not_pass_as_the_same(
    stopped: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way to go wrong, planted: new noise is taken for what the ledger has."""
    folder = copy(stopped[4], tmp_path / "run")
    before, find = recorded(folder), Outbox.find

    def other(outbox: Outbox, what: str, round: int) -> Any:
        found = find(outbox, what, round)
        return found if found is None else replace(found, values=found.values + 1)

    monkeypatch.setattr(Outbox, "find", other)
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
        ("run/ledger.sqlite", None, "the ledger is lost"),
        ("run/uploads/index.jsonl", b"{}\n{}\n", "it has lost the gradient of client-0 in round 1"),
        ("run/uploads/index.jsonl", None, "it has lost the gradient of client-0 in round 1"),
        ("run/uploads/values.bin", b"", "it has lost the gradient of client-0 in round 1"),
        ("run.unfinished/views.json", b"{", "views.json is damaged"),
        ("run.unfinished/checkpoint/run.npz", b"PK", "run.npz is damaged"),
        ("run.unfinished/checkpoint/landmarks/snapshot.npz", b"PK", "snapshot.npz is damaged"),
        (f"{SITE}/outbox/*/gradient-000000002.npz", b"PK", "gradient-000000002.npz is damaged"),
        (f"{SITE}/outbox/*/gradient-000000002.npz", None, f"client-1 failed in round 2: {LOST}"),
        (f"{SITE}/ledger.sqlite", b"SQLite?", "ledger.sqlite"),
        (f"{SITE}/identity.key", b"short", "length of the private key must be 32 bytes"),
        ("run.unfinished/checkpoint/landmarks/snapshot.npz", None, f"client-0 failed in round 1: {LOST}"),
    ],
)
def test_damage_is_named_and_nothing_is_lost(
    name: str, content_of_file: bytes | None, sentence: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = copied.parent.glob(name)
    if content_of_file is None:
        path.unlink()
    else:
        path.write_bytes(content_of_file)
    before = None if path.name == "ledger.sqlite" else (events_of(copied), events_at_sites(copied))
    damaged = path.read_bytes() if path.exists() else None
    code, said = called(capsys, "--out", str(copied), "--resume")
    assert code == 2
    assert sentence in said
    # What a site logs is shown before the sentence that all commands end with.
    assert said.count("\n") == (2 if UNREADABLE in said else 1)
    if damaged is not None:
        assert path.read_bytes() == damaged
    elif path.name == "ledger.sqlite" and path.parent == copied:
        assert not path.exists(), "an empty ledger was put in the place of the lost one"
    assert ResumeFolder(copied).checkpoint.is_dir()
    if before is not None:
        assert (events_of(copied), events_at_sites(copied)) == before


def test_bytes_that_were_edited_at_a_site_do_not_leave(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hash binds them to the event: the ledger would say less than what is sent."""
    before = recorded(copied)
    (path,) = copied.parent.glob(f"{SITE}/outbox/*/gradient-000000002.npz")
    arrays = read_arrays(path)
    write_arrays(path, {**arrays, "values": arrays["values"] + 1})
    code, said = called(capsys, "--out", str(copied), "--resume")
    assert code == 2
    log, sentence = said.splitlines()
    assert log.startswith("dpfedvis: client-1 cannot use its files (")
    assert log.endswith("gradient-000000002.npz is damaged or was edited: it is not what was to be sent)")
    assert sentence.startswith(f"dpfedvis: client-1 failed in round 2: {UNREADABLE}")
    after = recorded(copied)
    assert after.items() >= before.items()
    sent = [json.loads(key)[0] for key in after.keys() - before.keys()]
    assert {(event["client"], event["round"]) for event in sent} <= {("client-0", 2), ("client-2", 2)}


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("ledger.sqlite", "the ledger of this site is older than what it has released"),
        ("identity.key", "this run has released under another contract"),
    ],
)
def test_a_site_without_its_ledger_or_key_does_not_release_twice(
    file: str, sentence: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its ledger a site does not know what it released; without its key it cannot tell that it kept it."""
    before = recorded(copied), events_of(copied)
    for path in (sites_of(copied) / "0").glob(f"{file}*"):
        path.unlink()
    code, said = called(capsys, "--out", str(copied), "--resume")
    assert code == 2
    assert sentence in said
    after = recorded(copied)
    assert after.items() >= before[0].items()
    assert not any('"client": "client-0"' in key for key in after.keys() - before[0].keys())
    assert events_of(copied) == before[1]


@pytest.mark.parametrize(
    ("first", "after", "sentence"),
    [
        # The site knows that it answered; a server that is further behind is refused before it asks.
        ("run", True, "gram rows was released already, and the bytes to send again are not kept"),
        ("copy", True, "gram rows was released already, and the bytes to send again are not kept"),
        ("run", False, "records.sqlite tells of releases that it has not"),
    ],
)
def test_a_copy_of_an_unfinished_run_is_refused_once_the_other_went_on(
    first: str, after: bool, sentence: str, nursery: Nursery, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both would draw noise for the same release, and one would be charged. The ledger of the records knows of it."""
    folder, records = tmp_path / "run", tmp_path / "records.sqlite"
    flags = [*SMALL, *NOISY, "--noise", "discrete", "--ledger", str(records), "--out", str(folder)]
    assert nursery.run(*flags, at=3, kind="mirror", after=after)[0] == -signal.SIGKILL  # in the last round
    twin = copy(folder, tmp_path / "copy")
    goes_on, stays = (folder, twin) if first == "run" else (twin, folder)
    waiting = kept(stays, records)
    assert called(capsys, "--out", str(goes_on), "--resume") == (0, "")
    assert recorded(goes_on).items() >= waiting.items()
    spent = events_at_sites(goes_on, records)
    assert spent == by_site(events_of(goes_on))
    code, said = called(capsys, "--out", str(stays), "--resume")
    assert code == 2
    assert sentence in said
    assert said.count("\n") == 1
    assert events_at_sites(stays, records) == spent
    # What it had to send is the same bytes, and nothing else has left.
    assert recorded(goes_on).items() >= recorded(stays).items()


def test_an_empty_ledger_beside_traces_of_releases_is_refused(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied / "ledger.sqlite"
    with Ledger.read(path) as ledger:
        budget = ledger.budget
    path.unlink()
    Ledger(path, budget).close()
    before = content(copied)
    for trace in ("index.jsonl", "snapshot.npz"):  # without the uploads, the checkpoint still tells
        code, said = called(capsys, "--out", str(copied), "--resume")
        assert code == 2
        assert f"{trace} tells of releases that it has not" in said
        assert said.count("\n") == 1
        assert content(copied) == before
        shutil.rmtree(copied / "uploads", ignore_errors=True)
        before = content(copied)


def test_a_lost_ledger_without_what_clients_kept_is_refused_and_nothing_is_made(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copied / "ledger.sqlite").unlink()
    shutil.rmtree(ResumeFolder(copied).path)
    before = content(copied)
    code, said = called(capsys, "--out", str(copied), "--resume")
    assert (code, said.count("\n")) == (2, 1)
    assert "the ledger is lost" in said
    assert content(copied) == before
    assert not ResumeFolder(copied).path.exists()


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
    flags = once(*SMALL, *NOISY, "--data", str(path), "--bounds", "0", "1", "--out", str(folder))
    assert nursery.run(*flags, at=2, kind="mirror")[0] == -signal.SIGKILL
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
    names = {path.name for path in stopped[3].rglob("*")}
    assert names == {"config.toml", "provenance.json", "ledger.sqlite", "uploads", "index.jsonl", "values.bin"}
    for path in (ResumeFolder(stopped[3]).path, *sites_of(stopped[3]).iterdir()):
        assert path.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in sites_of(stopped[3]).glob("*/identity.key")] == [0o600] * 3
    with pytest.raises(RecordingError, match="holds no finished run"):
        Recording.read(stopped[3])
