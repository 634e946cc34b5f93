"""A run that is killed between the ledger of its records and its own: nothing is forgotten or charged twice."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import numpy as np

from accounting import Ledger
from dpfedvis.runs.lifetime import read
from tests.crash.nursery import Nursery
from tests.makers import DIGITS

FLAGS = ["--clients", "2", "--epsilon", "1", "--bounds", "0", "1", "--landmarks", "20", "--anchors", "40"]
FLAGS += ["--sweeps", "1", "--placement", "weights", "--jobs", "1"]


def events(path: Path) -> int:
    if not path.exists():
        return 0
    with Ledger.read(path) as ledger:
        return len(ledger)


def test_a_kill_between_the_two_ledgers(nursery: Nursery, tmp_path: Path) -> None:
    data = tmp_path / "own.npz"
    np.savez(data, X=DIGITS[:40, 20:26])
    kept, folder = tmp_path / "ledgers" / "records.sqlite", tmp_path / "run"
    flags = ["--data", str(data), *FLAGS, "--ledger", str(kept), "--out", str(folder)]
    for at in range(9, 40):
        assert nursery.run(*flags, at=at, after=True) == (-signal.SIGKILL, "")
        if events(kept) > events(folder / "ledger.sqlite"):
            break
        for left in (folder, folder.with_name("run.unfinished"), kept.parent):
            shutil.rmtree(left, ignore_errors=True)
    else:
        raise AssertionError("no write is of that moment")
    assert events(kept) == events(folder / "ledger.sqlite") + 2
    assert nursery.run("--out", str(folder), "--resume") == (0, "")
    assert events(kept) == events(folder / "ledger.sqlite")
    with read(kept) as lifetime, Ledger.read(folder / "ledger.sqlite") as own:
        found = lifetime.all_runs(1e-5)
        assert (found.runs, found.epsilon) == (1, own.spent(end_to_end=True))
