"""`dpfedvis run --resume`: processes that are really killed, at every kind of write, and go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Ledger
from dpfedvis import callbacks
from dpfedvis.cli import main
from dpfedvis.config import RunConfig
from dpfedvis.federation import Outbox
from dpfedvis.recorder import Recorder, RecordingError
from dpfedvis.recording import Recording
from dpfedvis.rows import DistanceRows
from dpfedvis.unfinished import Unfinished

SMALL = ["--data", "digits", "--records", "60", "--clients", "3", "--landmarks", "8", "--rounds", "3"]
SMALL += ["--perplexity", "5", "--jobs", "1"]
NOISY = ["--epsilon", "2", "--release", "noisy", "--mechanism", "gradient"]
DENSITY = ["--epsilon", "2", "--density"]
KINDS = {
    "exact": [],
    "noisy": NOISY,
    "noisy, system": [*NOISY, "--noise", "system", "--gamma", "histogram"],
    "noisy, aggregate": [*NOISY, "--trust", "aggregate", "--noise", "system"],
    "input": ["--epsilon", "2", "--mechanism", "input", "--noise", "system"],
    "clusters": ["--epsilon", "2", "--map", "clusters", "--clusters", "3", "--noise", "discrete"],
    "density": [*DENSITY, "--mechanism", "gradient"],
    "density, system": [*DENSITY, "--noise", "system"],
    "density, central": [*DENSITY, "--trust", "central", "--noise", "system"],
    "density, discrete": [*DENSITY, "--noise", "discrete"],
    "umap": [*DENSITY, "--map", "umap", "--noise", "discrete"],
}
# UMAP takes long to start, and what is released does not depend on it.
ALIKE = {"umap": "density, discrete"}

# One process that has everything loaded forks those that are to be killed: each is a process of its own, and starts at
# once. It sends itself the signal before or after its n-th write, so that the moment is known.
NURSERY = """
import contextlib, json, os, sys
import accounting, dp_accounting.pld, dp_accounting.rdp, dpfedvis.pictures, dpfedvis.runs, openTSNE, tqdm
import matplotlib.backends.backend_agg, scipy.optimize, sklearn.cluster, sklearn.datasets, sklearn.manifold
from dpfedvis import cli, pictures, provenance, recorder, runs, snapshot, unfinished
from dpfedvis.federation import outbox

with contextlib.suppress(ImportError):
    import opacus.accountants


def sabotage(at, after, number):
    count = 0

    def wrapped(call):
        def run(*given, **named):
            nonlocal count
            count += 1
            mine = count == at
            if mine and not after:
                os.kill(os.getpid(), number)
            result = call(*given, **named)
            if mine and after:
                os.kill(os.getpid(), number)
            return result

        return run

    writes = [(accounting.Ledger, "record"), (recorder.Recorder, "_append")]
    writes += [(each, "write_arrays") for each in (outbox, snapshot, recorder, runs, pictures)]
    writes += [(each, "write_text") for each in (recorder, runs, provenance, unfinished)]
    for place, name in writes:
        setattr(place, name, wrapped(getattr(place, name)))


