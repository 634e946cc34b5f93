"""The store: rows come back as they went in, and finished ones stay."""

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dpfedvis.experiments.sweeps.store import StoreUnusable, SweepStore
from dpfedvis.runs.code_version import CodeVersion, code_version


def test_rows_come_back_as_they_went_in(tmp_path: Path, row) -> None:
    rows = [
        row({"gamma": [0.1, 0.2], "mechanism": "β"}, epsilon_nominal=1e5, scores={"nmi": 0.1, "ca_1": 1 / 3}),
        row({"epsilon": 1.5}, status="refused", error="no", scores={}, epsilon_end_to_end=None),
        row({"seed": 1}, kind="central", version=CodeVersion("2", "", True)),
    ]
    with SweepStore(tmp_path / "new" / "s.sqlite", create=True) as store:
        assert [store.put(each) for each in rows] == [True] * 3
    with SweepStore(tmp_path / "new" / "s.sqlite") as store:
        assert store.rows() == rows
        assert store.statuses() == {each.address: each.status for each in rows}
        assert store.rows()[0].epsilon_end_to_end == math.inf


def test_a_finished_row_stays_and_others_may_be_replaced(tmp_path: Path, row) -> None:
    with SweepStore(tmp_path / "s.sqlite", create=True) as store:
        failed = row(status="failed", error="out of memory", scores={})
        done = replace(failed, status="done", error="", scores={"nmi": 0.7})
        assert store.put(failed)
        assert store.put(done)
        assert not store.put(replace(done, scores={"nmi": 0.1}))
        assert not store.put(failed)
        assert store.rows() == [done]


def test_rows_are_ready_for_json(row) -> None:
    found = row(version=CodeVersion("1.0", "b" * 40, True)).to_dict()
    assert found["epsilon_end_to_end"] == "inf"
    assert found["version"] == "1.0 bbbbbbbbbb+"


def test_what_is_no_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="there is no store"):
        SweepStore(tmp_path / "none.sqlite")
    (tmp_path / "text").write_text("not a database, but long enough to look at")
    with pytest.raises(StoreUnusable, match="cannot be used"):
        SweepStore(tmp_path / "text", create=True)
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE cells (a)")
    other.close()
    for create in (False, True):
        with pytest.raises(StoreUnusable, match="not a store"):
            SweepStore(tmp_path / "other.sqlite", create=create)
    with pytest.raises(StoreUnusable):
        SweepStore(tmp_path / "text" / "s.sqlite", create=True)
    assert (tmp_path / "text").read_text().startswith("not a database")


def test_a_store_of_another_format_is_named(tmp_path: Path) -> None:
    SweepStore(tmp_path / "s.sqlite", create=True).close()
    with sqlite3.connect(tmp_path / "s.sqlite") as raw:
        raw.execute("PRAGMA user_version = 9")
    raw.close()
    with pytest.raises(StoreUnusable, match="format 9"):
        SweepStore(tmp_path / "s.sqlite")


_WRITER = """
import sys
from dpfedvis.experiments.sweeps.store import CellRow, SweepStore
from dpfedvis.runs.code_version import CodeVersion

with SweepStore(sys.argv[1], create=True) as store:
    for number in range(40):
        store.put(CellRow(f"{sys.argv[2]}-{number}", "run", "done", {}, "", {}, 1.0, None, None, 1e-5, 0.0,
                      CodeVersion("1"), "", ""))
"""


def test_several_processes_may_write(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sqlite")
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, path, name]) for name in "abc"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    with SweepStore(path) as store:
        assert len(store.rows()) == 120


def test_the_running_code_has_a_version() -> None:
    found = code_version()
    assert found.package
    assert len(found.commit) in (0, 40)
