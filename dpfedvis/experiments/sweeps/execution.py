"""Run cells in this process, in others, or on a cluster; rows are stored as they finish."""

from __future__ import annotations

import os
import signal
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.experiments.sweeps.cells import Cell
from dpfedvis.experiments.sweeps.clusters import dask_client, ray_pool, refuse_missing
from dpfedvis.experiments.sweeps.store import CellRow, Status, SweepStore
from dpfedvis.experiments.sweeps.work import Task, dataset_of, work
from dpfedvis.numerics import progress
from dpfedvis.runs.code_version import CodeVersion, code_version

Backend = Literal["loky", "threading", "dask", "ray"]
BACKENDS: tuple[Backend, ...] = ("loky", "threading", "dask", "ray")


@dataclass(frozen=True)
class Workers:
    """Where cells are computed.

    Parameters
    ----------
    jobs : int
        Cells at a time.
    backend : {"loky", "threading", "dask", "ray"}
    scheduler : str, optional
        Address of a Dask scheduler or of a Ray cluster; by default a cluster on this machine, of `jobs` processes.
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
        if self.scheduler is not None and self.backend not in ("dask", "ray"):
            raise InvalidParameter("scheduler", self.scheduler, "left out without --backend dask or ray")


@dataclass(frozen=True)
class Swept:
    """The outcome of a sweep.

    Parameters
    ----------
    cells : int
        In the grid.
    known : int
        Of them, already in the store.
    unscored : int
        Of those, refused or failed earlier and not rerun.
    statuses : dict of str to int
        Of those that ran now, by status.
    reasons : dict of str to int
        Why cells of those were refused or failed, most frequent first.
    """

    cells: int
    known: int
    unscored: int
    statuses: dict[Status, int]
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def why(self) -> list[str]:
        """The reasons, each with the number of its cells."""
        return [f"{_cells(count)} without scores: {reason}" for reason, count in self.reasons.items()]

    def __str__(self) -> str:
        ran = ", ".join(f"{count} {status}" for status, count in sorted(self.statuses.items())) or "none run"
        unscored = f" ({self.unscored} without scores; --retry reruns them)" if self.unscored else ""
        return f"{_cells(self.cells)}, {self.known} in the store before{unscored}; now {ran}"


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def addressed(cells: Sequence[Cell]) -> dict[str, tuple[Cell, str]]:
    """Return cells by address, each with the hash of its data. Loads every data set once."""
    hashes: dict[tuple[Any, ...], str] = {}
    found = {}
    for cell in cells:
        config = cell.config
        source = (config.data, config.schema_file, config.label_column, config.client_column, config.missing)
        if source not in hashes:
            hashes[source] = dataset_of(config).sha256
        sha256 = hashes[source]
        found[cell.address(sha256)] = (cell, sha256)
    return found


def sweep(
    cells: Sequence[Cell],
    store: SweepStore,
    workers: Workers | None = None,
    *,
    retry: bool = False,
    version: CodeVersion | None = None,
    title: str = "sweep",
) -> Swept:
    """Compute all cells that the store does not have yet.

    Parameters
    ----------
    cells : sequence of Cell
    store : SweepStore
    workers : Workers, optional
    retry : bool
        Rerun cells that failed or were refused.
    version : CodeVersion, optional
        Of the code that runs; by default as found.
    title : str
        Of the progress bar.

    Returns
    -------
    Swept
    """

    workers, version = workers or Workers(), version or code_version()
    refuse_missing(workers.backend, workers.scheduler)
    wanted, statuses = addressed(cells), store.statuses()
    settled = {address for address, status in statuses.items() if status == "done" or not retry}
    tasks = [
        Task(cell, address, sha256, version, store.cache.absolute(), workers.threads)
        for address, (cell, sha256) in wanted.items()
        if address not in settled
    ]
    counts: Counter[Status] = Counter()
    reasons: Counter[str] = Counter()
    with progress.bar(len(tasks), "cell", title) as bar:
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
            words = f"{kept} of {len(wanted)} cells are in {store.path}; the same command resumes"
            raise KeyboardInterrupt(words) from stop
    unscored = sum(statuses[address] != "done" for address in settled & wanted.keys())
    return Swept(len(wanted), len(wanted) - len(tasks), unscored, dict(counts), dict(reasons.most_common()))


def _spread(tasks: list[Task]) -> list[Task]:
    """Put cells that share landmarks far apart, so that none waits for another to learn them."""
    seen: Counter[str] = Counter()
    turns = []
    for task in tasks:
        family = task.cell.landmark_address(task.data_sha256, "") or task.address
        turns.append(seen[family])
        seen[family] += 1
    return [task for _, task in sorted(zip(turns, tasks, strict=True), key=lambda pair: pair[0])]


def _computed(tasks: list[Task], workers: Workers) -> Iterator[CellRow]:
    if not tasks:
        return
    if workers.backend in ("loky", "threading") and workers.jobs == 1:
        yield from map(work, tasks)
    elif workers.backend == "ray":
        # Ray's own pool: through joblib its results come only when all of them are there.
        with ray_pool(workers.jobs, workers.scheduler) as pool:
            yield from pool.imap_unordered(work, tasks, chunksize=1)
    else:
        yield from _through_joblib(tasks, workers)


def _through_joblib(tasks: list[Task], workers: Workers) -> Iterator[CellRow]:
    from joblib import Parallel, delayed, parallel_config

    with ExitStack() as stack, warnings.catch_warnings():
        # An interruption is reported in one sentence, and not by joblib.
        warnings.filterwarnings("ignore", "[0-9]+ tasks (have been successfully executed|which were still)")
        settings: dict[str, Any] = {}
        if workers.backend == "loky":
            settings["inner_max_num_threads"] = workers.threads
        elif workers.backend == "dask":
            settings["client"] = stack.enter_context(dask_client(workers.jobs, workers.scheduler))
        stack.enter_context(parallel_config(backend=workers.backend, **settings))
        parallel = Parallel(n_jobs=workers.jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs", batch_size=1)
        call = _in_a_process if workers.backend == "loky" else work
        yield from parallel(delayed(call)(task) for task in tasks)


def _in_a_process(task: Task) -> CellRow:
    # Ctrl-C goes to all processes. This one is ended by the first, and must not print where it was.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return work(task)


def default_jobs() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
