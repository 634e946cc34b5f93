"""A run that takes the place of another: the other is set aside, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedvis.runs.folder import FolderTaken, refuse_taken, refuse_views, set_aside
from tests.command_line import called, check_refused

RUN = (
    "run",
    "--data",
    "digits",
    "--records",
    "60",
    "--clients",
    "2",
    "--landmarks",
    "5",
    "--rounds",
    "1",
    "--mechanism",
)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_is_set_aside_with_its_views_and_only_one_is_kept(tmp_path: Path) -> None:
    out, views = tmp_path / "run", tmp_path / "views"
    words = (*RUN, "none", "--out", str(out), "--views", str(views))
    assert called(*words, "--seed", "1", "--replace").returncode == 0  # there is nothing to replace
    first, seen = contents(out), contents(views)
    check_refused(called(*words), "holds another run; choose another folder, or set it aside (--replace)")
    assert called(*words, "--seed", "2", "--replace").returncode == 0
    assert contents(tmp_path / "run.before") == first
    assert contents(tmp_path / "views.before") == seen
    assert contents(out)["config.toml"] != first["config.toml"]
    second = contents(out)
    assert called(*words, "--seed", "3", "--replace").returncode == 0
    assert contents(tmp_path / "run.before") == second


def test_a_run_that_does_not_begin_replaces_nothing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert called(*RUN, "none", "--out", str(out)).returncode == 0
    before = contents(out)
    check_refused(called(*RUN, "none", "--out", str(out), "--replace", "--label-column", "x"), "label")
    assert contents(out) == before
    assert not (tmp_path / "run.before").exists()


def test_files_of_others_are_never_moved_or_deleted(tmp_path: Path) -> None:
    run, other, views = tmp_path / "run", tmp_path / "other", tmp_path / "views"
    for folder in (run, other, views):
        folder.mkdir()
    (run / "config.toml").touch()
    (other / "notes.txt").touch()
    (views / "a.csv").touch()
    with pytest.raises(FolderTaken, match="other holds other files"):
        refuse_taken(other, replace=True)
    with pytest.raises(FolderTaken, match="other holds other files"):
        refuse_views(other, run, replace=True)
    refuse_views(views, run, replace=True)
    refuse_taken(run, replace=True)
    (tmp_path / "run.before").mkdir()
    (tmp_path / "run.before" / "thesis.txt").touch()
    for refused in (lambda: refuse_taken(run, replace=True), lambda: set_aside(run)):
        with pytest.raises(FolderTaken, match=r"run\.before, where .*run would be set aside, holds other files"):
            refused()
    assert (tmp_path / "run.before" / "thesis.txt").exists()
