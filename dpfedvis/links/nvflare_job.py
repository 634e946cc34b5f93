"""What runs inside a job of NVIDIA FLARE: a site's part, and the server's. Bytes of `dpfedvis.protocol` travel.

Both classes are installed at each machine and named in the lists of classes that the kits allow. A job has their names
and the server's settings, and no code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from accounting import Event, Ledger
from accounting.errors import AccountingError, InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.links.kits import HOME, RUNS, site_name
from dpfedvis.links.processes import decoded
from dpfedvis.numerics.files import write_bytes, write_text
from dpfedvis.protocol import wire
from dpfedvis.protocol.ask import Reply, Request
from dpfedvis.protocol.messages import APPROVAL, BUSY, FAILED, MALFORMED, NOT_AGREED, STORAGE, Agree, Forget, Refused
from dpfedvis.server import Program
from dpfedvis.site.folder import open_site

PROGRESS = "dpfedvis"  # topic of the admin's question how far a run is
FINISHED, STOPPED = "published.bin", "stopped.json"  # what a job leaves in its folder of the run
# Seconds that a site takes at most before it says that it is still computing; far below any patience of a server.
_LOOK = 1.0
_COMPUTING = b""
_MOST_REQUEST = 2**28  # bytes
_RUN = re.compile("[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_APPROVAL_POLL = 1.0
_log = logging.getLogger(__name__)
# A job would import torch at each machine, where it is installed, to send tensors. Bytes need none of it.
sys.modules.setdefault("nvflare.app_opt.pt.decomposers", None)  # type: ignore[arg-type]  # None bars an import


class SitePart:
    """A site in a job: `Site.answer` behind a name that the server can call. It never raises.

    Long work goes on in one thread of its own, and the server asks again: so that a machine that has died is told from
    one that computes.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._asked, self._answer = "", Future[bytes]()
        self._reply: Callable[[bytes], bytes] | None = None

    @collab.publish  # type: ignore[untyped-decorator]  # of the engine
    def answer(self, request: bytes) -> bytes:
        """Return the reply to a request; nothing, if it is not ready yet: ask again with the same bytes."""
        try:
            if collab.caller != "server":
                return self._refused(NOT_AGREED, "only the server asks a site")
            if not isinstance(request, bytes) or len(request) > _MOST_REQUEST:
                return self._refused(MALFORMED, "the request cannot be read: it is not bytes, or too large")
            return self._begun(request).result(_LOOK)
        except NotYet:
            return _COMPUTING
        except Exception:
            # An exception would travel with its text, which may quote a record.
            _log.warning("a request could not be answered", exc_info=True)
            return self._refused(FAILED, "this site could not do it; its own log says why")

    def _begun(self, request: bytes) -> Future[bytes]:
        """Return the answer that is being made, or begin it: one after the other."""
        asked, kit = (
            hashlib.sha256(request).hexdigest(),
            Path(collab.fl_ctx.get_engine().get_workspace().get_root_dir()),
        )
        with self._lock:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1)
            if asked != self._asked or self._answer.done():
                if not self._answer.done() and self._asked:
                    busy = Future[bytes]()
                    busy.set_result(self._refused(BUSY, "this site is still computing for another request"))
                    return busy
                self._asked, self._answer = asked, self._thread.submit(self._answered, kit, request)
            return self._answer

    def _answered(self, kit: Path, request: bytes) -> bytes:
        if self._reply is None:
            try:
                self._reply = open_site(kit / HOME, wait=20.0).answer
            except Exception:
                _log.warning("cannot open the site", exc_info=True)
                return self._refused(STORAGE, "this site cannot be opened; its own log says why", kit)
        return self._reply(request)

    @staticmethod
    def _refused(code: str, words: str, kit: Path | None = None) -> bytes:
        return wire.encode(Refused("a site" if kit is None else site_name(kit), code, words))


class ServerPart:
    """The server's program in a job.

    Parameters
    ----------
    program : str
        Bytes of the program, in base 64.
    run : str
        Name of the run: its folder at the server outlives the job.
    patience : float
        Seconds without a word after which a site counts as away.
    approval : float
        Seconds to wait for the owners of sites to approve a contract.
    """

    def __init__(self, program: str, run: str, patience: float, approval: float) -> None:
        self.program, self.run, self.patience, self.approval = program, run, patience, approval

    @collab.main  # type: ignore[untyped-decorator]  # of the engine
    def main(self) -> None:
        """Run the program, and leave what it published in the folder of the run."""
        if not _RUN.fullmatch(self.run):  # it is the name of a folder
            raise InvalidParameter("run", self.run[:80], "letters, digits, - and _, at most 63")
        engine = collab.fl_ctx.get_engine()
        folder = Path(engine.get_workspace().get_root_dir()) / RUNS / self.run
        progress = _Progress()
        engine.register_app_command(PROGRESS, lambda topic, data, fl_ctx: progress.told(folder, data or {}))
        ask = _Ask(self.patience, self.approval, progress)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in (FINISHED, STOPPED):
            (folder / name).unlink(missing_ok=True)
        try:
            program = Program.of_bytes(base64.b64decode(self.program))
            with Ledger(folder / "ledger.sqlite", budget=program.settings.budget) as ledger:
                published = program.run(
                    ask,
                    run=self.run,
                    ledger=ledger,
                    checkpoint=folder,
                    callbacks=[lambda round, Y: progress.stage("rounds", round.number)],
                    progress=progress.stage,
                )
                data = published.to_bytes()
            ask.each(Forget(published.label))
            write_bytes(folder / FINISHED, data)
        except Exception as error:
            known = isinstance(error, DpfedvisError | ValueError)
            if not known:
                _log.error("the program failed", exc_info=True)
            words = str(error) if known else "the server's program failed; its log says why"
            charged = [event.to_dict() for event in _events(folder / "ledger.sqlite")]
            write_text(folder / STOPPED, json.dumps({"words": words, "events": charged}))
        # Until the admin has taken it, or is gone: with the job its answers end.
        progress.wait_for_farewell()


