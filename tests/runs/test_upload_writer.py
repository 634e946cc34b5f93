"""The recorder goes on with what an interruption has left whole."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from accounting import Ledger
from dpfedvis.runs.upload_reader import Recording
from dpfedvis.runs.upload_writer import Recorder, RecordingError
from tests.crash.folders import recorded


@pytest.mark.parametrize("cut", [1, 30, 200])
@pytest.mark.parametrize("name", ["index.jsonl", "values.bin"])
def test_a_half_written_tail_is_dropped(name: str, cut: int, wholes: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(wholes("noisy"), folder)
    before, path = recorded(folder), folder / "uploads" / name
    padding = -len(list(before.values())[-1]) % 64
    path.write_bytes(path.read_bytes()[:-cut])
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        Recorder(folder, resume=ledger).close()
    after = recorded(folder)
    lost = 0 if name == "values.bin" and cut <= padding else 1
    assert list(after.items()) == list(before.items())[: len(before) - lost]
    uploads = [upload.integers.tobytes() for upload in Recording.read(folder).uploads]  # checks every checksum
    assert uploads == list(after.values())
    assert (folder / "uploads" / "values.bin").stat().st_size % 64 == 0


def test_what_is_sent_again_is_recorded_once(wholes: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(wholes("noisy"), folder)
    before = (folder / "uploads" / "index.jsonl").read_bytes()
    last = Recording.read(folder).uploads[-1]
    values = last.integers.copy()
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        recorder = Recorder(folder, resume=ledger)
    recorder(last.events, values)
    with pytest.raises(RecordingError, match="gram rows of client-2 is already recorded with other values"):
        recorder(last.events, values + 1)
    recorder.close()
    assert (folder / "uploads" / "index.jsonl").read_bytes() == before


def test_damage_in_the_middle_is_not_a_tail(wholes: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(wholes("noisy"), folder)
    path = folder / "uploads" / "values.bin"
    changed = bytearray(path.read_bytes())
    changed[3] ^= 1
    path.write_bytes(changed)
    with (
        pytest.raises(RecordingError, match=r"line 1 of .*index\.jsonl, or what it tells of, is damaged"),
        Ledger.read(folder / "ledger.sqlite") as ledger,
    ):
        Recorder(folder, resume=ledger)
    assert path.read_bytes() == changed
