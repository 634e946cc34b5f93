"""The link to a federation on NVIDIA FLARE, from the admin's machine. It submits jobs that have no code in them.

The run is ours and outlives a job: what it needs to go on is at the server, in the folder of the run, and at the sites.
A machine that was away comes back with the next job, so that one is begun as soon as it is there.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, Self

from accounting import Event, Ledger
from accounting.errors import InvalidParameter
from accounting.events import from_dict
from dpfedvis.errors import DpfedvisError
from dpfedvis.links.kits import ADMIN, Kit
from dpfedvis.numerics.files import write_text
from dpfedvis.numerics.layouts import Progress
from dpfedvis.protocol.messages import digest_of_events
from dpfedvis.protocol.signatures import verify
from dpfedvis.protocol.wire import label_of
from dpfedvis.server import Program, Published

BEGUN = "job"  # in the checkpoint: a job of the run has begun
PATIENCE = 20.0
APPROVAL = 24 * 3600.0
_POLL = 0.3
_ASK_FOR_WORK = 0.25  # seconds
_MOST_LOST = 2  # jobs of one run that may end without a result
_CONNECT = 30.0
_SEE = "resume the run; if it ends again, see the log of the server"


class EngineUnavailable(DpfedvisError):
    """The engine's server does not answer, or does not take the job."""


class RunStopped(DpfedvisError):
    """A run that ended before its map was published; what was published stays.

    Parameters
    ----------
    message : str
    events : sequence of Event
        What sites were charged for until then, as the server knows it.
    """

    def __init__(self, message: str, events: Sequence[Event] = ()) -> None:
        super().__init__(message)
        self.events = list(events)


class _JobLost(Exception):
    """A job that ended without a word."""


