"""A small federation of real machines for tests: processes, certificates and kits on this machine."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpfedvis.data.example import hospitals
from dpfedvis.links import NVFlare
from dpfedvis.links.kits import Federation, Kit
from dpfedvis.links.machines import Machine
from dpfedvis.links.nvflare import EngineUnavailable
from dpfedvis.links.provisioning import provision
from dpfedvis.runs.execute import Run, execute
from dpfedvis.runs.settings import RunConfig
from dpfedvis.site import SiteLedger
from dpfedvis.site.folder import LEDGER, POLICY
from dpfedvis.site.own_table import OwnTable

SITES = ("aachen", "bremen", "coburg")
EPSILON = 2.0
PATIENCE = 120.0  # nobody dies: on a busy machine a site that lives is slow to answer
SHORT = 10.0  # where a site dies, which costs the run so long


class Machines:
    """Server and sites of a federation, as processes."""

    def __init__(self, folder: Path, sites: Sequence[str] = SITES, **policy: Any) -> None:
        self.folder, self.sites = folder, tuple(sites)
        data = folder / "data"
        data.mkdir(parents=True)
        for name, text in hospitals(150, 0).items():
            (data / name).write_text(text)
        federation = Federation(
            name="trial",
            sites=self.sites,
            port=free_port(),
            schema="schema.toml",
            policy={"epsilon": EPSILON, **policy},
        )
        self.kits = {
            name: Kit.read(place)
            for name, place in provision(federation, folder / "kits", schema=data / "schema.toml").items()
        }
        for name in self.sites:
            (self.home(name) / "site.toml").write_text(f'data = "{data / name}.csv"\n')
            OwnTable.read(self.home(name)).prepare(name)
        self.running: dict[str, Machine] = {}
        self._started: dict[str, float] = {}
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])  # so that machines find parts of tests

    def home(self, name: str) -> Path:
        return self.kits[name].home

    def start(self, *names: str) -> None:
        for name in names or ("server", *self.sites):
            self._started[name] = time.time()
            self.running[name] = Machine(self.kits[name])

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()

    def stop(self) -> None:
        for name in list(self.running):
            self.kill(name)

    def wait(self, *names: str, seconds: float = 240.0) -> None:
        """Wait until these sites, by default all, are connected: not only an earlier process, which has died since."""
        until = time.monotonic() + seconds
        found: set[str] = set()
        while time.monotonic() < until:
            try:
                with NVFlare(self.kits["admin"].folder) as link:
                    found = {name for name, seen in link._last_seen().items() if seen > self._started.get(name, 0.0)}
            except EngineUnavailable:
                pass
            if found >= set(names or self.sites):
                return
            time.sleep(0.2)
        raise AssertionError(f"only {sorted(found)} are connected")

    def run(self, out: Path, callbacks: Sequence[Any] = (), *, resume: bool = False, **settings: Any) -> Run:
        """A private map of the default recipe, under aggregate."""
        given = {"link": "nvflare", "kit": str(self.kits["admin"].folder), "patience": PATIENCE, "jobs": 1}
        given |= {"epsilon": EPSILON, "trust": "aggregate", **settings}
        return execute(RunConfig.from_mapping(given), out, callbacks, resume=resume)

    def events(self, name: str) -> list[tuple[str, int | None]]:
        """What the own ledger of a site has."""
        with SiteLedger.read(self.home(name) / LEDGER) as ledger:
            return [(event.what, event.round) for event in ledger._events()]

    def change_policy(self, name: str, before: str, after: str) -> None:
        path = self.home(name) / POLICY
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))

    def log(self, name: str) -> str:
        return self.running[name].log.read_text(errors="replace")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def processes_of(folder: Path) -> list[int]:
    """Processes whose command line names this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(os.fsencode(folder) in word for word in words):
                found.append(int(entry.name))
    return found
