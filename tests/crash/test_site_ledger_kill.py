"""A run that is killed between the ledger of its records and the mirror: nothing is forgotten or charged twice."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from accounting import Ledger
from dpfedvis.site import SiteLedger
from tests.crash.folders import by_site, events_at_sites, events_of, kept, recorded
from tests.crash.nursery import Nursery
from tests.makers import DIGITS

FLAGS = ["--clients", "2", "--epsilon", "1", "--bounds", "0", "1", "--landmarks", "20", "--anchors", "40"]
FLAGS += ["--sweeps", "1", "--placement", "weights", "--jobs", "1"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.savez(tmp_path / "own.npz", X=DIGITS[:40, 20:26])
    return tmp_path / "own.npz"


NO_SCHEMA = (
    "dpfedvis: warning: no schema says the public range of each column: a scale that was measured on private data is "
    "not covered by ε\n"
)


@pytest.mark.parametrize(
    ("kind", "at", "after", "ahead"),
    [("site ledger", 3, False, 0), ("site ledger", 3, True, 1), ("site ledger", 4, True, 2), ("mirror", 2, True, 0)],
)
def test_a_kill_between_the_two_ledgers(
    kind: str, at: int, after: bool, ahead: int, nursery: Nursery, data: Path, tmp_path: Path
) -> None:
    """The second release, of two sites that share the ledger of their records."""
    records, folder = tmp_path / "ledgers" / "records.sqlite", tmp_path / "run"
    flags = ["--data", str(data), *FLAGS, "--ledger", str(records), "--out", str(folder)]
    assert nursery.run(*flags, at=at, kind=kind, after=after) == (-signal.SIGKILL, "")
    charged = events_at_sites(folder, records)
    assert sum(map(len, charged.values())) == len(events_of(folder)) + ahead
    sent = kept(folder, records)
    assert nursery.run("--out", str(folder), "--resume") == (0, NO_SCHEMA)
    now = events_at_sites(folder, records)
    assert now == by_site(events_of(folder))
    assert all(now[site][: len(own)] == own for site, own in charged.items())
    assert recorded(folder).items() >= sent.items()
    with SiteLedger.read(records) as lifetime, Ledger.read(folder / "ledger.sqlite") as mirror:
        found = lifetime.all_runs(1e-5)
        assert (found.runs, found.epsilon) == (1, mirror.spent(end_to_end=True))


def test_a_killed_run_keeps_its_room_in_the_lifetime_budget(nursery: Nursery, data: Path, tmp_path: Path) -> None:
    """What it has charged counts against others, and it may go on with what it has itself."""
    records = tmp_path / "records.sqlite"
    flags = ["--data", str(data), *FLAGS, "--ledger", str(records)]
    folder, other = tmp_path / "run", tmp_path / "other"
    first = [*flags, "--lifetime-epsilon", "1.001", "--out", str(folder)]
    assert nursery.run(*first, at=1, kind="site ledger", after=True) == (-signal.SIGKILL, "")
    code, said = nursery.run(*flags, "--out", str(other))
    assert code == 2
    assert "no room in the lifetime budget" in said
    assert not other.exists()
    assert nursery.run("--out", str(folder), "--resume") == (0, NO_SCHEMA)
    with SiteLedger.read(records) as lifetime:
        assert (lifetime.all_runs(1e-5).runs, lifetime.all_runs(1e-5).epsilon) == (1, pytest.approx(1.0))
