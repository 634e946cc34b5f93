"""READMEs are true: their commands parse, their Python runs, their links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dpfedvis
from dpfedvis.cli.main import parser
from tests.command_line import called

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
# Pages whose Python is run, with what each block prints.
PYTHON = {
    "README.md": ["be ε = 3 end to end", "nothing was released"],
    "accounting/README.md": ["over the budget of ε = 1 at δ = 1e-05"],
    "dpfedvis/data/README.md": ["'essen': ("],
    "dpfedvis/estimators/README.md": ["be ε = 10 end to end at δ = 1e-05", "[[", "be ε = ∞ end to end"],
    "dpfedvis/mechanisms/README.md": ["2.0\n"],
    "dpfedvis/site/README.md": ["(10, 8) receipts signed by north south\n"],
}
# Of the README's blocks of commands, those that take under a minute; the others set up .venv, or are of a shell alone.
COMMANDS = "dpfedvis data example hospitals --patients 500"


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def cases() -> list[object]:
    found = []
    for page, expected in PYTHON.items():
        codes = blocks("python", (ROOT / page).read_text())
        assert len(codes) == len(expected), page
        for number, (code, words) in enumerate(zip(codes, expected, strict=True)):
            found.append(pytest.param(code, words, id=f"{page} {number}"))
    return found


@pytest.mark.parametrize(("code", "expected"), cases())
def test_python_of_a_page_runs_as_pasted(code: str, expected: str, tmp_path: Path) -> None:
    """That of the README twice."""
    (tmp_path / "sites").mkdir()
    times = 2 if code in README else 1
    script = tmp_path / "pasted.py"
    script.write_text("\n".join([code] * times))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(expected) == times


def test_commands_of_the_readme_run_as_pasted_and_twice(tmp_path: Path) -> None:
    (block,) = [block for block in blocks("sh") if block.startswith(COMMANDS)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")}
    for _ in range(2):
        done = subprocess.run(
            ["bash", "-e"], input=block, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "end to end, ε = 2 " in done.stdout.lower()
    assert (tmp_path / "runs" / "hospitals" / "report.html").exists()
    assert list((tmp_path / "views").glob("*.csv"))


def test_every_block_of_the_readme_is_looked_at() -> None:
    """A new block of commands is either run here or has a test of its own."""
    known = (COMMANDS, "make demo")
    assert [block for block in blocks("sh") if not block.startswith(known)] == []


def test_commands_of_the_readme_parse() -> None:
    pages = ["README.md", "dpfedvis/cli/README.md", "dpfedvis/data/README.md", "dpfedvis/links/README.md"]
    texts = [block for page in pages for block in blocks("sh", (ROOT / page).read_text())]
    lines = [line for block in texts for line in block.splitlines() if line.startswith("dpfedvis ")]
    assert lines
    for line in lines:
        assert parser().parse_args(shlex.split(line, comments=True)[1:]).run


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_numbers_of_the_readme_are_those_of_the_report() -> None:
    report = (ROOT / "reports/end-to-end/results.md").read_text()
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in README.splitlines()
        if "gregate |" in line or "local |" in line
    ]
    assert len(rows) == 8
    data = ""
    for named, features, epsilon, trust, score, *_ in rows:
        data = named.split(",")[0].lower() or data
        assert f"| {data} | {features} | {trust} | {epsilon} | {score} |" in report


PAGES = [
    *PYTHON, "CHANGELOG.md", "CONTRIBUTING.md", "attacks/README.md", "dpfedvis/README.md", "dpfedvis/cli/README.md",
    "reports/README.md", "reports/theory/errata.md",
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_of_a_page_exist(page: str) -> None:
    text, folder = (ROOT / page).read_text(), (ROOT / page).parent
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("https://") or (folder / link).exists(), link
    for path in re.findall(r"`([\w-]+(?:/[\w.-]*)+|[\w-]+\.(?:py|md|toml))`", text):
        if "NAME" not in path and not path.startswith("runs/"):
            assert (ROOT / path).exists() or any(folder.glob(f"**/{path.rstrip('/')}")), path
    for path in re.findall(r"(?<![\w/])(?:accounting|estimators|links|protocol|server|site|tests)/[\w/]*\.py", text):
        assert "NAME" in path or any((place / path).exists() for place in (ROOT, folder)), path


def test_every_room_and_module_is_in_its_readme() -> None:
    for folder in ("accounting", "attacks", "dpfedvis"):
        text = (ROOT / folder / "README.md").read_text()
        rooms = [path.name for path in (ROOT / folder).iterdir() if (path / "__init__.py").exists()]
        assert rooms
        for room in rooms:
            assert f"`{room}/`" in text, f"{folder}/{room}"


def test_every_report_is_in_the_index() -> None:
    text = (ROOT / "reports/README.md").read_text()
    for folder in (path for path in (ROOT / "reports").iterdir() if path.is_dir()):
        assert f"]({folder.name}/" in text, folder.name


@pytest.mark.parametrize("page", ["attacks/README.md", "reports/README.md"])
def test_commands_of_other_pages_parse(page: str) -> None:
    text = (ROOT / page).read_text()
    for line in re.findall(r"^dpfedvis .*$|(?<=`)dpfedvis [\w-]+ [^`]+(?=`)", text, flags=re.MULTILINE):
        parser().parse_args(shlex.split(line, comments=True)[1:])
    for script in re.findall(r"`python (\S+\.py)", text):
        assert (ROOT / script).exists(), script


def test_the_citation_has_the_version_and_the_paper() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {dpfedvis.__version__}\n" in text
    assert "Federated t-SNE and UMAP for Distributed Data Visualization" in text


def test_the_version_is_told() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert dpfedvis.__version__ == project["version"]
    done = called("--version")
    assert (done.returncode, done.stdout) == (0, f"dpfedvis {project['version']}\n")


def test_a_source_tree_that_is_not_installed_has_a_version(tmp_path: Path) -> None:
    """Without metadata (-S: no installed packages) the version is that of pyproject.toml."""
    code = "import dpfedvis; print(dpfedvis.__version__)"
    for name in ("dpfedvis/__init__.py", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text().replace('version = "0', 'version = "7.0'))
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("7.0"), done.stderr
