"""A federation on one machine: real processes, certificates, ledgers and secure sums, and a hospital that is killed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from accounting.errors import InvalidParameter
from dpfedvis.data.example import HOSPITALS, hospitals
from dpfedvis.errors import DpfedvisError
from dpfedvis.links import NVFlare
from dpfedvis.links.kits import Federation, Kit
from dpfedvis.links.machines import Machine
from dpfedvis.links.nvflare import EngineUnavailable
from dpfedvis.links.provisioning import provision
from dpfedvis.numerics.files import write_text
from dpfedvis.reporting.run_report import show
from dpfedvis.reporting.site_views import write_site_view
from dpfedvis.runs.execute import execute
from dpfedvis.runs.settings import RunConfig
from dpfedvis.server.callbacks import StageBars
from dpfedvis.site.folder import LEDGER
from dpfedvis.site.ledger_file import tables
from dpfedvis.site.own_table import SCHEMA, TABLE, OwnTable
from dpfedvis.site.site import PLACES

_VICTIM = HOSPITALS[1]
_RELEASES = 4  # of the killed hospital, before it is
_START = 120.0  # seconds for all machines to connect


class DidNotStart(DpfedvisError):
    """A machine of the federation did not come up."""


class FederationDemo:
    """Server and hospitals as processes of this machine, and one private map.

    Parameters
    ----------
    out : Path
        Kits, data, logs and results; new or empty.
    patients : int
        Of a hospital, on average.
    epsilon : float
    tell : callable
        Called with one sentence for each thing that happens.
    """

    def __init__(self, out: Path, *, patients: int, epsilon: float, tell: Callable[[str], None]) -> None:
        if out.exists() and any(out.iterdir()):
            raise InvalidParameter("out", str(out), "a new or empty folder")
        self.out, self._patients, self._epsilon, self._tell = out, patients, epsilon, tell
        self._machines: dict[str, Machine] = {}
        self._away, self._back, self._over = False, False, threading.Event()
        self._kits: dict[str, Path] = {}

    def run(self) -> dict[str, Any]:
        """Do all of it, and leave nothing running; return the main facts."""
        started = time.monotonic()
        self._provision()
        with ExitStack() as running:
            running.callback(self._stop)
            for name in ("server", *HOSPITALS):
                self._start(name)
            self._tell(f"{len(HOSPITALS)} hospitals and a server start, each a process with its own certificate")
            self._wait()
            settings: dict[str, Any] = {"link": "nvflare", "kit": str(self._kits["admin"]), "patience": 10.0}
            settings |= {"epsilon": self._epsilon, "trust": "aggregate", "map": "tsne"}
            config = RunConfig.from_mapping(settings)
            killer = threading.Thread(target=self._kill)
            killer.start()
            try:
                done = execute(config, self.out / "run", (self,), progress=StageBars(), show=show)
            finally:
                self._over.set()
                killer.join()
        for name in HOSPITALS:
            if (Kit.read(self._kits[name]).home / PLACES).exists():
                write_site_view(Kit.read(self._kits[name]).home, name)
        statement = done.statement.to_dict()
        return {
            "headline": statement["headline"],
            "receipts": statement["facts"]["receipts"],
            "killed": _VICTIM,
            "came_back": self._back,
            "report": str(done.folder / "report.html"),
            "ledgers": {name: str(Kit.read(self._kits[name]).home / LEDGER) for name in HOSPITALS},
            "seconds": round(time.monotonic() - started, 1),
        }

    def __call__(self, *_: object) -> None:
        """A round is over: nothing to do, the server tells of it (`told`)."""

    def told(self, facts: dict[str, Any]) -> None:
        """Say what happens; start the killed hospital again once the others go on without it."""
        if facts["away"] and not self._away:
            self._away = True
            self._tell(f"after round {facts['done']}: the run goes on without {', '.join(facts['away'])}")
            self._start(_VICTIM)
            self._tell(f"{_VICTIM} is started again")
        elif self._away and not self._back and not facts["away"]:
            self._back = True
            self._tell(f"{_VICTIM} is back: a new job goes on with the same run, and all its releases are known")

    def _kill(self) -> None:
        """Kill a hospital in the middle of the rounds, with all its processes, as a power cut would."""
        ledger = Kit.read(self._kits[_VICTIM]).home / LEDGER
        while not self._over.wait(0.002):
            with tables(ledger, "ro") as known:
                (released,) = known.execute("SELECT COUNT(*) FROM events").fetchone()
            if released >= _RELEASES:
                self._machines[_VICTIM].kill()
                self._tell(f"{_VICTIM} is killed after its release {released}, with all its processes")
                return

    def _provision(self) -> None:
        data = self.out / "data"
        data.mkdir(parents=True, exist_ok=True)
        for name, text in hospitals(self._patients, 0).items():
            write_text(data / name, text)
        federation = Federation(
            name="hospitals",
            sites=HOSPITALS,
            port=_free_port(),
            schema=SCHEMA,
            policy={"epsilon": max(self._epsilon, 1.0)},
        )
        self._kits = provision(federation, self.out / "kits", schema=data / SCHEMA)
        for name in HOSPITALS:
            home = Kit.read(self._kits[name]).home
            write_text(home / TABLE, f'data = "{(data / f"{name}.csv").resolve()}"\n')
            OwnTable.read(home).prepare(name)

    def _start(self, name: str) -> None:
        self._machines[name] = Machine(Kit.read(self._kits[name]))

    def _wait(self) -> None:
        until = time.monotonic() + _START
        while time.monotonic() < until:
            for name, machine in self._machines.items():
                if not machine.alive:
                    raise DidNotStart(f"{name} ended by itself; {machine.log} says why")
            try:
                with NVFlare(self._kits["admin"]) as link:
                    if link.connected() >= set(HOSPITALS):
                        return
            except EngineUnavailable:
                pass
            time.sleep(0.3)
        raise DidNotStart(f"not all sites were connected after {_START:g} seconds; logs are below {self.out}")

    def _stop(self) -> None:
        for machine in self._machines.values():
            machine.kill()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