class NVFlare:
    """A link to the sites of a federation, by the kit of its admin.

    Parameters
    ----------
    kit : path-like
        The admin's.
    patience : float
        Seconds without a word after which a site counts as away.
    approval : float
        Seconds to wait for the owners of sites to approve a contract.
    watch : callable, optional
        Called with what the server says of the run: stage, done, total, away, waiting.
    """

    one_process = False
    secure = True

    def __init__(
        self,
        kit: str | Path,
        *,
        patience: float = PATIENCE,
        approval: float = APPROVAL,
        watch: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.kit = Kit.read(kit, "admin")
        self._patience, self._approval, self._watch = patience, approval, watch
        self._session: Any = None
        self.jobs: list[str] = []

    @property
    def sites(self) -> Sequence[str]:
        """Names of the sites."""
        return sorted(self.kit.sites)

    def run(
        self,
        program: Program,
        *,
        run: str | None = None,
        ledger: Ledger | None = None,
        progress: Progress | None = None,
        checkpoint: Path | None = None,
        **watched: Any,
    ) -> Published:
        """Run a program at the server; write what the sites were charged to a ledger here.

        Parameters
        ----------
        program : Program
        run : str
            Name of the run.
        ledger : Ledger, optional
            Of this run alone.
        progress : callable, optional
            Called with (stage, done, total) in the stages after the rounds.
        checkpoint : Path, optional
            Folder in which it is noted that a job has begun, until it is known what it has released.
        **watched
            What only a program of this process can call; it is not called.
        """
        if run is None:
            raise InvalidParameter("run", None, "given: its folder at the server outlives a job")
        begun = None if checkpoint is None else checkpoint / BEGUN
        try:
            data = self._published(program, run, progress, begun)
        except RunStopped as stopped:
            _mirror(ledger, stopped.events)
            if begun is not None:
                begun.unlink(missing_ok=True)
            raise
        finally:
            self.close()
        published = self._check(Published.of_bytes(data), program, run)
        _mirror(ledger, list(published.feddl.ledger.events()))
        return published

    def close(self) -> None:
        """End the session with the engine."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connected(self) -> set[str]:
        """Names of the sites that are connected to the server now."""
        return set(self._last_seen())

    def _last_seen(self) -> dict[str, float]:
        """When the server last heard of each site that is connected, by its own clock."""
        known = self._engine("get_connected_client_list")
        return {each.name: each.last_connect_time for each in known if each.name in self.kit.sites}

    def _check(self, published: Published, program: Program, run: str) -> Published:
        """Hold what the server gave against what was submitted, and what sites signed; keep receipts that fit.

        A receipt counts if it is signed by the key in this kit, for this contract, and for exactly the events that the
        server gave of that site.
        """
        contract, events = published.contract, list(published.feddl.ledger.events())
        if {member.name: member.key for member in contract.members} != dict(self.kit.members):
            raise RunStopped("the contract of the run has other sites or keys than this kit")
        if (contract.run, contract.budget) != (run, program.settings.budget):
            raise RunStopped("the server gave the result of another run, or under another budget")
        fitting = {}
        for receipt in published.receipts:
            own = [event for event in events if event.client == receipt.site]
            signed = verify(self.kit.members.get(receipt.site, ""), receipt.signature, receipt.signed)
            label = receipt.contract == published.label == label_of(contract)
            if signed and label and receipt.values == digest_of_events(own):
                fitting[receipt.site] = receipt
        return replace(published, receipts=tuple(fitting[name] for name in sorted(fitting)))

    def _opened(self) -> Any:
        if self._session is None:
            try:  # first: the engine takes half a minute to say that nobody is there
                socket.create_connection((self.kit.server, self.kit.port), timeout=5).close()
            except OSError as error:
                where = f"{self.kit.server}:{self.kit.port}"
                raise EngineUnavailable(f"the server at {where} does not answer ({error})") from None
            from nvflare.fuel.flare_api.flare_api import new_secure_session

            try:
                with redirect_stdout(StringIO()):  # it tells that it connects
                    self._session = new_secure_session(ADMIN, str(self.kit.folder), timeout=_CONNECT)
            except Exception as error:
                where = f"{self.kit.server}:{self.kit.port}"
                raise EngineUnavailable(f"the server at {where} does not answer ({error})") from None
        return self._session

    def _published(self, program: Program, run: str, progress: Progress | None, begun: Path | None) -> bytes:
        failed = 0
        while True:
            missing = sorted(set(self.kit.sites) - self.connected())
            if missing:
                raise EngineUnavailable(
                    f"not connected: {', '.join(missing)}. All sites must be there when a run begins or is resumed, "
                    "since each signs its contract"
                )
            if begun is not None:
                begun.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_text(begun, run)
            self._end_jobs(run)
            job = self._submit(program, run)
            try:
                found = self._followed(job, progress)
            except KeyboardInterrupt:
                self._end(job)  # otherwise the sites would go on
                raise
            except _JobLost as lost:
                # The process of one site's job died alone, for one: the run goes on in another job.
                failed += 1
                if failed > _MOST_LOST:
                    raise EngineUnavailable(str(lost)) from None
                continue
            if found is not None:
                return found

    def _end_jobs(self, run: str) -> None:
        """End jobs of this run that still go on: an older one holds the ledgers of the sites."""
        for each in self._engine("list_jobs"):
            status, job = str(each.get("status") or ""), each.get("job_id") or each.get("id")
            if each.get("job_name", each.get("name")) == _job_name(run) and not status.startswith("FINISHED"):
                self._end(str(job))

    def _end(self, job: str) -> None:
        """End a job. One that was lost with an earlier server cannot be ended, and needs not be."""
        with suppress(EngineUnavailable):
            self._engine("abort_job", job)
            until = time.monotonic() + _CONNECT
            while not self._status(job).startswith("FINISHED") and time.monotonic() < until:
                time.sleep(_POLL)

    def _submit(self, program: Program, run: str) -> str:
        with tempfile.TemporaryDirectory() as draft:
            folder = write_job(Path(draft), program, run, len(self.kit.sites), self._patience, self._approval)
            job: str = self._engine("submit_job", str(folder))
        self.jobs.append(job)
        return job

    def _followed(self, job: str, progress: Progress | None) -> bytes | None:
        """Follow a job to its end; return what the run published, or None if another job must go on with it."""
        seen, until = dict[str, float](), 0.0
        while True:
            facts = self._facts(job)
            if facts is None:
                if self._status(job).startswith("FINISHED"):
                    raise _JobLost(f"the job ended without a result ({self._status(job)}): {_SEE}")
                time.sleep(_POLL)
                continue
            self._tell(facts, progress)
            if "stopped" in facts:
                raise RunStopped(facts["stopped"]["words"], [from_dict(each) for each in facts["stopped"]["events"]])
            away = set(facts["away"])
            if away and away - seen.keys():
                seen |= {name: self._last_seen().get(name, 0.0) for name in away}
            back = bool(away) and all(self._last_seen().get(name, 0.0) > seen[name] for name in away)
            if back:
                # The engine takes no machine back into a running job.
                self._end(job)
                return None
            if "published" in facts:
                until = until or time.monotonic() + (self._patience if away else 0.0)
                if time.monotonic() >= until:
                    self._facts(job, farewell=True)
                    return base64.b64decode(facts["published"])
            time.sleep(_POLL)

    def _status(self, job: str) -> str:
        return str(self._engine("get_job_status", job) or "")

    def _engine(self, command: str, *arguments: str) -> Any:
        """Ask the engine's server."""
        session = self._opened()
        try:
            return getattr(session, command)(*arguments)
        except Exception as error:
            raise EngineUnavailable(
                f"the server at {self.kit.server}:{self.kit.port} does not do what it was asked, {command} ({error}). "
                "Nothing is lost: a run that has begun can be resumed when it answers"
            ) from None

    def _tell(self, facts: dict[str, Any], progress: Progress | None) -> None:
        if self._watch is not None:
            self._watch({name: facts.get(name) for name in ("stage", "done", "total", "away", "waiting")})
        if progress is not None and facts["stage"] not in ("agreement", "rounds"):
            progress(facts["stage"], facts["done"], max(facts["total"], facts["done"]))

    def _facts(self, job: str, *, farewell: bool = False) -> dict[str, Any] | None:
        from dpfedvis.links.nvflare_job import PROGRESS

        try:
            found = self._opened().do_app_command(job, PROGRESS, {"farewell": farewell})
        except EngineUnavailable:
            raise
        except Exception:
            return None  # not running yet, or no longer
        return found if isinstance(found, dict) and "stage" in found else None


def _job_name(run: str) -> str:
    return f"dpfedvis-{run}"


def _mirror(ledger: Ledger | None, events: Sequence[Event]) -> None:
    """Write what is not yet in the ledger of a run; the server's has the same order."""
    if ledger is not None and (new := events[len(list(ledger.events())) :]):
        ledger.record(*new)


def write_job(
    folder: Path,
    program: Program,
    run: str,
    sites: int,
    patience: float,
    approval: float,
    server: object | None = None,
) -> Path:
    """Write a job's files; return their folder. It names classes that are installed, and has no code.

    `server` is another object than our own part of the server, for tests of what a server may ask.
    """
    from dpfedvis.links.nvflare_job import ServerPart

    own = server or ServerPart(base64.b64encode(program.to_bytes()).decode(), run, patience, approval)
    return _export(folder, _job_name(run), own, sites)


def write_client_config(folder: Path) -> Path:
    """Write the files of any job; return the one with the settings of a site's part, which is the same in all jobs."""
    from dpfedvis.links.nvflare_job import ServerPart

    return _export(folder, "any", ServerPart("", "any", 1.0, 1.0), 1) / "app" / "config" / "config_fed_client.json"


def _export(folder: Path, name: str, server: object, sites: int) -> Path:
    from nvflare.collab import CollabRecipe

    from dpfedvis.links.nvflare_job import SitePart

    recipe = CollabRecipe(job_name=name, server=server, client=SitePart(), min_clients=sites)
    with warnings.catch_warnings():
        # It takes the program's settings and the run's name, which are public, for secrets.
        warnings.simplefilter("ignore")
        recipe.export(str(folder))
    for code in list(folder.rglob("custom")):
        shutil.rmtree(code)
    # How often a site asks for work: the engine's two seconds, twice, are most of a short run.
    _set(folder, "config_fed_server.json", {"server": {"task_request_interval": _ASK_FOR_WORK}})
    _set(folder, "config_fed_client.json", {"default_task_fetch_interval": _ASK_FOR_WORK})
    return next(path.parent for path in folder.rglob("meta.json"))


def _set(folder: Path, name: str, settings: Mapping[str, Any]) -> None:
    """Add settings to a file of a job."""
    for path in folder.rglob(name):
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | settings, indent=2), encoding="utf-8")
