"""A run from its settings to its folder: what `dpfedvis run` does.

    config.toml  provenance.json  ledger.sqlite  uploads/  public.json  landmarks.npz
    embedding.npz  embedding.csv  statement.md  statement.json  map.png  density.npz  billboard.png
    trace.csv  report.html  figures/  simulation/

The folder holds what the server has, and no record; with ``release="none"`` that is the billboard, and the
places of records stay with the clients. Only a simulation, a run with seeded noise, may also leave what lies past the
door, in ``simulation/``. report.html is for people. An error before anything was released leaves no folder; one after
that leaves the ledger, because a spend must not be forgotten.
"""

from __future__ import annotations

import csv
import io
import json
import platform
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidParameter, Ledger
from dpfedvis.billboard import Billboard, Density
from dpfedvis.clustering import FedSpectralClustering
from dpfedvis.config import RunConfig
from dpfedvis.data import Dataset, FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators import FederatedEstimator
from dpfedvis.feddl import Callback
from dpfedvis.federated_map import FederatedMap
from dpfedvis.federation.outbox import write_arrays
from dpfedvis.kernels import Array
from dpfedvis.leave import leave, places_of
from dpfedvis.pictures import write_density, write_views
from dpfedvis.recorder import EMBEDDING, LEDGER, Recorder, write_text
from dpfedvis.reporting.figures import draw_map
from dpfedvis.reporting.statement import Statement

CONFIG, PROVENANCE = "config.toml", "provenance.json"
_PACKAGES = (
    *("dpfedvis", "numpy", "scipy", "scikit-learn", "openTSNE", "umap-learn", "pynndescent", "dp-accounting"),
    *("matplotlib", "plotly"),
)


class FolderTaken(DpfedvisError):
    """A folder that holds something already."""


