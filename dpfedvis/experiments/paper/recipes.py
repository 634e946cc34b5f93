"""The paper's settings as settings of ours, and what may be shrunk of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.data.checks import Missing
from dpfedvis.experiments.sweeps.cells import Cell
from dpfedvis.numerics.spectral import Affinity
from dpfedvis.runs.settings import RunConfig

# What the published runs used: the first so many images, the number of rounds, the repeats of each number.
MAP_RECORDS, MAP_ROUNDS = 40_000, 500
CLUSTER_ROUNDS, NOISY_CLUSTER_ROUNDS = 5000, 1000
REPEATS = 10
LANDMARKS = 500
CLIENTS = 10
# σ of the Gaussian kernels, γ = 1/(2σ²).
MAP_SIGMAS = (10, 20, 30, 50)
CLUSTER_SIGMAS = (5, 10, 15, 20, 25, 30, 50)
MAP_BETA, CLUSTER_BETA = 1.0, 0.1
MAPS = ("tsne", "umap")
ESTIMATES = ("nystrom", "gram")


@dataclass(frozen=True)
class ClusterData:
    """A data set of Table 5: its name here, records and classes, and the settings that the paper does not print.

    They were found by the central number, which depends on them alone (`reports/paper/central.py`).

    Parameters
    ----------
    name : str
    records, classes : int
    gamma : float
        Of the kernel exp(−γ d²).
    features : str, optional
        What is made of each record.
    missing : str
        How missing values are filled.
    """

    name: str
    records: int
    classes: int
    gamma: float
    features: str | None = None
    missing: Missing = "refuse"


CLUSTER_DATA = {
    "MNIST": ClusterData("mnist", 10_000, 10, 2.0, "l2"),
    "COIL-20": ClusterData("coil20", 1440, 20, 0.25),
    "Mice-Protein": ClusterData("mice-protein", 1080, 8, 0.03, missing="public-value"),
}


@dataclass(frozen=True)
class Shrink:
    """How much less than the paper to do, and which parts of it.

    Parameters
    ----------
    records, rounds : int, optional
        At most so many.
    seeds : int
    maps : tuple of str
        Layouts to make.
    estimates : tuple of str
        Of the distances: the paper's ``nystrom``, our ``gram``.
    data : str, optional
        Another data set in the place of the paper's, for trials.
    """

    records: int | None = None
    rounds: int | None = None
    seeds: int = 2
    maps: tuple[str, ...] = MAPS
    estimates: tuple[str, ...] = ESTIMATES
    data: str | None = None

    def __post_init__(self) -> None:
        checks.count("seeds", self.seeds)
        for name in ("records", "rounds"):
            if getattr(self, name) is not None:
                checks.count(name, getattr(self, name))
        for name, choices in (("maps", MAPS), ("estimates", ESTIMATES)):
            given = getattr(self, name)
            if not given or set(given) - set(choices) or len(set(given)) < len(given):
                raise InvalidParameter(name, ",".join(given), f"some of {', '.join(choices)}, each once")

    def fewer(self, name: str, full: int) -> int:
        """Return the paper's number of records or rounds, or what is left of it."""
        most = getattr(self, name)
        return full if most is None else min(full, most)

    def whole(self, records: int, rounds: int) -> bool:
        """Whether it is the paper's own data, at its own scale, so that its numbers compare."""
        full = {"records": records, "rounds": rounds}
        return self.data is None and all(self.fewer(name, each) == each for name, each in full.items())

    def sentences(self, records: int, rounds: int) -> list[str]:
        """Say what differs from the paper's scale."""
        said = []
        if self.data is not None:
            said.append(f"The data is {self.data} and not the paper's: nothing here compares with its numbers.")
        for name, full in (("records", records), ("rounds", rounds)):
            if (left := self.fewer(name, full)) < full:
                said.append(f"Shrunk: {left} {name} at most, where the paper has {full}.")
        if self.seeds < REPEATS:
            seeds = "1 seed" if self.seeds == 1 else f"{self.seeds} seeds"
            said.append(
                f"Shrunk: {seeds} of data, landmarks and layout, where the published runs have {REPEATS} repeats."
            )
        return said


def map_config(shrink: Shrink, data: str, map: str, partition: str, **further: Any) -> RunConfig:
    """Return a Fed-tSNE or Fed-UMAP of the paper; `further` settings win."""
    return RunConfig(
        data=shrink.data or data,
        map=map,
        partition=partition,
        **{
            "records": shrink.fewer("records", MAP_RECORDS),
            "rounds": shrink.fewer("rounds", MAP_ROUNDS),
            "clients": CLIENTS,
            "distances": "nystrom",
            **_published(MAP_SIGMAS),
            **further,
        },
    )


def cluster_config(shrink: Shrink, group: str, partition: str, affinity: Affinity, **further: Any) -> RunConfig:
    """Return a Fed-SpeClust of the paper: its kernel, or our neighbours; one class each has a client for each class."""
    source = CLUSTER_DATA[group]
    records = shrink.fewer("records", source.records)
    return RunConfig(
        data=shrink.data or source.name,
        map="clusters",
        partition=partition,
        affinity=affinity,
        affinity_gamma=source.gamma if affinity == "kernel" else None,
        clusters=source.classes,
        features=source.features,
        missing=source.missing,
        records=records,
        # These files are sorted by class: the first records alone would be of few classes.
        sample="random" if records < source.records and group != "MNIST" else "first",
        clients=source.classes if partition == "by-class" else CLIENTS,
        rounds=shrink.fewer("rounds", NOISY_CLUSTER_ROUNDS if further.get("beta") else CLUSTER_ROUNDS),
        **{**_published(CLUSTER_SIGMAS), **further},
    )


def _published(sigmas: tuple[int, ...]) -> dict[str, Any]:
    """The published protocol: largest biased MMD over bandwidths, batches of 256, Adam with step 0.1."""
    return {
        "mechanism": "published",
        "gamma": tuple(1 / (2 * sigma**2) for sigma in sigmas),
        "mmd": "biased",
        "weights": "equal",
        "optimiser": "adam",
        "landmarks": LANDMARKS,
        "bounds": (0.0, 1.0),
    }


def central(config: RunConfig) -> Cell:
    """Return the same without clients."""
    return Cell.baseline("central", config)
