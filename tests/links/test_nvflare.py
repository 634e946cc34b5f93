"""Real machines on NVIDIA FLARE: a server and sites with certificates of their own, and what goes wrong with them."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from nvflare.fuel.flare_api.flare_api import new_secure_session

from accounting import Budget, Ledger
from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.experiments.federation_demo import FederationDemo
from dpfedvis.links.kits import ADMIN, Federation, Kit
from dpfedvis.links.nvflare import EngineUnavailable, RunStopped, write_job
from dpfedvis.links.provisioning import provision
from dpfedvis.links.site_checks import check_site
from dpfedvis.mechanisms import KMeans
from dpfedvis.server import Program, ProgramSettings
from dpfedvis.site.folder import LEDGER, POLICY
from dpfedvis.site.ledger_file import tables
from dpfedvis.site.site import PLACES
from tests.command_line import called
from tests.links.federations import PATIENCE, SITES, Machines, processes_of
from tests.links.rogue_server import ASKED, RogueServer

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]  # of the engine's own packages


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Three sites and a server, running."""
    found = Machines(tmp_path_factory.mktemp("federation"))
    try:
        found.start()
        found.wait()
        yield found
    finally:
        found.stop()
        assert processes_of(found.folder) == []


@pytest.fixture
def kept(machines: Machines) -> Iterator[Machines]:
    """The machines, whose policies are put back in the end."""
    policies = {name: (machines.home(name) / POLICY).read_text() for name in SITES}
    yield machines
    for name, text in policies.items():
        (machines.home(name) / POLICY).write_text(text)


def test_a_run_is_published_signed_and_in_every_ledger(machines: Machines, tmp_path: Path) -> None:
    before = {name: len(machines.events(name)) for name in SITES}
    done = machines.run(tmp_path / "run")
    statement = done.statement.to_dict()
    assert statement["facts"]["receipts"] == "signed by sites aachen, bremen, coburg"
    assert statement["one_machine"] is False
    assert statement["simulation"] is False
    assert "ε = 2" in statement["headline"]
    with Ledger.read(tmp_path / "run" / "ledger.sqlite") as mirror:
        for name in SITES:
            mirrored = [(each.what, each.round) for each in mirror.events() if each.client == name]
            assert machines.events(name)[before[name] :] == mirrored
            assert len(mirrored) == len(set(mirrored)) > 3
    places = np.load(machines.home("aachen") / PLACES)["places"]
    assert np.isfinite(places).all()
    assert len(places) == len(np.load(machines.home("aachen") / "records.npz")["records"])
    # Nothing of the records is in what the server and the admin have.
    ids = (machines.folder / "data" / "aachen.csv").read_text().splitlines()[1].split(",")[1]
    for folder in (tmp_path / "run", machines.kits["server"].folder, machines.kits["admin"].folder):
        assert not [path for path in folder.rglob("*") if path.is_file() and ids.encode() in path.read_bytes()]
    check_placed_at_home(machines, tmp_path)