class FolderUnusable(DpfedvisError):
    """A folder that cannot be made or written to."""


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Parameters
    ----------
    folder : Path
    config : RunConfig
        With all choices made.
    statement : Statement
    seconds : float
    """

    folder: Path
    config: RunConfig
    statement: Statement
    seconds: float

    def summary(self) -> dict[str, Any]:
        """Return the main facts, ready for JSON."""
        statement = self.statement.to_dict()
        return {
            "folder": str(self.folder),
            "data": self.config.data,
            "map": self.config.map,
            "mechanism": self.config.mechanism,
            "release": self.config.release,
            "headline": statement["headline"],
            "epsilon_end_to_end": statement["epsilon_end_to_end"],
            "epsilon_in_scope": statement["epsilon_in_scope"],
            "delta": statement["delta"],
            "seconds": round(self.seconds, 3),
            "files": sorted(path.name for path in self.folder.iterdir()),
        }


def execute(
    config: RunConfig,
    folder: str | Path,
    callbacks: Sequence[Callback] = (),
    *,
    views: str | Path | None = None,
) -> Run:
    """Carry out a run and leave everything about it in a new folder.

    Parameters
    ----------
    config : RunConfig
    folder : path-like
        Must be empty or not there yet.
    callbacks : sequence of callables
        Called with (Round, Y) after each round.
    views : path-like, optional
        Where to draw each client's private view, with ``release="none"``: outside of `folder`, for views show records.
    """
    folder = Path(folder)
    _refuse_taken(folder)
    if views is not None:
        _refuse_views(Path(views), folder, config)
    dataset = config.dataset()
    fed = config.federated(dataset)
    config = config.settled(fed)
    estimator = config.estimator()
    existed, viewed = folder.exists(), views is not None and Path(views).exists()
    _make(folder)
    started, clock = datetime.now(UTC), time.perf_counter()
    try:
        if views is not None:
            _make(Path(views))
        write_text(folder / CONFIG, config.to_toml())
        write_text(folder / PROVENANCE, json.dumps(provenance(config, dataset, started), indent=2) + "\n")
        with Ledger(folder / LEDGER, config.budget) as ledger:
            statement = _fit(estimator, fed, dataset, config, folder, ledger, callbacks)
        if views is not None and isinstance(estimator, FederatedMap):
            write_views(Path(views), estimator, fed, config)
    except BaseException:
        if not _spent(folder / LEDGER):
            _clear(folder, existed)
            if views is not None and not viewed and Path(views).is_dir():
                Path(views).rmdir()
        raise
    return Run(folder, config, statement, time.perf_counter() - clock)


def _fit(
    estimator: FederatedEstimator,
    fed: FederatedData,
    dataset: Dataset,
    config: RunConfig,
    folder: Path,
    ledger: Ledger,
    callbacks: Sequence[Callback],
) -> Statement:
    recorder = Recorder(folder, rounds=config.recorded_rounds)
    estimator.watch(witness=recorder, callbacks=(recorder.landmarks, *callbacks), ledger=ledger)
    try:
        estimator.fit(fed)
    finally:
        recorder.close()
    _write_map(folder, estimator, fed, config)
    statement = estimator.statement_
    write_text(folder / "statement.md", str(statement))
    write_text(folder / "statement.json", statement.to_json() + "\n")
    facts = {"release": config.release, "bounds": config.bounds, "image_shape": dataset.image_shape}
    recorder.finish(estimator.feddl_, config.made_mechanism(), facts, _published(estimator))
    leave(folder, estimator, fed, dataset.class_names, config)
    return statement


def provenance(config: RunConfig, dataset: Dataset, started: datetime) -> dict[str, Any]:
    """Return versions, seed, commit and the hash of the data.

    The hash belongs to whoever holds the data: it confirms a guess of the whole file, so do not publish it with a
    private run.
    """
    return {
        "started": started.isoformat(timespec="seconds"),
        "seed": config.seed,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "commit": _commit(Path(__file__).parent),
        "data": {"name": dataset.name, "sha256": dataset.sha256, "records": len(dataset.X)},
    }


def _write_map(folder: Path, estimator: FederatedEstimator, fed: FederatedData, config: RunConfig) -> None:
    clients = np.repeat([client.name for client in fed.clients], fed.records)
    title = f"{config.map} of {Path(config.data).name}, {config.mechanism}, release {config.release}"
    board: Billboard | None = getattr(estimator, "board_", None)
    if board is not None:
        # Clients place their records at home, from the exact records: those places are no part of the run.
        numbers = [[number, *place] for number, place in enumerate(board.places.tolist())]
        _write_table(folder / "embedding.csv", ["anchor", "x", "y"], numbers)
        draw_map(board.places, np.full(len(board.places), "anchors"), title, "", folder / "map.png")
        density: Density | None = getattr(estimator, "density_", None)
        if density is not None:
            write_density(folder, board, density, config)
    elif isinstance(estimator, FedSpectralClustering):
        labels = estimator.labels_
        spectral = places_of(estimator)
        write_arrays(folder / EMBEDDING, {"labels": labels, "spectral": spectral})
        _write_table(folder / "embedding.csv", ["client", "record", "cluster"], _rows(fed, labels[:, None]))
        draw_map(spectral, labels, title, "cluster", folder / "map.png")
    else:
        embedding: Array = estimator.embedding_
        write_arrays(folder / EMBEDDING, {"embedding": embedding})
        _write_table(folder / "embedding.csv", ["client", "record", "x", "y"], _rows(fed, embedding))
        draw_map(embedding, clients, title, "client", folder / "map.png")


def _published(estimator: FederatedEstimator) -> dict[str, Array]:
    """What the server publishes of a billboard: landmarks among the records, anchors, their places, the subspace."""
    board: Billboard | None = getattr(estimator, "board_", None)
    if board is None:
        return {}
    subspace = board.subspace
    return {
        "points": estimator.landmarks_,
        "anchors": board.anchors,
        "places": board.places,
        "centre": subspace.centre,
        "axes": subspace.axes,
    }


def _rows(fed: FederatedData, values: NDArray[Any]) -> Iterator[list[Any]]:
    """One line a record, by client and number at that client; labels stay with the clients."""
    for client, part in zip(fed.clients, fed.index.slices, strict=True):
        for number, row in enumerate(values[part].tolist()):
            yield [client.name, number, *row]


def _write_table(path: Path, columns: list[str], rows: Iterable[list[Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _refuse_taken(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        what = "another run" if (folder / CONFIG).exists() else "other files"
        raise FolderTaken(f"{folder} holds {what}; choose another folder")
    if folder.exists() and not folder.is_dir():
        raise FolderTaken(f"{folder} is a file; choose another folder")


def _refuse_views(views: Path, folder: Path, config: RunConfig) -> None:
    """Refuse a folder for private views before anything is released."""
    if config.chosen_release != "none":
        raise InvalidParameter("views", str(views), f"left out with release={config.chosen_release!r}")
    if views.resolve().is_relative_to(folder.resolve()):
        raise FolderTaken(f"{views} is in the folder of the run, and private views show records; choose another folder")
    _refuse_taken(views)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FolderUnusable(f"{folder} cannot be written to: {error.strerror}") from error


def _spent(path: Path) -> bool:
    """Whether the ledger there has any entry."""
    if not path.exists():
        return False
    with Ledger.read(path) as ledger:
        return len(ledger) > 0


def _clear(folder: Path, existed: bool) -> None:
    shutil.rmtree(folder)
    if existed:
        folder.mkdir()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit(folder: Path) -> str | None:
    """Commit of the code, with a mark if the code has changed since; None outside of a repository."""
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
