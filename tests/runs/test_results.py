"""What cannot be scored after all was released and paid for: it is said, and stops no run."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import pytest

from dpfedvis.cli.main import main
from dpfedvis.cli.run import config_of
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


def test_the_words_of_a_failure_are_harmless_on_a_terminal_and_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise RuntimeError("\x1b[31m<i>red</i>")

    monkeypatch.setattr(results, "central_scores", fail)
    monkeypatch.setattr(results, "no_data_scores", fail)
    options = "--records 60 --clients 2 --landmarks 10 --rounds 2 --perplexity 5 --jobs 1 --yardsticks --quiet"
    assert main(["run", "--data", "digits", *options.split(), "--out", str(tmp_path / "run")]) == 0
    error = capsys.readouterr().err
    assert "\x1b" not in error
    for name in ("no data", "central"):
        assert f'scores have no yardstick "{name}": it could not be computed (RuntimeError: \\u001b[31m' in error
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count("&lt;i&gt;red&lt;/i&gt;") == 2
    assert "<i>red" not in page


def test_flags_that_cannot_be_together_are_named_in_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.csv"
    own.write_text("a,b\n" + "0,1\n1,0\n" * 20)
    command = ["run", "--data", str(own), "--epsilon", "1", "--bounds", "0", "1", "--out", str(tmp_path / "run")]
    assert main([*command, "--evaluate", "--yardsticks"]) == 2
    assert "--evaluate and --yardsticks must be left out with real noise" in capsys.readouterr().err
    assert main([*command, "--noise", "seeded", "--yardsticks"]) == 2
    assert "--yardsticks must be left out without scores: it needs --evaluate" in capsys.readouterr().err
    # A file that says "no scores" is no answer to a flag that needs them.
    (tmp_path / "config.toml").write_text("evaluate = false\n")
    assert main([*command, "--noise", "seeded", "--yardsticks", "--config", str(tmp_path / "config.toml")]) == 2
    assert "--yardsticks must be left out without scores: it needs --evaluate" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_settings_of_a_run_with_yardsticks_go_without_scores_by_one_flag() -> None:
    stored = {"data": "digits", "records": 50, "evaluate": True, "yardsticks": True}
    config = config_of(argparse.Namespace(evaluate=False), stored)
    found = config.resolved(config.federated())
    assert (found.evaluate, found.yardsticks) == (False, None)
