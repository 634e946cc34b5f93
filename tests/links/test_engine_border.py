"""Messages that the engine itself would obey: files, commands, code and stops are refused at a site."""

from __future__ import annotations

import io
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from nvflare.fuel.flare_api.flare_api import new_secure_session
from nvflare.lighter.utils import load_private_key_file, sign_folders
from nvflare.private.admin_defs import Message
from nvflare.private.defs import CellChannel, SysCommandTopic, TrainingTopic, new_cell_message
from nvflare.private.fed.utils.fed_utils import fobs_initialize

from dpfedvis.links import engine
from dpfedvis.links.kits import ADMIN
from dpfedvis.links.nvflare import write_client_config
from tests.links.federations import Machines, processes_of

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]  # of the engine's own packages

REFUSED = "this site does not do that"
Ask = Callable[..., str]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    found = Machines(tmp_path_factory.mktemp("federation"), ("aachen", "bremen"))
    try:
        found.start()
        found.wait()
        yield found
    finally:
        found.stop()
        assert processes_of(found.folder) == []


@pytest.fixture(scope="module")
def ask(machines: Machines) -> Iterator[Ask]:
    """Send a message to a site's engine, as whoever has the admin's kit can; the server only passes it on."""
    import nvflare.fuel.hci.client.api as api

    fobs_initialize()
    checked, api.validate_auth_headers = api.validate_auth_headers, lambda *_, **__: None  # our own process
    session = new_secure_session(ADMIN, str(machines.kits["admin"].folder), timeout=20)

    def send(topic: str, body: Any = "", **headers: Any) -> str:
        message = Message(topic, body)
        for name, value in headers.items():
            message.set_header(name, value)
        reply = session.api.cell.send_request(
            channel=CellChannel.CLIENT_MAIN,
            topic=topic,
            target="aachen",
            request=new_cell_message({}, message),
            timeout=10,
        )
        return str(getattr(reply.payload, "body", reply.payload))

    yield send
    session.close()
    api.validate_auth_headers = checked


def archive(machines: Machines, tmp_path: Path, files: dict[str, str]) -> bytes:
    """A job's files as the engine sends them, signed with the admin's key."""
    folder = tmp_path / "app"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    startup = machines.kits["admin"].folder / "startup"
    sign_folders(str(folder), load_private_key_file(str(startup / "client.key")), str(startup / "client.crt"))
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as packed:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            packed.write(path, path.relative_to(folder))
    return found.getvalue()


def test_no_file_is_read_and_no_command_is_run(machines: Machines, ask: Ask) -> None:
    secret = machines.folder / "data" / "aachen.csv"
    for command in (f"head -n 2 {secret}", f"cat {secret}", "ls -la", f"grep -c a {secret}", "pwd"):
        assert ask(SysCommandTopic.SHELL, command) == REFUSED
    for topic in ("sys.info", "sys.report_env", "sys.configure_site_log", TrainingTopic.GET_SCOPES, "anything"):
        assert ask(topic) == REFUSED
    assert "a request was refused: the topic" in machines.log("aachen")


def test_nothing_is_deleted_and_nobody_stops_a_site(machines: Machines, ask: Ask) -> None:
    assert ask(TrainingTopic.DELETE_RUN, job_id="dpfedvis") == REFUSED
    assert ask(TrainingTopic.SHUTDOWN) == ask(TrainingTopic.RESTART) == REFUSED
    assert (machines.home("aachen") / "identity.key").is_file()
    assert machines.running["aachen"].alive


