"""The folder of a run: whether it may be taken, and what becomes of it after an error."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from accounting import InvalidParameter, Ledger
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.files import write_text
from dpfedvis.runs.settings import RunConfig

CONFIG = "config.toml"


class FolderTaken(DpfedvisError):
    """A folder that holds something already."""


class FolderUnusable(DpfedvisError):
    """A folder that cannot be made or written to."""


def refuse_taken(folder: Path) -> None:
    """Refuse a folder that is not empty."""
    if folder.is_dir() and any(folder.iterdir()):
        what = "another run" if (folder / CONFIG).exists() else "other files"
        raise FolderTaken(f"{folder} holds {what}; choose another folder")
    if folder.exists() and not folder.is_dir():
        raise FolderTaken(f"{folder} is a file; choose another folder")


def refuse_views(views: Path, folder: Path, config: RunConfig) -> None:
    """Refuse a folder for private views before anything is released."""
    if config.chosen_release != "none":
        raise InvalidParameter("views", str(views), f"left out with release={config.chosen_release!r}")
    if views.resolve().is_relative_to(folder.resolve()):
        raise FolderTaken(f"{views} is in the folder of the run, and private views show records; choose another folder")
    refuse_taken(views)


def make(folder: Path, mode: int = 0o777) -> None:
    """Make a folder, or see that it can be written to."""
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FolderUnusable(f"{folder} cannot be written to: {error.strerror}") from error


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Make a folder and write files by name, each whole or not at all; return their paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise FolderUnusable(f"{folder} cannot be written to: {error.strerror}") from error
    return [folder / name for name in texts]


def spent(path: Path) -> bool:
    """Whether the ledger there has any entry."""
    if not path.exists():
        return False
    with Ledger.read(path) as ledger:
        return len(ledger) > 0


def clear(folder: Path, existed: bool) -> None:
    """Leave the folder as it was found: empty, or not there."""
    if folder.is_dir():
        shutil.rmtree(folder)
        if existed:
            folder.mkdir()


def sweep(folder: Path) -> None:
    """Delete what a kill has left of files that were being written."""
    for path in folder.rglob("*.tmp"):
        path.unlink()
    for path in folder.glob(".ledger.sqlite-*"):
        shutil.rmtree(path)
