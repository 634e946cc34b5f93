"""The README is true: its commands parse, its Python runs, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dpfedvis.cli.main import parser

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("code", "expected"),
    list(
        zip(
            blocks("python"),
            ["End to end, ε = ∞", "End to end, ε = 10 at δ = 1e-05", "nothing was released", "2.0\n"],
            strict=True,
        )
    ),
    ids=["use", "end to end", "accounting", "mechanism"],
)
def test_python_of_the_readme_runs(code: str, expected: str, tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_commands_of_the_readme_parse() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("dpfedvis ")]
    assert lines
    for line in lines:
        assert parser().parse_args(shlex.split(line, comments=True)[1:]).run


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_table_of_the_readme_is_that_of_the_report() -> None:
    report = (ROOT / "reports/end-to-end/results.md").read_text().splitlines()
    shown = [line for line in README.splitlines() if line.startswith(("| data |", "| mnist |"))]
    assert len(shown) == 5
    assert set(shown) <= set(report)


def test_links_and_paths_of_the_readme_exist() -> None:
    paths = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"`((?:dpfedvis|accounting|reports)/[\w./-]*)`", README)
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path