for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        sys.stdin.close()
        for number, path in ((1, os.devnull), (2, order["errors"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        if order["at"] is not None:
            sabotage(order["at"], order["after"], order["signal"])
        os._exit(cli.main(order["arguments"]))
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)
"""


class Nursery:
    """Runs the command line in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "errors.txt"
        self._process = subprocess.Popen(
            [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(
        self, *arguments: str, at: int | None = None, after: bool = False, number: int = signal.SIGKILL
    ) -> tuple[int, str]:
        """Return the exit code, or minus the signal, and what was said on standard error."""
        order = {"arguments": ["run", *arguments], "at": at, "after": after, "signal": int(number)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**order, "errors": str(self._errors)}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline()), self._errors.read_text()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Any:
    """Runs of every kind that nobody interrupted, made when they are asked for."""
    folder, made = tmp_path_factory.mktemp("wholes"), {}

    def whole(kind: str) -> Path:
        if kind not in made:
            made[kind] = folder / str(len(made))
            assert nursery.run(*SMALL, *KINDS[kind], "--out", str(made[kind])) == (0, "")
        return made[kind]

    return whole


def events_of(folder: Path) -> list[str]:
    if not (folder / "ledger.sqlite").exists():
        return []
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        return [event.to_json() for event in ledger.events()]


def recorded(folder: Path) -> dict[str, bytes]:
    """Every upload that is whole in the folder, by its events. It reads and changes nothing."""
    index, values = folder / "uploads" / "index.jsonl", folder / "uploads" / "values.bin"
    found: dict[str, bytes] = {}
    for line in index.read_bytes().splitlines() if index.exists() else []:
        entry = json.loads(line)
        if "events" in entry:
            key, size = json.dumps(entry["events"]), int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
            assert key not in found, "recorded twice"
            found[key] = values.read_bytes()[entry["offset"] :][:size]
    return found


def kept(folder: Path) -> dict[str, bytes]:
    """Every upload that is at home and in the ledger: it counts as released, and must be sent as it is."""
    known, found = events_of(folder), {}
    for path in Unfinished(folder).checkpoint.rglob("*-??????.npz"):
        what, round = path.stem[:-7], int(path.stem[-6:])
        for upload in Outbox(path.parent).find(what, round) or []:
            if upload.event.to_json() in known and not what.startswith("curated"):
                found[json.dumps([upload.event.to_dict()])] = upload.values.tobytes()
    return found


def check_finished(folder: Path, whole: Path, kind: str) -> None:
    """Hold a run that was interrupted against one that was not."""
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        events = list(ledger.events())
        assert ledger.verify() == len(events)
        if ledger.budget is not None:
            assert ledger.spent() <= ledger.budget.epsilon
            assert ledger.spent() == pytest.approx(2)
    places = Counter((event.client, event.what, event.round) for event in events)
    assert set(places.values()) == {1}, "released twice"
    assert events_of(folder) == events_of(whole)
    assert recorded(folder).keys() == recorded(whole).keys()
    names = {path.name for path in whole.rglob("*")}
    assert {path.name for path in folder.rglob("*")} == names
    assert not Unfinished(folder).path.exists()
    facts = json.loads((folder / "provenance.json").read_text())
    assert facts["finished"] >= facts["resumed"][-1]["started"] >= facts["started"]
    assert sorted(Recording.read(folder).trajectory) == sorted(Recording.read(whole).trajectory)
    if "system" not in KINDS[kind] and "discrete" not in KINDS[kind]:
        assert recorded(folder) == recorded(whole)
        for name in names & {"landmarks.npz", "embedding.npz", "density.npz"}:
            with np.load(folder / name) as mine, np.load(whole / name) as theirs:
                assert mine.files == theirs.files
                for each in mine.files:
                    np.testing.assert_array_equal(mine[each], theirs[each])
        for name in ("statement.md", "embedding.csv", "map.png", "config.toml", "public.json"):
            assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def interrupted(nursery: Nursery, folder: Path, kind: str, steps: int, lives: int) -> Counter[str]:
    """Kill a run and take it up again many times, each time some writes later; return how far each life came."""
    came: Counter[str] = Counter()
    for life in range(lives):
        flags = ["--resume"] if (folder / "config.toml").exists() else [*SMALL, *KINDS[kind]]
        before, bytes_before = events_of(folder), {**recorded(folder), **kept(folder)}
        # Every third time it is Ctrl-C; both before and after a write.
        number = signal.SIGINT if life % 3 == 2 else signal.SIGKILL
        code, said = nursery.run(*flags, "--out", str(folder), at=steps + life % 2, after=life % 2 == 1, number=number)
        if code == 0 or "is finished" in said:
            came["finished"] += 1
            break
        if number == signal.SIGKILL:
            assert (code, said) == (-signal.SIGKILL, "")
        else:
            assert code == 130
            assert said.count("\n") == 1
            assert f"go on with: dpfedvis run --out {folder} --resume" in said or not folder.exists()
        events = events_of(folder)
        assert events[: len(before)] == before, "a spend was forgotten"
        assert set(Counter(events).values()) <= {1}, "spent twice"
        now = {**kept(folder), **recorded(folder)}
        for key, values in bytes_before.items():
            assert now.get(key, values) == values, "the same release with other noise"
        came[f"{len(events)} events"] += 1
    return came


@pytest.mark.parametrize(
    ("kind", "steps", "lives"),
    [
        ("exact", 11, 3),
        ("noisy", 7, 9),
        ("noisy, system", 10, 6),
        ("noisy, aggregate", 9, 4),
        ("input", 9, 6),
        ("clusters", 10, 3),
        ("density", 15, 3),
        ("density, system", 9, 7),
        ("density, central", 9, 6),
        ("umap", 30, 1),
    ],
)
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not(
    kind: str, steps: int, lives: int, nursery: Nursery, wholes: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    came = interrupted(nursery, folder, kind, steps, lives)
    assert len(came) >= min(lives, 3), "it was killed at one and the same place only"
    before = {**recorded(folder), **kept(folder)}
    assert before, "nothing had been released"
    if not came["finished"]:
        code, said = nursery.run("--resume", "--out", str(folder))
        assert (code, said) == (0, "") or "is finished" in said  # killed after its very last write
    check_finished(folder, wholes(ALIKE.get(kind, kind)), kind)
    after = recorded(folder)
    if "aggregate" not in KINDS[kind] and "central" not in KINDS[kind]:
        # Input perturbation's records were accounted for and have stayed at home.
        missing = [key for key in before if key not in after]
        assert all('"what": "records"' in key for key in missing)
        assert bool(missing) == (kind == "input")
    for key in before.keys() & after.keys():
        assert after[key] == before[key], "the same release with other noise"


def test_records_are_perturbed_once(nursery: Nursery, tmp_path: Path) -> None:
    """What is released after an interruption is computed from the records that were perturbed before it."""
    folder = tmp_path / "run"
    assert nursery.run(*SMALL, *KINDS["input"], "--out", str(folder), at=15) == (-signal.SIGKILL, "")
    home = Outbox(Unfinished(folder).checkpoint / "landmarks" / "outbox").find("home", 0)
    assert home is not None
    assert nursery.run("--out", str(folder), "--resume") == (0, "")
    recording = Recording.read(folder)
    for upload, rows in zip(home, recording.rows, strict=True):
        assert (upload.event.client,) == rows.clients
        np.testing.assert_allclose(rows.values, DistanceRows().of(upload.values, recording.landmarks), rtol=1e-9)


# What is refused, with nothing lost


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["run", *arguments])
    return code, capsys.readouterr().err


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> dict[int, Path]:
    """Runs with system noise, killed when the second round had been accounted for, by how many uploads had passed.

    Three is none of that round, four one of it.
    """
    found: dict[int, Path] = {}
    for at in range(12, 40):
        folder: Path = tmp_path_factory.mktemp("stopped") / "run"
        flags = [*SMALL, *NOISY, "--noise", "system"]
        assert nursery.run(*flags, "--out", str(folder), at=at, after=True) == (-signal.SIGKILL, "")
        if len(events_of(folder)) == 6:
            found.setdefault(len(recorded(folder)), folder)
        if {3, 4} <= found.keys():
            return found
    raise AssertionError("no write is of that moment")


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    shutil.copytree(Unfinished(source).path, Unfinished(target).path)
    return target


@pytest.fixture
def copied(stopped: dict[int, Path], tmp_path: Path) -> Path:
    return copy(stopped[3], tmp_path / "run")


def content(folder: Path) -> dict[str, bytes]:
    """All bytes of a run and of what its clients keep. The lock says nothing; SQLite's shared memory is no content."""
    paths = [path for root in (folder, Unfinished(folder).path) for path in root.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths if path.name != "lock" and not path.name.endswith("-shm")}


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
    assert "client-0 has released its gradient of round 2 already" in said
    assert events_of(copied) == before


def test_noise_that_is_drawn_again_does_not_pass_as_the_same(
    stopped: dict[int, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way to go wrong, planted: new noise is taken for what the ledger has."""
    folder = copy(stopped[4], tmp_path / "run")
    before = recorded(folder)
    monkeypatch.setattr(Outbox, "once", lambda _, what, round, make: [replace(each, again=True) for each in make()])
    code, said = called(capsys, "--out", str(folder), "--resume")
    assert code == 2
    assert "gradient of client-0 is recorded already, and this is another upload" in said
    assert recorded(folder) == before


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--rounds", "4"], "rounds is 3, not 4"),
        (["--epsilon", "3", "--seed", "1"], "epsilon is 2.0, not 3.0, seed is 0, not 1"),
        (["--noise", "seeded"], "noise is 'system', not 'seeded'"),
        (["--data", "mnist"], "data is 'digits', not 'mnist'"),
        (["--views", "views"], "views is None, not views"),
        (["--rounds", "many"], "invalid int value"),
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
    flags = [*SMALL, *NOISY, "--noise", "system", "--bounds", "0", "1"]
    assert called(capsys, *flags, "--out", str(copied), "--resume") == (0, "")


@pytest.mark.parametrize(
    ("name", "content_of_file", "sentence"),
    [
        ("run/config.toml", b"rounds = ", "config.toml is not TOML"),
        ("run/config.toml", None, "holds no run to go on with"),
        ("run/provenance.json", b"{}", "provenance.json is damaged"),
        ("run/provenance.json", None, "provenance.json cannot be read"),
        ("run/ledger.sqlite", b"SQLite?", "ledger.sqlite"),
        ("run/ledger.sqlite", None, "does not know of the gradient of client-0, which was released"),
        ("run/uploads/index.jsonl", b"{}\n{}\n", "it has lost the gradient of client-0 in round 1"),
        ("run/uploads/index.jsonl", None, "it has lost the gradient of client-0 in round 1"),
        ("run/uploads/values.bin", b"", "it has lost the gradient of client-0 in round 1"),
        ("run.unfinished/views.json", b"{", "views.json is damaged"),
        ("run.unfinished/checkpoint/run.npz", b"PK", "run.npz is damaged"),
        ("run.unfinished/checkpoint/landmarks/snapshot.npz", b"PK", "snapshot.npz is damaged"),
        ("run.unfinished/checkpoint/landmarks/outbox/gradient-000002.npz", b"PK", "gradient-000002.npz is damaged"),
        ("run.unfinished/checkpoint/landmarks/outbox/gradient-000002.npz", None, "client-0 has released its gradient"),
        ("run.unfinished/checkpoint/landmarks/snapshot.npz", None, "client-0 has released its gradient of round 1"),
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
    assert Unfinished(copied).checkpoint.is_dir()
    if before is not None:
        assert events_of(copied) == before


def test_a_finished_run_says_so(wholes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    shutil.copytree(wholes("exact"), folder)
    before = content(folder)
    code, said = called(capsys, "--out", str(folder), "--resume")
    assert (code, said) == (2, f"dpfedvis: {folder} is finished; there is nothing to go on with\n")
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
    with Unfinished(copied).held():
        code, said = called(capsys, "--out", str(copied), "--resume")
    assert (code, said) == (2, f"dpfedvis: another process is at work on {copied}\n")
    assert content(copied) == before


def test_an_unfinished_run_is_not_written_over(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(copied)
    code, said = called(capsys, *SMALL, "--out", str(copied))
    assert code == 2
    assert "holds another run, not finished; go on with it (--resume)" in said
    assert content(copied) == before


def test_what_is_left_of_a_deleted_run_is_not_gone_on_with(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without its ledger nobody knows what was spent: a new run in its place starts from nothing."""
    old = kept(copied)
    shutil.rmtree(copied)
    assert called(capsys, *SMALL, *NOISY, "--noise", "system", "--out", str(copied)) == (0, "")
    new = recorded(copied)
    assert old.keys() <= new.keys()
    assert all(new[key] != old[key] for key in old)
    assert not Unfinished(copied).path.exists()


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
    assert Unfinished(stopped[3]).path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(RecordingError, match="holds no finished run"):
        Recording.read(stopped[3])


def test_private_views_are_drawn_by_the_one_that_finishes(nursery: Nursery, tmp_path: Path) -> None:
    folder, views = tmp_path / "run", tmp_path / "views"
    flags = [*SMALL, "--epsilon", "2", "--out", str(folder), "--views", str(views)]
    assert nursery.run(*flags, at=30)[0] == -signal.SIGKILL
    (views / "0-client-0.png").write_bytes(b"half a picture")
    assert nursery.run("--out", str(folder), "--resume") == (0, "")
    assert sorted(path.name for path in views.iterdir()) == [f"{number}-client-{number}.png" for number in range(3)]
    assert (views / "0-client-0.png").read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_before_anything_is_released_leaves_nothing(nursery: Nursery, tmp_path: Path) -> None:
    flags = [*SMALL, *NOISY, "--out", str(tmp_path / "run")]
    code, said = nursery.run(*flags, at=5, number=signal.SIGINT)
    assert code == 130
    assert said == "dpfedvis: interrupted; nothing was released, and nothing is left of the run\n"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_as_a_user_does_it(nursery: Nursery, tmp_path: Path) -> None:
    """The command itself, interrupted from outside at some moment of its rounds."""
    flags = ["--epsilon", "2", "--scope", "landmarks", "--mechanism", "gradient", "--rounds", "120"]
    command = [sys.executable, "-m", "dpfedvis", "run", *SMALL, *flags, "--out", "my run"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "my run"
    while process.poll() is None and len(recorded_lines(folder)) < 20:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "dpfedvis: interrupted; go on with: dpfedvis run --out 'my run' --resume\n"
    assert 3 * 120 > len(events_of(folder)) >= 15
    assert nursery.run("--out", str(folder), "--resume") == (0, "")
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        assert ledger.spent() == pytest.approx(2)
        places = Counter((event.client, event.what, event.round) for event in ledger.events())
    assert set(places.values()) == {1}
    assert len(places) == len(recorded(folder)) == 3 * 121
    # The seed is the same, and so is the map.
    assert nursery.run("--config", str(folder / "config.toml"), "--out", str(tmp_path / "whole")) == (0, "")
    for name in ("landmarks.npz", "embedding.npz"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert events_of(folder) == events_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("thrown_away", "told"),
    [
        ("zipfile.ZipFile.__new__(zipfile.ZipFile)", False),
        ("type('Other', (), {'__del__': lambda self: 1 / 0})()", True),
    ],
)
def test_an_archive_that_was_stopped_in_its_making_says_nothing(thrown_away: str, told: bool) -> None:
    program = "import sys, zipfile; from dpfedvis.cli import main; sys.argv = ['dpfedvis', 'data', 'list']; main()"
    done = subprocess.run([sys.executable, "-c", f"{program}; {thrown_away}"], capture_output=True, text=True)
    assert done.returncode == 0
    assert ("ignored in" in done.stderr) == told, done.stderr


def recorded_lines(folder: Path) -> list[bytes]:
    index = folder / "uploads" / "index.jsonl"
    return index.read_bytes().splitlines() if index.exists() else []


# The recorder


@pytest.mark.parametrize("cut", [1, 30, 200])
@pytest.mark.parametrize("name", ["index.jsonl", "values.bin"])
def test_a_half_written_tail_is_dropped(name: str, cut: int, wholes: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(wholes("noisy"), folder)
    before, path = recorded(folder), folder / "uploads" / name
    padding = -len(list(before.values())[-1]) % 64
    path.write_bytes(path.read_bytes()[:-cut])
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        Recorder(folder, resume=ledger).close()
    after = recorded(folder)
    lost = 0 if name == "values.bin" and cut <= padding else 1
    assert list(after.items()) == list(before.items())[: len(before) - lost]
    uploads = [upload.values.tobytes() for upload in Recording.read(folder).uploads]  # checks every checksum
    assert uploads == list(after.values())
    assert (folder / "uploads" / "values.bin").stat().st_size % 64 == 0


def test_what_is_sent_again_is_recorded_once(wholes: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(wholes("noisy"), folder)
    before = (folder / "uploads" / "index.jsonl").read_bytes()
    last = Recording.read(folder).uploads[-1]
    values = last.values.copy()
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        recorder = Recorder(folder, resume=ledger)
    recorder(last.events, values)
    with pytest.raises(RecordingError, match="gram rows of client-2 is recorded already, and this is another upload"):
        recorder(last.events, values + 1)
    recorder.close()
    assert (folder / "uploads" / "index.jsonl").read_bytes() == before


def test_damage_in_the_middle_is_not_a_tail(wholes: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(wholes("noisy"), folder)
    path = folder / "uploads" / "values.bin"
    changed = bytearray(path.read_bytes())
    changed[3] ^= 1
    path.write_bytes(changed)
    with (
        pytest.raises(RecordingError, match=r"line 1 of .*index\.jsonl, or what it tells of, is damaged"),
        Ledger.read(folder / "ledger.sqlite") as ledger,
    ):
        Recorder(folder, resume=ledger)
    assert path.read_bytes() == changed


# Progress


def test_each_stage_has_a_bar_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        bars = callbacks.StageBars()
        for stage in ("rows", "placement at home"):
            for done in (1, 2, 3):
                bars(stage, done, 3)
        said = capsys.readouterr().err
        assert (said == "") is not terminal
        assert all(stage in said for stage in ("rows", "placement at home")) is terminal


def test_clients_are_counted_as_they_place_their_records() -> None:
    config = RunConfig(data="digits", records=60, clients=3, landmarks=8, perplexity=5.0, epsilon=2.0)
    fed, seen = config.federated(), []
    config.settled(fed).estimator().watch(progress=lambda *stage: seen.append(stage)).fit(fed)
    assert [stage for stage in seen if stage[0] == "placement at home"] == [
        ("placement at home", number, 3) for number in range(4)
    ]


def test_looking_on_changes_no_map() -> None:
    config = RunConfig(data="digits", records=60, clients=3, landmarks=8, rounds=3, perplexity=5.0, jobs=1)
    fed, seen = config.federated(), []
    config = config.settled(fed)
    watched = config.estimator().watch(progress=lambda *stage: seen.append(stage)).fit(fed)
    np.testing.assert_array_equal(watched.embedding_, config.estimator().fit(fed).embedding_)
    assert seen == [("rows", number, 3) for number in range(4)] + [("layout", part, 15) for part in range(16)]
    seen.clear()
    watched.transform(np.zeros((2, 64)))
    assert {stage for stage, *_ in seen} == {"rows"}
