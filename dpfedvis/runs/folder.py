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
_VIEWS = (".csv", ".png", ".html")  # files of private views


class FolderTaken(DpfedvisError):
    """The folder already holds something."""


class FolderUnusable(DpfedvisError):
    """The folder cannot be made or written to."""


def refuse_taken(folder: Path, replace: bool = False) -> None:
    """Raise unless the folder is new or empty; or, to `replace` it, holds a run."""
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / CONFIG).exists():
            raise FolderTaken(f"{folder} holds other files; choose another folder")
        if not replace:
            raise FolderTaken(f"{folder} holds another run; choose another folder, or set it aside (--replace)")
        _aside(folder)
    if folder.exists() and not folder.is_dir():
        raise FolderTaken(f"{folder} is a file; choose another folder")


def refuse_views(views: Path, folder: Path, replace: bool = False) -> None:
    """Raise if private views cannot be written there; called before the first release."""
    if views.resolve().is_relative_to(folder.resolve()):
        raise FolderTaken(f"{views} lies in the run's folder, but private views show records; choose another folder")
    if replace and _only_views(views):
        _aside(views)
    else:
        refuse_taken(views)


def set_aside(folder: Path) -> None:
    """Move a folder that is to be replaced to NAME.before; what was there is deleted."""
    if folder.is_dir() and any(folder.iterdir()):
        aside = _aside(folder)
        with writing(aside):
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)


def _aside(folder: Path) -> Path:
    """Return where a folder is moved to; raise if it holds what we have not put there."""
    aside = folder.with_name(f"{folder.name}.before")
    if aside.exists() and not ((aside / CONFIG).exists() or _only_views(aside)):
        raise FolderTaken(f"{aside}, where {folder} would be set aside, holds other files; move it away")
    return aside


def _only_views(folder: Path) -> bool:
    return folder.is_dir() and all(path.suffix in _VIEWS and path.is_file() for path in folder.iterdir())


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
