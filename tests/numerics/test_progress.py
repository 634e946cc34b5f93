"""Progress is for terminals, and for those who want it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from dpfedvis.cli.main import main
from dpfedvis.numerics.progress import bar, hidden, quiet
from tests.command_line import called


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of standard error: in the test, since pytest puts its own there before."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.delenv("DPFEDVIS_QUIET", raising=False)
    return found


def moved() -> None:
    with bar(3, "round", "landmarks") as shown:
        shown.update(2)
        shown.refresh()


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = terminal(monkeypatch)
    moved()
    assert "landmarks" in seen.getvalue()
    assert "2/3" in seen.getvalue()


def test_who_wants_quiet_sees_nothing_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = terminal(monkeypatch)
    with quiet(True):
        assert hidden()
        with quiet(False):
            moved()
        with quiet(True):
            moved()
        assert hidden()
    assert seen.getvalue() == ""
    assert not hidden()


def test_a_file_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    moved()
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


@pytest.mark.parametrize("more", [(), ("--quiet",)])
def test_commands_that_take_seconds_say_what_they_do(
    more: tuple[str, ...], private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are not long enough to have a test of their own."""
    gradient = (
        "calibrate",
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
        "--mechanism",
        "gradient",
        "--rounds",
        "5",
        "--records",
        "400",
    )
    commands = {
        "gdp": (*gradient, "--landmarks", "5", "--gamma", "0.005", "--accountants", "gdp"),
        "plan": ("plan", "--data", "digits", "--epsilon", "5"),
        "statement": ("statement", str(private)),
    }
    for stage, words in commands.items():
        seen = terminal(monkeypatch)
        assert main([*words, *more]) == 0
        assert (stage in seen.getvalue()) == (not more)


LONG = ("run", "sweep run", "sweep report", "demo", "bounds", "attack", "audit", "reproduce", "report", "plan")


@pytest.mark.parametrize("command", [*LONG, "calibrate", "statement", "federation demo"])
def test_long_commands_can_be_quiet(command: str) -> None:
    assert "--quiet" in called(*command.split(), "--help").stdout
