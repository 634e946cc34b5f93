"""Dask and Ray: a running cluster, or one on this machine for the time of the sweep."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from dpfedvis.errors import DpfedvisError

_PACKAGES = {"dask": "distributed", "ray": "ray"}


class BackendMissing(DpfedvisError):
    """The package of a backend is not installed, or its cluster does not answer."""


def refuse_missing(backend: str, scheduler: str | None) -> None:
    """Raise if the package of a backend is not installed, or no cluster answers at the address."""
    package = _PACKAGES.get(backend)
    if package is not None and find_spec(package) is None:
        raise BackendMissing(f"--backend {backend} needs a package: pip install 'dpfedvis[{backend}]'")
    if scheduler is None or (backend, scheduler) == ("ray", "auto"):
        return
    try:
        place = urlsplit(scheduler if "://" in scheduler else f"//{scheduler}")
        if place.port is None:
            raise ValueError("it needs a port, as in HOST:PORT")
        socket.create_connection((place.hostname, place.port), timeout=10).close()
    except (OSError, ValueError) as error:
        raise BackendMissing(f"no {backend} cluster answers at {scheduler} ({error})") from error


@contextmanager
def dask_client(jobs: int, scheduler: str | None) -> Iterator[Any]:
    """A client of the given scheduler, or of a local cluster of `jobs` processes."""
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        address: Any = scheduler
        if address is None:
            with _children_ignore_ctrl_c():
                cluster = LocalCluster(
                    n_workers=jobs,
                    threads_per_worker=1,
                    dashboard_address=None,
                    # Any free port: by default two sweeps at a time would warn about 8787.
                    scheduler_kwargs={"dashboard_address": ":0"},
                    silence_logs="CRITICAL",
                )
            address = stack.enter_context(cluster)
        try:
            client = Client(address, set_as_default=False, timeout="10s")
        except (OSError, ValueError) as error:
            raise BackendMissing(f"no dask cluster answers at {address} ({type(error).__name__})") from error
        stack.enter_context(client)
        if scheduler is None:
            client.run(_end_quietly)
        yield client


@contextmanager
def ray_pool(jobs: int, address: str | None) -> Iterator[Any]:
    """A pool of `jobs` workers on the given Ray cluster, or on a local one."""
    import ray
    from ray.util.multiprocessing import Pool

    # Ray reports its use to its makers unless told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    place: dict[str, Any] = {"address": address}
    if address is None:
        place = {"address": "local", "num_cpus": jobs, "include_dashboard": False}
    try:
        with _children_ignore_ctrl_c():
            ray.init(**place, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError) as error:
        raise BackendMissing(f"no ray cluster answers at {place['address']} ({error})") from error
    try:
        # A pool must not be larger than its cluster.
        cores = int(ray.cluster_resources().get("CPU", 1))
        with Pool(max(1, min(jobs, cores))) as pool:
            yield pool
    finally:
        ray.shutdown()


def _end_quietly() -> None:
    """Silence a worker that is stopped: joblib leaves clients open inside it."""
    before = sys.unraisablehook

    def told(problem: Any) -> None:
        if getattr(problem.object, "__qualname__", "") != "Client.__del__":
            before(problem)

    sys.unraisablehook = told


@contextmanager
def _children_ignore_ctrl_c() -> Iterator[None]:
    """Let workers ignore Ctrl-C, which a terminal sends to all; this process stops them, without tracebacks."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
