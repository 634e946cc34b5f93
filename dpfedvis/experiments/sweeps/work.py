"""What a worker does with one cell. Everything here can be sent to another process or machine."""

from __future__ import annotations

import hashlib
import math
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.errors import AccountingError
from dpfedvis.data import Dataset, FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.evaluation.scores import Scores
from dpfedvis.experiments.sweeps.cache import shared
from dpfedvis.experiments.sweeps.cells import Cell
from dpfedvis.experiments.sweeps.store import CellRow, Status
from dpfedvis.runs.code_version import CodeVersion
from dpfedvis.runs.settings import RunConfig

_TRACE_LINES = 3  # of a failure, to be kept with it


@dataclass(frozen=True)
class Task:
    """A cell on its way to a worker.

    Parameters
    ----------
    cell : Cell
    address : str
    data_sha256 : str
    version : CodeVersion
        Of the code that sent it.
    cache : Path, optional
        Folder for what cells share.
    threads : int
        For linear algebra and t-SNE.
    """

    cell: Cell
    address: str
    data_sha256: str
    version: CodeVersion
    cache: Path | None = None
    threads: int = 1


@dataclass(frozen=True)
class Outcome:
    """Scores of a cell, and what it cost."""

    scores: Scores
    end_to_end: float
    in_scope: float | None = None
    nominal: float | None = None


# Settings that say which records there are.
_SOURCE = ("data", "schema_file", "records", "sample", "label_column", "client_column", "missing")


def work(task: Task) -> CellRow:
    """Compute a cell; what goes wrong is in the row, with its reason."""
    from threadpoolctl import threadpool_limits

    clock, outcome, error = time.perf_counter(), Outcome({}, math.nan), ""
    status: Status = "done"
    try:
        with threadpool_limits(task.threads):
            outcome = compute(task)
    except (AccountingError, DpfedvisError) as refused:
        status, error = "refused", str(refused)
    except Exception as failure:
        where = traceback.extract_tb(failure.__traceback__)[-_TRACE_LINES:]
        places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(where))
        status, error = "failed", f"{type(failure).__name__}: {failure} ({places})"
    return CellRow(
        address=task.address,
        kind=task.cell.kind,
        status=status,
        settings=task.cell.settings,
        data_sha256=task.data_sha256,
        scores=outcome.scores,
        epsilon_end_to_end=None if math.isnan(outcome.end_to_end) else outcome.end_to_end,
        epsilon_in_scope=outcome.in_scope,
        epsilon_nominal=outcome.nominal,
        delta=task.cell.config.stated_delta,
        seconds=time.perf_counter() - clock,
        version=task.version,
        error=error,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def compute(task: Task) -> Outcome:
    """Run a cell and score it."""
    config = task.cell.config.updated(jobs=task.threads, noise="seeded")
    dataset = dataset_of(config)
    fed = config.federated(dataset)
    neighbors = _neighbors(dataset, fed, config, task.cache)
    if task.cell.kind == "run":
        return _run(task, config, fed, neighbors)
    from dpfedvis.evaluation.baselines import NO_DATA, central_scores, chance_scores, no_data_scores

    if task.cell.kind == "central":
        return Outcome(central_scores(config, fed, neighbors), math.inf)
    if task.cell.kind == "chance":
        return Outcome(chance_scores(config, fed), 0.0)
    return Outcome(no_data_scores(config, fed, neighbors), NO_DATA)


def _run(task: Task, config: RunConfig, fed: FederatedData, neighbors: NDArray[np.int64] | None) -> Outcome:
    from accounting.statement import nominal_epsilon
    from dpfedvis.evaluation.scores import scores_of
    from dpfedvis.experiments.sweeps.landmarks import sharing

    estimator = config.resolved(fed).estimator()
    address = task.cell.landmark_address(task.data_sha256, str(task.version))
    if address is not None and task.cache is not None:
        estimator = sharing(estimator, task.cache / "landmarks", address)
    estimator.watch(warns=False).fit(fed)
    ledger = estimator.ledger_
    return Outcome(
        scores=scores_of(estimator, fed, seed=config.seed, neighbors=neighbors),
        end_to_end=ledger.spent(config.stated_delta, end_to_end=True),
        in_scope=None if ledger.budget is None else ledger.spent(config.stated_delta),
        nominal=nominal_epsilon(list(ledger.events()), config.stated_delta),
    )


def dataset_of(config: RunConfig) -> Dataset:
    """Load the data of a run; the last few are kept in memory."""
    # The seed chooses the records of a random sample, and nothing of the others.
    seed = config.seed if config.sample == "random" else 0
    return _dataset(*(getattr(config, name) for name in _SOURCE), seed)


@lru_cache(maxsize=2)
def _dataset(*facts: Any) -> Dataset:
    return RunConfig(**dict(zip((*_SOURCE, "seed"), facts, strict=True))).dataset()


def _neighbors(dataset: Dataset, fed: FederatedData, config: RunConfig, cache: Path | None) -> NDArray[np.int64] | None:
    """True neighbours of the pooled records, from one search for all partitions and seeds.

    None, and then each cell searches for itself: for clusters; where clients fill in missing values; for few records.
    """
    from dpfedvis.evaluation.metrics import KS, true_neighbors
    from dpfedvis.evaluation.scores import pooled_neighbors

    X = dataset.X
    if config.map == "clusters" or cache is None or fed.features is not None or len(X) <= max(KS) or np.isnan(X).any():
        return None
    name = hashlib.sha256(np.ascontiguousarray(X).tobytes()).hexdigest()

    def make() -> dict[str, NDArray[np.int32]]:
        return {"indices": true_neighbors(np.asarray(X, np.float32), max(KS)).astype(np.int32)}

    found = shared(cache / "neighbours", name, make)["indices"].astype(np.int64)
    return pooled_neighbors(found, fed)
