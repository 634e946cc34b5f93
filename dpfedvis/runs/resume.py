"""What a run needs to go on after an interruption, and whether it may.

It lies in ``FOLDER.unfinished``, next to the run's folder and not in it. The folder holds what the server has; here are
the uploads that have not been used yet, exact ones where the server is trusted to add the noise, and records that were
perturbed at home. So only its owner can read it, and it is deleted when the run is finished. In a real federation each
client would have its own part of it.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.settings import draws
from dpfedvis.links.nvflare import BEGUN
from dpfedvis.numerics.files import write_text
from dpfedvis.runs.folder import CONFIG, FolderTaken, make, spent
from dpfedvis.runs.settings import RunConfig, read_toml
from dpfedvis.runs.upload_writer import LEDGER

_VIEWS, _DATA, _LEDGER, _ORDER, _LOCK = "views.json", "data.json", "ledger.json", "order.json", "lock"


class NotResumable(DpfedvisError):
    """A run that cannot be resumed, or need not be. Nothing was released, spent or changed."""


class SettingsDiffer(NotResumable):
    """Settings that differ from those of the run to resume."""


class RunInterrupted(KeyboardInterrupt):
    """An interruption by the user, with what can be done next."""


@dataclass(frozen=True)
class ResumeFolder:
    """The folder beside a run's folder with what resuming needs; deleted when the run is finished.

    Parameters
    ----------
    run : Path
        The run's folder.
    """

    run: Path

    @property
    def path(self) -> Path:
        """Path of the folder."""
        whole = self.run.resolve()
        return whole.with_name(whole.name + ".unfinished")

    @property
    def checkpoint(self) -> Path:
        """Path of the checkpoint, for `FederatedEstimator.watch`."""
        return self.path / "checkpoint"

    @property
    def released(self) -> bool:
        """Whether a site may have charged a release that is not in the ledger here.

        The outbox of a site of this machine is written first; between real sites a job that was not heard of again may
        have released anything.
        """
        return any(self.checkpoint.glob("sites/*/outbox/*/*.npz")) or (self.checkpoint / BEGUN).exists()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Create and lock the folder: two processes that resume one run would release twice."""
        make(self.path, 0o700)
        with (self.path / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NotResumable(f"another process is working on {self.run}") from None
            yield

    def remember(
        self, views: Path | None, data: Mapping[str, Any], ledgers: Sequence[Path], order: int | None = None
    ) -> None:
        """Store what identifies the data, where private views are to be drawn, which ledgers the records have, and the
        secret order of clients."""
        write_text(self.path / _ORDER, json.dumps(order) + "\n")
        write_text(self.path / _DATA, json.dumps(data) + "\n")
        write_text(self.path / _LEDGER, json.dumps([str(ledger.resolve()) for ledger in ledgers]) + "\n")
        write_text(self.path / _VIEWS, json.dumps(None if views is None else str(views.resolve())) + "\n")

    def same_data(self, now: Mapping[str, Any]) -> None:
        """Raise if the data are not those that the run started with."""
        before = _kept(self.path / _DATA)
        for name in now if before is not None else ():
            if before[name] != now[name]:
                raise NotResumable(
                    f"the data of {self.run} have changed ({name} was {before[name]}, is {now[name]}); a run "
                    "can be resumed only with the records that it started with"
                )

    def order(self) -> int | None:
        """Return the seed of the clients' secret order."""
        found: int | None = _kept(self.path / _ORDER)
        return found

    def views(self, given: Path | None) -> Path | None:
        """Return where private views are to be drawn; raise if another folder is given."""
        path = self.path / _VIEWS
        if not path.exists():  # interrupted before anything
            return given
        kept = _kept(path)
        self._same("views", [kept] if kept else [], [given] if given else [])
        return None if kept is None else Path(kept)

    def ledgers(self, given: Sequence[Path]) -> tuple[Path, ...]:
        """Return the ledgers of the records; raise if others are given."""
        path = self.path / _LEDGER
        if not path.exists():
            return tuple(given)
        kept = _kept(path) or []
        self._same("ledger", kept, given)
        return tuple(map(Path, kept))

    def _same(self, name: str, kept: Sequence[str], given: Sequence[Path]) -> None:
        if given and [str(each.resolve()) for each in given] != list(kept):
            was, now = ", ".join(kept) or None, ", ".join(map(str, given))
            raise SettingsDiffer(f"--resume keeps the settings of {self.run}: {name} is {was}, not {now}")

    def refuse_taken(self) -> None:
        """Raise if an unfinished run, or a foreign folder, is already here."""
        if self.path.is_dir() and (self.run / CONFIG).exists():
            raise FolderTaken(f"{self.run} holds an unfinished run; resume it (--resume), or choose another folder")
        taken = self.path.is_dir() and any(self.path.iterdir()) and not (self.path / _LOCK).exists()
        if taken or (self.path.exists() and not self.path.is_dir()):
            raise FolderTaken(f"{self.path}, which the run needs until it is finished, holds other files")

    def refuse_to_resume(self, facts: Mapping[str, Any]) -> None:
        """Raise if the run is finished, or if its clients have released and kept nothing of it."""
        if "finished" in facts:
            self.remove()  # in case that the run was cut off just before this
            raise NotResumable(f"{self.run} is finished; there is nothing to resume")
        if not self.checkpoint.is_dir() and spent(self.run / LEDGER):
            self.remove()
            raise NotResumable(f"{self.run} cannot be resumed: what its clients kept, {self.path}, is missing")

    def forget(self) -> None:
        """Delete what is left of a run whose folder, and with it the ledger, is gone."""
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def remove(self) -> None:
        """Delete the folder: the run is finished."""
        shutil.rmtree(self.path, ignore_errors=True)


def stored_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the run in a folder, as its file has them."""
    if not (folder / CONFIG).is_file():
        raise NotResumable(f"{folder} holds no run to resume: it has no {CONFIG}")
    return read_toml(folder / CONFIG)


def same_settings(folder: Path, given: RunConfig, changed: Collection[str] | None = None) -> RunConfig:
    """Return the settings of the run in a folder, with what is given for drawing; raise if anything else differs.

    Parameters
    ----------
    folder : Path
    given : RunConfig
    changed : collection of str, optional
        Names of the settings that count as given; by default those that are not at their defaults.
    """
    stored = RunConfig.from_mapping(stored_settings(folder))
    was, now = stored.effective(), {**given.given, **given.effective()}
    names = given.given if changed is None else changed
    differ = {name: now[name] for name in names if now[name] is not None and was.get(name) != now[name]}
    fixed = [
        f"{name} is {was.get(name)!r}, not {value!r}" for name, value in differ.items() if not draws(RunConfig, name)
    ]
    if fixed:
        raise SettingsDiffer(f"--resume keeps the settings of {folder}: {', '.join(fixed)}")
    return stored.updated(**differ)


def _kept(path: Path) -> Any:
    """Return what was kept in a file of JSON; None if nothing was, an error if it is not whole."""
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotResumable(f"{path} is damaged ({error})") from error
