"""`--help`, everywhere: examples that a reader can paste."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from dpfedvis.cli.main import parser
from tests.command_line import called, examples, pasted


def commands(top: argparse.ArgumentParser, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and sub-command."""
    yield words
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, own in action.choices.items():
                yield from commands(own, (*words, name))


ALL = list(commands(parser()))


def test_there_are_many_commands() -> None:
    assert {(), ("run",), ("sweep", "report"), ("reproduce",), ("data", "info")} <= set(ALL)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_help_has_examples_that_the_parser_takes(words: tuple[str, ...]) -> None:
    shown = called(*words, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = examples(shown.stdout)
    assert any(shlex.split(line)[1 : 1 + len(words)] == list(words) for line in lines)
    for line in lines:
        parser().parse_args(shlex.split(line.partition(" > ")[0])[1:])


def test_the_flags_of_every_command_are_explained() -> None:
    for words in ALL:
        shown = called(*words, "--help").stdout
        bare = re.findall(r"^  (--[a-z-]+(?: [A-Z_.a-z]+)?)$(?!\n +\S)", shown, flags=re.MULTILINE)
        assert not bare, (words, bare)


def test_no_help_has_a_name_of_the_code() -> None:
    for words in ALL:
        assert not re.findall(r"`\S*`", called(*words, "--help").stdout), words


@pytest.mark.parametrize("words", [["run"], ["report"], ["attack"], ["data", "list"]], ids=" ".join)
def test_the_examples_work_when_pasted(words: list[str], tmp_path: Path) -> None:
    """Those of the other commands are pasted by the tests of these commands.

    The first two as they stand, of which the second may read what the first left; all with the thorough profile.
    """
    lines = examples(called(*words, "--help").stdout)
    for line in lines if settings.get_current_profile_name() == "thorough" else lines[:2]:
        done = pasted(line, tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), line
        if (out := re.search(r"--out (\S+)", line)) is not None:
            assert (tmp_path / out[1] / "report.html").is_file()


def test_the_demo_works_when_pasted(demo: Path) -> None:
    assert (demo / "index.html").is_file()


def test_data_sets_are_described_when_pasted(tmp_path: Path) -> None:
    lines = examples(called("data", "--help").stdout)
    assert any("--schema hospitals/schema.toml" in line for line in lines)
    for line in lines:
        done = pasted(line, tmp_path)
        home = [said for said in done.stderr.splitlines() if not said.startswith("dpfedvis: at home: ")]
        assert (done.returncode, home) == (0, []), line
