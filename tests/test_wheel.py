"""A wheel that is built from the tree works outside it, in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
Called = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Called:
    """Return a way to call a program of an environment in which only the wheel is ours.

    The packages that ours needs are those of this environment: what is tested is what our wheel holds.
    """
    folder = tmp_path_factory.mktemp("wheel")
    tree, environment, outside = folder / "tree", folder / "environment", folder / "outside"
    outside.mkdir()
    tree.mkdir()
    for name in ("accounting", "attacks", "dpfedvis"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=outside, env=variables, capture_output=True, text=True, check=True)

    pip = (sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check")
    call(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, tree)
    (wheel,) = folder.glob("*.whl")
    call(sys.executable, "-m", "venv", "--without-pip", environment)
    call(*pip, "--python", environment / "bin" / "python", "install", "--no-deps", wheel)
    (packages,) = environment.glob("lib/python*/site-packages")
    # Lines in files of that folder are not read: the tree, which is installed there for its developers, is not found.
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return lambda program, *words: call(environment / "bin" / program, *words)


def test_the_packages_are_those_of_the_wheel(installed: Called) -> None:
    code = "import accounting, attacks, dpfedvis; print(accounting.__file__, attacks.__file__, dpfedvis.__file__)"
    places = installed("python", "-c", code).stdout.split()
    assert len(places) == 3
    assert all("environment/lib" in place for place in places)


def test_an_example_is_run_from_csv_files_to_a_page(installed: Called) -> None:
    installed("dpfedvis", "data", "example", "hospitals", "--out", "hospitals", "--patients", "400")
    files = ("--data", "hospitals/*.csv", "--schema", "hospitals/schema.toml")
    done = installed(
        "dpfedvis", "run", *files, "--epsilon", "5", "--trust", "aggregate", "--noise", "seeded", "--out", "run",
        "--views", "views", "--json",
    )  # fmt: skip
    assert json.loads(done.stdout)["epsilon_end_to_end"] == pytest.approx(5, rel=1e-3)
    listed = installed("python", "-c", "from pathlib import Path; print(*(p.name for p in Path('run').iterdir()))")
    assert {"report.html", "statement.md", "ledger.sqlite"} <= set(listed.stdout.split())


@pytest.mark.skipif(settings.get_current_profile_name() != "thorough", reason="a minute; in the thorough profile")
def test_the_demo_runs(installed: Called) -> None:
    installed("dpfedvis", "demo", "--out", "demo")
    assert "html" in installed("python", "-c", "print(open('demo/index.html').read(300))").stdout
