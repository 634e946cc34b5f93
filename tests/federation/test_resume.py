"""Interrupted runs go on: nothing is spent twice, nothing is unaccounted for, and seeded runs end where they would."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest

from accounting import Budget, BudgetExceeded, InvalidParameter, Ledger
from dpfedvis.data import FederatedData
from dpfedvis.federation import ClientWorkers, Door, FileDamaged, ReleasedTwice, outbox
from dpfedvis.federation.checkpoint import SnapshotMismatch
from dpfedvis.federation.feddl import FedDL
from dpfedvis.federation.round_log import as_array
from dpfedvis.mechanisms import MECHANISMS, GradientPerturbation


class Crash(BaseException):
    """Stands for the end of the process; no code in between may catch it."""


class Saboteur:
    """Ends the run at the k-th write to disk, before it or after it."""

    def __init__(self, patch):
        self.count, self.at, self.after = 0, None, False
        write, record = outbox.write_arrays, Ledger.record
        for module in ("dpfedvis.federation.outbox", "dpfedvis.federation.checkpoint"):
            patch.setattr(f"{module}.write_arrays", lambda *given: self._run(write, *given))
        patch.setattr(Ledger, "record", lambda ledger, *events: self._run(record, ledger, *events))

    def arm(self, at, after):
        self.count, self.at, self.after = 0, at, after

    def _run(self, call, *given):
        self.count += 1
        if self.count == self.at and not self.after:
            raise Crash
        result = call(*given)
        if self.count == self.at:
            raise Crash
        return result


SETTINGS = {
    "gradient": {},
    "aggregate": {"mechanism": GradientPerturbation(trust="aggregate")},
    "central": {"mechanism": GradientPerturbation(trust="central")},
    "discrete": {"noise": "discrete"},
    "discrete, central": {"mechanism": GradientPerturbation(trust="central"), "noise": "discrete"},
    "discrete, aggregate": {"mechanism": GradientPerturbation(trust="aggregate"), "noise": "discrete"},
    "moments": {"gamma": "moments", "tau_x": 4.0, "start": "mean", "noise": "discrete"},
    "adam": {"optimiser": "adam"},
    "variable": {"mechanism": "variable", "local_steps": 2, "tau_x": 4.0},
    "input": {"mechanism": "input", "noise": "discrete"},
    "mean-embedding": {"mechanism": "mean-embedding", "noise": "discrete", "tau_x": 4.0},
    "without noise": {"mechanism": "none", "budget": None},
}


def planned_events(config, clients=3):
    chosen = config.mechanism if not isinstance(config.mechanism, str) else MECHANISMS[config.mechanism]()
    extra = (chosen.protection == "home") + (config.gamma == "moments")
    return clients * (chosen.uploads(config.rounds) + extra)


def check_finished(result, config, whole, seen):
    """Hold a run that was interrupted against one that was not."""
    events = Counter(event.to_json() for event in result.ledger.events())
    assert sum(events.values()) == planned_events(config)
    assert set(events.values()) == {1}, "spent twice"
    assert result.ledger.verify() == planned_events(config)
    for key, versions in seen.items():
        assert len(versions) == 1, f"{key}: the same release with different noise"
    if config.budget is not None:
        assert result.ledger.spent() <= config.budget.epsilon
        assert result.ledger.spent() == pytest.approx(whole.ledger.spent(), rel=1e-9)
    assert len(result.trace) == len(whole.trace)
    if config.noise == "seeded":
        np.testing.assert_array_equal(result.landmarks, whole.landmarks)
        np.testing.assert_array_equal(as_array(result.trace), as_array(whole.trace))


@pytest.mark.parametrize("name", SETTINGS)
def test_a_run_may_end_at_any_write(name, configure, fed, tmp_path, monkeypatch):
    settings = {"rounds": 2, **SETTINGS[name]}
    config = configure(settings.pop("mechanism", "gradient"), **settings)
    saboteur = Saboteur(monkeypatch)
    saboteur.arm(None, False)
    whole = config.run(fed, checkpoint=tmp_path / "whole")
    whole_writes = saboteur.count
    assert whole_writes >= 4
    for at in range(1, whole_writes + 1):
        # Before a write is after all that happened since the last; just after it matters where noise is fresh.
        for after in (False, True) if name in ("gradient", "discrete, central") else (False,):
            folder, seen = tmp_path / f"{at}-{after}", defaultdict(set)

            def witness(events, values, seen=seen):
                seen[tuple(event.to_json() for event in events)].add(values.tobytes())

            saboteur.arm(at, after)
            with pytest.raises(Crash):
                config.run(fed, checkpoint=folder, witness=witness)
            # Once more, soon after it has begun again.
            saboteur.arm(2, after)
            with contextlib.suppress(Crash):
                config.run(fed, checkpoint=folder, witness=witness).ledger.close()
            saboteur.arm(None, False)
            result = config.run(fed, checkpoint=folder, witness=witness)
            check_finished(result, config, whole, seen)
            result.ledger.close()
    whole.ledger.close()


def test_a_finished_run_is_not_run_again(configure, fed, tmp_path):
    first = configure().run(fed, checkpoint=tmp_path)
    seen = []
    second = configure().run(fed, checkpoint=tmp_path, witness=lambda events, values: seen.append(values))
    assert not seen
    assert len(second.ledger) == len(first.ledger) == 15
    np.testing.assert_array_equal(first.landmarks, second.landmarks)
    assert repr(first.trace) == repr(second.trace)


def test_a_run_that_stopped_early_may_go_on(configure, fed, tmp_path):
    first = configure().run(fed, checkpoint=tmp_path, callbacks=[lambda done, Y: done.number == 2])
    assert len(first.trace) == 2
    second = configure().run(fed, checkpoint=tmp_path)
    np.testing.assert_array_equal(second.landmarks, configure().run(fed).landmarks)
    assert len(second.ledger) == 15


def test_another_number_of_workers_may_take_over(configure, fed, tmp_path):
    config = configure()
    config.run(fed, checkpoint=tmp_path, callbacks=[lambda done, Y: done.number == 1]).ledger.close()
    result = replace(config, workers=ClientWorkers(3)).run(fed, checkpoint=tmp_path)
    np.testing.assert_array_equal(result.landmarks, config.run(fed).landmarks)


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 4},
        {"rounds": 6},
        {"gamma": 0.3},
        {"budget": Budget(1.0, 1e-5)},
        {"optimiser": "adam"},
        {"start": np.zeros((6, 4))},
    ],
)
@pytest.mark.parametrize("crash", [None, 2, 3])
def test_another_run_in_the_same_folder_is_refused(other, crash, configure, fed, tmp_path, monkeypatch):
    """After the end, and also when only an upload was ready or accounted for; nothing of it is used or spent."""
    if crash is None:
        configure().run(fed, checkpoint=tmp_path).ledger.close()
    else:
        saboteur = Saboteur(monkeypatch)
        saboteur.arm(crash, True)
        with pytest.raises(Crash):
            configure().run(fed, checkpoint=tmp_path)
        saboteur.arm(None, False)
    with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
        before = len(ledger)
    with pytest.raises(SnapshotMismatch, match="another folder"):
        configure(**other).run(fed, checkpoint=tmp_path)
    with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
        assert len(ledger) == before


def test_other_data_in_the_same_folder_are_refused(configure, fed, tmp_path):
    configure().run(fed, checkpoint=tmp_path).ledger.close()
    fewer = FederatedData([client.X[1:] for client in fed.clients])
    with pytest.raises(SnapshotMismatch):
        configure().run(fewer, checkpoint=tmp_path)


def interrupted(config, fed, folder, monkeypatch, at, after=True):
    """Run until the k-th write to disk."""
    saboteur = Saboteur(monkeypatch)
    saboteur.arm(at, after)
    with pytest.raises(Crash):
        config.run(fed, checkpoint=folder)
    saboteur.arm(None, False)


def test_a_second_draw_is_refused_and_named(configure, fed, tmp_path, monkeypatch):
    """Without the bytes that were accounted for, new noise would be a second release."""
    config = configure(noise="discrete")
    interrupted(config, fed, tmp_path, monkeypatch, at=6)  # the second round is in the ledger
    (kept,) = (tmp_path / "outbox").iterdir()
    kept.unlink()
    seen = []
    with pytest.raises(ReleasedTwice, match=r"client-0 has already released its gradient of round 2") as caught:
        config.run(fed, checkpoint=tmp_path, witness=lambda events, values: seen.append(events))
    assert (caught.value.client, caught.value.what, caught.value.round) == ("client-0", "gradient", 2)
    assert not seen
    with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
        assert len(ledger) == 6


def test_a_door_of_one_run_lets_a_release_pass_once(make_upload):
    values = np.zeros((2, 3), np.int64)
    door = Door(Ledger(None, Budget(2.0, 1e-5)), once=True)
    first, other = make_upload(values), make_upload(values, client="client-1")
    door.release([first], values.shape)
    for uploads in ([first], [other, first], [make_upload(values, mu=0.2)]):
        with pytest.raises(ReleasedTwice):
            door.release(uploads, values.shape)
    assert len(door.ledger) == 1  # nor did the other one pass
    door.release([make_upload(values, resent=True)], values.shape)
    door.release([other], values.shape)
    door.release([make_upload(values, round=2)], values.shape)
    door.release([make_upload(values, what="moments")], values.shape)
    assert len(door.ledger) == 4
    # Another door of the same ledger knows as much.
    with pytest.raises(ReleasedTwice):
        Door(door.ledger, once=True).release([other], values.shape)


@pytest.mark.parametrize("name", ["run.npz", "snapshot.npz", "outbox/gradient-000002.npz"])
@pytest.mark.parametrize("damage", ["cut", "empty", "other"])
def test_a_damaged_checkpoint_is_named_and_left_alone(name, damage, configure, fed, tmp_path, monkeypatch):
    interrupted(configure(), fed, tmp_path, monkeypatch, at=6)
    path = tmp_path / name
    if damage == "other":
        np.savez(path, something=np.zeros(3))
    else:
        path.write_bytes(path.read_bytes()[:-40] if damage == "cut" else b"")
    before = path.read_bytes()
    with pytest.raises(FileDamaged, match=re.escape(f"{path} is damaged")):
        configure().run(fed, checkpoint=tmp_path)
    assert path.read_bytes() == before
    with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
        assert len(ledger) == 6


def test_a_ledger_in_memory_does_not_go_with_a_checkpoint(configure, fed, tmp_path):
    """It ends with the process, and what was released would be forgotten."""
    with pytest.raises(InvalidParameter, match="ledger must be a file with a checkpoint"):
        configure().run(fed, ledger=Ledger(None, Budget(2.0, 1e-5)), checkpoint=tmp_path)


def test_a_ledger_that_lacks_a_finished_round_is_refused(configure, fed, tmp_path):
    configure().run(fed, checkpoint=tmp_path, callbacks=[lambda done, Y: done.number == 2]).ledger.close()
    for path in tmp_path.glob("ledger.sqlite*"):
        path.unlink()
    with pytest.raises(SnapshotMismatch, match="the ledger has no gradient of round 1, which was released"):
        configure().run(fed, checkpoint=tmp_path)
    with Ledger.read(tmp_path / "ledger.sqlite") as ledger:
        assert len(ledger) == 0


# The same with a process that is really killed


SCRIPT = """
import json, sys
import numpy as np
from accounting import Budget
from dpfedvis.data import FederatedData
from dpfedvis.federation.feddl import FedDL

