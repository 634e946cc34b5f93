"""Where a run comes from: versions, seed, commit and data, and what of it has changed."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from dpfedvis.data import Dataset
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.files import write_text
from dpfedvis.runs.code_version import code_version, package_version
from dpfedvis.runs.settings import RunConfig

PROVENANCE = "provenance.json"
_PACKAGES = (
    *("dpfedvis", "numpy", "scipy", "scikit-learn", "openTSNE", "umap-learn", "pynndescent", "dp-accounting"),
    "matplotlib",
)


class UnreadableProvenance(DpfedvisError):
    """provenance.json is missing or damaged."""


def provenance(config: RunConfig, dataset: Dataset, started: datetime) -> dict[str, Any]:
    """Return versions, seed, commit and the name of the data; of a simulation's data also what identifies them.

    With real noise the folder may be published. A hash of the data would then be an exact release: whoever knows all
    records but one could try out the last.
    """
    data = {"name": dataset.name, **(identity(dataset) if config.noise == "seeded" else {})}
    return {
        "started": started.isoformat(timespec="seconds"),
        "seed": config.seed,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": {name: found for name in _PACKAGES if (found := package_version(name)) is not None},
        "commit": code_version().code,
        "data": data,
    }


def identity(dataset: Dataset) -> dict[str, Any]:
    """Return hash and size of the data, for their owner only."""
    return {"sha256": dataset.sha256, "records": len(dataset.X)}


def write_provenance(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write the facts to a run's folder."""
    write_text(folder / PROVENANCE, json.dumps(facts, indent=2) + "\n")


def read_provenance(folder: Path) -> dict[str, Any]:
    """Return the facts of a run's folder."""
    path = folder / PROVENANCE
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(facts["data"]["name"], str) or not isinstance(facts["packages"], dict):
            raise TypeError("its facts have wrong types")
    except OSError as error:
        raise UnreadableProvenance(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableProvenance(f"{path} is damaged ({type(error).__name__}: {error})") from error
    return facts


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the versions that have changed: commit, Python, machine, packages."""
    facts = [(name, before.get(name), now.get(name)) for name in ("commit", "python", "machine")]
    old, new = before["packages"], now["packages"]
    facts += [(name, old.get(name), new.get(name)) for name in sorted({*old, *new})]
    return [f"{name} was {was}, is {is_now}" for name, was, is_now in facts if was != is_now]
