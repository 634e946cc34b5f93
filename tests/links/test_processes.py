"""Sites as processes: the same bits as in one process, also after kills, and no file of theirs is read here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from accounting import Budget, Ledger
from accounting.errors import InvalidParameter
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.estimators.base import ReleaseUnavailable
from dpfedvis.estimators.simulation import policy_for, simulated, write_sites
from dpfedvis.links import InProcess, Processes
from dpfedvis.mechanisms import GradientPerturbation, InputPerturbation, KMeans, Mechanism, PlainMechanism
from dpfedvis.protocol import wire
from dpfedvis.protocol.messages import Sent
from dpfedvis.server import Program, ProgramSettings
from dpfedvis.server.session import SiteFailed, SiteRefused
from dpfedvis.site import SiteLedger

BUDGET = Budget(4.0, 1e-5)
THOROUGH = settings.get_current_profile_name() == "thorough"


def data(clients: int = 2) -> FederatedData:
    rng = np.random.default_rng(0)
    return FederatedData([rng.normal(size=(40, 5)) for _ in range(clients)], bounds=(-3, 3))


def program(mechanism: Mechanism | None = None, **changes: Any) -> Program:
    chosen = mechanism or GradientPerturbation()
    common: dict[str, Any] = {"budget": BUDGET, "landmarks": 6, "rounds": 3, "feddl": {"bounds": (-3, 3)}}
    return Program(ProgramSettings(mechanism=chosen, **{**common, **changes}))


def folders(tmp_path: Path, fed: FederatedData) -> dict[str, Path]:
    return write_sites(fed, tmp_path, policy_for(BUDGET, "seeded", receipts="signed"))


def events(ledger: Ledger) -> list[str]:
    return [event.to_json() for event in ledger.events()]


def in_one_process(fed: FederatedData, made: Program) -> Any:
    return simulated(fed, budget=BUDGET, noise="seeded").run(made)


@pytest.mark.parametrize(
    "mechanism",
    [GradientPerturbation(), KMeans(trust="aggregate"), InputPerturbation(tau_x=3.0)],
    ids=lambda each: each.name,
)
def test_the_same_bits_cross_the_border(mechanism: Mechanism, tmp_path: Path) -> None:
    fed, made = data(), program(mechanism)
    with Processes(folders(tmp_path, fed)) as link:
        found = link.run(made)
    expected = in_one_process(fed, made)
    assert np.array_equal(found.landmarks, expected.landmarks)
    assert events(found.feddl.ledger) == events(expected.feddl.ledger)
    for client in fed.clients:  # each site has its own ledger, and it says the same
        with SiteLedger.read(folders(tmp_path, fed)[client.name] / "ledger.sqlite") as own:
            mine = [each for each in found.feddl.ledger.events() if each.client == client.name]
            assert own.events(found.contract.run, client.name) == mine


def test_a_private_map_is_placed_by_the_sites(tmp_path: Path) -> None:
    fed = data()
    brief = {"tsne": {"n_iter": 20, "early_exaggeration_iter": 10}}
    here = FedTSNE(budget=Budget(20.0, 1e-5), **brief).fit(fed)
    there = FedTSNE(budget=Budget(20.0, 1e-5), **brief).watch(processes=tmp_path / "sites").fit(fed)
    assert np.array_equal(here.published_map_.places, there.published_map_.places)
    assert events(here.ledger_) == events(there.ledger_)
    assert not hasattr(there, "embedding_")
    with np.load(tmp_path / "sites" / "0" / "placed.npz") as stored:
        assert stored["places"].shape == (40, 2)


PLACES = ["outbox before 1", "outbox after 2", "ledger after 1", "ledger after 3", "reply before 5", "reply after 4"]
if THOROUGH:
    NUMBERS = {"outbox": 4, "ledger": 4, "reply": 8}
    PLACES = [f"{what} {when} {n}" for what in NUMBERS for when in ("before", "after") for n in range(1, NUMBERS[what])]


@pytest.mark.parametrize("place", PLACES)
def test_a_site_that_is_killed_goes_on_where_it_was(place: str, tmp_path: Path) -> None:
    fed, made = data(1), program()
    command = [sys.executable, str(Path(__file__).with_name("dying_site.py")), place]
    with Processes(folders(tmp_path, fed), command=command) as link:
        found = link.run(made)
    assert (tmp_path / "0" / "died").read_text() == place
    expected = in_one_process(fed, made)
    assert np.array_equal(found.landmarks, expected.landmarks)
    assert events(found.feddl.ledger) == events(expected.feddl.ledger)
    with SiteLedger.read(tmp_path / "0" / "ledger.sqlite") as own:
        assert own.events(found.contract.run, "client-0") == list(found.feddl.ledger.events())


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_kills_at_any_moment_lose_nothing(trust: str, tmp_path: Path) -> None:
    """Of sites and of the server; see killing.py for what holds after each run."""
    script, root = Path(__file__).with_name("killing.py"), Path(__file__).parents[2]
    command = [sys.executable, str(script), str(tmp_path), "1000" if THOROUGH else "20", "0", trust]
    environment = {**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment)
    assert done.returncode == 0, done.stderr
    print(done.stdout)


# Of a sum: keys, shares, label, shares of others, masked values, list of survivors, opened; then the next sum.
IN_A_SUM = [
    "sums after 1",
    "sums before 2",
    "sums after 3",
    "sums before 5",
    "sums after 5",
    "sums before 6",
    "sums after 7",
]
if THOROUGH:
    IN_A_SUM = [f"sums {when} {n}" for when in ("before", "after") for n in range(1, 11)]


@pytest.mark.parametrize("place", IN_A_SUM)
def test_a_site_that_is_killed_in_a_secure_sum_answers_alike(place: str, tmp_path: Path) -> None:
    fed, made = data(3), program(GradientPerturbation(trust="aggregate"), rounds=2)
    command = [sys.executable, str(Path(__file__).with_name("dying_site.py")), place]
    with Processes(folders(tmp_path, fed), command=command) as link:
        found = link.run(made)
    assert {(tmp_path / str(number) / "died").read_text() for number in range(3)} == {place}
    expected = in_one_process(fed, made)
    assert np.array_equal(found.landmarks, expected.landmarks)
    assert events(found.feddl.ledger) == events(expected.feddl.ledger)
    assert not list(tmp_path.glob("*/sums/*")), "secrets outlive the run"


def test_a_site_that_stays_away_does_not_stop_a_run(tmp_path: Path) -> None:
    """Of five sites one dies in round 2 as often as it is asked, and is well again in round 3."""
    fed = data(5)
    command = [sys.executable, str(Path(__file__).with_name("absent_site.py"))]
    made = program(GradientPerturbation(trust="aggregate"), rounds=3)
    with Processes(folders(tmp_path, fed), command=command) as link:
        found = link.run(made)
    assert [(each.site, each.round) for each in found.feddl.failures] == [("client-4", 2)]
    released = {each.round: 0 for each in found.feddl.ledger.events()}
    for each in found.feddl.ledger.events():
        released[each.round] += 1
    assert released == {1: 5, 2: 4, 3: 5}


def test_a_reply_that_came_too_late_is_not_taken_for_the_next(tmp_path: Path) -> None:
    """A site dies in round 2 as often as it is asked, and is well again in round 3."""
    fed = data()
    script = """
        import os, signal, sys
        from pathlib import Path
        from dpfedvis.links import site_process
        from dpfedvis.site.run_account import RunAccount
        deaths, record = Path(sys.argv[1]) / "deaths", RunAccount.record
        def dying(self, event):
            count = deaths.stat().st_size if deaths.exists() else 0
            if event.client == "client-1" and event.round == 2 and count < 4:
                deaths.write_bytes(bytes(count + 1))
                os.kill(os.getpid(), signal.SIGKILL)
            return record(self, event)
        RunAccount.record = dying
        sys.exit(site_process.main(Path(sys.argv[1])))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    made = program(feddl={"bounds": (-3, 3), "policy": "continue"})
    with Processes(folders(tmp_path, fed), command=command) as link:
        found = link.run(made)
    assert [(each.site, each.round) for each in found.feddl.failures] == [("client-1", 2)]
    released = [(each.client, each.round) for each in found.feddl.ledger.events()]
    assert released == [("client-0", 1), ("client-1", 1), ("client-0", 2), ("client-0", 3), ("client-1", 3)]


