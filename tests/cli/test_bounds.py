"""`dpfedvis bounds`, as a user runs it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dpfedvis.cli.bounds import _EXAMPLE
from dpfedvis.runs.code_version import code_version
from tests.command_line import called, examples, pasted

ROOT = Path(__file__).parents[2]
SMALL = ["--data", "digits", "--records", "60", "--landmarks", "5,10", "--sigma", "0,0.2", "--rounds", "5"]


def test_the_example_of_the_help_works_when_pasted(tmp_path: Path) -> None:
    line = examples(_EXAMPLE)[0]
    assert "--data digits" in line
    done = pasted(line, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Thm 5 printed, spectral: vacuous in all 4 cases" in done.stdout
    assert "Thm 2 printed, frobenius: FALSE in 2 of 2 cases" in done.stdout
    assert re.search(r"certificate, spectral: below the trivial bound in \d+", done.stdout)
    assert "No bound of the paper holds for D̂" in done.stdout
    assert f"Made by `{line}`, code {code_version()}." in done.stdout


def test_a_folder_gets_page_figure_and_json(tmp_path: Path) -> None:
    done = called("bounds", *SMALL, "--out", str(tmp_path / "new" / "folder"), "--json")
    assert done.returncode == 0
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == ["digits.json", "digits.md", "digits.svg"]
    printed: dict[str, Any] = json.loads(done.stdout)
    assert json.loads((folder / "digits.json").read_text()) == printed
    page = (folder / "digits.md").read_text()
    assert "![digits](digits.svg)" in page
    assert "<svg" in (folder / "digits.svg").read_text()
    assert len(printed["cases"]) == 8
    for case in printed["cases"]:
        for bound in case["bounds"]:
            assert bound["holds_with"] in (1.0, 0.95)
            if bound["form"] == "ours":
                assert case["truth"][bound["norm"]] <= bound["value"]
        assert all(each["note"] == "no bound of the paper: D is not PSD" for each in case["distances"])
    assert printed["command"] == "dpfedvis " + " ".join(["bounds", *SMALL])


def test_the_command_in_the_result_makes_the_same_numbers() -> None:
    options = [*SMALL[:4], "--landmarks", "5", "--sigma", "0", "--gamma", "0.07", "--failure", "0.1", "--seed", "3"]
    first = json.loads(called("bounds", *options, "--json").stdout)
    again = json.loads(called(*shlex.split(first["command"])[1:], "--json").stdout)
    assert again == first
    assert first["gamma"] == 0.07


def test_rounding_refutes_nothing() -> None:
    """All records as landmarks: the error is rounding, and no bound is called false for being 0."""
    done = called("bounds", "--records", "3", "--landmarks", "3", "--sigma", "0", "--rounds", "2")
    assert done.returncode == 0
    assert "Thm 2 corrected, spectral: below the trivial bound in 1; no error but rounding." in done.stdout
    assert "FALSE" not in done.stdout
    assert "†" not in done.stdout.replace("`†`", "")


def test_a_tiny_gamma_is_no_crash() -> None:
    """Squares of γ underflow; the theorems must not divide by them."""
    done = called("bounds", "--records", "20", "--landmarks", "3", "--sigma", "0", "--rounds", "2", "--gamma", "1e-140")
    assert done.returncode == 0, done.stderr


def test_the_command_keeps_every_digit_and_quotes_names() -> None:
    from dpfedvis.cli.bounds import command_of
    from dpfedvis.cli.main import parser

    given = parser().parse_args(["bounds", "--data", "my file.csv", "--sigma", "0,0.12345678901"])
    again = parser().parse_args(shlex.split(command_of(given))[1:])
    assert (again.data, again.sigma) == (given.data, given.sigma)


def test_bad_data_leaves_no_folder(tmp_path: Path) -> None:
    assert called("bounds", "--data", "nonesuch", "--out", str(tmp_path / "new")).returncode == 2
    assert not (tmp_path / "new").exists()


def test_defaults_parse_and_need_nothing() -> None:
    from dpfedvis.cli.main import parser

    arguments = parser().parse_args(["bounds"])
    assert (arguments.data, arguments.landmarks, arguments.sigma) == ("digits", (20, 50, 100, 200), (0, 0.01, 0.1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--landmarks", "500", "--records", "60"], "landmarks must be at most the number of records, 60, but is 500"),
        (["--landmarks", "1"], "landmarks must be a whole number of at least 2"),
        (["--landmarks", "five"], "'five' is not a whole number or a list"),
        (["--sigma", "-0.1"], "sigma must be a finite number of at least 0, but is -0.1"),
        (["--sigma", "nan"], "sigma must be a finite number of at least 0"),
        (["--gamma", "0"], "gamma must be a finite number above 0"),
        (["--failure", "1"], "failure must be strictly between 0 and 1"),
        (["--rounds", "0"], "rounds must be a whole number of at least 1"),
        (["--data", "nonesuch"], "nonesuch"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], said: str) -> None:
    done = called("bounds", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_a_folder_that_cannot_be_written_is_found_out_at_once(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = called("bounds", "--out", str(blocked / "folder"))
    assert done.returncode == 2
    assert "cannot be written to" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_table_of_your_own(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("a,b\n" + "\n".join(f"{i % 7},{i * i % 11}" for i in range(30)) + "\n")
    done = called("bounds", "--data", str(table), "--landmarks", "4", "--sigma", "0", "--rounds", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 30


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_the_report_names_its_command_and_agrees_with_its_numbers(name: str) -> None:
    folder = ROOT / "reports" / "theory"
    numbers = json.loads((folder / f"{name}.json").read_text())
    page = (folder / f"{name}.md").read_text()
    assert f"`{numbers['command']}`" in page
    assert f"`{numbers['command']}" in (folder / "bounds.md").read_text()
    for sentence in numbers["words"]:
        assert sentence in page


def test_the_page_of_the_report_is_made_from_its_numbers() -> None:
    folder = ROOT / "reports" / "theory"
    code = "import runpy; print(runpy.run_path('make.py')['page'](), end='')"
    made = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert (folder / "bounds.md").read_text() == made
