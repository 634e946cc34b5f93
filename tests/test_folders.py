"""No two folders of the packages import each other, so that each can be read before the ones that use it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("accounting", "dpfedvis", "attacks")
# The top of dpfedvis holds public names, errors and the entry point, and is no room.
TOP = Path("dpfedvis")
# Pairs that are still to be taken apart, with the reason.
KNOWN = {
    # One way, module by module (a contract in pyproject.toml): events, then accountants, then the ledger.
    (Path("accounting"), Path("accounting/accountants")),
}


def modules(root: Path) -> dict[str, Path]:
    """Return every module by its name, as a path below the root."""
    found = {}
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            below = path.relative_to(root)
            parts = below.parent.parts if below.name == "__init__.py" else below.with_suffix("").parts
            found[".".join(parts)] = below
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Names of our own modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                yield whole if whole in known else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def pairs(root: Path) -> dict[tuple[Path, Path], list[str]]:
    """Return folders that import each other, and by which imports."""
    known = modules(root)
    edges: dict[tuple[Path, Path], list[str]] = defaultdict(list)
    for name, path in known.items():
        for other in imported(root / path, known):
            here, there = path.parent, known[other].parent if other in known else path.parent
            passed_on = path.name == "__init__.py" and there.is_relative_to(here)
            if here != there and TOP not in (here, there) and not passed_on:
                edges[here, there].append(f"{name} -> {other}")
    return {(a, b): found + edges[b, a] for (a, b), found in list(edges.items()) if a < b and (b, a) in edges}


def test_no_two_folders_import_each_other() -> None:
    found = pairs(ROOT)
    assert found.keys() <= KNOWN, {key: found[key] for key in found.keys() - KNOWN}
    assert found.keys() >= KNOWN, f"taken apart, so no longer to be listed: {KNOWN - found.keys()}"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a/x.py": "import accounting.b.y", "b/y.py": "def f():\n    from accounting.a import x"}, [("a", "b")]),
        ({"x.py": "from accounting.a import y", "a/y.py": "import accounting.x"}, [("", "a")]),
        ({"__init__.py": "from accounting.a.y import name", "a/y.py": "import accounting.x", "x.py": ""}, []),
        ({"a/x.py": "import accounting.b.y", "b/y.py": "import accounting.c.z", "c/z.py": "import json"}, []),
    ],
    ids=["siblings", "parent", "re-export", "one way"],
)
def test_a_pair_is_found(files: dict[str, str], found: list[tuple[str, str]], tmp_path: Path) -> None:
    for name, text in {"a/__init__.py": "", "b/__init__.py": "", "__init__.py": "", **files}.items():
        path = tmp_path / "accounting" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert list(pairs(tmp_path)) == [(Path("accounting") / a, Path("accounting") / b) for a, b in found]
