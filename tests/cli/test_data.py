import argparse
import json

import numpy as np
import pytest

from dpfedvis.cli import data as command
from dpfedvis.data import DataUnavailable, UnknownDataset
from dpfedvis.errors import DpfedvisError


@pytest.fixture
def dpfedvis():
    """Return a function that runs a command line through the parser."""
    parser = argparse.ArgumentParser(prog="dpfedvis")
    command.add_parser(parser.add_subparsers())

    def main(*words):
        args = parser.parse_args(words)
        return args.run(args)

    return main


def test_list_says_what_is_here_and_what_is_not(dpfedvis, capsys, empty_machine):
    empty_machine.mkdir(parents=True)
    (empty_machine / "coil20.npz").touch()
    assert dpfedvis("data", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line for line in lines[1:]}
    assert list(rows) == ["digits", "mnist", "fashion-mnist", "coil20", "mice-protein"]
    assert rows["digits"].split()[1:4] == ["1797", "64", "10"]
    assert rows["digits"].endswith("scikit-learn")
    assert rows["mnist"].endswith("not found; OpenML 554 would be asked")
    assert rows["coil20"].endswith(str(empty_machine / "coil20.npz"))


def test_list_for_machines(dpfedvis, capsys, empty_machine):
    assert dpfedvis("data", "list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["digits"]["found"] is True
    assert rows["mnist"]["found"] is False
    assert (rows["mice-protein"]["records"], rows["mice-protein"]["features"]) == (1080, 77)


def test_info_of_digits(dpfedvis, capsys):
    assert dpfedvis("data", "info", "digits") == 0
    text = capsys.readouterr().out
    for expected in ("1797", "64", "0: 178", "9: 180", "0 to 1", "8x8", "scikit-learn", "CC BY 4.0"):
        assert expected in text
    (line,) = [line for line in text.splitlines() if line.startswith("sha256:")]
    assert len(line.split()[1]) == 16


def test_info_of_a_file_for_machines(dpfedvis, capsys, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b,kind,ward\n1,,x,n\n-2,5,y,n\n3,4,x,s\n")
    words = ("--label-column", "kind", "--client-column", "ward", "--json")
    assert dpfedvis("data", "info", str(path), *words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["classes"] == {"x": 2, "y": 1}
    assert facts["values"] == [-2.0, 5.0]
    assert facts["missing"] == 1
    assert facts["groups"] == {"count": 2, "smallest": 1, "largest": 2}
    assert facts["public_range"] is None
    assert facts["licence"] == "not known"
    assert len(facts["sha256"]) == 64


def test_info_of_a_table_without_labels_or_values(dpfedvis, capsys, tmp_path):
    np.save(tmp_path / "X.npy", np.full((2, 2), np.nan))
    assert dpfedvis("data", "info", str(tmp_path / "X.npy")) == 0
    text = capsys.readouterr().out
    assert "no labels" in text
    assert "missing:      4" in text


def test_info_of_mice(dpfedvis, capsys, real_data):
    assert dpfedvis("data", "info", "mice-protein", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["missing"] == 1396
    assert facts["groups"] == {"count": 72, "smallest": 15, "largest": 15}
    assert sum(facts["classes"].values()) == 1080


def test_bad_input_is_a_named_error_of_the_library(dpfedvis, empty_machine):
    with pytest.raises(UnknownDataset):
        dpfedvis("data", "info", "nothing")
    with pytest.raises(DataUnavailable):
        dpfedvis("data", "info", "mnist", "--no-download")
    assert issubclass(UnknownDataset, DpfedvisError)


@pytest.mark.parametrize("words", [("data", "--help"), ("data", "info", "--help"), ("data", "list", "--help")])
def test_help_has_an_example(dpfedvis, capsys, words):
    with pytest.raises(SystemExit) as done:
        dpfedvis(*words)
    assert done.value.code == 0
    text = capsys.readouterr().out
    assert "example" in text
    assert "dpfedvis data" in text


def test_a_command_is_needed(dpfedvis, capsys):
    with pytest.raises(SystemExit) as done:
        dpfedvis("data")
    assert done.value.code == 2
