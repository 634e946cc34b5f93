"""Approval by the owner of the records: a contract waits in the site's folder until it is approved there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.files import write_text
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import APPROVAL
from dpfedvis.site.policy import Refusal

WAITING, _APPROVED = "waiting.json", "approved"


class NothingWaits(DpfedvisError):
    """No contract waits for approval at this site."""


def check_approved(folder: Path | None, contract: Contract, label: str) -> None:
    """Refuse a contract that its owner has not approved, and show it to them; a run is approved once."""
    if folder is None:
        raise Refusal(APPROVAL, "this site has no folder in which its owner could approve a contract")
    if (folder / _APPROVED / label).is_file():
        return
    facts = {"label": label, **described(contract)}
    write_text(folder / WAITING, json.dumps(facts, indent=2) + "\n")
    raise Refusal(APPROVAL, "the contract waits for the owner of the records (dpfedvis site approve)")


def described(contract: Contract) -> dict[str, Any]:
    """Return what will leave under a contract, and what it costs, in plain facts."""
    budget, sharing = contract.budget, contract.sharing
    return {
        "run": contract.run,
        "epsilon": None if budget is None else budget.epsilon,
        "delta": None if budget is None else budget.delta,
        # Of sites with less than that.
        "epsilons": {each.name: each.epsilon for each in contract.members if each.epsilon is not None},
        "unit": None if budget is None else budget.unit,
        "trust": contract.trust,
        "threshold": None if sharing is None else sharing.threshold,
        "colluders": None if sharing is None else sharing.colluders,
        "noise": contract.noise,
        "releases": dict(contract.counts),
        "unprotected": list(contract.unprotected),
        "members": list(contract.names),
    }


def waiting(folder: Path) -> dict[str, Any]:
    """Return the contract that waits at a site, as `described`, with its label."""
    try:
        found: dict[str, Any] = json.loads((folder / WAITING).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NothingWaits(f"no contract waits for approval in {folder}") from None
    return found


def approve(folder: Path, label: str) -> None:
    """Approve the contract of this label: the site signs it when it is asked again."""
    (folder / _APPROVED).mkdir(mode=0o700, exist_ok=True)
    write_text(folder / _APPROVED / label, "")
    (folder / WAITING).unlink(missing_ok=True)
