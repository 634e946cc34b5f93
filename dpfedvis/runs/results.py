"""What a finished run writes as data: the map, its table, the rounds, the density and, of a simulation, the scores.

    embedding.npz  embedding.csv  verdict.json  regions.csv  trace.csv  density.npz  simulation/

``simulation/`` holds scores and the place and label of every record. In a real federation nobody has them, so a run
with real noise never writes it, and one on a file of the user's only if asked; see `RunConfig.evaluate`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data import Dataset, FederatedData
from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.estimators.clusters import FedSpectralClustering
from dpfedvis.evaluation.baselines import central_scores, no_data_scores
from dpfedvis.evaluation.by_group import placed_by_group
from dpfedvis.evaluation.coverage import anchor_coverage
from dpfedvis.evaluation.scores import Scores, by_chance, evaluated_of, score
from dpfedvis.numerics.files import write_arrays, write_text
from dpfedvis.numerics.kernels import Array, squared_distances
from dpfedvis.numerics.layouts import Progress
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.density import Density
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.runs.region_table import region_facts, write_regions
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.tables import write_table
from dpfedvis.runs.upload_writer import EMBEDDING

SIMULATION, SCORES, PLACES, YARDSTICKS = "simulation", "scores.json", "places.npz", "yardsticks.json"
BY_GROUP, PROBLEMS = "by-group.json", "problems.json"
TABLE, TRACE, DENSITY, VERDICT = "embedding.csv", "trace.csv", "density.npz", "verdict.json"
PART = 4096  # records whose nearest landmark is sought at a time
TRACE_COLUMNS = ["round", "step", "change"]


def write_results(
    folder: Path,
    estimator: FederatedEstimator,
    fed: FederatedData,
    dataset: Dataset,
    config: RunConfig,
    progress: Progress | None = None,
) -> list[str]:
    """Write everything into the folder of a run; return what could not be scored, in sentences.

    All has been released and paid for: scores that cannot be computed must not stop the run.

    Parameters
    ----------
    folder : Path
    estimator : FederatedEstimator
        Fitted.
    fed : FederatedData
    dataset : Dataset
        For its classes, in a simulation.
    config : RunConfig
        With all choices made.
    progress : callable, optional
        Called with (stage, done, total).
    """
    write_map(folder, estimator, fed)
    write_text(folder / VERDICT, json.dumps({**estimator.verdict_.to_dict(), "facts": region_facts(estimator)}) + "\n")
    write_regions(folder, estimator)
    lines = [f"{each.number},{each.step!r},{each.change!r}" for each in estimator.feddl_.trace]
    write_text(folder / TRACE, "\n".join([",".join(TRACE_COLUMNS), *lines]) + "\n")
    return write_simulation(folder / SIMULATION, estimator, fed, dataset, config, progress) if config.evaluate else []


def write_map(folder: Path, estimator: FederatedEstimator, fed: FederatedData) -> None:
    """Write what was released of the map: anchors and their density, clusters, or one place a record."""
    published: PublishedMap | None = getattr(estimator, "published_map_", None)
    if published is not None:
        # Clients place their records at home, from the exact records: those places are no part of the run.
        arrays: dict[str, NDArray[Any]] = {"anchors": published.places}
        columns = ["anchor", "x", "y"]
        numbers = [[number, *place] for number, place in enumerate(published.places.tolist())]
        if published.centres is not None:
            clusters = published.clusters_at(published.places)
            arrays |= {"centres": published.centres, "clusters": clusters}
            columns.append("cluster")
            numbers = [[*row, cluster] for row, cluster in zip(numbers, clusters.tolist(), strict=True)]
        write_arrays(folder / EMBEDDING, arrays)
        write_table(folder / TABLE, columns, numbers)
        density: Density | None = getattr(estimator, "density_", None)
        if density is not None:
            write_density(folder, density)
    elif isinstance(estimator, FedSpectralClustering):
        labels = estimator.labels_
        write_arrays(folder / EMBEDDING, {"labels": labels, "spectral": places_of(estimator)})
        write_table(folder / TABLE, ["client", "record", "cluster"], _rows(fed, labels[:, None]))
    else:
        embedding: Array = estimator.embedding_
        write_arrays(folder / EMBEDDING, {"embedding": embedding})
        write_table(folder / TABLE, ["client", "record", "x", "y"], _rows(fed, embedding))


def write_density(folder: Path, density: Density) -> None:
    """Write the noisy shares with their grid."""
    arrays = {
        "shares": density.shares,
        "half": np.array(density.grid.half),
        "noise": np.array(density.noise),
        "classes": np.array(density.classes, dtype=np.str_),
    }
    write_arrays(folder / DENSITY, arrays)


def write_simulation(
    folder: Path,
    estimator: FederatedEstimator,
    fed: FederatedData,
    dataset: Dataset,
    config: RunConfig,
    progress: Progress | None = None,
) -> list[str]:
    """Write scores with what to hold them against, and the place, client and label of every record.

    Returns what could not be scored.
    """
    folder.mkdir(exist_ok=True)
    problems: list[str] = []
    found: dict[str, Scores] = {}
    with _noted(problems, "there are no scores"):
        evaluated = evaluated_of(estimator, fed, seed=config.seed)
        own = {**score(evaluated), **truth_of(estimator, fed, config.seed)}
        found = {"this map": own, "chance": by_chance(evaluated)}
    if found and config.yardsticks:
        found |= _baselines(estimator, config, fed, problems, progress or _silent)
    known = {name: _finite(name, scores, problems) for name, scores in found.items()}
    scores = known.pop("this map", {})
    groups = {"site": np.repeat([client.name for client in fed.clients], fed.records)}
    arrays = {
        "places": places_of(estimator),
        "clients": np.repeat([client.name for client in fed.clients], fed.records),
    }
    labels, names = dataset.numbered()
    if labels is not None:
        arrays |= {"labels": labels[fed.index.rows], "class_names": np.array(names, dtype=np.str_)}
        groups["class"] = np.array(names, dtype=np.str_)[arrays["labels"]] if len(names) else arrays["labels"]
    write_arrays(folder / PLACES, arrays)
    for name, told in ((SCORES, scores), (YARDSTICKS, known)):
        write_text(folder / name, json.dumps(told, indent=2, allow_nan=False) + "\n")
    with _noted(problems, "nothing is said of single groups"):
        placed = placed_by_group(fed.pooled()[0], arrays["places"], groups, seed=config.seed)
        rows = {name: [each.to_dict() for each in own] for name, own in placed.items()}
        write_text(folder / BY_GROUP, json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    write_text(folder / PROBLEMS, json.dumps(problems, indent=2, ensure_ascii=False) + "\n")
    return problems


def _baselines(
    estimator: FederatedEstimator, config: RunConfig, fed: FederatedData, problems: list[str], progress: Progress
) -> dict[str, Scores]:
    """Score a map of the same records that sees no data, and one of all of them in one place."""
    found: dict[str, Scores] = {}
    progress("yardsticks", 0, 2)
    with _noted(problems, 'scores have no yardstick "no data"'):
        found["no data"] = no_data_scores(config, fed)
    progress("yardsticks", 1, 2)
    with _noted(problems, 'scores have no yardstick "central"'):
        found["central"] = central_scores(config, fed, kernel=estimator.feddl_.public.kernel)
    progress("yardsticks", 2, 2)
    return found


@contextmanager
def _noted(problems: list[str], missing: str) -> Iterator[None]:
    """Say what is missing, and why, where it cannot be computed: whatever it is, it comes after all releases."""
    try:
        yield
    except Exception as error:
        problems.append(f"{missing}: it could not be computed ({type(error).__name__}: {error})")


def _finite(name: str, scores: Scores, problems: list[str]) -> Scores:
    """Return the scores that are numbers, and note the others."""
    kept = {key: value for key, value in scores.items() if math.isfinite(value)}
    if lost := [key for key in scores if key not in kept]:
        problems.append(f"scores of {name} that are no finite number are left out: {', '.join(lost)}")
    return kept


def _silent(stage: str, done: int, total: int) -> None:
    """Where nobody wants to know."""


def truth_of(estimator: FederatedEstimator, fed: FederatedData, seed: int) -> dict[str, float]:
    """Return what the verdict estimates, of a private map: which only a simulation knows."""
    published: PublishedMap | None = getattr(estimator, "published_map_", None)
    if published is None:
        return {}
    places = np.concatenate([published.subspace.coordinates(client.X) for client in fed.clients])
    generator = Streams(seed).generator("coverage")
    truth = {"anchor_coverage": anchor_coverage(published.anchors, places, generator)}
    if clear := estimator.verdict_.clear:
        nearest = np.concatenate(
            [
                squared_distances(part, estimator.feddl_.landmarks).argmin(axis=1)
                for part in np.array_split(places, -(-len(places) // PART))
            ]
        )
        truth["share_in_clear_regions"] = float(np.asarray(clear)[nearest].mean())
    return truth


def published_arrays(estimator: FederatedEstimator) -> dict[str, NDArray[Any]]:
    """Return what the server publishes of a private map.

    Landmarks among the records, anchors, their places, subspace, and the anchors' clusters where there are any.
    """
    published: PublishedMap | None = getattr(estimator, "published_map_", None)
    if published is None:
        return {}
    clusters = {} if published.centres is None else {"clusters": published.clusters_at(published.places)}
    return {
        "points": estimator.landmarks_,
        "anchors": published.anchors,
        "places": published.places,
        "centre": published.subspace.centre,
        "axes": published.subspace.axes,
        **clusters,
    }


def places_of(estimator: FederatedEstimator) -> Array:
    """Return the map, or the first two spectral coordinates of clusters, shape (n, 2)."""
    if hasattr(estimator, "embedding_"):
        embedding: Array = estimator.embedding_
        return embedding
    spectral: Array = np.pad(estimator.spectral_, ((0, 0), (0, 2)))[:, :2]
    return spectral


def _rows(fed: FederatedData, values: NDArray[Any]) -> Iterator[list[Any]]:
    """One line a record, by client and number at that client; labels stay with the clients."""
    for client, part in zip(fed.clients, fed.index.slices, strict=True):
        for number, row in enumerate(values[part].tolist()):
            yield [client.name, number, *row]