class _Ask:
    """The sites of a job, as the program asks them."""

    one_process = False
    secure = True

    def __init__(self, patience: float, approval: float, progress: _Progress) -> None:
        self._patience, self._approval, self._progress = patience, approval, progress
        self._proxies = {proxy.name: proxy for proxy in collab.clients}
        self._away: set[str] = set()

    @property
    def sites(self) -> Sequence[str]:
        """Names of the sites."""
        return sorted(self._proxies)

    def each(self, request: Request) -> list[Reply]:
        """Ask every site, all at the same time; return their replies in order."""
        found = self.some(dict.fromkeys(self.sites, request))
        return [found[name] for name in self.sites]

    def some(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        """Ask some sites, all at the same time; return their replies by name."""
        encoded: dict[int, bytes] = {}
        messages = {name: encoded.setdefault(id(each), wire.encode(each)) for name, each in requests.items()}
        until = time.monotonic() + self._approval
        found = self._exchange(messages)
        while any(isinstance(requests[name], Agree) and _waits(found[name]) for name in found):
            waiting = {name: messages[name] for name in found if _waits(found[name])}
            self._progress.waiting(sorted(waiting))
            if time.monotonic() > until:
                break
            time.sleep(_APPROVAL_POLL)
            found |= self._exchange(waiting)
        self._progress.waiting([])
        return found

    def _exchange(self, messages: Mapping[str, bytes]) -> dict[str, Reply]:
        replies: dict[str, Reply] = {}
        left = dict(messages)
        for name in sorted(left.keys() & self._away):
            # The engine takes no machine back into a running job.
            replies[name] = Refused(name, FAILED, "away since an earlier request")
            del left[name]
        while left:
            raw = self._call(left)
            for name in list(left):
                data = raw.get(name)
                if data == _COMPUTING and data is not None:
                    continue
                replies[name] = self._decoded(name, data)
                del left[name]
        return replies

    def _call(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Ask once, in parallel; a site that is silent is not among the results."""
        found: dict[str, bytes] = {}
        groups: dict[bytes, list[str]] = {}
        for name, message in messages.items():
            groups.setdefault(message, []).append(name)
        waiting = [
            collab.get_clients(names)(timeout=self._patience, blocking=False).answer(message)
            for message, names in groups.items()
        ]
        for results in waiting:
            for name, data in results:
                if isinstance(data, bytes):
                    found[name] = data
        return found

    def _decoded(self, name: str, data: bytes | None) -> Reply:
        if data is None:
            self._away.add(name)
            self._progress.away = sorted(self._away)
            return Refused(name, FAILED, f"no answer within {self._patience:g} seconds")
        return decoded(name, data, f"the machine called {name}")


def _events(path: Path) -> list[Event]:
    """What the sites were charged for, by the mirror; nothing if it cannot be read."""
    try:
        with Ledger.read(path) as ledger:
            return list(ledger.events())
    except AccountingError:
        return []


def _waits(reply: Reply) -> bool:
    return isinstance(reply, Refused) and reply.code == APPROVAL


class _Progress:
    """How far a run is, as the admin sees it."""

    def __init__(self) -> None:
        self.away: list[str] = []
        self._facts: dict[str, Any] = {"stage": "agreement", "done": 0, "total": 0}
        self._waiting: list[str] = []
        self._taken = False
        self._seen = time.monotonic()

    def stage(self, stage: str, done: int, total: int = 0) -> None:
        """Note that so much of a stage is done."""
        self._facts = {"stage": stage, "done": int(done), "total": int(total)}

    def waiting(self, names: list[str]) -> None:
        """Note who has not approved yet."""
        self._waiting = names

    def told(self, folder: Path, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return it, and what the run has left, if it has ended."""
        self._seen = time.monotonic()
        facts = {**self._facts, "away": self.away, "waiting": self._waiting}
        if (folder / FINISHED).exists():
            facts["published"] = base64.b64encode((folder / FINISHED).read_bytes()).decode()
        elif (folder / STOPPED).exists():
            facts["stopped"] = json.loads((folder / STOPPED).read_text(encoding="utf-8"))
        self._taken = bool(said.get("farewell")) or "stopped" in facts
        return facts

    def wait_for_farewell(self) -> None:
        while not self._taken and time.monotonic() < self._seen + 60:
            time.sleep(0.2)
