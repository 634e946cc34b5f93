"""Which code made a number: package version, commit, and whether there were uncommitted changes."""

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
        Whether the code differs from the commit.
    """

    package: str
    commit: str = ""
    dirty: bool = False

    @property
    def code(self) -> str | None:
        """The commit, with "-dirty" after it if the code differs; None outside of a repository."""
        return self.commit + "-dirty" * self.dirty if self.commit else None

    def __str__(self) -> str:
        commit = f" {self.commit[:10]}{'+' if self.dirty else ''}" if self.commit else ""
        return f"{self.package}{commit}"


def package_version(name: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def code_version() -> CodeVersion:
    """Return the version of the running code: the last commit that changed dpfedvis/ or accounting/."""
    package = package_version("dpfedvis") or "unknown"
    code = Path(__file__).parents[1]
    folders = [str(code), str(code.with_name("accounting"))]
    try:
        commit = _git(code, "log", "-1", "--format=%H", "--", *folders)
        changed = _git(code, "status", "--porcelain", "--", *folders) if commit else ""
    except (OSError, subprocess.SubprocessError):
        return CodeVersion(package)
    return CodeVersion(package, commit, bool(changed))


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
