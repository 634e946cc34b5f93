"""`dpfedvis plan`, and what `dpfedvis run` does with a forecast."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import called, check_refused

NUMBERS = ["--records", "569", "--clients", "4", "--columns", "30"]
TINY = ["--data", "digits", "--records", "60", "--clients", "3", "--perplexity", "5", "--jobs", "1"]
TINY += ["--anchors", "40", "--placement", "weights"]


def test_a_plan_from_numbers_alone_in_words_and_as_json() -> None:
    done = called("plan", *NUMBERS, "--epsilon", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Some of usual data of this size can be seen (ε = 2, trust local, 569 records, 30 f")
    assert "second moments" in done.stdout
    assert "Each of these would be enough for usual data: ε = " in done.stdout
    found = json.loads(called("plan", *NUMBERS, "--epsilon", "2", "--json").stdout)
    assert (found["signal"], found["sites"], found["records"], found["features"]) == ("partly", 4, 569, 30)
    assert {each["what"] for each in found["stages"]} == {"moments", "second moments", "cluster sums"}
    assert sum(each["share"] for each in found["stages"]) == pytest.approx(1)
    for way in found["ways"]:
        shared = ["--epsilon", str(way["epsilon"] or 2), "--trust", "aggregate"]
        changed = {"epsilon": ["--epsilon", str(way["value"])], "trust": shared}
        if way["setting"] in changed:
            better = called("plan", *NUMBERS, *changed[way["setting"]], "--json")
            assert json.loads(better.stdout)["signal"] == "yes", way


def test_a_plan_of_data_uses_their_public_numbers() -> None:
    by_data = json.loads(called("plan", "--data", "digits", "--clients", "5", "--epsilon", "1", "--json").stdout)
    numbers = ["--records", "1797", "--clients", "5", "--columns", "64", "--epsilon", "1", "--delta", "1e-5"]
    assert by_data == json.loads(called("plan", *numbers, "--json").stdout)


def test_sharing_is_priced() -> None:
    shared = ["--epsilon", "2", "--trust", "aggregate", "--threshold"]
    all_there, one_away = (
        json.loads(called("plan", *NUMBERS, *shared, least, "--json").stdout)["least_direction"] for least in "43"
    )
    assert all_there < one_away


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epsilon", "2"], "plan needs --data, or --records and --columns"),
        (NUMBERS, "plan needs --epsilon"),
        ([*NUMBERS, "--epsilon", "2", "--release", "noisy"], "release must be none"),
        (["--records", "9", "--clients", "20", "--columns", "3", "--epsilon", "1"], "sites must be"),
    ],
)
def test_what_a_plan_needs_is_named(flags: list[str], words: str) -> None:
    check_refused(called("plan", *flags), words)


def test_a_run_that_can_only_show_noise_stops_before_it_spends(tmp_path: Path) -> None:
    done = called("run", *TINY, "--epsilon", "0.01", "--out", str(tmp_path / "run"))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("dpfedvis: No data of this size can be seen")
    assert done.stderr.count("\n") == 1
    assert "--anyway" in done.stderr
    assert list(tmp_path.iterdir()) == []
    forced = called("run", *TINY, "--epsilon", "0.01", "--out", str(tmp_path / "run"), "--anyway", "--json")
    assert (forced.returncode, forced.stderr) == (0, "")
    summary = json.loads(forced.stdout)
    assert summary["verdict"]["signal"] == "no"
    kept = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert kept["sentence"] == summary["verdict"]["sentence"]
    assert kept["sentence"] in (tmp_path / "run" / "report.html").read_text()
    assert kept["sentence"] in (tmp_path / "run" / "statement.md").read_text()
    assert (tmp_path / "run" / "regions.csv").read_text().startswith("region,clear,landmarks,share,share_noise,x0")


def test_what_is_unlikely_goes_on_and_says_so_on_a_terminal_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpfedvis.cli import run

    flags = [*TINY, "--epsilon", "2", "--json"]
    plan = json.loads(called("plan", *flags).stdout)
    assert plan["signal"] == "unlikely"
    done = called("run", *flags, "--out", str(tmp_path / "run"))
    assert (done.returncode, done.stderr) == (0, "")
    said: list[str] = []
    monkeypatch.setattr(run, "print", lambda text, file: said.append(text), raising=False)
    monkeypatch.setattr(run.sys.stderr, "isatty", lambda: True)
    from dpfedvis import FedTSNE

    run._foresee(FedTSNE(epsilon=2.0).plan(records=60, sites=3, features=64))
    assert len(said) == 1
    assert said[0].startswith("dpfedvis: warning: Data of this size are unlikely to be seen")
    assert "\n" not in said[0]


def test_a_release_of_rows_is_never_stopped(tmp_path: Path) -> None:
    flags = ["--epsilon", "0.05", "--release", "noisy", "--landmarks", "8", "--rounds", "2", "--json"]
    done = called("run", *TINY[:-4], *flags, "--out", str(tmp_path / "run"))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["verdict"]["signal"] in ("no", "partly")
