"""What is in the folder of a run that may not be finished."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from accounting import Ledger
from dpfedvis.federation import Outbox
from dpfedvis.runs.resume import ResumeFolder


def events_of(folder: Path) -> list[str]:
    if not (folder / "ledger.sqlite").exists():
        return []
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        return [event.to_json() for event in ledger.events()]


def recorded(folder: Path) -> dict[str, bytes]:
    """Every upload that is whole in the folder, by its events. It reads and changes nothing."""
    index, values = folder / "uploads" / "index.jsonl", folder / "uploads" / "values.bin"
    found: dict[str, bytes] = {}
    for line in index.read_bytes().splitlines() if index.exists() else []:
        entry = json.loads(line)
        if "events" in entry:
            key, size = json.dumps(entry["events"]), int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
            assert key not in found, "recorded twice"
            found[key] = values.read_bytes()[entry["offset"] :][:size]
    return found


def kept(folder: Path) -> dict[str, bytes]:
    """Every upload that is at home and in the ledger: it counts as released, and must be sent as it is."""
    known, found = events_of(folder), {}
    for path in ResumeFolder(folder).checkpoint.rglob("*-??????.npz"):
        what, round = path.stem[:-7], int(path.stem[-6:])
        for upload in Outbox(path.parent).find(what, round) or []:
            if upload.event.to_json() in known and not what.startswith("curated"):
                found[json.dumps([upload.event.to_dict()])] = upload.values.tobytes()
    return found


def recorded_lines(folder: Path) -> list[bytes]:
    index = folder / "uploads" / "index.jsonl"
    return index.read_bytes().splitlines() if index.exists() else []


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    shutil.copytree(ResumeFolder(source).path, ResumeFolder(target).path)
    return target


def content(folder: Path) -> dict[str, bytes]:
    """All bytes of a run and of what its clients keep. The lock says nothing; SQLite's shared memory is no content."""
    paths = [path for root in (folder, ResumeFolder(folder).path) for path in root.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths if path.name != "lock" and not path.name.endswith("-shm")}