def check_placed_at_home(machines: Machines, folder: Path) -> None:
    """New records find their places on the published map, with their ids; nothing is sent, nothing is spent."""
    own, events = (machines.folder / "data" / "aachen.csv").read_text().splitlines(), machines.events("aachen")
    (folder / "new.csv").write_text("\n".join(own[:31]) + "\n")
    kit = str(machines.kits["aachen"].folder)
    done = called("site", "place", kit, str(folder / "new.csv"), "--out", str(folder / "new"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 30
    (table,) = (folder / "new").rglob("*.csv")
    assert [line.split(",")[0] for line in table.read_text().splitlines()[1:]] == [
        line.split(",")[1] for line in own[1:31]
    ]
    assert machines.events("aachen") == events


def test_a_policy_that_refuses_is_one_sentence_and_nothing_is_charged(kept: Machines, tmp_path: Path) -> None:
    kept.change_policy("bremen", "delta = 1e-05", "delta = 1e-09")
    before = kept.events("aachen")
    with pytest.raises(RunStopped, match=r"^bremen refused: a budget of delta 1e-05 is above 1e-09$"):
        kept.run(tmp_path / "run")
    assert kept.events("aachen") == before
    assert not (tmp_path / "run").exists()


def test_a_wrong_pinned_key_is_refused(kept: Machines, tmp_path: Path) -> None:
    key = kept.kits["coburg"].members["coburg"]
    kept.change_policy("aachen", key, "00" * 32)
    with pytest.raises(RunStopped, match="aachen refused: coburg is not a known member, or has another key"):
        kept.run(tmp_path / "run")
    failed = [each for each in check_site(kept.kits["aachen"]) if not each.passed]
    assert [(each.name, each.words) for each in failed] == [
        ("keys", "policy.toml has other members than the kit was made for")
    ]


def test_a_run_waits_for_the_owner_of_the_records(kept: Machines, tmp_path: Path) -> None:
    kept.change_policy("bremen", 'approve = "never"', 'approve = "each run"')
    waiting: list[list[str]] = []

    class Watching:
        def __call__(self, *_: object) -> None: ...

        def told(self, facts: dict[str, Any]) -> None:
            if facts["waiting"] and not waiting:
                waiting.append(facts["waiting"])
                kit = str(kept.kits["bremen"].folder)
                label = json.loads((kept.home("bremen") / "waiting.json").read_text())["label"]
                assert called("site", "approve", kit, "--yes", "0" * 64).returncode == 2
                shown = called("site", "approve", kit, "--yes", label)
                assert shown.returncode == 0
                assert "cluster sums" in shown.stdout
                assert "epsilon      2.0" in shown.stdout

    done = kept.run(tmp_path / "run", (Watching(),))
    assert waiting == [["bremen"]]
    assert done.statement.to_dict()["facts"]["receipts"].endswith("coburg")
    assert called("site", "approve", str(kept.kits["bremen"].folder), "--yes", "0" * 64).returncode == 2


def test_the_server_dies_and_the_run_is_resumed(machines: Machines, tmp_path: Path) -> None:
    before = {name: len(machines.events(name)) for name in SITES}
    killed = threading.Event()
    thread = threading.Thread(target=_kill_after, args=(machines, "server", "aachen", before["aachen"] + 4, killed))
    thread.start()
    with pytest.raises(DpfedvisError):
        machines.run(tmp_path / "run")
    thread.join()
    assert killed.is_set()
    machines.start("server")
    machines.wait()
    done = machines.run(tmp_path / "run", resume=True)
    assert done.statement.to_dict()["epsilon_end_to_end"] <= 2.0
    for name in SITES:
        own = machines.events(name)[before[name] :]
        assert len(own) == len(set(own))


def test_a_full_disk_stops_the_run_before_anything_leaves(machines: Machines, tmp_path: Path) -> None:
    outbox = machines.home("coburg") / "outbox"
    outbox.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", outbox], capture_output=True).returncode:
        pytest.skip("a small file system needs the right to mount one")
    try:
        with (outbox / "ballast").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1024))
        before = machines.events("coburg")
        with pytest.raises(RunStopped, match="coburg: the files of this site cannot be read or written; nothing was"):
            machines.run(tmp_path / "run")
        assert machines.events("coburg") == before
    finally:
        subprocess.run(["umount", outbox], check=True)
    assert machines.run(tmp_path / "run", resume=True).statement.to_dict()["epsilon_end_to_end"] <= 2.0


def _submit(machines: Machines, job: Path) -> str:
    """Submit a job as the admin; return how it ended."""
    session = new_secure_session(ADMIN, str(machines.kits["admin"].folder), timeout=20)
    try:
        name = session.submit_job(str(job))
        until = time.monotonic() + 240
        while time.monotonic() < until:
            status = str(session.get_job_status(name) or "")
            if status.startswith("FINISHED"):
                return status
            time.sleep(0.2)
        return "still running"
    finally:
        session.close()


def _program() -> Program:
    return Program(
        ProgramSettings(mechanism=KMeans(), budget=Budget(1.0, 1e-5), landmarks=5, rounds=1, noise="discrete",
                        feddl={"bounds": (0, 1)})
    )  # fmt: skip


@pytest.mark.parametrize("change", ["code", "class"])
def test_a_job_with_code_or_another_class_is_refused_at_the_site(
    machines: Machines, tmp_path: Path, change: str
) -> None:
    job = write_job(tmp_path, _program(), "rogue", len(SITES), 4.0, 1.0)
    assert not list(job.rglob("custom"))
    if change == "code":
        (job / "app" / "custom").mkdir()
        (job / "app" / "custom" / "evil.py").write_text("print('evil')\n")
    else:
        config = job / "app" / "config" / "config_fed_client.json"
        text = config.read_text()
        assert "dpfedvis.links.nvflare_job.SitePart" in text
        config.write_text(text.replace("dpfedvis.links.nvflare_job.SitePart", "tests.links.rogue_server.Rogue"))
    before = machines.events("aachen")
    try:
        status = _submit(machines, job)
    except Exception as error:  # the server may refuse it already
        status = f"refused: {error}"
    assert "COMPLETED" not in status
    assert "running" not in status
    assert machines.events("aachen") == before
    said = machines.log("aachen") + machines.log("server") + status
    refusals = {"code": "BYOC not permitted", "class": "other settings for a site than dpfedvis gives it"}
    assert refusals[change] in said


