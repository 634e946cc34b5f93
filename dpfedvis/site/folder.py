"""The folder of a site: its records, policy, key, ledger and outbox. Nobody else reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from accounting.errors import InvalidParameter
from dpfedvis.numerics.files import read_arrays, write_arrays, write_text
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.signatures import Identity
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.policy import Policy
from dpfedvis.site.site import Site
from dpfedvis.site.views import Labels

_NAME, _RECORDS, _POLICY = "site.json", "records.npz", "policy.toml"
_KEY, _LEDGER = "identity.key", "ledger.sqlite"


def write_site(
    folder: Path, name: str, records: Array, labels: Labels | None = None, policy: Policy | None = None
) -> None:
    """Make the folder of a site, readable by its owner alone; a key pair is made with it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    arrays: dict[str, Any] = {"records": records}
    if labels is not None:
        arrays["labels"] = np.asarray(labels, dtype=np.str_)
    write_arrays(folder / _RECORDS, arrays)
    own = policy or Policy()
    write_text(folder / _POLICY, own.to_toml())
    write_text(folder / _NAME, json.dumps({"name": name}) + "\n")
    Identity.kept(folder / _KEY)


def is_site(folder: Path) -> bool:
    """Whether a folder is that of a site."""
    return (folder / _NAME).is_file()


def open_site(folder: Path, wait: float = 0.0) -> Site:
    """Return the site of a folder; wait so many seconds for another process that has its ledger open."""
    if not is_site(folder):
        raise InvalidParameter("site", str(folder), f"a folder with {_NAME} (see dpfedvis.site.folder.write_site)")
    about = json.loads((folder / _NAME).read_text(encoding="utf-8"))
    stored = read_arrays(folder / _RECORDS)
    policy = Policy.read(folder / _POLICY)
    limit = None if policy.lifetime_epsilon is None else (policy.lifetime_epsilon, policy.lifetime_delta)
    return Site(
        about["name"],
        stored["records"],
        labels=stored.get("labels"),
        policy=policy,
        ledger=SiteLedger(folder / _LEDGER, limit=limit, wait=wait),
        identity=Identity.kept(folder / _KEY),
        folder=folder,
    )
