"""What importing a package may bring along, which way imports go, and the public names."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ["torch", "opacus", "dp_accounting", "sklearn", "umap", "openTSNE"]


@pytest.mark.parametrize("module", ["accounting", "dpfedvis.cli.main"])
def test_a_fresh_interpreter_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set({[*HEAVY, 'scipy.optimize']!r}) & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_the_closed_form_and_the_ledger_import_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from accounting import Budget, GaussianRelease, Ledger, PlannedRelease, calibrate\n"
        "budget = Budget(1, 1e-5)\n"
        "ledger = Ledger(budget=budget)\n"
        "ledger.record(calibrate(budget, PlannedRelease('x', 1.0))['x'].event('a'))\n"
        "assert 0.999 < ledger.spent() <= 1\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", code, "--config", str(folder / "pyproject.toml"), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in ("accounting", "dpfedvis", "attacks"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_imports_go_one_way(copy: Path) -> None:
    done = _lint(copy)
    assert done.returncode == 0, done.stdout
    assert " 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("file", "line", "who"),
    [
        ("accounting/gdp.py", "import dpfedvis.numerics.kernels", "accounting"),
        ("accounting/ledger.py", "    from attacks import anything", "accounting"),
        ("accounting/accountants/closed.py", "import accounting.ledger", "accounting.accountants"),
        ("dpfedvis/numerics/mmd.py", "import attacks", "dpfedvis"),
        ("dpfedvis/server/session.py", "import dpfedvis.data", "dpfedvis.server"),
        ("dpfedvis/server/session.py", "import dpfedvis.site.site", "dpfedvis.server"),
        ("dpfedvis/site/site.py", "import dpfedvis.server.session", "dpfedvis.site"),
        ("dpfedvis/protocol/wire.py", "import dpfedvis.links", "dpfedvis.protocol"),
    ],
)
def test_an_import_the_other_way_is_caught(copy: Path, file: str, line: str, who: str) -> None:
    target = copy / file
    indented = line.startswith(" ")
    target.write_text(target.read_text() + ("\n\ndef late() -> None:\n" if indented else "\n") + line + "\n")
    done = _lint(copy)
    assert done.returncode == 1
    assert " 0 broken" not in done.stdout
    assert f"{who} is not allowed to import" in done.stdout


def test_commands_may_import_attacks(copy: Path) -> None:
    target = copy / "dpfedvis/cli/calibrate.py"
    target.write_text(target.read_text() + "\nimport attacks\n")
    assert _lint(copy).returncode == 0


def test_public_names_of_accounting() -> None:
    from accounting import (  # noqa: F401
        Budget,
        BudgetExceeded,
        Ledger,
        calibrate,
        gaussian_delta,
        gaussian_epsilon,
        gaussian_mu,
        sensitivity,
    )

    for name in (
        "gradient",
        "variable",
        "mean_embedding",
        "second_moment",
        "distance_rows",
        "kernel_rows",
        "histogram",
    ):
        assert callable(getattr(sensitivity, name))


def test_every_listed_name_is_there() -> None:
    import accounting

    assert sorted(set(accounting.__all__)) == sorted(accounting.__all__)
    for name in accounting.__all__:
        assert hasattr(accounting, name)
