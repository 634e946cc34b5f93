"""READMEs are true: their commands parse, their Python runs, their links lead somewhere."""

from __future__ import annotations

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


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("code", "expected"),
    list(
        zip(
            blocks("python"),
            [
                "(10, 8) receipts signed by north south\n",
                "be ε = ∞ end to end",
                "be ε = 10 end to end at δ = 1e-05",
                "nothing was released",
                "[[",
                "'essen': (",
                "2.0\n",
            ],
            strict=True,
        )
    ),
    ids=["site", "use", "end to end", "accounting", "clusters", "hospitals", "mechanism"],
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


PAGES = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "accounting/README.md", "attacks/README.md", "dpfedvis/README.md",
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


def test_the_example_of_accounting_runs(tmp_path: Path) -> None:
    (code,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "accounting/README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert "over the budget of ε = 1 at δ = 1e-05" in done.stdout, done.stderr


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
