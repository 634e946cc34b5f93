"""Sweeps as they run: each cell once, whatever computes it and whatever goes wrong."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accounting import InvalidParameter
from dpfedvis.evaluation.scores import by_chance, evaluated_of, scores_of
from dpfedvis.experiments.sweeps import work as work_module
from dpfedvis.experiments.sweeps.cells import Cell
from dpfedvis.experiments.sweeps.clusters import BackendMissing
from dpfedvis.experiments.sweeps.execution import Workers, addressed, sweep
from dpfedvis.experiments.sweeps.store import CellRow, SweepStore
from dpfedvis.experiments.sweeps.work import Task, work
from dpfedvis.runs.code_version import CodeVersion
from dpfedvis.runs.settings import RunConfig

ONE = CodeVersion("1", "a" * 40)
TWO = CodeVersion("1", "b" * 40)


def scores(rows: list[CellRow]) -> dict[str, dict[str, float]]:
    return {row.address: row.scores for row in rows}


def test_cells_run_once_and_larger_grids_run_what_is_new(tmp_path: Path, cell) -> None:
    cells = [cell(seed=seed) for seed in range(3)]
    with SweepStore(tmp_path / "s.sqlite", create=True) as store:
        first = sweep(cells[:2], store, version=ONE)
        assert (first.cells, first.known, first.statuses) == (2, 0, {"done": 2})
        before = store.rows()
        second = sweep(cells, store, version=TWO)
        assert (second.cells, second.known, second.statuses) == (3, 2, {"done": 1})
        after = store.rows()
    assert after[:2] == before
    assert [row.version for row in after] == [ONE, ONE, TWO]


def test_a_row_has_the_scores_of_the_run(tmp_path: Path, cell) -> None:
    chosen = cell(mechanism="mean-embedding", epsilon=3.0, seed=4)
    with SweepStore(tmp_path / "s.sqlite", create=True) as store:
        sweep([chosen], store, version=ONE)
        (row,) = store.rows()
    fed = chosen.config.federated()
    estimator = chosen.config.resolved(fed).estimator().fit(fed)
    assert row.scores == pytest.approx(scores_of(estimator, fed, seed=4))
    assert row.epsilon_end_to_end == estimator.ledger_.spent(1e-5, end_to_end=True) == pytest.approx(3.0)
    assert row.epsilon_in_scope == pytest.approx(3.0)
    assert row.epsilon_nominal is None


def test_refusals_and_failures_are_rows_and_not_fatal(tmp_path: Path, cell, monkeypatch: pytest.MonkeyPatch) -> None:
    refused, good, bad = cell(epsilon=1.0), cell(), cell(seed=7)
    honest = work_module.compute

    def compute(task: Task) -> work_module.Outcome:
        if task.cell == bad:
            raise MemoryError("no room")
        return honest(task)

    monkeypatch.setattr(work_module, "compute", compute)
    with SweepStore(tmp_path / "s.sqlite", create=True) as store:
        done = sweep([refused, bad, good], store, version=ONE)
        assert done.statuses == {"refused": 1, "failed": 1, "done": 1}
        by_status = {row.status: row for row in store.rows()}
        assert "protects nothing" in by_status["refused"].error
        assert by_status["failed"].error.startswith("MemoryError: no room (test_execution.py:")
        assert by_status["failed"].scores == {}
        assert by_status["failed"].epsilon_end_to_end is None
        monkeypatch.undo()
        assert sweep([refused, bad, good], store, version=ONE).statuses == {}
        again = sweep([refused, bad, good], store, retry=True, version=TWO)
        assert (again.known, again.statuses) == (1, {"refused": 1, "done": 1})
        assert len(store.rows()) == 3


def test_an_interrupted_sweep_keeps_its_rows_and_goes_on(tmp_path: Path, cell, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell(seed=seed) for seed in range(3)]
    honest, calls = work_module.compute, []

    def compute(task: Task) -> work_module.Outcome:
        calls.append(task.cell)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return honest(task)

    monkeypatch.setattr(work_module, "compute", compute)
    with SweepStore(tmp_path / "s.sqlite", create=True) as store:
        with pytest.raises(KeyboardInterrupt):
            sweep(cells, store, version=ONE)
        assert len(store.rows()) == 1
        assert sweep(cells, store, version=ONE).statuses == {"done": 2}
        assert calls == [cells[0], cells[1], cells[1], cells[2]]


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_parallel_cells_are_the_same_cells(backend: str, tmp_path: Path, cell) -> None:
    cells = [cell(seed=seed) for seed in range(3)] + [cell(epsilon=1.0)]
    stores = (SweepStore(tmp_path / f"{name}.sqlite", create=True) for name in ("one", "two"))
    with next(stores) as alone, next(stores) as many:
        sweep(cells, alone, version=ONE)
        done = sweep(cells, many, Workers(2, backend), version=ONE)
        assert done.statuses == {"done": 3, "refused": 1}
        assert scores(many.rows()) == scores(alone.rows())


def test_a_real_dask_cluster_computes_the_same(tmp_path: Path, cell) -> None:
    from distributed import LocalCluster

    cells = [cell(seed=seed) for seed in range(3)]
    with (
        SweepStore(tmp_path / "one.sqlite", create=True) as alone,
        SweepStore(tmp_path / "two.sqlite", create=True) as many,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR") as cluster,
    ):
        sweep(cells, alone, version=ONE)
        workers = Workers(2, "dask", scheduler=cluster.scheduler_address)
        assert sweep(cells, many, workers, version=ONE).statuses == {"done": 3}
        assert scores(many.rows()) == scores(alone.rows())


def test_a_real_ray_cluster_computes_the_same(tmp_path: Path, cell) -> None:
    pytest.importorskip("ray", reason="Ray is an extra: pip install 'dpfedvis[ray]'")
    cells = [cell(seed=seed) for seed in range(3)] + [cell(epsilon=1.0)]
    stores = (SweepStore(tmp_path / f"{name}.sqlite", create=True) for name in ("one", "two"))
    with next(stores) as alone, next(stores) as many:
        sweep(cells, alone, version=ONE)
        assert sweep(cells, many, Workers(2, "ray"), version=ONE).statuses == {"done": 3, "refused": 1}
        assert scores(many.rows()) == scores(alone.rows())


def test_a_package_that_is_missing_is_named(monkeypatch, tmp_path: Path, cell) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with SweepStore(tmp_path / "s.sqlite", create=True) as store:
        with pytest.raises(BackendMissing, match="backend ray needs a package"):
            sweep([cell()], store, Workers(1, "ray"), version=ONE)
        assert store.rows() == []


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_cluster_that_does_not_answer_is_named(backend: str, tmp_path: Path, cell) -> None:
    if backend == "ray":
        pytest.importorskip("ray", reason="Ray is an extra: pip install 'dpfedvis[ray]'")
    with SweepStore(tmp_path / "s.sqlite", create=True) as store:
        with pytest.raises(BackendMissing, match=r"127\.0\.0\.1:1"):
            sweep([cell()], store, Workers(1, backend, "127.0.0.1:1"), version=ONE)
        assert store.rows() == []


def test_workers_that_cannot_be_are_named() -> None:
    with pytest.raises(InvalidParameter, match="backend"):
        Workers(1, "slurm")
    with pytest.raises(InvalidParameter, match="scheduler"):
        Workers(1, "loky", "tcp://127.0.0.1:1")
    with pytest.raises(InvalidParameter, match="jobs"):
        Workers(0)


# What cells share


@pytest.mark.parametrize("distances", ["gram", "nystrom"])
def test_shared_landmarks_change_no_score(distances: str, tmp_path: Path, cell) -> None:
    settings = {"map": "tsne", "perplexity": 5, "mechanism": "published", "beta": 1.0, "batch": 20, "mmd": "biased"}
    chosen = cell(**settings, distances=distances)
    address = chosen.address("x")
    alone = work(Task(chosen, address, "x", ONE))
    first, second = (work(Task(chosen, address, "x", ONE, tmp_path)) for _ in range(2))
    assert alone.status == "done", alone.error
    assert len(list((tmp_path / "landmarks").glob("*.npz"))) == 1
    for each in (first, second):
        # Digits are whole numbers: which of two equally near records is a neighbour depends on their order.
        assert each.scores == pytest.approx(alone.scores, abs=1e-3)
        assert {**each.scores, "npa_50": 0} == {**alone.scores, "npa_50": 0}
        assert each.epsilon_nominal == alone.epsilon_nominal
        assert each.epsilon_end_to_end == alone.epsilon_end_to_end == math.inf
    assert alone.epsilon_nominal is not None


def test_landmarks_are_learned_once_for_all_maps(tmp_path: Path, cell, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpfedvis.experiments.sweeps.landmarks import Given
    from dpfedvis.server.feddl import FedDL

    honest, learned = FedDL.learn, []

    def learn(self, *given, **named):
        if not isinstance(self.mechanism, Given):
            learned.append(self.seed)
        return honest(self, *given, **named)

    monkeypatch.setattr(FedDL, "learn", learn)
    cells = [cell(), cell(affinity="kernel"), cell(clusters=5), cell(seed=1)]
    with SweepStore(tmp_path / "s.sqlite", create=True) as store:
        assert sweep(cells, store, version=ONE).statuses == {"done": 4}
    assert sorted(learned) == [0, 1]


def test_damaged_landmarks_are_made_again(tmp_path: Path, cell) -> None:
    task = Task(cell(), "a", "x", ONE, tmp_path)
    whole = work(task)
    (kept,) = (tmp_path / "landmarks").glob("*.npz")
    kept.write_bytes(b"half of it")
    again = work(task)
    assert (again.status, again.scores) == ("done", whole.scores)


def test_true_neighbours_are_searched_once_for_all_partitions(
    tmp_path: Path, cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpfedvis.evaluation import metrics
    from dpfedvis.evaluation.metrics import base

    honest, searched = metrics.true_neighbors, []

    def search(X, k):
        searched.append(X.shape)
        return honest(X, k)

    monkeypatch.setattr(metrics, "true_neighbors", search)
    monkeypatch.setattr(base, "true_neighbors", search)
    maps = {"map": "tsne", "perplexity": 5}
    tasks = [Task(cell(**maps, partition=p), p, "x", ONE, tmp_path) for p in ("iid", "dirichlet:0.5")]
    shared = [work(task) for task in tasks]
    # The maps' own neighbours are searched in two dimensions.
    assert searched.count((80, 64)) == 1
    for task, row in zip(tasks, shared, strict=True):
        assert row.scores == pytest.approx(work(replace(task, cache=None)).scores, abs=1e-3)


# Baselines


def test_central_maps_and_clusters_are_those_of_all_records(tmp_path: Path, cell) -> None:
    from sklearn.cluster import SpectralClustering
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    clusters = cell("central")
    row = work(Task(clusters, "a", "x", ONE))
    X, y = clusters.config.federated().pooled()
    labels = SpectralClustering(
        10, affinity="nearest_neighbors", n_neighbors=10, n_init=10, random_state=0
    ).fit_predict(X.astype(np.float64))
    expected = {"nmi": normalized_mutual_info_score(y, labels), "ari": adjusted_rand_score(y, labels)}
    assert row.scores == pytest.approx(expected)
    assert row.epsilon_end_to_end == math.inf
    tsne = work(Task(Cell.baseline("central", cell(map="tsne", perplexity=5).config), "b", "x", ONE))
    assert tsne.scores["npa_10"] > 0.6
    assert "mmd" not in tsne.scores


def test_a_map_without_data_is_the_private_map_at_next_to_no_epsilon(cell) -> None:
    config = cell(map="tsne", perplexity=5).config
    row = work(Task(Cell.baseline("data-free", config), "a", "x", ONE))
    assert (row.status, row.epsilon_end_to_end) == ("done", 0.001)
    assert {"ca_10", "ca_cross_10", "mmd_common", "certificate_common"} <= set(row.scores)
    run = Cell("run", RunConfig(**Cell.baseline("data-free", config).config.given, epsilon=0.001))
    private = work(Task(run, "a", "x", ONE))
    assert private.epsilon_end_to_end == pytest.approx(0.001, rel=0.01)
    assert row.scores.items() <= private.scores.items()
    assert work(Task(Cell.baseline("data-free", cell().config), "a", "x", ONE)).scores.keys() == {"nmi", "ari"} | {
        "mmd_common", "certificate_common"
    }  # fmt: skip


def test_chance_costs_nothing_and_is_that_of_the_run(cell) -> None:
    for config in (cell(map="tsne", perplexity=5).config, cell().config):
        row = work(Task(Cell.baseline("chance", config), "a", "x", ONE))
        assert (row.status, row.epsilon_end_to_end) == ("done", 0.0)
        fed = config.federated()
        fitted = config.resolved(fed).estimator().watch(warns=False).fit(fed)
        assert row.scores == by_chance(evaluated_of(fitted, fed))


def test_addresses_use_the_hash_of_the_data(cell) -> None:
    (address, (chosen, sha256)), = addressed([cell(), cell()]).items()  # fmt: skip
    assert sha256 == cell().config.dataset().sha256
    assert address == chosen.address(sha256)