folder, settings = sys.argv[1], json.loads(sys.argv[2])
rng = np.random.default_rng(5)
fed = FederatedData([rng.normal(0.3 * p, 1.0, (n, 4)) for p, n in enumerate((20, 30, 45))])
config = FedDL(landmarks=6, gamma=0.2, seed=3, start="normal", budget=Budget(2.0, 1e-5), **settings)
seen = open(folder + "/seen.txt", "a", buffering=1)


def witness(events, values):
    seen.write(json.dumps([events[0].client, events[0].round, values.tobytes().hex()]) + chr(10))


result = config.run(fed, checkpoint=folder, witness=witness)
np.save(folder + "/landmarks.npy", result.landmarks)
"""


def start(folder, settings):
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder), json.dumps(settings)], cwd=folder)


@pytest.mark.parametrize("name", ["gradient", "discrete", "input"])
def test_a_killed_process_goes_on(name, configure, fed, tmp_path):
    settings = {"rounds": 60, "mechanism": "input" if name == "input" else "gradient"}
    settings["noise"] = "seeded" if name == "gradient" else "discrete"
    chance, kills = random.Random(name), 0
    ledger = tmp_path / "ledger.sqlite"
    for _ in range({"gradient": 3, "discrete": 2, "input": 1}[name]):
        size = ledger.with_name("ledger.sqlite-wal")
        before = size.stat().st_mtime_ns if size.exists() else 0
        process = start(tmp_path, settings)
        deadline = time.monotonic() + 60
        # Wait for it to write, and then some moments more.
        while process.poll() is None and time.monotonic() < deadline:
            if size.exists() and size.stat().st_mtime_ns != before:
                break
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.1))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 1, "the runs ended before they could be killed"
    process = start(tmp_path, settings)
    assert process.wait() == 0
    config = configure(**{"chosen": settings["mechanism"], "rounds": 60, "noise": settings["noise"]})
    with Ledger.read(ledger) as read:
        assert len(read) == planned_events(config)
        events = Counter(event.to_json() for event in read.events())
        assert set(events.values()) == {1}
        assert read.spent() <= 2.0
        assert read.spent() == pytest.approx(2.0, rel=1e-6)
    versions = defaultdict(set)
    for line in (tmp_path / "seen.txt").read_text().splitlines():
        client, round, values = json.loads(line)
        versions[client, round].add(values)
    assert len(versions) == 3 * 60
    assert {len(each) for each in versions.values()} == {1}, "the same release with different noise"
    if name == "gradient":
        np.testing.assert_array_equal(np.load(tmp_path / "landmarks.npy"), config.run(fed).landmarks)


def test_a_shared_ledger_knows_both_runs(configure, fed, tmp_path):
    """Two runs on one ledger: the second cannot spend what the first has spent."""
    ledger, seen = Ledger(tmp_path / "shared.sqlite", Budget(2.0, 1e-5)), []
    configure().run(fed, ledger=ledger)
    with pytest.raises(BudgetExceeded) as caught:
        configure(seed=9).run(fed, ledger=ledger, witness=lambda events, values: seen.append(values))
    assert caught.value.spent == pytest.approx(2.0, rel=1e-6)
    assert not seen
    assert len(ledger) == 15
    ledger.close()


def test_the_folder_is_made(configure, fed, tmp_path):
    folder = tmp_path / "a" / "b"
    result = configure(rounds=1).run(fed, checkpoint=str(folder))
    assert (folder / "ledger.sqlite").exists()
    assert isinstance(result.ledger, Ledger)
    assert FedDL().landmarks == 100
