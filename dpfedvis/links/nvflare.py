"""The link to a federation on NVIDIA FLARE, from the admin's machine. It submits jobs that have no code in them.

The run is ours and outlives a job: what it needs to go on is at the server, in the folder of the run, and at the sites.
A machine that was away comes back with the next job, so that one is begun as soon as it is there.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from accounting import Ledger
from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.links.kits import ADMIN, Kit
from dpfedvis.numerics.layouts import Progress
from dpfedvis.protocol.signatures import verify
from dpfedvis.server import Program, Published

PATIENCE = 20.0
APPROVAL = 24 * 3600.0
_POLL = 0.3
_REJOIN_AFTER = 1  # rounds that a run goes on without a machine before it is taken back
_CONNECT = 30.0


class EngineUnavailable(DpfedvisError):
    """The engine's server does not answer, or does not take the job."""


class RunStopped(DpfedvisError):
    """A run that ended before its map was published; what was published stays."""


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
        callbacks: Sequence[Any] = (),
        **others: Any,
    ) -> Published:
        """Run a program at the server; write what the sites were charged to a ledger here."""
        if run is None:
            raise InvalidParameter("run", None, "given: its folder at the server outlives a job")
        try:
            data = self._published(program, run, progress)
        finally:
            self.close()
        published = Published.of_bytes(data)
        self._check_receipts(published)
        if ledger is not None:
            known = len(list(ledger.events()))
            if new := list(published.feddl.ledger.events())[known:]:
                ledger.record(*new)
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
        session = self._opened()
        return {client.name for client in session.get_connected_client_list()} & set(self.kit.sites)

    def _check_receipts(self, published: Published) -> None:
        """Raise unless contract and receipts are signed by the keys that the kit has of the sites."""
        keys = {member.name: member.key for member in published.contract.members}
        if keys != dict(self.kit.members):
            raise RunStopped("the contract of the run has other sites or keys than this kit")
        for receipt in published.receipts:
            if not verify(keys.get(receipt.site, ""), receipt.signature, receipt.signed):
                raise RunStopped(f"the receipt of {receipt.site[:80]} is not signed by its key")

    def _opened(self) -> Any:
        if self._session is None:
            from nvflare.fuel.flare_api.flare_api import new_secure_session

            try:
                self._session = new_secure_session(ADMIN, str(self.kit.folder), timeout=_CONNECT)
            except Exception as error:
                where = f"{self.kit.server}:{self.kit.port}"
                raise EngineUnavailable(f"the server at {where} does not answer ({error})") from None
        return self._session

    def _published(self, program: Program, run: str, progress: Progress | None) -> bytes:
        while True:
            missing = sorted(set(self.kit.sites) - self.connected())
            if missing:
                raise EngineUnavailable(
                    f"not connected: {', '.join(missing)}. All sites must be there when a run begins or is resumed, "
                    "since each signs its contract"
                )
            found = self._watched(self._submit(program, run), progress)
            if found is not None:
                return found

    def _submit(self, program: Program, run: str) -> str:
        with tempfile.TemporaryDirectory() as draft:
            folder = write_job(Path(draft), program, run, len(self.kit.sites), self._patience, self._approval)
            try:
                job: str = self._opened().submit_job(str(folder))
            except Exception as error:
                raise EngineUnavailable(f"the server does not take the job ({error})") from None
        self.jobs.append(job)
        return job

    def _watched(self, job: str, progress: Progress | None) -> bytes | None:
        """Follow a job to its end; return what the run published, or None if another job must go on with it."""
        session, since = self._opened(), None
        while True:
            facts = self._facts(job)
            if facts is None:
                status = session.get_job_status(job) or ""
                if status.startswith("FINISHED"):
                    raise RunStopped(
                        f"the job ended without a result ({status}); resume the run, or see the server's log"
                    )
                time.sleep(_POLL)
                continue
            if self._watch is not None:
                self._watch({name: facts.get(name) for name in ("stage", "done", "total", "away", "waiting")})
            if progress is not None and facts["stage"] not in ("agreement", "rounds"):
                progress(facts["stage"], facts["done"], max(facts["total"], facts["done"]))
            if "published" in facts:
                return base64.b64decode(facts["published"])
            if "stopped" in facts:
                raise RunStopped(facts["stopped"]["words"])
            if facts["away"] and facts["stage"] == "rounds":
                since = facts["done"] if since is None else since
                if facts["done"] > since + _REJOIN_AFTER and set(facts["away"]) <= self.connected():
                    session.abort_job(job)
                    while not (session.get_job_status(job) or "").startswith("FINISHED"):
                        time.sleep(_POLL)
                    return None
            time.sleep(_POLL)

    def _facts(self, job: str) -> dict[str, Any] | None:
        from dpfedvis.links.nvflare_job import PROGRESS

        try:
            found = self._opened().do_app_command(job, PROGRESS, {})
        except EngineUnavailable:
            raise
        except Exception:
            return None  # not running yet, or no longer
        return found if isinstance(found, dict) and "stage" in found else None


def write_job(folder: Path, program: Program, run: str, sites: int, patience: float, approval: float) -> Path:
    """Write a job's files; return their folder. It names classes that are installed, and has no code."""
    from nvflare.collab import CollabRecipe

    from dpfedvis.links.nvflare_job import ServerPart, SitePart

    server = ServerPart(base64.b64encode(program.to_bytes()).decode(), run, patience, approval)
    recipe = CollabRecipe(job_name=f"dpfedvis-{run}", server=server, client=SitePart(), min_clients=sites)
    recipe.export(str(folder))
    for code in list(folder.rglob("custom")):
        shutil.rmtree(code)
    return next(path.parent for path in folder.rglob("meta.json"))
