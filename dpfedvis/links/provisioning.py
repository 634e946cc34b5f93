"""Provisioning: certificates, keys and kits of a federation, made on one machine and handed out.

NVIDIA FLARE makes the certificates of its connections. Beside them each site gets an identity (Ed25519) that signs
contracts and receipts and that the others have pinned; the server gets none. Whoever provisions has seen all keys, so
that it should be a person whom all sites trust with that, and should delete its copies.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from accounting.errors import InvalidParameter
from dpfedvis.data import Schema
from dpfedvis.errors import DpfedvisError
from dpfedvis.links.kits import ADMIN, HOME, ORGANISATION, RUNS, Federation, Kit
from dpfedvis.mechanisms import KMeans
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.files import write_text
from dpfedvis.protocol.signatures import Identity
from dpfedvis.site.folder import KEY, LEDGER, POLICY
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.own_table import SCHEMA, TABLE
from dpfedvis.site.policy import Policy

AUTHORITY = "authority"
MEMBERS, FIRST = "members.txt", "READ-ME-FIRST.md"
_IMPLEMENTED = "nvflare.lighter.impl"
# All that a job may name at a site, and at the server.
SITE_CLASSES = ["nvflare.collab.runtime.executor.CollabExecutor", "dpfedvis.links.nvflare_job.SitePart"]
SERVER_CLASSES = ["nvflare.collab.runtime.controller.CollabController", "dpfedvis.links.nvflare_job.ServerPart"]
# The admin starts, stops and looks at jobs. It reads no file, runs no command, ships no code, and stops no machine.
_RIGHTS = dict.fromkeys(("submit_job", "manage_job", "view"), "any")
_RIGHTS |= dict.fromkeys(("clone_job", "download_job", "operate", "shell_commands", "byoc"), "none")
_SERVER_RIGHTS = {"app_command": "any"}  # to ask how far a run is
# What a policy begins with: sums over sites, for a private map.
BEGINS = {
    "trusts": ["aggregate"],
    "releases": [*(each.what for each in (ScaleHistogram, Moments, SecondMoments, KMeans, GridCounts))],
}
_NEEDLESS = (
    *("readme.txt", "startup/start.sh", "startup/sub_start.sh", "startup/stop_fl.sh", "startup/fl_admin.sh"),
    *("startup/readme.txt", "startup/system_info.ipynb", "local/privacy.json.sample"),
)
_LOG_STREAMER = "site_log_streamer"
# A job talks to its engine over the loopback device: encrypted, and with certificates, as other users of it cannot.
_LOOPBACK = {
    "scheme": "tcp",
    "host_names": ["localhost"],
    "default_host": "localhost",
    "connection_security": "mtls",
}
_HEARTBEAT = 30  # seconds without a sign of life after which a machine is not connected


class ProvisioningFailed(DpfedvisError):
    """The engine could not make the kits."""


def provision(federation: Federation, out: str | Path, *, schema: Path | None = None) -> dict[str, Path]:
    """Make the kits of a federation; return their folders by name: server, admin, and each site.

    Parameters
    ----------
    federation : Federation
    out : path-like
        New, or empty. Its folder ``authority`` has the key behind all certificates.
    schema : Path, optional
        The public schema's file.
    """
    out = Path(out)
    if out.exists() and any(out.iterdir()):
        raise InvalidParameter("out", str(out), "a new or empty folder: kits are never overwritten")
    if schema is not None:
        Schema.read(schema)  # raises for one that sites could not use
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _for_the_owner_alone(), tempfile.TemporaryDirectory(dir=out) as draft:
        made = _engine_kits(federation, Path(draft))
        roles = {"server": made / federation.server, "admin": made / ADMIN}
        roles |= {site: made / site for site in federation.sites}
        keys = {site: Identity.kept(roles[site] / HOME / KEY).public for site in federation.sites}
        kits = {name: _kit(federation, folder, name, keys) for name, folder in roles.items()}
        for name, kit in kits.items():
            if kit.role == "site":
                _write_site(kit, federation, schema)
            else:
                _write_other(kit, schema)
            _write_local(kit.folder / "local", kit.role)
            for needless in _NEEDLESS:  # scripts would start the engine without our guard
                (kit.folder / needless).unlink(missing_ok=True)
            kit.folder.chmod(0o700)
            kit.folder.rename(out / name)
        (made.parent / "state").rename(out / AUTHORITY)
        (out / AUTHORITY).chmod(0o700)
        _forget_keys(out / AUTHORITY / "cert.json")
    return {name: out / name for name in roles}


@contextmanager
def _for_the_owner_alone() -> Iterator[None]:
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def fingerprint(key: str) -> str:
    """Return a short form of a public key that two people can read to each other."""
    digest = hashlib.sha256(bytes.fromhex(key)).hexdigest()[:32]
    return " ".join(digest[start : start + 4] for start in range(0, 32, 4))


def keep_storage_at_home(kit: Kit) -> None:
    """Let the engine's server keep jobs in its own kit, wherever that has been moved to, and not in /tmp."""
    path = kit.folder / "local" / "resources.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    storage = kit.home / "engine"
    values["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(storage / "snapshots")
    for component in values["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(storage / "jobs")
    write_text(path, json.dumps(values, indent=2))


def _engine_kits(federation: Federation, draft: Path) -> Path:
    """Let NVIDIA FLARE make certificates and its own files; return the folder with one folder a machine."""
    from nvflare.lighter.entity import Project
    from nvflare.lighter.provision import prepare_builders, prepare_project
    from nvflare.lighter.provisioner import Provisioner

    machine = {"org": ORGANISATION}
    participants: list[dict[str, Any]] = [
        {"name": federation.server, "type": "server", "fed_learn_port": federation.port, "admin_port": federation.port},
        *({"name": site, "type": "client", "listening_host": _LOOPBACK} for site in federation.sites),
        {"name": ADMIN, "type": "admin", "role": "project_admin"},
    ]
    settings: dict[str, Any] = {
        "api_version": 3,
        "name": federation.name,
        "participants": [{**each, **machine} for each in participants],
        "builders": [
            {"path": f"{_IMPLEMENTED}.workspace.WorkspaceBuilder"},
            {"path": f"{_IMPLEMENTED}.static_file.StaticFileBuilder",
             "args": {"config_folder": "config", "scheme": "grpc"}},
            {"path": f"{_IMPLEMENTED}.cert.CertBuilder"},
            {"path": f"{_IMPLEMENTED}.signature.SignatureBuilder"},
        ],
    }  # fmt: skip
    said = StringIO()
    try:
        with redirect_stdout(said):
            project: Project = prepare_project(settings)
            Provisioner(str(draft), prepare_builders(settings)).provision(project)
        made = draft / federation.name / "prod_00"
        missing = [name for name in (federation.server, ADMIN, *federation.sites) if not (made / name).is_dir()]
    except Exception as error:
        raise ProvisioningFailed(f"the engine could not make certificates: {error}") from error
    if missing:
        logging.getLogger(__name__).warning("%s", said.getvalue())
        raise ProvisioningFailed(f"the engine made no kit of {', '.join(missing)}")
    return made


def _forget_keys(path: Path) -> None:
    """Take the private keys of all machines out of what the authority keeps; its own stays."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    for each in kept.values():
        if isinstance(each, dict):
            each.pop("pri_key", None)
    write_text(path, json.dumps(kept, indent=2))


def _kit(federation: Federation, folder: Path, name: str, keys: dict[str, str]) -> Kit:
    role = name if name in ("server", "admin") else "site"
    kit = Kit(
        folder,
        role,
        name,
        federation.name,
        federation.server,
        federation.port,
        keys,
        federation.features,
    )
    kit.write()
    return kit


def _write_site(kit: Kit, federation: Federation, schema: Path | None) -> None:
    home, members = kit.home, kit.members
    SiteLedger.make(home / LEDGER)
    policy = replace(Policy.of({**BEGINS, **(federation.policy or {})}), members=members)
    write_text(home / POLICY, _template("policy.toml").render(values=policy.to_toml(), name=kit.name))
    write_text(home / TABLE, _template("site.toml").render(name=kit.name, features=federation.features))
    _write_schema(home, schema)
    lines = [f"{name:24} {fingerprint(key)}" for name, key in members.items()]
    write_text(kit.folder / MEMBERS, "\n".join([*lines, ""]))
    facts = {"name": kit.name, "federation": federation, "members": MEMBERS, "home": HOME, "policy": policy}
    write_text(kit.folder / FIRST, _template(FIRST).render(**facts, fingerprint=fingerprint(members[kit.name])))


def _write_other(kit: Kit, schema: Path | None) -> None:
    if kit.role == "server":
        (kit.folder / RUNS).mkdir(mode=0o700)
    else:
        _write_schema(kit.home, schema)


def _write_schema(home: Path, schema: Path | None) -> None:
    text = _template(SCHEMA).render() if schema is None else schema.read_text(encoding="utf-8")
    write_text(home / SCHEMA, text)


def _write_local(local: Path, role: str) -> None:
    """Write what jobs may do at this machine."""
    resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    if role == "admin":
        return
    resources["class_allow_list"] = SITE_CLASSES if role == "site" else SERVER_CLASSES
    resources["class_list_enforcement_mode"] = "enforce"
    if role == "server":
        resources["servers"][0]["heart_beat_timeout"] = _HEARTBEAT
    if role == "site":
        # It would send the error log to the server, and an exception may quote a record.
        resources["components"] = [each for each in resources["components"] if each["id"] != _LOG_STREAMER]
        resources["allow_log_streaming"] = False
    write_text(local / "resources.json", json.dumps(resources, indent=2))
    own = _RIGHTS | (_SERVER_RIGHTS if role == "server" else {})
    rights = {"format_version": "1.0", "permissions": {"project_admin": own}}
    write_text(local / "authorization.json", json.dumps(rights, indent=2))
    shutil.copy(local / "log_config.json.default", local / "log_config.json")


def _template(name: str) -> Any:
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    return environment.from_string((files("dpfedvis.links") / "templates" / name).read_text(encoding="utf-8"))
