"""The tables and figures of the paper, and the cells behind every number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dpfedvis.experiments.paper.paper import TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, Number, Printed
from dpfedvis.experiments.paper.recipes import (
    CLUSTER_BETA,
    CLUSTER_ROUNDS,
    MAP_BETA,
    MAP_RECORDS,
    MAP_ROUNDS,
    Shrink,
    central,
    cluster_config,
    map_config,
)
from dpfedvis.experiments.sweeps.cells import Cell

# The paper's axes have no numbers that could be read off; these are ours.
ROUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
LANDMARKS = (50, 100, 200, 500, 1000)
BETAS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
PARTITIONS = {"IID": "iid", "non-IID": "by-class"}
_LAYOUTS: dict[str, str] = {"t-SNE": "tsne", "UMAP": "umap"}


@dataclass(frozen=True)
class Entry:
    """One setting: what it is called in the paper, and how it is run here.

    Parameters
    ----------
    group, column : str
        Rows and column of the table; method and place on the x-axis of a figure.
    arm : str
        Our way: "nystrom" or "gram", "kernel" or "neighbors", or "central".
    cell : Cell
        With seed 0.
    beta : float
        Of the noise; 0 for none.
    x : float, optional
        In a figure.
    """

    group: str
    column: str
    arm: str
    cell: Cell
    beta: float = 0.0
    x: float | None = None

    def cells(self, seeds: int) -> list[Cell]:
        """Return the cells of all seeds."""
        return [Cell(self.cell.kind, self.cell.config.updated(seed=seed)) for seed in range(seeds)]


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Parameters
    ----------
    name, title : str
    entries : callable
        From how much to shrink to all settings.
    scores : tuple of str
    printed : Printed, optional
        The paper's numbers.
    claim : str
        What the paper says about it, where it prints no numbers.
    axis : str
        Of a figure.
    records, rounds : int
        Of the paper.
    """

    name: str
    title: str
    entries: Callable[[Shrink], Iterator[Entry]]
    scores: tuple[str, ...]
    printed: Printed | None = None
    claim: str = ""
    axis: str = ""
    records: int = MAP_RECORDS
    rounds: int = MAP_ROUNDS

    @property
    def clusters(self) -> bool:
        """Whether it is about clusters and not maps."""
        return "ari" in self.scores

    def cells(self, shrink: Shrink) -> list[Cell]:
        """Return all cells, each once."""
        return list(dict.fromkeys(cell for entry in self.entries(shrink) for cell in entry.cells(shrink.seeds)))

    def number(self, entry: Entry, score: str) -> Number | None:
        """Return the paper's number for a setting."""
        if self.printed is None or (entry.group, score) not in self.printed.rows:
            return None
        return self.printed.rows[entry.group, score][self.printed.columns.index(entry.column)]


def _beta(beta: float) -> dict[str, float]:
    # Only if there is any, so that a run without noise always has the same address.
    return {"beta": beta} if beta else {}


def _map_table(data: str) -> Callable[[Shrink], Iterator[Entry]]:
    def entries(shrink: Shrink) -> Iterator[Entry]:
        for group, layout in _LAYOUTS.items():
            if layout not in shrink.maps:
                continue
            yield Entry(group, "central", "central", central(map_config(shrink, data, layout, "iid")))
            for name, partition in PARTITIONS.items():
                for beta, plus in ((0.0, ""), (MAP_BETA, " +")):
                    for arm in shrink.estimates:
                        config = map_config(shrink, data, layout, partition, distances=arm, **_beta(beta))
                        yield Entry(group, name + plus, arm, Cell("run", config), beta)

    return entries


def _client_table(partitions: dict[int, str]) -> Callable[[Shrink], Iterator[Entry]]:
    def entries(shrink: Shrink) -> Iterator[Entry]:
        for group, beta in (("Fed-tSNE", 0.0), ("Fed-tSNE+", MAP_BETA)):
            for clients, partition in partitions.items():
                for arm in shrink.estimates:
                    further = {"clients": clients, "distances": arm, **_beta(beta)}
                    config = map_config(shrink, "mnist", "tsne", partition, **further)
                    yield Entry(group, f"k = {clients}", arm, Cell("run", config), beta)

    return entries


