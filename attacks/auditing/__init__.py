"""Audits: compare the ledger's ε with a lower bound that an adversary certifies.

    audit("gradient", Budget(4, 1e-5))                              # whole runs with worst-case records
    audit("gradient", Budget(4, 1e-5), level=NoiseAudit())          # thousands of canaries in the noise path
    audit("k-means", Budget(4, 1e-5), level=PipelineAudit())        # all stages of an end-to-end map as one mechanism

All give a lower bound on ε at a stated confidence, by two methods: Gaussian trade-off with Clopper & Pearson's rates,
and the one-run method of Steinke, Nasr & Jagielski (2023). A bound above the claim shows that the claim is wrong. A
bound below it shows nothing but how much this adversary could certify. Beside the games, noise, integers and ledger are
tested directly (`attacks.auditing.findings`). `audit_uploads` audits a recorded run of any
number of stages as one mechanism, and `audit_games` takes scores from anywhere.
"""

from __future__ import annotations

from typing import Protocol

from accounting import Budget
from attacks.auditing.bounds import Claim
from attacks.auditing.canaries import Scene
from attacks.auditing.evidence import Prediction, Predictor, Seen, Watcher
from attacks.auditing.games import audit_games, audit_uploads
from attacks.auditing.noise import NoiseAudit
from attacks.auditing.pipeline import PipelineAudit
from attacks.auditing.records import RecordAudit
from attacks.auditing.result import AuditResult, Guesses, LowerBound
from dpfedvis.mechanisms import Mechanism, mechanism

__all__ = [
    "AuditResult",
    "Claim",
    "Guesses",
    "Level",
    "LowerBound",
    "NoiseAudit",
    "PipelineAudit",
    "Prediction",
    "Predictor",
    "RecordAudit",
    "Scene",
    "Seen",
    "Watcher",
    "audit",
    "audit_games",
    "audit_uploads",
]


class Level(Protocol):
    """A way to play games against a mechanism: the plug-in point."""

    def run(self, mechanism: Mechanism, budget: Budget | None) -> AuditResult: ...


def audit(choice: Mechanism | str, budget: Budget | None = None, *, level: Level | None = None) -> AuditResult:
    """Audit a mechanism at a budget.

    Parameters
    ----------
    choice : Mechanism or str
        A mechanism, or its short name.
    budget : Budget, optional
        Needed by every mechanism that protects. One that protects nothing has no claim, and the result says what lower
        bound was found.
    level : Level, optional
        `RecordAudit` (the default), `NoiseAudit` or `PipelineAudit`, with their settings.

    Returns
    -------
    AuditResult
    """
    return (level or RecordAudit()).run(mechanism(choice), budget)
