"""Tables as they come: each runs, or is refused in one sentence that names column and file; never half a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import called, check_refused

FAST = ("--placement", "weights", "--sweeps", "1", "--landmarks", "20", "--anchors", "40", "--jobs", "1",
        "--no-yardsticks")  # fmt: skip
SCHEMA = '[columns.{name}]\nkind = "number"\nrange = [0, 1]\n'


def write(path: Path, X: np.ndarray, names: list[str] | None = None) -> str:
    names = names or [f"c{i}" for i in range(X.shape[1])]
    lines = [",".join(names), *(",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in X)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def schema(path: Path, columns: int) -> str:
    path.write_text("\n".join(SCHEMA.format(name=f"c{i}") for i in range(columns)))
    return str(path)


def tables(case: str) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    a, b = rng.random((40, 4)), rng.random((30, 4))
    if case == "a record of 1e30":
        a[3] = 1e30
    elif case == "50 copies of a patient":
        a = np.vstack([a, np.repeat(a[:1], 50, axis=0)])
    elif case == "a hospital with 3 rows":
        b = b[:3]
    elif case == "a hospital with 1 row":
        b = b[:1]
    elif case == "2 columns":
        a, b = a[:, :2], b[:, :2]
    elif case == "a column with one value":
        a[:, 1] = b[:, 1] = 0.25
    elif case == "all values missing in one hospital":
        b[:, 2] = np.nan
    elif case == "all values missing":
        a[:, 2] = b[:, 2] = np.nan
    elif case == "only equal records":
        a[:], b[:] = 0.5, 0.5
    elif case == "2,000 columns":
        a, b = rng.random((12, 2000)), rng.random((12, 2000))
    return [a, b]


RUN = [
    "a record of 1e30",
    "50 copies of a patient",
    "a hospital with 3 rows",
    "a hospital with 1 row",
    "2 columns",
    "a column with one value",
    "all values missing in one hospital",
    "all values missing",
    "only equal records",
    "2,000 columns",
]


@pytest.mark.parametrize("trust", ["local", "aggregate"])
@pytest.mark.parametrize("case", RUN)
def test_an_odd_table_with_a_schema_runs_to_its_end(case, trust, tmp_path):
    own = tables(case)
    files = [write(tmp_path / f"h{i}.csv", X) for i, X in enumerate(own)]
    columns = own[0].shape[1]
    done = called(
        "run", "--data", *files, "--schema", schema(tmp_path / "s.toml", columns), "--epsilon", "5", "--trust", trust,
        "--noise", "seeded", "--evaluate", *FAST, "--out", str(tmp_path / "run"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "run.unfinished").exists()
    assert json.loads(done.stdout)["clients"] == ["h0", "h1"]


def test_an_odd_plain_table_is_named_by_column_and_file(tmp_path):
    a, b = tables("all values missing in one hospital")
    files = [write(tmp_path / "north.csv", a), write(tmp_path / "south.csv", b)]
    done = called("run", "--data", *files, "--epsilon", "5", *FAST, "--out", str(tmp_path / "x"))
    check_refused(done, "south.csv has 30 NaN values in column 'c2'")
    big = a.copy()
    big[0, 1] = 1e300
    done = called(
        "run", "--data", write(tmp_path / "big.csv", big), "--epsilon", "5", *FAST, "--out", str(tmp_path / "y")
    )
    check_refused(done, "big has 1 value too large for float32")
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "y").exists()


def test_a_hospital_without_rows_is_refused_or_hidden(tmp_path):
    a, _ = tables("")
    files = [write(tmp_path / "north.csv", a), write(tmp_path / "none.csv", a[:0])]
    public = schema(tmp_path / "s.toml", 4)
    common = ("run", "--data", *files, "--schema", public, "--epsilon", "5", *FAST)
    check_refused(called(*common, "--out", str(tmp_path / "x")), "number of records of 'none' must be at least 1")
    hidden = called(
        *common, "--adjacency", "add-remove", "--public-records", "40", "--out", str(tmp_path / "y"), "--json"
    )
    assert hidden.returncode == 0, hidden.stderr


def test_scores_that_fail_do_not_stop_a_run(tmp_path, monkeypatch):
    import dpfedvis.runs.results as module

    def fail(*_args, **_named):
        raise ValueError("all labels are one")

    monkeypatch.setattr(module, "score", fail)
    done = called(
        "run", "--data", "digits", "--records", "60", "--clients", "2", "--epsilon", "5", *FAST,
        "--out", str(tmp_path / "run"), "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "all labels are one" in json.loads(done.stdout)["warnings"][-1]
    assert (tmp_path / "run" / "report.html").exists()


def test_a_run_that_was_cut_off_goes_on_without_scores(tmp_path, monkeypatch):
    import dpfedvis.runs.execute as module

    def stop(*_args, **_named):
        raise KeyboardInterrupt

    out = tmp_path / "run"
    common = ("run", "--data", "digits", "--records", "60", "--clients", "2", "--epsilon", "5", *FAST)
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_results", stop)
        assert called(*common, "--out", str(out)).returncode == 130
    done = called("run", "--out", str(out), "--resume", "--no-evaluate", "--json")
    assert done.returncode == 0, done.stderr
    assert not (out / "simulation").exists()