def test_a_site_that_always_dies_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "pass"]
    with Processes(folders(tmp_path, data(1)), command=command) as link, pytest.raises(SiteRefused, match="client-0"):
        link.run(program())


def test_a_site_that_talks_nonsense_is_named(tmp_path: Path) -> None:
    nonsense = "import sys; sys.stdout.buffer.write(bytes(7) + b'\\x05xxxxx'); sys.stdout.flush(); sys.stdin.read()"
    command = [sys.executable, "-c", nonsense]
    words = "client-0 refused: gave a reply that cannot be read"
    with Processes(folders(tmp_path, data(1)), command=command) as link, pytest.raises(SiteRefused, match=words):
        link.run(program())


class Homemade(PlainMechanism):
    """Not registered: no other process can know it."""

    name = "homemade"
    what = "homemade"


def test_what_no_other_process_can_know_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    fed = data(1)
    with Processes(folders(tmp_path, fed)) as link, pytest.raises(wire.NotPortable, match="homemade"):
        link.run(program(Homemade()))
    with SiteLedger.read(tmp_path / "0" / "ledger.sqlite") as own:
        assert own.head is None


def test_exact_uploads_do_not_leave_a_process(tmp_path: Path) -> None:
    central = program(GradientPerturbation(trust="central"))
    with Processes(folders(tmp_path, data(1))) as link, pytest.raises(InvalidParameter, match="central"):
        link.run(central)


