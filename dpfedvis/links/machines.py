"""A machine of a federation as a process: the engine's program on a kit, with everything that it starts."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

import psutil

from dpfedvis.errors import DpfedvisError
from dpfedvis.links.kits import Kit
from dpfedvis.links.provisioning import keep_storage_at_home

LOG = "engine.log"
_LOOK = 0.5
_LEFTOVERS = ("daemon_pid.fl", "pid.fl", "shutdown.fl", "restart.fl")  # of a kill; they would block a start


class MachineRunning(DpfedvisError):
    """Another process runs this kit."""


class Machine:
    """The engine's program on a kit. It and its jobs are one group of processes, and end together.

    Parameters
    ----------
    kit : Kit
        Of the server or a site.
    """

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self._lock = _locked(kit)
        for name in _LEFTOVERS:
            (kit.folder / name).unlink(missing_ok=True)
        if kit.role == "server":
            keep_storage_at_home(kit)
        # One thread of BLAS each: several machines of a trial share the cores.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._jobs: set[psutil.Process] = set()
        self.log = kit.home / LOG
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            self._process = subprocess.Popen(
                kit.command,
                cwd=kit.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                umask=0o077,
                pass_fds=[self._lock.fileno()],  # so that a program that is left over blocks another start
                start_new_session=True,  # so that it can be ended with all that it starts
            )

    @property
    def alive(self) -> bool:
        """Whether the program runs."""
        return self._process.poll() is None

    def stop(self, patience: float = 5.0) -> None:
        """Ask the program to end, with its jobs; end what does not."""
        self._jobs = self._descendants()
        self._process.terminate()
        until = time.monotonic() + patience
        while self.alive and time.monotonic() < until:
            time.sleep(0.05)
        self.kill()

    def kill(self) -> None:
        """End the program and its jobs at once, as a power cut would."""
        self._jobs |= self._descendants()
        self._process.kill()
        for process in self._jobs:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(list(self._jobs), timeout=10)
        self._lock.close()

    def _descendants(self) -> set[psutil.Process]:
        try:
            return set(psutil.Process(self._process.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def end_with_parent() -> None:
    """End this process, and all that it started, when the one that started it is gone, however that ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK)
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def refuse_running(kit: Kit) -> None:
    """Raise if another process runs this kit."""
    _locked(kit).close()


def _locked(kit: Kit) -> IO[str]:
    lock = (kit.home / "running").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise MachineRunning(f"another process runs the kit {kit.folder}") from None
    return lock
