"""Cells through joblib: in this process, in others, or on a Dask or Ray cluster. Rows are written as they come."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.sweeps.cells import Cell
from dpfedvis.sweeps.store import Row, Status, Store
from dpfedvis.sweeps.work import Task, dataset_of, work
from dpfedvis.version import CodeVersion, code_version

Backend = Literal["loky", "threading", "dask", "ray"]
BACKENDS: tuple[Backend, ...] = ("loky", "threading", "dask", "ray")


class BackendMissing(DpfedvisError):
    """A package that is not installed, or a cluster that does not answer."""


@dataclass(frozen=True)
class Workers:
    """Where cells are computed.

    Parameters
    ----------
    jobs : int
        Cells at a time.
    backend : {"loky", "threading", "dask", "ray"}
    scheduler : str, optional
        Address of a Dask scheduler; by default a cluster on this machine, of `jobs` processes.
    threads : int
        For linear algebra and t-SNE in each worker.
    """

    jobs: int = 1
    backend: Backend = "loky"
    scheduler: str | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        checks.count("jobs", self.jobs)
        checks.count("threads", self.threads)
        checks.one_of("backend", self.backend, BACKENDS)
        if self.scheduler is not None and self.backend != "dask":
            raise InvalidParameter("scheduler", self.scheduler, "left out without --backend dask")


@dataclass(frozen=True)
class Swept:
    """What a sweep did.

    Parameters
    ----------
    cells : int
        In the grid.
    known : int
        Of them, in the store before.
    statuses : dict of str to int
        Of those that ran now.
    reasons : dict of str to int
        Why cells of those were refused or failed, most frequent first.
    """

    cells: int
    known: int
    statuses: dict[Status, int]
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def why(self) -> list[str]:
        """The reasons, each with the number of its cells."""
        return [f"{_cells(count)} without scores: {reason}" for reason, count in self.reasons.items()]

    def __str__(self) -> str:
        ran = ", ".join(f"{count} {status}" for status, count in sorted(self.statuses.items())) or "none run"
        return f"{_cells(self.cells)}, {self.known} in the store before; now {ran}"


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def addressed(cells: Sequence[Cell]) -> dict[str, tuple[Cell, str]]:
    """Return cells by address, each with the hash of its data. Loads every data set once."""
    hashes: dict[tuple[Any, ...], str] = {}
    found = {}
    for cell in cells:
        config = cell.config
        source = (config.data, config.label_column, config.client_column, config.missing)
        if source not in hashes:
            hashes[source] = dataset_of(config).sha256
        sha256 = hashes[source]
        found[cell.address(sha256)] = (cell, sha256)
    return found


def sweep(
    cells: Sequence[Cell],
    store: Store,
    workers: Workers | None = None,
    *,
    retry: bool = False,
    version: CodeVersion | None = None,
    title: str = "sweep",
) -> Swept:
    """Compute all cells that the store has no row of.

    Parameters
    ----------
    cells : sequence of Cell
    store : Store
    workers : Workers, optional
    retry : bool
        Whether to try again what failed or was refused.
    version : CodeVersion, optional
        Of the code that runs; by default as found.
    title : str
        Of the progress bar.

    Returns
    -------
    Swept
    """
    from tqdm import tqdm

    workers, version = workers or Workers(), version or code_version()
    wanted, statuses = addressed(cells), store.statuses()
    settled = {address for address, status in statuses.items() if status == "done" or not retry}
    tasks = [
        Task(cell, address, sha256, version, store.cache.absolute(), workers.threads)
        for address, (cell, sha256) in wanted.items()
        if address not in settled
    ]
    counts: Counter[Status] = Counter()
    reasons: Counter[str] = Counter()
    with tqdm(total=len(tasks), desc=title, unit="cell", disable=not sys.stderr.isatty()) as bar:
        try:
            for row in _computed(_spread(tasks), workers):
                store.put(row)
                counts[row.status] += 1
                if row.status != "done":
                    reasons[row.error] += 1
                bar.set_postfix_str(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
                bar.update()
        except KeyboardInterrupt as stop:
            # From the store itself: the signal may have come between a write and its being counted.
            kept = len(wanted.keys() & store.statuses().keys())
            words = f"{kept} of {len(wanted)} cells are in {store.path}; the same command goes on with the others"
            raise KeyboardInterrupt(words) from stop
    return Swept(len(wanted), len(wanted) - len(tasks), dict(counts), dict(reasons.most_common()))


def _spread(tasks: list[Task]) -> list[Task]:
    """Put cells that share landmarks far apart, so that none waits for another to learn them."""
    seen: Counter[str] = Counter()
    turns = []
    for task in tasks:
        family = task.cell.landmark_address(task.data_sha256, "") or task.address
        turns.append(seen[family])
        seen[family] += 1
    return [task for _, task in sorted(zip(turns, tasks, strict=True), key=lambda pair: pair[0])]


def _computed(tasks: list[Task], workers: Workers) -> Iterator[Row]:
    if not tasks:
        return
    if workers.backend in ("loky", "threading") and workers.jobs == 1:
        yield from map(work, tasks)
        return
    from joblib import Parallel, delayed

    with _configured(workers):
        parallel = Parallel(n_jobs=workers.jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1)
        yield from parallel(delayed(work)(task) for task in tasks)


@contextmanager
def _configured(workers: Workers) -> Iterator[None]:
    """Set joblib up; what is started here ends here."""
    from joblib import parallel_config

    with ExitStack() as stack, warnings.catch_warnings():
        # What an interruption throws away is said in one sentence, and not by joblib.
        warnings.filterwarnings("ignore", "[0-9]+ tasks (have been successfully executed|which were still)")
        settings: dict[str, Any] = {}
        if workers.backend == "loky":
            settings["inner_max_num_threads"] = workers.threads
        elif workers.backend == "dask":
            settings["client"] = stack.enter_context(_dask(workers))
        elif workers.backend == "ray":
            _register_ray()
        stack.enter_context(parallel_config(backend=workers.backend, **settings))
        yield


@contextmanager
def _dask(workers: Workers) -> Iterator[Any]:
    """A client of the scheduler that was named, or of a cluster on this machine that ends with it."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise BackendMissing("--backend dask needs dask and distributed: pip install 'dpfedvis[dask]'") from error
    with ExitStack() as stack:
        address: Any = workers.scheduler
        if address is None:
            with _children_ignore_ctrl_c():
                cluster = LocalCluster(
                    n_workers=workers.jobs, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR"
                )
            address = stack.enter_context(cluster)
        try:
            client = Client(address, set_as_default=False, timeout="10s")
        except (OSError, ValueError) as error:
            raise BackendMissing(f"no Dask scheduler answers at {address} ({type(error).__name__})") from error
        stack.enter_context(client)
        if workers.scheduler is None:
            client.run(_end_quietly)
        yield client


def _end_quietly() -> None:
    """Let a worker that is ended in its work say nothing of clients inside it, which joblib makes and leaves open."""
    before = sys.unraisablehook

    def told(problem: Any) -> None:
        if getattr(problem.object, "__qualname__", "") != "Client.__del__":
            before(problem)

    sys.unraisablehook = told


@contextmanager
def _children_ignore_ctrl_c() -> Iterator[None]:
    """A terminal sends Ctrl-C to all processes; this one ends its workers by itself, without their tracebacks."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _register_ray() -> None:
    try:
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise BackendMissing("--backend ray needs Ray: pip install ray") from error
    register_ray()


def default_jobs() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
