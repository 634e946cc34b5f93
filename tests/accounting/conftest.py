"""A ledger on disk, and copies of it to damage or to read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from accounting import Ledger
from tests.accounting.ledger_events import BUDGET, EVENTS, round_of


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        for number in range(EVENTS):
            ledger.record(round_of(number))
    return path


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(original, tmp_path / "ledger.db"))
