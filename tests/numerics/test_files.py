"""Files: whole or absent, on disk when they are written, and of the mode that was asked for."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from dpfedvis.numerics.files import draft_of, make_folder, write_arrays, write_bytes, write_text
from dpfedvis.protocol.signatures import Identity

WRITES = {
    "arrays": lambda path, **named: write_arrays(path, {"a": np.ones(3)}, **named),
    "text": lambda path, **named: write_text(path, "a", **named),
    "bytes": lambda path, **named: write_bytes(path, b"a", **named),
}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_whole_or_absent(tmp_path, monkeypatch):
    path = tmp_path / "file.npz"
    write_arrays(path, {"a": np.ones(3)})
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_arrays(path, {"a": np.zeros(3)})
    with np.load(path) as stored:
        np.testing.assert_array_equal(stored["a"], np.ones(3))
    assert list(tmp_path.iterdir()) == [path], "no draft is left"


@pytest.fixture
def synced(monkeypatch):
    """What is brought to disk, and what takes the place of what, in order."""
    found: list[tuple[str, str]] = []
    fsync, rename = os.fsync, os.replace

    def note_sync(number):
        found.append(("sync", str(Path(f"/proc/self/fd/{number}").readlink())))
        return fsync(number)

    def note_replace(draft, path, **named):
        found.append(("replace", str(path)))
        return rename(draft, path, **named)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    return found


@pytest.mark.parametrize("kind", WRITES)
def test_a_file_and_its_name_are_on_disk_when_it_is_written(kind, tmp_path, synced):
    """A name that is lost with the power is a file that was never there, while the ledger has its row."""
    path = tmp_path / "file.npz"
    WRITES[kind](path)
    assert synced == [("sync", str(draft_of(path))), ("replace", str(path)), ("sync", str(tmp_path))]


def test_a_key_is_on_disk_when_it_is_made(tmp_path, synced):
    path = tmp_path / "site" / "identity.key"
    made = Identity.kept(path)
    assert synced[-2:] == [("replace", str(path)), ("sync", str(path.parent))]
    assert ("sync", str(tmp_path)) in synced
    assert mode(path) == 0o600
    assert Identity.kept(path) == made


def test_folders_are_on_disk_when_they_are_made(tmp_path, synced):
    make_folder(tmp_path / "a" / "b")
    assert synced == [("sync", str(tmp_path)), ("sync", str(tmp_path / "a"))]
    assert mode(tmp_path / "a" / "b") == 0o700
    synced.clear()
    make_folder(tmp_path / "a" / "b")
    assert not synced


@pytest.mark.parametrize("kind", WRITES)
def test_a_secret_file_is_never_readable_by_others(kind, tmp_path):
    path = tmp_path / "file"
    draft_of(path).write_bytes(b"left by a process that was killed")
    path.write_bytes(b"earlier")
    for each in (path, draft_of(path)):
        each.chmod(0o644)
    WRITES[kind](path, mode=0o600)
    assert mode(path) == 0o600
    (tmp_path / "plain").write_bytes(b"")
    WRITES[kind](tmp_path / "another")
    assert mode(tmp_path / "another") == mode(tmp_path / "plain")
