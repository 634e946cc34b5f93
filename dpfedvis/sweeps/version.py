"""Which code made a number: package version, commit, and whether the code had changes of its own."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@dataclass(frozen=True)
class CodeVersion:
    """A version of this package.

    Parameters
    ----------
    package : str
    commit : str
        Empty outside of a repository.
    dirty : bool
        Whether tracked files differ from the commit.
    """

    package: str
    commit: str = ""
    dirty: bool = False

    def __str__(self) -> str:
        commit = f" {self.commit[:10]}{'+' if self.dirty else ''}" if self.commit else ""
        return f"{self.package}{commit}"


@cache
def code_version() -> CodeVersion:
    """Return the version of the code that is running."""
    try:
        package = version("dpfedvis")
    except PackageNotFoundError:
        package = "unknown"
    folder = str(Path(__file__).parent)
    command = ["git", "-C", folder, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return CodeVersion(package)
    return CodeVersion(package, found.removesuffix("+"), found.endswith("+"))