def test_a_request_that_is_not_ours_is_refused(machines: Machines, tmp_path: Path) -> None:
    """The server is the adversary: it lets a class of its own ask the sites whatever it likes."""
    resources = machines.kits["server"].folder / "local" / "resources.json"
    text = resources.read_text()
    values = json.loads(text)
    values["class_allow_list"].append("tests.links.rogue_server.RogueServer")
    job = write_job(tmp_path / "job", _program(), "rogue", len(SITES), 4.0, 1.0, server=RogueServer(str(tmp_path)))
    try:
        resources.write_text(json.dumps(values))
        assert _submit(machines, job) == "FINISHED:COMPLETED"
    finally:
        resources.write_text(text)
    replies = json.loads((tmp_path / "replies.json").read_text())
    assert set(replies) == set(SITES)
    for said in replies.values():
        assert len(said) == ASKED
        assert all("cannot be read" in each or "refused by the engine" in each for each in said)
        assert not [each for each in said if "Traceback" in each]


def _put_certificate(kit: Kit, home: Path, kind: str) -> None:
    """Give a site a certificate of another federation under its own name, or one that is valid from tomorrow."""
    startup = kit.folder / "startup"
    if kind == "foreign":
        other = provision(Federation(name="other", sites=SITES, port=kit.port), home / "other")
        for name in ("client.crt", "client.key"):
            shutil.copy(other[kit.name] / "startup" / name, startup / name)
        return
    authority = json.loads((kit.folder.parent / "authority" / "cert.json").read_text())
    key = serialization.load_pem_private_key(authority["root_pri_key"].encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    own = x509.load_pem_x509_certificate((startup / "client.crt").read_bytes())
    late = own.not_valid_before_utc + timedelta(days=2)
    built = x509.CertificateBuilder(
        own.issuer,
        own.subject,
        own.public_key(),
        own.serial_number,
        late,
        own.not_valid_after_utc,
        list(own.extensions),
    )
    signed = built.sign(key, hashes.SHA256())
    (startup / "client.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


@pytest.mark.parametrize(
    ("kind", "check", "words"),
    [
        ("foreign", "connection", "does not accept the certificate of this kit"),
        ("tomorrow's", "clock", "clock or kit is old"),
    ],
)
def test_a_site_whose_certificate_does_not_count_is_not_let_in(
    tmp_path: Path, kind: str, check: str, words: str
) -> None:
    """Its process runs and tries; the server does not know it, and the run does not begin."""
    pair = Machines(tmp_path / "federation", ("aachen", "bremen"))
    _put_certificate(pair.kits["bremen"], tmp_path, kind)
    try:
        pair.start()
        pair.wait("aachen")
        failed = {each.name: each.words for each in check_site(pair.kits["bremen"]) if not each.passed}
        assert words in failed[check]
        with pytest.raises(EngineUnavailable, match="not connected: bremen"):
            pair.run(tmp_path / "run")
        assert pair.running["bremen"].alive
        assert not (tmp_path / "run").exists()
        assert pair.events("aachen") == []
    finally:
        pair.stop()


def test_the_server_says_that_its_port_is_taken(machines: Machines, tmp_path: Path) -> None:
    kit = tmp_path / "server"
    shutil.copytree(machines.kits["server"].folder, kit, ignore=shutil.ignore_patterns("*.fl", "running"))
    refused = called("server", "start", str(kit))
    assert refused.returncode == 2
    assert f"port {machines.kits['server'].port} cannot be used: Address already in use" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_ledger_put_back_from_a_copy_stops_its_site(machines: Machines, tmp_path: Path) -> None:
    """Otherwise what was spent since the copy could be spent twice."""
    home = machines.home("bremen")
    shutil.copy(home / LEDGER, tmp_path / LEDGER)
    machines.run(tmp_path / "first")
    shutil.copy(home / LEDGER, tmp_path / "newer")
    before = machines.events("aachen")
    shutil.copy(tmp_path / LEDGER, home / LEDGER)
    try:
        with pytest.raises(RunStopped, match=r"bremen.*the ledger of this site is older than what it has released"):
            machines.run(tmp_path / "second")
    finally:
        machines.kill("bremen")
        shutil.copy(tmp_path / "newer", home / LEDGER)
        cleared = called("site", "clear", str(machines.kits["bremen"].folder), "--restored")
        machines.start("bremen")
        machines.wait()
    assert cleared.returncode == 0, cleared.stderr
    assert machines.events("aachen") == before


def test_the_demo_kills_a_hospital_that_comes_back(tmp_path: Path) -> None:
    said: list[str] = []
    demo = FederationDemo(tmp_path / "demo", patients=150, epsilon=2.0, tell=said.append)
    found = demo.run()
    assert found["came_back"]
    assert any("goes on without bremen" in words for words in said)
    assert found["receipts"] == "signed by sites aachen, bremen, coburg, dresden, essen"
    assert processes_of(tmp_path / "demo") == []
    with Ledger.read(tmp_path / "demo" / "run" / "ledger.sqlite") as mirror:
        for name, path in found["ledgers"].items():
            with Ledger.read(Path(path)) as ledger:
                own = [(each.what, each.round) for each in ledger.events()]
            mirrored = [(each.what, each.round) for each in mirror.events() if each.client == name]
            # Also of the one that was killed, which had charged a release whose bytes never came.
            assert sorted(own, key=str) == sorted(mirrored, key=str)
            assert len(own) == len(set(own))
    views = tmp_path / "demo" / "kits" / "bremen" / "dpfedvis" / "views"
    assert {path.suffix for path in views.iterdir()} == {".csv", ".png", ".html"}


def _kill_after(machines: Machines, victim: str, watched: str, releases: int, done: threading.Event) -> None:
    """Kill a machine as soon as a site has so many releases in its ledger."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        with tables(machines.home(watched) / "ledger.sqlite", "ro") as file:
            (count,) = file.execute("SELECT COUNT(*) FROM events").fetchone()
        if count >= releases:
            machines.kill(victim)
            done.set()
            return
        time.sleep(0.002)


def test_the_admin_believes_no_lie_about_what_was_spent(machines: Machines, tmp_path: Path) -> None:
    """What the server gives is held against the contract, the budget and what each site signed."""
    from dataclasses import replace

    from dpfedvis.links import NVFlare
    from dpfedvis.server import Published

    program = Program(
        ProgramSettings(mechanism=KMeans(trust="aggregate"), budget=Budget(1.0, 1e-5), landmarks=5, rounds=3,
                        noise="discrete", feddl={"bounds": (0, 1)})
    )  # fmt: skip
    link = NVFlare(machines.kits["admin"].folder, patience=PATIENCE)
    honest = link.run(program, run="honest")
    assert [each.site for each in honest.receipts] == list(SITES)

    def told(found: Published) -> list[str]:
        return [each.site for each in link._check(Published.of_bytes(found.to_bytes()), program, "honest").receipts]

    with Ledger(budget=honest.contract.budget) as fewer:
        fewer.record(*list(honest.feddl.ledger.events())[:3])
        assert told(replace(honest, feddl=replace(honest.feddl, ledger=fewer))) == []
    first = honest.receipts[0]
    assert told(replace(honest, receipts=(first, first, first))) == [first.site]
    assert told(replace(honest, receipts=())) == []
    assert told(replace(honest, label="0" * 64)) == []
    other = replace(honest.contract, seed=honest.contract.seed + 1, derived="")
    assert told(replace(honest, feddl=replace(honest.feddl, contract=other))) == []
    for changed in (replace(honest.contract, run="x"), replace(honest.contract, budget=Budget(0.1, 1e-5))):
        with pytest.raises(RunStopped, match="another run, or under another budget"):
            told(replace(honest, feddl=replace(honest.feddl, contract=changed)))


@pytest.mark.parametrize("run", ["../../../outside", "/absolute", "a b", "x" * 80])
def test_the_name_of_a_run_is_no_path_at_the_server(machines: Machines, tmp_path: Path, run: str) -> None:
    from dpfedvis.links.nvflare_job import ServerPart

    with pytest.raises(InvalidParameter, match="run"):
        ServerPart("", run, 1.0, 1.0).main()
