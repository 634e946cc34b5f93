"""What a run leaves for people: report.html, figures and, of a simulation, what lies past the door.

    trace.csv  report.html  figures/  simulation/

``simulation/`` holds scores and the place and label of every record. In a real federation nobody has them, so that a
run with real noise never gets it; see `RunConfig.evaluate`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpfedvis.config import RunConfig
from dpfedvis.data import FederatedData
from dpfedvis.estimators import FederatedEstimator
from dpfedvis.evaluation.scores import scores_of
from dpfedvis.federation.outbox import write_arrays
from dpfedvis.kernels import Array
from dpfedvis.recorder import write_text
from dpfedvis.reporting.page import REPORT, report
from dpfedvis.reporting.run_facts import PLACES, SCORES, SIMULATION, TRACE, TRACE_COLUMNS, RunFacts
from dpfedvis.reporting.run_figures import write_figures
from dpfedvis.trace import Round


def leave(
    folder: Path, estimator: FederatedEstimator, fed: FederatedData, class_names: Sequence[str], config: RunConfig
) -> None:
    """Write all of it into the folder of a run that is finished otherwise.

    Parameters
    ----------
    folder : Path
    estimator : FederatedEstimator
        Fitted.
    fed : FederatedData
    class_names : sequence of str
        Both are used for a simulation only.
    config : RunConfig
        Settled.
    """
    write_trace(folder / TRACE, estimator.feddl_.trace)
    if config.evaluate and config.noise == "seeded":
        write_simulation(folder / SIMULATION, estimator, fed, class_names, config.seed)
    leave_report(folder)


def leave_report(folder: str | Path) -> Path:
    """Write report.html and the figures from what is in the folder of a finished run; return the page's path."""
    facts = RunFacts.read(folder)
    write_figures(facts)
    path = facts.folder / REPORT
    write_text(path, report(facts))
    return path


def write_trace(path: Path, trace: tuple[Round, ...]) -> None:
    """Write what the server knows of each round."""
    lines = [f"{each.number},{each.step!r},{each.change!r}" for each in trace]
    write_text(path, "\n".join([",".join(TRACE_COLUMNS), *lines]) + "\n")


def write_simulation(
    folder: Path, estimator: FederatedEstimator, fed: FederatedData, class_names: Sequence[str], seed: int
) -> None:
    """Write scores, and the place, client and label of every record."""
    folder.mkdir(exist_ok=True)
    scores = scores_of(estimator, fed, seed=seed)
    labels: NDArray[np.int64] | None = fed.pooled()[1]
    arrays = {
        "places": places_of(estimator),
        "clients": np.repeat([client.name for client in fed.clients], fed.records),
        **({} if labels is None else {"labels": labels, "class_names": np.array(class_names, dtype=np.str_)}),
    }
    write_arrays(folder / PLACES, arrays)
    write_text(folder / SCORES, json.dumps(scores, indent=2, allow_nan=False) + "\n")


def places_of(estimator: FederatedEstimator) -> Array:
    """Return the map, or the first two spectral coordinates of clusters, shape (n, 2)."""
    if hasattr(estimator, "embedding_"):
        embedding: Array = estimator.embedding_
        return embedding
    spectral: Array = np.pad(estimator.spectral_, ((0, 0), (0, 2)))[:, :2]
    return spectral
