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
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.mechanisms import MECHANISMS, GradientPerturbation
from dpfedvis.numerics.files import FileDamaged, write_arrays
from dpfedvis.server.checkpoint import SnapshotMismatch
from dpfedvis.server.round_log import as_array
from dpfedvis.server.session import SiteFailed
from tests.makers import federation


class Crash(BaseException):
    """Stands for the end of the process; no code in between may catch it."""


class Saboteur:
    """Ends the run at the k-th write to disk, of the server or of a site, before it or after it."""

    def __init__(self, patch):
        self.count, self.at, self.after = 0, None, False
        record = Ledger.record

        def recorded(ledger, *events):
            # In memory it is no write.
            return record(ledger, *events) if ledger.in_memory else self._run(record, ledger, *events)

        for module in ("site.outbox", "server.checkpoint", "server.session"):
            patch.setattr(f"dpfedvis.{module}.write_arrays", lambda *given: self._run(write_arrays, *given))
        patch.setattr(Ledger, "record", recorded)

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


def own_events(folder):
    """What each site has in its own ledger."""
    found = []
    for path in sorted(folder.glob("sites/*/ledger.sqlite")):
        with Ledger.read(path) as ledger:
            assert ledger.verify() == len(ledger)
            found.append(list(ledger.events()))
    return found


def planned_events(config, clients=3):
    chosen = config.mechanism if not isinstance(config.mechanism, str) else MECHANISMS[config.mechanism]()
    extra = (chosen.protection == "home") + (config.gamma == "moments")
    return clients * (chosen.uploads(config.rounds) + extra)


def check_ledgers(folder, ledger, config, clients):
    """Every release stands once in its site's ledger, and once in the mirror."""
    planned = planned_events(config, clients)
    events = Counter(event.to_json() for event in ledger.events())
    assert sum(events.values()) == planned
    assert set(events.values()) == {1}, "spent twice"
    assert ledger.verify() == planned
    own = own_events(folder)
    assert [len(each) for each in own] == [planned // clients] * clients
    for number, each in enumerate(own):
        assert [replace(event, client=f"client-{number}") for event in each] == list(
            ledger.events(client=f"client-{number}")
        )


def check_finished(result, config, whole, seen):
    """Hold a run that was interrupted against one that was not."""
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
def test_a_run_may_end_at_any_write(name, configure, tmp_path, monkeypatch):
    fed = federation((20, 30))
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
            check_ledgers(folder, result.ledger, config, 2)
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


def test_another_number_of_jobs_may_take_over(configure, fed, tmp_path):
    config = configure()
    config.run(fed, checkpoint=tmp_path, callbacks=[lambda done, Y: done.number == 1]).ledger.close()
    result = config.run(fed, checkpoint=tmp_path, jobs=3)
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


def interrupted(config, fed, folder, round=2):
    """Run until the ledgers have this round, of which there is no snapshot."""

    def crash(done, Y):
        if done.number == round:
            raise Crash

    with pytest.raises(Crash):
        config.run(fed, checkpoint=folder, callbacks=[crash])


def rounds_in(folder):
    """Rounds in the mirror and in the ledgers of the sites."""
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        mirror = [event.round for event in ledger.events()]
    return mirror, [[event.round for event in each] for each in own_events(folder)]


BOTH = ([1, 1, 1, 2, 2, 2], [[1, 2]] * 3)


def test_a_second_draw_is_refused_and_named(configure, fed, tmp_path):
    """Without the bytes that were accounted for, new noise would be a second release."""
    config = configure(noise="discrete")
    interrupted(config, fed, tmp_path)
    (kept,) = tmp_path.glob("sites/0/outbox/*/*.npz")
    kept.unlink()
    seen = []
    with pytest.raises(SiteFailed, match="client-0 failed in round 2: gradient was released already, and the bytes to"):
        config.run(fed, checkpoint=tmp_path, witness=lambda events, values: seen.append(events))
    # The others send the same bytes again; of this site nothing is seen.
    assert {event.client for events in seen for event in events} == {"client-1", "client-2"}
    assert rounds_in(tmp_path) == BOTH


@pytest.mark.parametrize("noise", ["seeded", "discrete"])
def test_a_round_that_was_sent_is_sent_again_byte_for_byte(noise, configure, fed, tmp_path):
    """And only then does the run go on."""
    config, seen = configure(noise=noise), defaultdict(list)

    def witness(events, values):
        seen[events[0].client, events[0].round].append(values.tobytes())

    def crash(done, Y):
        if done.number == 2:
            raise Crash

    with pytest.raises(Crash):
        config.run(fed, checkpoint=tmp_path, witness=witness, callbacks=[crash])
    result = config.run(fed, checkpoint=tmp_path, witness=witness)
    for (_, round), versions in seen.items():
        assert len(versions) == (2 if round == 2 else 1)
        assert len(set(versions)) == 1
    check_ledgers(tmp_path, result.ledger, config, 3)
    result.ledger.close()


def damaged(path, damage):
    if damage == "other":
        np.savez(path, something=np.zeros(3))
    else:
        path.write_bytes(path.read_bytes()[:-40] if damage == "cut" else b"")
    return path.read_bytes()


@pytest.mark.parametrize("name", ["run.npz", "snapshot.npz"])
@pytest.mark.parametrize("damage", ["cut", "empty", "other"])
def test_a_damaged_checkpoint_is_named_and_left_alone(name, damage, configure, fed, tmp_path):
    interrupted(configure(), fed, tmp_path)
    path = tmp_path / name
    before = damaged(path, damage)
    with pytest.raises(FileDamaged, match=re.escape(f"{path} is damaged")):
        configure().run(fed, checkpoint=tmp_path)
    assert path.read_bytes() == before
    assert rounds_in(tmp_path) == BOTH


@pytest.mark.parametrize("damage", ["cut", "empty", "other"])
def test_a_damaged_upload_is_refused_by_its_site_and_left_alone(damage, configure, fed, tmp_path, caplog):
    """The server hears that the site cannot read its files; which, and how, is in the site's log."""
    interrupted(configure(), fed, tmp_path)
    (path,) = tmp_path.glob("sites/1/outbox/*/gradient-000000002.npz")
    before = damaged(path, damage)
    with pytest.raises(SiteFailed, match="client-1 failed in round 2: the files of this site cannot be read") as caught:
        configure().run(fed, checkpoint=tmp_path)
    assert "npz" not in str(caught.value)
    assert f"{path} is damaged" in caplog.text
    assert path.read_bytes() == before
    assert rounds_in(tmp_path) == BOTH


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
from dpfedvis.estimators.feddl import FedDL

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
        before = ledger.stat().st_mtime_ns if ledger.exists() else 0
        process = start(tmp_path, settings)
        deadline = time.monotonic() + 60
        # Wait for it to write, and then some moments more.
        while process.poll() is None and time.monotonic() < deadline:
            if ledger.exists() and ledger.stat().st_mtime_ns != before:
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
        check_ledgers(tmp_path, read, config, 3)
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