def test_nothing_is_left_running(tmp_path: Path) -> None:
    link = Processes(folders(tmp_path, data()))
    running = [process.pid for process in link._running.values()]
    link.close()
    for pid in running:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_server_reads_no_file_of_a_site(tmp_path: Path) -> None:
    """An audit hook sees every file that the server's process opens."""
    names = {name: str(path) for name, path in folders(tmp_path, data()).items()}
    script = f"""
        import sys
        opened = []
        seen = ("open", "sqlite3.connect")
        sys.addaudithook(lambda name, given: opened.append(str(given[0])) if name in seen else None)
        from tests.links.test_processes import program
        from dpfedvis.links import Processes
        root = {str(tmp_path)!r}
        with Processes({names!r}) as link:
            link.run(program())
        print([each for each in opened if root in each])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


@pytest.mark.parametrize("after", [1, 2] if not THOROUGH else [1, 2, 3])
def test_a_server_that_is_killed_goes_on_where_it_was(after: int, tmp_path: Path) -> None:
    fed = data()
    names = {name: str(path) for name, path in folders(tmp_path, fed).items()}
    script = f"""
        import os, signal
        from pathlib import Path
        from tests.links.test_processes import program
        from dpfedvis.links import Processes
        def die(done, Y):
            if done.number == {after}:
                os.kill(os.getpid(), signal.SIGKILL)
        with Processes({names!r}) as link:
            link.run(program(), callbacks=[die], checkpoint=Path({str(tmp_path / "server")!r}))
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, cwd=Path(__file__).parents[2]
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with Processes(names) as link:
        found = link.run(program(), checkpoint=tmp_path / "server")
    expected = in_one_process(fed, program())
    assert np.array_equal(found.landmarks, expected.landmarks)
    assert sorted(events(found.feddl.ledger)) == sorted(events(expected.feddl.ledger))
    found.feddl.ledger.close()
    for client in fed.clients:
        with SiteLedger.read(folders(tmp_path, fed)[client.name] / "ledger.sqlite") as own:
            assert len(own.events(found.contract.run, client.name)) == 3


