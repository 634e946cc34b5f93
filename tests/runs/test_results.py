"""What cannot be scored after all was released and paid for: it is said, and stops no run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from dpfedvis.evaluation.metrics import METRICS, Metric
from dpfedvis.runs import results
from dpfedvis.runs.execute import Run, execute
from dpfedvis.runs.settings import RunConfig
from tests.makers import SMALL_RUN


def done(folder: Path, **settings: Any) -> Run:
    common = {**SMALL_RUN, "data": "digits", "records": 60, "clients": 2, "landmarks": 10, "yardsticks": True}
    return execute(RunConfig(**{**common, **settings}), folder)


def known(run: Run, name: str) -> Any:
    return json.loads((run.folder / "simulation" / f"{name}.json").read_text(encoding="utf-8"))


def test_clusters_by_the_learned_kernel_have_all_yardsticks(tmp_path: Path) -> None:
    run = done(tmp_path / "run", map="clusters", affinity="kernel", clusters=3)
    assert list(known(run, "yardsticks")) == ["chance", "no data", "central"]
    assert known(run, "yardsticks")["central"]["nmi"] > known(run, "yardsticks")["chance"]["nmi"]
    assert known(run, "problems") == []
    assert not [each for each in run.warnings if "yardstick" in each]


def test_what_cannot_be_scored_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **named: object) -> None:
        raise RuntimeError("no room")

    toy = Metric("toy", "toy", "toy", lambda evaluated: math.nan, METRICS["npa_10"].needs)
    monkeypatch.setitem(METRICS, "toy", toy)
    monkeypatch.setattr(results, "central_scores", fail)
    monkeypatch.setattr(results, "placed_by_group", fail)
    run = done(tmp_path / "run", mechanism="none")
    assert (run.folder / "statement.json").exists()
    assert known(run, "scores").keys() >= {"npa_10", "nmi"}
    assert "toy" not in known(run, "scores")
    # One that fails takes no other with it.
    assert list(known(run, "yardsticks")) == ["chance", "no data"]
    assert known(run, "yardsticks")["no data"].keys() >= {"npa_10", "nmi"}
    problems = [
        'scores have no yardstick "central": it could not be computed (RuntimeError: no room)',
        "scores of this map that are no finite number are left out: toy",
        "scores of no data that are no finite number are left out: toy",
        "nothing is said of single groups: it could not be computed (RuntimeError: no room)",
    ]
    assert known(run, "problems") == list(run.warnings[-4:]) == problems
