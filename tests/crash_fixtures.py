"""Runs that were killed, and runs that were not, made once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.folders import copy, events_of, recorded
from tests.crash.nursery import KINDS, NOISY, SMALL, Nursery


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def wholes(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Any:
    """Runs of every kind that nobody interrupted, made when they are asked for."""
    folder, made = tmp_path_factory.mktemp("wholes"), {}

    def whole(kind: str) -> Path:
        if kind not in made:
            made[kind] = folder / str(len(made))
            assert nursery.run(*SMALL, *KINDS[kind], "--out", str(made[kind])) == (0, "")
        return made[kind]

    return whole


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> dict[int, Path]:
    """Runs with system noise, killed when the second round had been accounted for, by how many uploads had passed.

    Three is none of that round, four one of it.
    """
    found: dict[int, Path] = {}
    for at in range(12, 40):
        folder: Path = tmp_path_factory.mktemp("stopped") / "run"
        flags = [*SMALL, *NOISY, "--noise", "system"]
        assert nursery.run(*flags, "--out", str(folder), at=at, after=True) == (-signal.SIGKILL, "")
        if len(events_of(folder)) == 6:
            found.setdefault(len(recorded(folder)), folder)
        if {3, 4} <= found.keys():
            return found
    raise AssertionError("no write is of that moment")


@pytest.fixture
def copied(stopped: dict[int, Path], tmp_path: Path) -> Path:
    return copy(stopped[3], tmp_path / "run")
