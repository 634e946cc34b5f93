"""What is in the folder of a run that may not be finished, and at its sites."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accounting import Ledger
from dpfedvis.numerics.files import read_arrays
from dpfedvis.runs.resume import ResumeFolder


def events_of(folder: Path) -> list[str]:
    """All events in the server's mirror, in their order."""
    if not (folder / "ledger.sqlite").exists():
        return []
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        return [event.to_json() for event in ledger.events()]


def sites_of(folder: Path) -> Path:
    return ResumeFolder(folder).checkpoint / "sites"


def events_at_sites(folder: Path, records: Path | None = None) -> dict[str, list[str]]:
    """All events in the sites' own ledgers, by site, in their order, as the mirror would have them.

    `records` is the ledger that outlives the run, where the records have one: all sites share it.
    """
    found: dict[str, list[str]] = {}
    for path in sites_of(folder).glob("*/ledger.sqlite") if records is None else [records]:
        if path.exists():
            with Ledger.read(path) as ledger:
                for event in ledger.events():
                    _, _, site = event.client.partition("/")
                    found.setdefault(site, []).append(replace(event, client=site).to_json())
    return found


def by_site(events: Iterable[str]) -> dict[str, list[str]]:
    """Events of a mirror, by site."""
    found: dict[str, list[str]] = {}
    for event in events:
        found.setdefault(json.loads(event)["client"], []).append(event)
    return found


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


def outboxes(folder: Path) -> dict[str, dict[str, Any]]:
    """The arrays of every upload that a site keeps, by its event; those of the outbox alone are not released yet."""
    found = [read_arrays(path) for path in sites_of(folder).glob("*/outbox/*/*.npz")]
    return {json.dumps([json.loads(str(arrays["event"]))]): arrays for arrays in found}


def kept(folder: Path, records: Path | None = None) -> dict[str, bytes]:
    """Every upload that is at a site and in its ledger: it counts as released, and must be sent as it is."""
    known = {json.dumps([json.loads(event)], sort_keys=True) for own in events_at_sites(folder, records).values()
             for event in own}  # fmt: skip
    return {
        key: arrays["values"].tobytes()
        for key, arrays in outboxes(folder).items()
        if json.dumps(json.loads(key), sort_keys=True) in known
    }


def recorded_lines(folder: Path) -> list[bytes]:
    index = folder / "uploads" / "index.jsonl"
    return index.read_bytes().splitlines() if index.exists() else []


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    shutil.copytree(ResumeFolder(source).path, ResumeFolder(target).path)
    return target


def content(folder: Path) -> dict[str, bytes]:
    """All bytes of a run and of what its sites keep. A lock says nothing."""
    paths = [path for root in (folder, ResumeFolder(folder).path) for path in root.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths if not path.name.endswith("lock")}