def test_a_job_is_ours_word_for_word(machines: Machines, ask: Ask, tmp_path: Path) -> None:
    config = write_client_config(tmp_path / "ours").read_text()
    ours, code = {engine.CLIENT: config}, {"custom/sitecustomize.py": "print('evil')\n"}
    name = str(uuid.uuid4())
    right = {"job_id": name, "job_meta": {"job_id": name}, "app_name": "app"}
    for number, (files, headers) in enumerate(
        [
            (ours | code, right),
            (ours | {"config/more.json": "{}"}, right),
            ({engine.CLIENT: config.replace("SitePart", "Other")}, right),
            ({"config/config_fed_client.conf": "a = ${PATH}"}, right),
            (ours, right | {"job_meta": {"job_id": "another"}}),
            (ours, right | {"job_id": "dpfedvis", "job_meta": {"job_id": "dpfedvis"}}),
            (ours, right | {"app_name": "../../x"}),
            (ours, right | {"job_meta": {"job_id": name, "launcher_spec": {"aachen": {"docker": {"image": "x"}}}}}),
        ]
    ):
        body = archive(machines, tmp_path / str(number), files)
        assert ask(TrainingTopic.DEPLOY, body, **headers) == REFUSED
    assert ask(TrainingTopic.START_JOB, {}, job_id=name, job_meta={"job_id": "another"}) == REFUSED
    assert ask(TrainingTopic.DEPLOY, b"no archive", **right) == REFUSED
    assert not list(machines.kits["aachen"].folder.rglob("sitecustomize.py"))


def test_the_guard_alone_refuses_what_it_should(tmp_path: Path) -> None:
    """Without the engine: a request of each topic that its client knows."""
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    topics = {topic for each in ClientRequestProcessors.request_processors for topic in each.get_topics()}
    assert {SysCommandTopic.SHELL, TrainingTopic.DELETE_RUN, TrainingTopic.DEPLOY} <= topics
    for topic in topics - engine._TOPICS:
        with pytest.raises(engine.NotOurs):
            engine.check_request(topic, Message(topic, ""), "", {})
    assert len(engine._TOPICS) == 6


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        (".__nvfl_sig.json", 2**24, "too large, once unpacked"),
        ("config/config_fed_server.json", 2**24, "too large, once unpacked"),
        ("custom/.__nvfl_sig.json", 10, "other files"),
        ("../.__nvfl_submitter.crt", 10, "other files"),
    ],
)
def test_no_file_that_fills_the_disk_or_makes_a_folder(name: str, size: int, words: str) -> None:
    """Signatures differ from job to job: what can be held against something is their names, folders and size."""
    packed, job = io.BytesIO(), str(uuid.uuid4())
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr(engine.CLIENT, "{}")
        files.writestr(".__nvfl_submitter.crt", "x")
        files.writestr(name, "x" * size)
    message = Message(TrainingTopic.DEPLOY, packed.getvalue())
    for key, value in {"job_id": job, "job_meta": {"job_id": job}, "app_name": "app"}.items():
        message.set_header(key, value)
    assert len(message.body) < engine._MOST
    with pytest.raises(engine.NotOurs, match=words):
        engine.check_request(message.topic, message, message.body, {})


INTRUDER = """
import sys, time, os
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.private.admin_defs import Message
from nvflare.private.defs import CellChannel, SysCommandTopic, new_cell_message
from nvflare.private.fed.utils.fed_utils import fobs_initialize
fobs_initialize()
cell = Cell(fqcn="aachen.intruder", root_url=None, secure=False, credentials={},
            parent_url=f"tcp://localhost:{sys.argv[1]}", create_internal_listener=False)
cell.start()
time.sleep(1.5)
reply = cell.send_request(channel=CellChannel.CLIENT_MAIN, topic=SysCommandTopic.SHELL, target="aachen",
                          request=new_cell_message({}, Message(SysCommandTopic.SHELL, "pwd")), timeout=4)
print("said:", getattr(reply.payload, "body", reply.payload), flush=True)
os._exit(0)
"""


def test_another_user_of_the_machine_cannot_speak_to_a_site(machines: Machines, tmp_path: Path) -> None:
    """The port of the loopback device by which a job talks to its engine asks for a certificate."""
    engine = psutil.Process(machines.running["aachen"]._process.pid)
    ports = [each.laddr.port for each in engine.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    assert ports
    (tmp_path / "intruder.py").write_text(INTRUDER)
    for port in ports:
        command = [sys.executable, str(tmp_path / "intruder.py"), str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert str(machines.folder) not in done.stdout
        assert REFUSED not in done.stdout  # it was not even heard
