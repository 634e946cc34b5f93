"""`dpfedvis run --resume`: processes that are really killed, at every kind of write, and go on."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Ledger
from accounting.events import from_dict
from dpfedvis.mechanisms.rows import DistanceRows
from dpfedvis.protocol.uploads import Upload
from dpfedvis.runs.resume import ResumeFolder
from dpfedvis.runs.upload_reader import Recording
from tests.command_line import once
from tests.crash.folders import by_site, events_at_sites, events_of, kept, outboxes, recorded, recorded_lines
from tests.crash.nursery import ALIKE, KINDS, NOISY, SMALL, Nursery


def check_stopped(folder: Path, records: Path | None) -> None:
    """Hold the sites' ledgers against the server's mirror, at any moment of a run."""
    at_sites, mirrored = events_at_sites(folder, records), by_site(events_of(folder))
    assert mirrored.keys() <= at_sites.keys()
    for site, own in at_sites.items():
        assert set(Counter(own).values()) == {1}, "spent twice"
        known = mirrored.get(site, [])
        assert own[: len(known)] == known, "the server knows of a release, and the site does not"
        assert len(own) <= len(known) + 1, "a site went on before the server had the release"


def check_finished(folder: Path, whole: Path, kind: str, records: Path | None = None) -> None:
    """Hold a run that was interrupted against one that was not, and against the ledger of its records."""
    if records is not None:
        assert events_at_sites(folder, records) == by_site(events_of(folder))
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
    assert not ResumeFolder(folder).path.exists()
    facts = json.loads((folder / "provenance.json").read_text())
    assert facts["finished"] >= facts["resumed"][-1]["started"] >= facts["started"]
    assert sorted(Recording.read(folder).trajectory) == sorted(Recording.read(whole).trajectory)
    if "discrete" not in KINDS[kind]:
        assert recorded(folder) == recorded(whole)
        for name in names & {"landmarks.npz", "embedding.npz", "density.npz"}:
            with np.load(folder / name) as mine, np.load(whole / name) as theirs:
                assert mine.files == theirs.files
                for each in mine.files:
                    np.testing.assert_array_equal(mine[each], theirs[each])
        for name in ("statement.md", "embedding.csv", "map.png", "config.toml", "public.json"):
            assert (folder / name).read_bytes() == (whole / name).read_bytes(), name


def flags_of(folder: Path, kind: str, records: Path | None) -> list[str]:
    """What a run is begun with, or taken up again."""
    if (folder / "config.toml").exists():
        return ["--resume", "--out", str(folder)]
    own = [] if records is None else ["--ledger", str(records)]
    return [*SMALL, *KINDS[kind], *own, "--out", str(folder)]


def interrupted(
    nursery: Nursery, folder: Path, kind: str, steps: int, lives: int, records: Path | None
) -> Counter[str]:
    """Kill a run and take it up again many times, each time some writes later; return how far each life came."""
    came: Counter[str] = Counter()
    for life in range(lives):
        flags = flags_of(folder, kind, records)
        before, spent_before = events_of(folder), events_at_sites(folder, records)
        bytes_before = {**recorded(folder), **kept(folder, records)}
        # Every third time it is Ctrl-C; both before and after a write.
        number = signal.SIGINT if life % 3 == 2 else signal.SIGKILL
        code, said = nursery.run(*flags, at=steps + life % 2, after=life % 2 == 1, number=number)
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
        assert events[: len(before)] == before, "the server has forgotten a spend"
        check_stopped(folder, records)
        spent = events_at_sites(folder, records)
        for site, own in spent_before.items():
            assert spent[site][: len(own)] == own, "a site has forgotten a spend"
        now = {**kept(folder, records), **recorded(folder)}
        for key, values in bytes_before.items():
            assert now.get(key, values) == values, "the same release with other noise"
        came[f"{sum(map(len, spent.values()))} events"] += 1
    return came


@pytest.mark.parametrize(
    ("kind", "steps", "lives"),
    [
        ("exact", 14, 3),
        ("noisy", 7, 9),
        ("noisy, discrete", 10, 6),
        ("noisy, aggregate", 9, 4),
        ("input", 9, 6),
        ("clusters", 14, 3),
        ("density", 15, 3),
        ("density, discrete", 9, 7),
        ("density, central", 9, 6),
        ("umap", 30, 1),
    ],
)
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not(
    kind: str, steps: int, lives: int, nursery: Nursery, wholes: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    # Real noise is charged to the ledger of the records; in a simulation each site has its own.
    records = tmp_path / "records.sqlite" if "discrete" in KINDS[kind] else None
    came = interrupted(nursery, folder, kind, steps, lives, records)
    assert len(came) >= min(lives, 3), "it was killed at one and the same place only"
    before = {**recorded(folder), **kept(folder, records)}
    assert before, "nothing had been released"
    if not came["finished"]:
        code, said = nursery.run("--resume", "--out", str(folder))
        assert (code, said) == (0, "") or "is finished" in said  # killed after its very last write
    check_finished(folder, wholes(ALIKE.get(kind, kind)), kind, records)
    after = recorded(folder)
    if "aggregate" not in KINDS[kind] and "central" not in KINDS[kind]:
        # Input perturbation's records were accounted for and have stayed at home.
        missing = [key for key in before if key not in after]
        assert all('"what": "records"' in key for key in missing)
        assert bool(missing) == (kind == "input")
    for key in before.keys() & after.keys():
        assert after[key] == before[key], "the same release with other noise"


ORDER = ["outbox", "site ledger", "mirror", "curator", "recorder", "checkpoint"]


@pytest.mark.parametrize(("kind", "writes"), [("noisy", {*ORDER} - {"curator"}), ("density, central", {*ORDER})])
def test_a_run_may_be_killed_at_every_kind_of_write(
    kind: str, writes: set[str], nursery: Nursery, wholes: Any, tmp_path: Path
) -> None:
    """A release is in its site's outbox, its ledger, the server's mirror, the recorder, a snapshot, in this order."""
    folder = tmp_path / "run"
    records = tmp_path / "records.sqlite" if "discrete" in KINDS[kind] else None
    sent: dict[str, bytes] = {}
    for write, after in itertools.product((each for each in ORDER if each in writes), (False, True)):
        # At the second release of a life. The mirror is also told of single releases that it knows.
        known = {json.loads(event)["what"] for event in events_of(folder) if not json.loads(event)["round"]}
        at = {"outbox": 2, "site ledger": 2, "mirror": 1 + len(known)}.get(write, 1)
        code, said = nursery.run(*flags_of(folder, kind, records), at=at, kind=write, after=after)
        assert (code, said) == (-signal.SIGKILL, ""), (write, after)
        check_stopped(folder, records)
        ahead = sum(map(len, events_at_sites(folder, records).values())) - len(events_of(folder))
        only_kept = len(outboxes(folder)) - len(kept(folder, records))
        expected = {
            "outbox": (1 + after, int(after)),
            "site ledger": (2 * after, int(not after)),
            "mirror": (0 if after else 3, 0),
        }
        assert (ahead, only_kept) == expected.get(write, (0, 0)), (write, after)
        now = {**recorded(folder), **kept(folder, records)}
        assert {**sent, **now} == {**now, **sent}, "the same release with other noise"
        sent |= now
    assert nursery.run("--resume", "--out", str(folder)) == (0, "")
    check_finished(folder, wholes(kind), kind, records)
    if kind == "noisy":
        assert recorded(folder).items() >= sent.items()


def test_records_are_perturbed_once(nursery: Nursery, tmp_path: Path) -> None:
    """What is released after an interruption is computed from the records that were perturbed before it."""
    folder = tmp_path / "run"
    flags = [*SMALL, *KINDS["input"], "--out", str(folder)]
    assert nursery.run(*flags, at=2, kind="mirror") == (-signal.SIGKILL, "")
    home = [Upload(each["values"], from_dict(json.loads(str(each["event"])))) for each in outboxes(folder).values()]
    perturbed = {upload.event.client: upload.floats for upload in home if upload.event.what == "records"}
    assert len(perturbed) == 3
    assert nursery.run("--out", str(folder), "--resume") == (0, "")
    recording = Recording.read(folder)
    assert [rows.clients for rows in recording.rows] == [(name,) for name in sorted(perturbed)]
    for rows in recording.rows:
        floats = perturbed[rows.clients[0]].astype(np.float32)  # as the records are
        np.testing.assert_allclose(rows.values, DistanceRows().of(floats, recording.landmarks), rtol=1e-12)


def test_private_views_are_drawn_by_the_one_that_finishes(nursery: Nursery, tmp_path: Path) -> None:
    folder, views = tmp_path / "run", tmp_path / "views"
    flags = [*SMALL, "--epsilon", "2", "--out", str(folder), "--views", str(views)]
    assert nursery.run(*flags, at=4, kind="recorder")[0] == -signal.SIGKILL
    (views / "client-0.png").write_bytes(b"half a picture")
    assert nursery.run("--out", str(folder), "--resume") == (0, "")
    assert sorted(path.name for path in views.glob("*.png")) == [f"client-{number}.png" for number in range(3)]
    assert (views / "client-0.png").read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_before_anything_is_released_leaves_nothing(nursery: Nursery, tmp_path: Path) -> None:
    flags = [*SMALL, *NOISY, "--out", str(tmp_path / "run")]
    code, said = nursery.run(*flags, at=5, number=signal.SIGINT)
    assert code == 130
    assert said == "dpfedvis: interrupted; nothing was released, and nothing is left of the run\n"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_after_a_site_has_released_leaves_a_run_that_goes_on(nursery: Nursery, tmp_path: Path) -> None:
    """The server has nothing yet, but the ledger of the records is charged: only the kept bytes can use the spend."""
    folder, records = tmp_path / "run", tmp_path / "records.sqlite"
    flags = flags_of(folder, "noisy, discrete", records)
    code, said = nursery.run(*flags, at=1, kind="site ledger", after=True, number=signal.SIGINT)
    assert code == 130
    assert f"go on with: dpfedvis run --out {folder} --resume" in said
    assert events_of(folder) == []
    sent = kept(folder, records)
    assert len(sent) == 1
    assert nursery.run("--resume", "--out", str(folder)) == (0, "")
    assert events_at_sites(folder, records) == by_site(events_of(folder))
    assert recorded(folder).items() >= sent.items()


def test_ctrl_c_as_a_user_does_it(nursery: Nursery, tmp_path: Path) -> None:
    """The command itself, interrupted from outside at some moment of its rounds."""
    flags = ["--epsilon", "2", "--scope", "landmarks", "--mechanism", "gradient", "--rounds", "120"]
    command = [sys.executable, "-m", "dpfedvis", "run", *once(*SMALL, *flags), "--out", "my run"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "my run"
    while process.poll() is None and len(recorded_lines(folder)) < 20:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "dpfedvis: interrupted; go on with: dpfedvis run --out 'my run' --resume\n"
    assert 3 * 120 > len(events_of(folder)) >= 15
    check_stopped(folder, None)
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
    program = "import sys, zipfile; from dpfedvis.cli.main import main; sys.argv = ['dpfedvis', 'data', 'list']; main()"
    done = subprocess.run([sys.executable, "-c", f"{program}; {thrown_away}"], capture_output=True, text=True)
    assert done.returncode == 0
    assert ("ignored in" in done.stderr) == told, done.stderr
