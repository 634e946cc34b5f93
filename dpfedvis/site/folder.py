"""The folder of a site: its records, policy, key, ledger and outbox. Nobody else reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidParameter, LedgerError
from dpfedvis.numerics.files import make_folder, read_arrays, write_arrays, write_text
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.signatures import Identity
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.policy import Policy
from dpfedvis.site.site import Site
from dpfedvis.site.views import Labels, checked_records

_NAME, _RECORDS = "site.json", "records.npz"
KEY, LEDGER, POLICY = "identity.key", "ledger.sqlite", "policy.toml"


def write_site(
    folder: str | Path,
    name: str,
    records: Array,
    labels: Labels | None = None,
    policy: Policy | None = None,
    *,
    persons: Labels | None = None,
    compared: Array | None = None,
    preparation: str = "",
) -> None:
    """Make the folder of a site, readable by its owner alone; a key pair and an empty ledger are made with it.

    Parameters
    ----------
    folder : path-like
    name, records, labels, policy, persons, compared, preparation
        As in `Site`.
    """
    folder = Path(folder)
    if is_site(folder):
        raise InvalidParameter("folder", str(folder), "a new one: this is that of a site, with its ledger")
    checked_records(name, records, labels)
    make_folder(folder)
    folder.chmod(0o700)  # it may have been there
    own = policy or Policy()
    write_text(folder / POLICY, own.to_toml())
    Identity.kept(folder / KEY)
    SiteLedger.make(folder / LEDGER)
    # Last: what was begun and not finished is no site.
    write_records(folder, name, records, labels, own, persons=persons, compared=compared, preparation=preparation)


def write_records(
    folder: Path,
    name: str,
    records: Array,
    labels: Labels | None,
    policy: Policy,
    *,
    persons: Labels | None = None,
    compared: Array | None = None,
    preparation: str = "",
) -> None:
    """Write the records of a site that has a policy, a key and a ledger, in the place of earlier ones."""
    arrays = _arrays(records, labels, persons, compared)
    write_arrays(folder / _RECORDS, arrays)
    about = {"name": name, "preparation": preparation, "holds": _digest(name, preparation, policy, arrays)}
    write_text(folder / _NAME, json.dumps(about) + "\n")


def is_site(folder: Path) -> bool:
    """Whether a folder is that of a site."""
    return (folder / _NAME).is_file()


def holds(
    folder: Path,
    name: str,
    records: Array,
    labels: Labels | None,
    policy: Policy,
    *,
    persons: Labels | None = None,
    compared: Array | None = None,
    preparation: str = "",
) -> bool:
    """Whether a folder was made for this site, with these records and this policy."""
    arrays = _arrays(records, labels, persons, compared)
    return bool(_about(folder)["holds"] == _digest(name, preparation, policy, arrays))


def open_site(folder: str | Path, wait: float = 0.0) -> Site:
    """Return the site of a folder; wait so many seconds for another process that has its ledger open."""
    folder = Path(folder)
    about = _about(folder)
    stored = read_arrays(folder / _RECORDS)
    policy = Policy.read(folder / POLICY)
    limit = None if policy.lifetime_epsilon is None else (policy.lifetime_epsilon, policy.lifetime_delta)
    for needed in (KEY, LEDGER):
        if not (folder / needed).is_file():
            # A new one would have no memory of what was released.
            raise LedgerError(f"{folder / needed} is missing; put it back from a copy")
    return Site(
        about["name"],
        stored["records"],
        labels=stored.get("labels"),
        persons=stored.get("persons"),
        compared=stored.get("compared"),
        preparation=about["preparation"],
        policy=policy,
        ledger=SiteLedger(folder / LEDGER, limit=limit, wait=wait, create=False),
        identity=Identity.kept(folder / KEY),
        folder=folder,
    )


def accept_restored(folder: str | Path) -> None:
    """Say, as the owner, that the ledger was restored from a copy, and that what the copy lacks was accounted for."""
    site = open_site(folder)
    site.accept_restored()
    site.ledger.close()


def clear_failure(folder: str | Path) -> None:
    """Say, as the owner, that the site may go on after a failure, whose reason is in its log."""
    site = open_site(folder)
    site.clear_failure()
    site.ledger.close()


def _about(folder: Path) -> dict[str, Any]:
    if not is_site(folder):
        raise InvalidParameter("site", str(folder), f"a folder with {_NAME} (see dpfedvis.site.write_site)")
    try:
        about = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        return {"name": str(about["name"]), "preparation": str(about["preparation"]), "holds": about.get("holds")}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidParameter("site", str(folder / _NAME), "a file that dpfedvis.site.write_site made") from None


def _arrays(
    records: Array, labels: Labels | None, persons: Labels | None, compared: Array | None
) -> dict[str, NDArray[Any]]:
    texts = {
        name: np.asarray(each, dtype=np.str_)
        for name, each in (("labels", labels), ("persons", persons))
        if each is not None
    }
    return {"records": records, **texts, **({} if compared is None else {"compared": compared})}


def _digest(name: str, preparation: str, policy: Policy, arrays: Mapping[str, NDArray[Any]]) -> str:
    found = hashlib.sha256(f"{name}|{preparation}|{policy.to_toml()}".encode())
    for key, array in arrays.items():
        found.update(f"|{key}|{array.dtype.str}|{array.shape}|".encode())
        found.update(np.ascontiguousarray(array).data)  # no copy of the records
    return found.hexdigest()
