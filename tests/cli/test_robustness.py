"""Closed streams, and names that no file can have: one sentence, exit code 2, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import called, check_refused, started

LONG = "n" * 300
OUTPUTS = [
    ["run", "--data", "digits", "--records", "60", "--clients", "2", "--out"],
    ["demo", "--out"],
    ["audit", "--epsilon", "4", "--games", "20", "--level", "records", "--out"],
    ["bounds", "--records", "40", "--landmarks", "4", "--sigma", "0", "--out"],
    ["reproduce", "figure-ny", "--data", "digits", "--records", "40", "--store", "try.sqlite", "--out"],
    ["sweep", "report", "no.sqlite", "--out"],
    ["sweep", "run", "no.toml", "--store"],
    ["attack", "--run", "none", "--out"],
    ["attack", "--run", "none", "--owner-out"],
]
INPUTS = [
    ["run", "--out", "new", "--data"],
    ["run", "--out", "new", "--config"],
    ["report", "--run"],
    ["attack", "--run"],
    ["audit", "--run"],
    ["data", "info"],
    ["sweep", "list"],
    ["sweep", "run", "--store", "new.sqlite"],
]


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--data", "a.csv", "--data", "b.csv", "--out", "new"],
        ["run", "--data", "a.csv", "--epsilon", "1", "--epsilon=2", "--out", "new"],
        ["data", "info", "a.csv", "--label-column", "x", "--label-column", "y"],
        ["calibrate", "--epsilon", "1", "--epsilon", "1"],
        ["bounds", "--data", "a", "--data", "b"],
        ["audit", "--games", "20", "--games", "30"],
    ],
    ids=lambda each: each[0],
)
def test_a_flag_with_one_value_is_not_given_twice(command: list[str]) -> None:
    check_refused(called(*command), "is given twice")


def words(command: list[str]) -> str:
    return " ".join(word for word in command if word.startswith("-") or word.isalpha())


def in_one_sentence(done: subprocess.CompletedProcess[str], folder: Path) -> str:
    """Check the promise, and return the sentence."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("dpfedvis")
    assert done.stderr.count("\n") == 1
    assert list(folder.iterdir()) == []
    return done.stderr


@pytest.mark.parametrize("command", OUTPUTS, ids=words)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        (f"some/{LONG}", "longer than 200 bytes"),
        ("some/\udcff", "is not UTF-8"),
        ("/", "is the root folder"),
        ("/../.", "is the root folder"),
        ("", "is empty"),
    ],
    ids=["long", "not-utf-8", "root", "root-in-disguise", "empty"],
)
def test_bad_outputs(command: list[str], name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert why in in_one_sentence(called(*command, name), tmp_path)


@pytest.mark.parametrize("command", INPUTS, ids=words)
@pytest.mark.parametrize(("name", "why"), [(LONG, "name"), ("\udcff", "is not UTF-8")], ids=["long", "not-utf-8"])
def test_bad_inputs(command: list[str], name: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert why in in_one_sentence(called(*command, name), tmp_path)


@pytest.mark.parametrize("name", [f"some/{LONG}", b"some/\xff", "/"], ids=["long", "not-utf-8", "root"])
def test_bad_names_from_a_shell(name: str | bytes, tmp_path: Path) -> None:
    in_one_sentence(started(*OUTPUTS[0], name, folder=tmp_path), tmp_path)


@pytest.mark.parametrize("command", ["run --help", "run --data digits --records 60 --clients 2 --out new"])
@pytest.mark.parametrize("way", [">&-", "| true", "2>&1 >&-"], ids=["closed", "no-reader", "in-stderr"])
def test_closed_standard_output(command: str, way: str, tmp_path: Path) -> None:
    line = f"sleep 0.3; {sys.executable} -m dpfedvis {command}"
    script = f"set -o pipefail; ({line}) {way}"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    told = done.stdout + done.stderr
    assert (done.returncode, told) == (2, "dpfedvis: standard output is closed; nothing was done\n")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_goes_early_is_no_error() -> None:
    line = f"set -o pipefail; {sys.executable} -m dpfedvis data list | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("name")


def test_closed_standard_error_does_not_stop_a_run(tmp_path: Path) -> None:
    """Nor does a file of the run get the number of standard error, and what is printed there."""
    command = f"{sys.executable} -m dpfedvis run --data digits --records 40 --clients 2 --landmarks 8 --rounds 2"
    line = f"{command} --map clusters --clusters 2 --out new 2>&- <&-"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert "new: " in done.stdout
    assert (tmp_path / "new" / "ledger.sqlite").read_bytes().startswith(b"SQLite format 3")
