"""The audit of the end-to-end map at the command line, and of a finished run, whose statement it goes into."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from attacks.auditing import PipelineAudit
from dpfedvis.cli.main import main
from dpfedvis.server.private_map import BudgetShares


def test_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--epsilon", "4", "--games", "40", "--out", str(tmp_path / "new")]
    assert main(["audit", "--level", "pipeline", *options, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    stem = "k-means-pipeline"
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        f"{stem}.{kind}" for kind in ("json", "md", "svg")
    } | {f"{stem}-statement.{kind}" for kind in ("json", "md")}
    assert json.loads((tmp_path / "new" / f"{stem}.json").read_text()) == result
    assert (result["canaries"], result["facts"]["level"]) == (40, "pipeline")
    assert result["claimed_epsilon"] == pytest.approx(4.0, rel=1e-6)
    stated = json.loads((tmp_path / "new" / f"{stem}-statement.json").read_text())
    assert stated["audit"]["lower_bounds"]["gdp"] == result["bounds"]["gdp"]["epsilon"]
    assert stated["audit"]["membership"][1]["found"] == result["membership"]["auc"]["value"]
    assert "## From every upload of every stage" in (tmp_path / "new" / f"{stem}.md").read_text()
    command = stated["audit"]["command"]
    assert command.startswith("dpfedvis audit --level pipeline --mechanism k-means --epsilon 4.0 ")
    # The command in the statement gives the same numbers again.
    assert main([*command.split()[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [result]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--epsilon is needed"),
        (["--epsilon", "4", "--mechanism", "all"], "one of them"),
        (["--epsilon", "4", "--mechanism", "input"], "protects uploads"),
        (["--epsilon", "4", "--trust", "central"], "trust local or aggregate"),
        (["--epsilon", "4", "--games", "3"], "at least 20"),
        (["--epsilon", "4", "--local-steps", "2"], "--local-steps must be left out"),
    ],
)
def test_what_cannot_be_audited_is_refused(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--level", "pipeline", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, said in err, err.count("\n")) == ("", True, 1)


# The statement of a run.


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit") / "run"
    small = [
        "--records",
        "200",
        "--clients",
        "4",
        "--no-yardsticks",
        "--rounds",
        "3",
        "--landmarks",
        "20",
        "--placement",
        "weights",
    ]
    assert main(["run", "--data", "digits", "--epsilon", "3", "--density", *small, "--out", str(folder)]) == 0
    return folder


def test_a_run_gets_the_audit_of_its_settings_into_its_statement(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    before, words = json.loads((folder / "statement.json").read_text()), (folder / "statement.md").read_text()
    capsys.readouterr()
    assert main(["audit", "--run", str(folder), "--games", "40", "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)
    # The digits have public bounds, so that the run released no scale histogram.
    assert result["facts"]["stages"] == ["moments", "second moments", "cluster sums", "density"]
    assert (result["facts"]["rounds"], result["facts"]["noise"]) == (3, "seeded")
    assert {name.rpartition(" ")[2] for name in result["facts"]["noise_seen"]} == {"0", "1", "2", "3"}
    assert result["claimed_epsilon"] == pytest.approx(before["epsilon_end_to_end"], rel=1e-6)
    after = json.loads((folder / "statement.json").read_text())
    assert after["audit"]["lower_bounds"]["gdp"] == result["bounds"]["gdp"]["epsilon"]
    assert after["audit"]["command"] == f"dpfedvis audit --run {folder} --games 40 --confidence 0.95 --seed 0"
    assert {**after, "audit": None} == before
    sections, old = ((text.split("\n## ")) for text in ((folder / "statement.md").read_text(), words))
    kept, bare = (
        [each for each in text if not each.startswith(("Audit", "Membership attack"))] for text in (sections, old)
    )
    assert kept == bare
    assert (len(sections), len(old)) == (len(kept) + 3, len(kept) + 1)
    (short,) = (each for each in sections if each.startswith("Audit, in short"))
    assert after["audit"]["words"]["membership"] in short
    assert "No audit of these settings is attached" in words
    assert after["audit"]["words"]["membership"].replace("**", "") in (folder / "report.html").read_text()
    assert main(["audit", "--run", str(folder), "--games", "40", "--seed", "1"]) == 0
    assert str(folder) in capsys.readouterr().out
    assert (folder / "statement.md").read_text().count("## Audit\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--epsilon", "4"], "--epsilon must be left out with --run"),
        (["--delta", "1e-6"], "--delta must be left out with --run"),
        (["--level", "noise"], "--level"),
        (["--canaries", "100"], "--canaries must be left out with --run"),
        (["--games", "3"], "at least 20"),
    ],
)
def test_what_a_run_says_by_itself_is_not_said_again(
    options: list[str], said: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "statement.md").read_text()
    capsys.readouterr()
    assert main(["audit", "--run", str(finished), *options]) == 2
    out, err = capsys.readouterr()
    assert (out, said in err, err.count("\n")) == ("", True, 1)
    assert (finished / "statement.md").read_text() == before


def test_the_audit_takes_all_settings_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my run"
    small = ["--records", "80", "--clients", "2", "--landmarks", "20", "--placement", "weights", "--rounds", "2"]
    further = ["--shares", "subspace=0.4,moments=0.1", "--noise", "discrete", "--trust", "aggregate"]
    assert main(["run", "--data", "digits", "--epsilon", "5", *small, *further, "--out", str(folder)]) == 0
    made: list[PipelineAudit] = []
    play = PipelineAudit.play
    monkeypatch.setattr(PipelineAudit, "play", lambda level, *given: (made.append(level), play(level, *given))[1])
    assert main(["audit", "--run", str(folder), "--games", "20", "--seed", "4", "--confidence", "0.9"]) == 0
    (level,) = made
    assert (level.rounds, level.noise, level.scale, level.density) == (2, "discrete", False, False)
    assert BudgetShares(**level.shares) == BudgetShares(subspace=0.4, moments=0.1)
    assert (level.games, level.seed, level.confidence) == (20, 4, 0.9)
    words = (folder / "statement.md").read_text()
    assert "with trust aggregate" in words
    assert f"--run '{folder}' --games 20 --confidence 0.9 --seed 4`. Its noise is new each time" in words


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("config.toml", "epsilon = 30.0", "has another budget than the ledger"),
        ("statement.json", '{"delta": 1e-5, "facts": [1, 2], "remarks": []}', "is damaged"),
        ("statement.json", '{"delta": 1e-5, "facts": {}, "remarks": "abc"}', "is damaged"),
        ("statement.json", '{"delta": 2.0, "facts": {}, "remarks": []}', "is damaged"),
        ("statement.json", "{", "is damaged"),
        ("trace.csv", "", "is damaged"),
    ],
)
def test_a_damaged_run_is_refused_before_the_games(
    name: str, text: str, said: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    before = (folder / name).read_text()
    (folder / name).write_text(before.replace("epsilon = 3.0", text) if name == "config.toml" else text)
    words = (folder / "statement.md").read_text()
    capsys.readouterr()
    assert main(["audit", "--run", str(folder), "--games", "20"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert name.split(".")[0] in err or "damaged run" in err
    assert said in err or "damaged run" in err
    assert (folder / "statement.md").read_text() == words


def test_a_run_that_is_not_private_end_to_end_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--records", "100", "--clients", "2", "--rounds", "2", "--landmarks", "20", "--no-yardsticks"]
    folder = str(tmp_path / "exact")
    assert main(["run", "--data", "digits", "--mechanism", "none", *small, "--out", folder]) == 0
    capsys.readouterr()
    for where, said in ((folder, "release must be none"), (str(tmp_path / "nothing"), "no finished run")):
        assert main(["audit", "--run", where]) == 2
        out, err = capsys.readouterr()
        assert (out, said in err, err.count("\n")) == ("", True, 1)
