"""Kits: the folder that each machine of a federation gets, and what stands where in it.

    startup/  local/  transfer/     NVIDIA FLARE's own: certificates, addresses, what jobs may do here
    dpfedvis/kit.json               what this kit is
    dpfedvis/                       of a site: identity.key, policy.toml, schema.toml, site.toml, ledger.sqlite; of the
                                    server: runs/, a folder a run

Nothing here needs NVIDIA FLARE.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.files import write_text
from dpfedvis.site.policy import Policy

HOME = "dpfedvis"  # our folder of a kit
RUNS = f"{HOME}/runs"
ADMIN = "admin@dpfedvis.local"  # the engine wants an address
ORGANISATION = "dpfedvis"
_FACTS = "kit.json"
SERVER, CLIENT = "fed_server.json", "fed_client.json"  # where the engine's settings are


class EngineMissing(DpfedvisError):
    """The extra ``nvflare`` is not installed."""


class NotAKit(DpfedvisError):
    """A folder that is not the kit of such a machine."""


@dataclass(frozen=True, kw_only=True)
class Federation:
    """Who takes part, and where the server is: what federation.toml says.

    Parameters
    ----------
    name : str
    sites : tuple of str
    server : str
        Host that the sites and the admin dial.
    port : int
    schema : str, optional
        File of the public schema; without one, each kit has a draft to fill in, the same at all sites.
    features : str, optional
        Public features by name, such as ``hog:28x28``.
    policy : mapping
        Settings of `dpfedvis.site.Policy` that each kit begins with.
    """

    name: str
    sites: tuple[str, ...]
    server: str = "localhost"
    port: int = 8002
    schema: str | None = None
    features: str | None = None
    policy: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_name("name", self.name)
        if not isinstance(self.sites, tuple) or len(self.sites) < 2:
            raise InvalidParameter("sites", self.sites, "a list of two names or more")
        for site in self.sites:
            _check_name("name of a site", site)
        if len({site.lower() for site in self.sites} | {"server", "admin", "authority"}) < len(self.sites) + 3:
            raise InvalidParameter("sites", list(self.sites), "distinct names, and none of server, admin, authority")
        if not isinstance(self.server, str) or not re.fullmatch(
            r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", self.server
        ):
            raise InvalidParameter("server", self.server, "the name of a host, such as fl.example.org")
        if self.server in self.sites:
            raise InvalidParameter("server", self.server, "another name than those of the sites")
        checks.whole("port", self.port, 1, 65535)
        for name, value in (("schema", self.schema), ("features", self.features)):
            if value is not None:
                checks.text(name, value)
        if not isinstance(self.policy, Mapping | None):
            raise InvalidParameter("policy", self.policy, "a table of settings")
        if "members" in (self.policy or {}):
            raise InvalidParameter("policy", "members", "without members: their keys are made with the kits")
        Policy.of(self.policy or {})  # raises for what a policy does not have

    @classmethod
    def read(cls, path: str | Path) -> Federation:
        """Read federation.toml; the file of the schema is found beside it."""
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidParameter("federation", str(path), f"a readable TOML file ({error})") from None
        for name in values:
            checks.one_of(f"setting of {path.name}", name, [each.name for each in fields(cls)])
        for name in ("name", "sites"):
            if name not in values:
                raise InvalidParameter(f"{path.name}: {name}", None, "given")
        if isinstance(values["sites"], list):
            values["sites"] = tuple(values["sites"])
        found = cls(**values)
        if found.schema is not None and not (path.parent / found.schema).is_file():
            raise InvalidParameter(f"{path.name}: schema", found.schema, f"a file beside {path.name}")
        return found


@dataclass(frozen=True)
class Kit:
    """What a kit is.

    Parameters
    ----------
    folder : Path
    role : {"server", "site", "admin"}
    name : str
        Of the site; "server" or "admin" otherwise.
    federation : str
    server : str
    port : int
    members : mapping of str to str
        Public keys of the sites, by name.
    features : str, optional
    """

    folder: Path
    role: str
    name: str
    federation: str
    server: str
    port: int
    members: Mapping[str, str]
    features: str | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(self.members)

    @classmethod
    def read(cls, folder: str | Path, *roles: str) -> Kit:
        """Read a kit that must have one of these roles, if any are named."""
        folder = Path(folder).absolute()
        try:
            facts = json.loads((folder / HOME / _FACTS).read_text(encoding="utf-8"))
            kit = cls(folder, **facts)
        except (OSError, ValueError, KeyError, TypeError):
            raise NotAKit(f"{folder} is not the kit of {_needed(roles)} (see dpfedvis federation init)") from None
        if roles and kit.role not in roles:
            raise NotAKit(f"{folder} is the kit of {_called(kit)}; that of {_needed(roles)} is needed here")
        return kit

    def write(self) -> None:
        """Write what the kit is."""
        facts = {name: value for name, value in asdict(self).items() if name != "folder"}
        (self.folder / HOME).mkdir(mode=0o700, exist_ok=True)
        write_text(self.folder / HOME / _FACTS, json.dumps(facts, indent=2) + "\n")

    @property
    def home(self) -> Path:
        """Our folder of the kit: of a site, its own (`dpfedvis.site.folder`)."""
        return self.folder / HOME

    @property
    def command(self) -> list[str]:
        """The engine's program for this machine."""
        start = SERVER if self.role == "server" else CLIENT
        settings = ["secure_train=true", f"org={ORGANISATION}", "config_folder=config"]
        settings += [f"uid={self.name}"] if self.role == "site" else []
        engine = [sys.executable, "-u", "-m", "dpfedvis.links.engine"]
        return [*engine, "-m", str(self.folder), "-s", start, "--set", *settings]


def require_engine() -> None:
    """Raise unless NVIDIA FLARE is installed."""
    if find_spec("nvflare") is None or find_spec("psutil") is None:
        raise EngineMissing('NVIDIA FLARE is not installed: pip install "dpfedvis[nvflare]"')


def site_name(folder: Path) -> str:
    """Return the name of the site of a kit; a word in its place if it cannot be read."""
    try:
        return Kit.read(folder).name
    except NotAKit:
        return "a site"


def _needed(roles: tuple[str, ...]) -> str:
    return " or ".join("a site" if role == "site" else f"the {role}" for role in roles) or "a machine"


def _called(kit: Kit) -> str:
    return f"site {kit.name}" if kit.role == "site" else f"the {kit.role}"


def _check_name(what: str, name: Any) -> None:
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z][A-Za-z0-9_-]{0,62}", name):
        raise InvalidParameter(what, name, "a letter, then letters, digits, - or _, at most 63")
