"""The engine's program, which ends with the command that started it; at a site, guarded.

NVIDIA FLARE's own client does what any member of its network asks: it checks rights only if the sender says so. One
message, from the admin's kit, the server or another site, reads a file, deletes a folder or, with two jobs whose names
differ from their settings, runs code. So this program takes away all topics but those of a job, and lets a job through
only if it is the one that dpfedvis submits: the classes that are installed here, and no file besides.
"""

from __future__ import annotations

import io
import json
import logging
import runpy
import sys
import tempfile
import uuid
import zipfile
from pathlib import Path
from typing import Any

from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import RequestHeader, TrainingTopic, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from dpfedvis.links.kits import SERVER
from dpfedvis.links.machines import end_with_parent
from dpfedvis.links.nvflare import write_client_config

CLIENT = "config/config_fed_client.json"
_TOPICS = frozenset(
    {
        TrainingTopic.CHECK_RESOURCE,
        TrainingTopic.CANCEL_RESOURCE,
        TrainingTopic.DEPLOY,
        TrainingTopic.START_JOB,
        TrainingTopic.ABORT,
        TrainingTopic.NOTIFY_JOB_STATUS,
    }
)
_APP = "app"
_MOST = 2**20  # bytes of a job
# The server's settings travel with the job, and are not used at a site.
_OTHERS = frozenset(
    {"config/config_fed_server.json"}
    | {f"{folder}{name}" for folder in ("", "config/") for name in (".__nvfl_sig.json", ".__nvfl_submitter.crt")}
)
_FOLDERS = frozenset({"config/", "./", ""})
_log = logging.getLogger(__name__)


class NotOurs(Exception):
    """A request that no run of dpfedvis makes; in words for the site's own log."""


def check_request(topic: str, headers: Any, body: Any, expected: Any) -> None:
    """Raise `NotOurs` for what a site does not do.

    Parameters
    ----------
    topic : str
    headers : object with `get_header`
    body : bytes or object
    expected : object
        The configuration of a site's part of a job, as dpfedvis writes it.
    """
    if topic not in _TOPICS:
        raise NotOurs(f"the topic {topic!r} is not one of a run")
    if topic not in (TrainingTopic.DEPLOY, TrainingTopic.START_JOB):
        return
    job, meta = headers.get_header(RequestHeader.JOB_ID), headers.get_header(RequestHeader.JOB_META) or {}
    if not isinstance(job, str) or not _is_uuid(job) or meta.get("job_id") != job:
        raise NotOurs("the job has another name in its settings, or none that the engine gives")
    if meta.get("launcher_spec"):
        raise NotOurs("the job asks for a launcher of its own")
    if topic == TrainingTopic.DEPLOY:
        if headers.get_header(RequestHeader.APP_NAME) != _APP:
            raise NotOurs("the job has another application")
        _check_files(body, expected)


def _check_files(body: Any, expected: Any) -> None:
    if not isinstance(body, bytes) or len(body) > _MOST:
        raise NotOurs("the job is no archive, or too large")
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        if sum(each.file_size for each in archive.infolist()) > _MOST:  # it would fill the disk of the ledger
            raise NotOurs("the job is too large, once unpacked")
        names = [each.filename for each in archive.infolist() if each.filename not in _FOLDERS]
        rest = set(names) - _OTHERS
        if rest != {CLIENT} or len(names) != len(set(names)):
            raise NotOurs(f"the job has other files than its settings: {sorted(rest - {CLIENT})[:3]}")
        if json.loads(archive.read(CLIENT)) != expected:
            raise NotOurs("the job has other settings for a site than dpfedvis gives it")


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def guard(expected: Any) -> None:
    """Let the engine's client of this process do only what a run needs."""
    own = ClientRequestProcessors
    own.request_processors = [each for each in own.request_processors if set(each.get_topics()) <= _TOPICS]
    before = FedAdminAgent._dispatch_request

    def dispatch(agent: FedAdminAgent, request: Any) -> Any:
        try:
            message = request.payload
            check_request(message.topic, message, message.body, expected)
        except Exception as error:
            known = isinstance(error, NotOurs)
            _log.warning("a request was refused: %s", error if known else f"malformed ({type(error).__name__})")
            return new_cell_message({}, error_reply("this site does not do that"))
        return before(agent, request)

    FedAdminAgent._dispatch_request = dispatch


def main() -> None:
    """Run the engine's server, or its client, guarded."""
    end_with_parent()
    if SERVER in sys.argv:
        runpy.run_module("nvflare.private.fed.app.server.server_train", run_name="__main__", alter_sys=True)
        return
    with tempfile.TemporaryDirectory() as draft:
        expected = json.loads(write_client_config(Path(draft)).read_text(encoding="utf-8"))
    guard(expected)
    runpy.run_module("nvflare.private.fed.app.client.client_train", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