def test_a_site_that_states_another_event_than_the_contract_is_named() -> None:
    fed = data(1)
    link = simulated(fed, budget=BUDGET, noise="seeded")
    honest = link.members[0].answer

    def lying(request: Any) -> Any:
        reply = honest(request)
        if not isinstance(reply, Sent):
            return reply
        return replace(reply, event=replace(reply.event, sigma=2 * reply.event.sigma))

    link.members[0].answer = lying  # type: ignore[method-assign]
    with pytest.raises(SiteFailed, match=r"client-0.*than the contract"):
        link.run(program())


# Sites that cannot be opened, and folders that are others'


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda folder: shutil.rmtree(folder), "no such folder"),
        (lambda folder: (folder / "site.json").unlink(), r"cannot be opened; log\.txt"),
        (lambda folder: (folder / "policy.toml").write_text("epsilon = -1"), r"cannot be opened; log\.txt"),
        (lambda folder: (folder / "ledger.sqlite").write_bytes(b"no ledger"), r"cannot be opened; log\.txt"),
        (lambda folder: (folder / "ledger.sqlite").unlink(), r"cannot be opened; log\.txt"),
    ],
    ids=["folder", "site.json", "policy.toml", "ledger", "no ledger"],
)
def test_a_site_that_cannot_be_opened_says_so(harm: Any, words: str, tmp_path: Path, capfd: Any) -> None:
    made = folders(tmp_path, data())
    harm(made["client-1"])
    with Processes(made) as link, pytest.raises(SiteRefused, match=f"client-1 refused: .*{words}"):
        link.run(program())
    assert capfd.readouterr().err == ""


def test_folders_under_other_names_are_told(tmp_path: Path) -> None:
    first, second = folders(tmp_path, data()).values()
    swapped = {"client-0": second, "client-1": first}
    with Processes(swapped) as link, pytest.raises(SiteRefused, match="given for client-0 is that of client-1"):
        link.run(program())


@pytest.mark.parametrize("change", ["records", "policy"])
def test_a_folder_is_not_taken_for_other_records(change: str, tmp_path: Path) -> None:
    brief = {"tsne": {"n_iter": 20, "early_exaggeration_iter": 10}, "n_landmarks": 6, "rounds": 2}
    FedTSNE(**brief).watch(processes=tmp_path).fit(data())
    rng = np.random.default_rng(1)
    other = (
        data() if change == "policy" else FederatedData([rng.normal(size=(40, 5)) for _ in range(2)], bounds=(-3, 3))
    )
    again = FedTSNE(budget=Budget(20.0, 1e-5) if change == "policy" else None, **brief).watch(processes=tmp_path)
    with pytest.raises(InvalidParameter, match="new folder"):
        again.fit(other)


def test_places_that_stay_at_the_sites_are_not_asked_for(tmp_path: Path) -> None:
    private = FedTSNE(budget=Budget(20.0, 1e-5)).watch(processes=tmp_path / "sites")
    with pytest.raises(ReleaseUnavailable, match=r"placed\.npz"):
        private.fit_transform(data())
    assert not (tmp_path / "sites").exists(), "nothing was spent"


def test_receipts_of_an_earlier_run_find_an_older_ledger(tmp_path: Path) -> None:
    made = folders(tmp_path, data())
    ledger = made["client-0"] / "ledger.sqlite"
    empty = ledger.read_bytes()
    with Processes(made) as link:
        found = link.run(program())
    ledger.write_bytes(empty)
    (made["client-0"] / "anchors.json").unlink()
    with Processes(made) as link, pytest.raises(SiteRefused, match="restored"):
        link.run(program(), receipts=found.receipts)


def test_links_have_a_site(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="folders"):
        Processes({})
    with pytest.raises(InvalidParameter, match="members"):
        InProcess([])


def test_the_mirror_has_each_release_once_though_sites_are_asked_for_all_of_them(tmp_path: Path) -> None:
    fed, made = data(3), program(GradientPerturbation(trust="aggregate"), rounds=2)
    with Processes(folders(tmp_path, fed)) as link:
        found = link.run(made)
    mirrored = events(found.feddl.ledger)
    assert len(mirrored) == len(set(mirrored)) == 3 * 2
    assert not found.feddl.failures
