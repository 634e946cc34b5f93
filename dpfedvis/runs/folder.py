"""The folder of a run: checks before it is used, and cleaning up after an error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from accounting import Ledger
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.files import write_text

CONFIG = "config.toml"


class FolderTaken(DpfedvisError):
    """The folder already holds something."""


class FolderUnusable(DpfedvisError):
    """The folder cannot be made or written to."""


def refuse_taken(folder: Path) -> None:
    """Raise unless the folder is new or empty."""
    if folder.is_dir() and any(folder.iterdir()):
        what = "another run" if (folder / CONFIG).exists() else "other files"
        raise FolderTaken(f"{folder} holds {what}; choose another folder")
    if folder.exists() and not folder.is_dir():
        raise FolderTaken(f"{folder} is a file; choose another folder")


def refuse_views(views: Path, folder: Path) -> None:
    """Raise if private views cannot be written there; called before the first release."""
    if views.resolve().is_relative_to(folder.resolve()):
        raise FolderTaken(f"{views} lies in the run's folder, but private views show records; choose another folder")
    refuse_taken(views)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Name the folder in errors of the file system."""
    try:
        yield
    except OSError as error:
        raise FolderUnusable(f"{folder} cannot be written to: {error.strerror}") from error


def make(folder: Path, mode: int = 0o777) -> None:
    """Make a folder, and check that files can be written to it."""
    with writing(folder):
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Make a folder and write files by name, each whole or not at all; return their paths."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    return [folder / name for name in texts]


def spent(path: Path) -> bool:
    """Whether there is a ledger with at least one entry; a write that was cut off is undone."""
    if not path.exists():
        return False
    with Ledger(path, create=False) as ledger:
        return len(ledger) > 0


def clear(folder: Path, existed: bool) -> None:
    """Empty the folder, and delete it unless it `existed` before."""
    if folder.is_dir():
        shutil.rmtree(folder)
        if existed:
            folder.mkdir()


def sweep(folder: Path) -> None:
    """Delete half-written files that a killed run has left."""
    for path in folder.rglob("*.tmp"):
        path.unlink()
    for path in folder.glob(".ledger.sqlite-*"):
        shutil.rmtree(path)
