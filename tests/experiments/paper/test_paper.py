"""The paper's numbers, and the settings that they are run with here."""

from __future__ import annotations

import pytest

from accounting import InvalidParameter
from dpfedvis.experiments.paper.experiments import EXPERIMENTS
from dpfedvis.experiments.paper.paper import SCORES, TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, Number
from dpfedvis.experiments.paper.recipes import Shrink
from dpfedvis.mechanisms import PublishedFedDL

TABLES = (TABLE1, TABLE2, TABLE3, TABLE4, TABLE5)


def test_numbers_are_read_as_printed() -> None:
    assert Number.parse("0.9618±0.0015") == Number(0.9618, 0.0015, "0.9618 ± 0.0015")


@pytest.mark.parametrize(("table", "rows"), list(zip(TABLES, (16, 16, 4, 4, 6), strict=True)))
def test_tables_are_whole(table, rows: int) -> None:
    assert len(table.rows) == rows
    for (_, score), numbers in table.rows.items():
        assert score in SCORES
        assert len(numbers) == len(table.columns)
        assert all(0 < number.mean < 1 and 0 < number.sd < 0.2 for number in numbers)


def test_some_numbers_as_the_paper_has_them() -> None:
    def number(table, group: str, score: str, column: str) -> tuple[float, float]:
        found = table.rows[group, score][table.columns.index(column)]
        return found.mean, found.sd

    assert number(TABLE1, "t-SNE", "ca_10", "non-IID +") == (0.9307, 0.0026)
    assert number(TABLE1, "UMAP", "npa_10", "central") == (0.1227, 0.0010)
    assert number(TABLE2, "t-SNE", "npa_50", "non-IID +") == (0.2204, 0.0017)
    assert number(TABLE2, "UMAP", "silhouette", "IID") == (0.5448, 0.0264)
    assert number(TABLE3, "Fed-tSNE+", "npa_10", "k = 5") == (0.286, 0.001)
    assert number(TABLE4, "Fed-tSNE", "nmi", "k = 20") == (0.745, 0.009)
    assert number(TABLE5, "MNIST", "ari", "non-IID") == (0.3806, 0.1123)
    assert number(TABLE5, "Mice-Protein", "nmi", "IID +") == (0.3220, 0.0143)


def test_scores_fall_from_collected_to_federated_to_noisy_data() -> None:
    """The order that the paper reports for accuracy and neighbours; a number in the wrong place would break it."""
    for table in (TABLE1, TABLE2):
        for (_, score), numbers in table.rows.items():
            if score.startswith(("ca", "npa")):
                central, iid, iid_noisy, other, other_noisy = (number.mean for number in numbers)
                assert central > iid > iid_noisy > other_noisy
                assert other > other_noisy


@pytest.mark.parametrize("name", [name for name, each in EXPERIMENTS.items() if each.printed])
def test_every_number_of_a_table_has_a_setting(name: str) -> None:
    experiment = EXPERIMENTS[name]
    printed = experiment.printed
    entries = list(experiment.entries(Shrink()))
    places = {(group, column) for group, _ in printed.rows for column in printed.columns}
    assert {(entry.group, entry.column) for entry in entries} == places
    for entry in entries:
        assert (entry.beta > 0) == entry.column.endswith("+") or entry.group.endswith("+")
        for score in experiment.scores:
            assert experiment.number(entry, score) is not None


def test_settings_are_the_published_ones() -> None:
    entries = {(e.group, e.column, e.arm): e.cell for e in EXPERIMENTS["table1"].entries(Shrink())}
    config = entries["t-SNE", "non-IID +", "nystrom"].config
    assert (config.data, config.records, config.sample, config.clients) == ("mnist", 40_000, "first", 10)
    assert (config.partition, config.landmarks, config.rounds) == ("by-class", 500, 500)
    assert config.feddl["gamma"] == pytest.approx([1 / (2 * sigma**2) for sigma in (10, 20, 30, 50)])
    learning = {name: config.feddl[name] for name in ("optimiser", "mmd", "weights", "bounds")}
    assert learning == {"optimiser": "adam", "mmd": "biased", "weights": "equal", "bounds": (0.0, 1.0)}
    assert (config.mechanism, config.distances, config.epsilon) == ("published", "nystrom", None)
    assert config.made_mechanism() == PublishedFedDL(beta=1.0)
    assert entries["t-SNE", "IID", "gram"].config.made_mechanism() == PublishedFedDL(beta=0.0)
    assert entries["UMAP", "central", "central"].kind == "central"
    clusters = {(e.group, e.column, e.arm): e.cell.config for e in EXPERIMENTS["table5"].entries(Shrink())}
    config = clusters["MNIST", "IID +", "kernel"]
    assert (config.records, config.rounds, config.spectral.affinity_gamma) == (10_000, 1000, 2.0)
    assert clusters["MNIST", "IID", "kernel"].rounds == 5000
    assert (config.features, clusters["COIL-20", "IID", "kernel"].features) == ("l2", None)
    assert config.made_mechanism() == PublishedFedDL(beta=0.1)
    assert len(config.feddl["gamma"]) == 7
    config = clusters["COIL-20", "non-IID", "neighbors"]
    assert (config.clients, config.sample) == (20, "first")
    assert (config.spectral.clusters, config.spectral.affinity) == (20, "neighbors")


def test_landmarks_are_shared_by_all_maps_of_them() -> None:
    cells = EXPERIMENTS["table1"].cells(Shrink(seeds=1))
    runs = [cell for cell in cells if cell.kind == "run"]
    assert len(runs) == 2 * 2 * 2 * 2
    assert len({cell.landmark_address("x", "code") for cell in runs}) == 4


def test_tables_share_their_cells() -> None:
    """Ten clients are in Table 1 as well: no store runs them twice."""
    first = set(EXPERIMENTS["table1"].cells(Shrink(seeds=1)))
    for name in ("table3", "table4"):
        assert set(EXPERIMENTS[name].cells(Shrink(seeds=1))) & first


def test_shrinking_takes_less_and_says_so() -> None:
    shrink = Shrink(records=500, rounds=20, seeds=3, maps=("tsne",), estimates=("gram",))
    entries = list(EXPERIMENTS["table1"].entries(shrink))
    assert {entry.cell.config.records for entry in entries} == {500}
    assert {entry.group for entry in entries} == {"t-SNE"}
    assert {entry.arm for entry in entries} == {"central", "gram"}
    assert shrink.sentences(40_000, 500) == [
        "Shrunk: 500 records at most, where the paper has 40000.",
        "Shrunk: 20 rounds at most, where the paper has 500.",
        "Shrunk: 3 seeds of data, landmarks and layout, where the published runs have 10 repeats.",
    ]
    assert Shrink(records=10**6, seeds=10).sentences(40_000, 500) == []
    coil = [e.cell.config for e in EXPERIMENTS["table5"].entries(shrink) if e.group == "COIL-20"]
    assert {(config.records, config.sample) for config in coil} == {(500, "random")}
    rounds = {entry.x for entry in EXPERIMENTS["figure-convergence"].entries(shrink)}
    assert rounds == {1, 2, 5, 10, 20}


@pytest.mark.parametrize(
    ("name", "value"), [("seeds", 0), ("records", 0), ("rounds", -1), ("maps", ("pca",)), ("estimates", ())]
)
def test_bad_shrinking_is_named(name: str, value: object) -> None:
    with pytest.raises(InvalidParameter, match=name):
        Shrink(**{name: value})