def _cluster_table(shrink: Shrink) -> Iterator[Entry]:
    for group in dict.fromkeys(group for group, _ in TABLE5.rows):
        for arm in ("kernel", "neighbors"):
            yield Entry(group, "central", arm, central(cluster_config(shrink, group, "iid", arm)))
            for name, partition in PARTITIONS.items():
                for beta, plus in ((0.0, ""), (CLUSTER_BETA, " +")):
                    config = cluster_config(shrink, group, partition, arm, **_beta(beta))
                    yield Entry(group, name + plus, arm, Cell("run", config), beta)


def _figure(setting: str, values: tuple[float, ...]) -> Callable[[Shrink], Iterator[Entry]]:
    """Settings of a figure: one of the settings takes all values, for both layouts and both partitions."""

    def entries(shrink: Shrink) -> Iterator[Entry]:
        # The paper's way; the other estimate only if it is asked for alone.
        arm = shrink.estimates[0]
        for group, layout in _LAYOUTS.items():
            if layout not in shrink.maps:
                continue
            for name, partition in PARTITIONS.items():
                for value in values:
                    beta = value if setting == "beta" else 0.0
                    further = _beta(beta) if setting == "beta" else {setting: int(value)}
                    if setting == "rounds" and value > shrink.fewer("rounds", MAP_ROUNDS):
                        continue
                    config = map_config(shrink, "mnist", layout, partition, distances=arm, **further)
                    label = f"Fed-{group.replace('-', '')}, {name}"
                    yield Entry(label, f"{value:g}", arm, Cell("run", config), beta, float(value))

    return entries


_MAP_SCORES = ("ca_1", "ca_10", "ca_50", "npa_1", "npa_10", "npa_50", "nmi", "silhouette")

EXPERIMENTS = {
    each.name: each
    for each in (
        Experiment("table1", "Table 1: maps of MNIST", _map_table("mnist"), _MAP_SCORES, TABLE1),
        Experiment("table2", "Table 2: maps of Fashion-MNIST", _map_table("fashion-mnist"), _MAP_SCORES, TABLE2),
        Experiment(
            "table3",
            "Table 3: number of clients, non-IID",
            _client_table({5: "classes:2", 10: "by-class"}),
            ("nmi", "npa_10"),
            TABLE3,
        ),
        Experiment(
            "table4",
            "Table 4: number of clients, IID",
            _client_table(dict.fromkeys((5, 10, 20, 50, 100), "iid")),
            ("nmi", "npa_10"),
            TABLE4,
        ),
        Experiment(
            "table5",
            "Table 5: spectral clusters",
            _cluster_table,
            ("nmi", "ari"),
            TABLE5,
            records=10_000,
            rounds=CLUSTER_ROUNDS,
        ),
        Experiment(
            "figure-convergence",
            "Figure: convergence on MNIST",
            _figure("rounds", ROUNDS),
            ("ca_10", "npa_10", "nmi"),
            claim="The paper: the metrics reach convergence after approximately 50 epochs (Fig. `fig:convergence`).",
            axis="rounds",
        ),
        Experiment(
            "figure-ny",
            "Figure: number of landmarks on MNIST",
            _figure("landmarks", LANDMARKS),
            ("nmi", "ca_10", "npa_10"),
            claim="The paper: the larger n_y, the better the NMI (Fig. `fig:ny`).",
            axis="landmarks n_y",
        ),
        Experiment(
            "figure-beta",
            "Figure: noise level on MNIST",
            _figure("beta", BETAS),
            ("nmi", "ca_10", "npa_10"),
            claim="The paper: the smaller the noise level β, the better the NMI (Fig. `fig:beta`).",
            axis="β",
        ),
    )
}
