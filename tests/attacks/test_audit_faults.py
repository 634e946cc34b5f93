"""The auditor finds planted faults, and has nothing to say of the code as it is.

A few faults in every run; the whole catalogue and twenty seeds with --hypothesis-profile=thorough, some twenty minutes.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from accounting import Budget
from attacks import audit
from attacks.auditing import AuditResult, NoiseAudit, PipelineAudit, RecordAudit
from dpfedvis.mechanisms import GradientPerturbation, KMeans, Mechanism
from tests.attacks.planted_faults import BUDGET, FAULTS, Fault

SMALL: dict[str, dict[str, Any]] = {
    "noise": {"canaries": 2000, "rounds": 4},
    "records": {"games": 40, "rounds": 2},
    "pipeline": {"games": 20},
}
FULL: dict[str, dict[str, Any]] = {"noise": {}, "records": {}, "pipeline": {"games": 1000}}  # of the command line
SOON = {
    "half the noise",
    "a share of σ/P for σ/√P",
    "the same noise every round",
    "a fixed seed for every stream",
    "the system's noise is seeded",
    "noise of one client missing",
    "k-means counts without noise",
    "noise on a coarser grid",
    "bounded noise",
    "noise that cancels in pairs of values",
    "an upload's noise from eight draws",
    "add-remove Δ under replace-one",
    "a record's noise for unit client",
    "offsets unclipped",
    "moments unclipped",
    "second moments clipped at 1.2 C",
    "clipped gradients unclipped",
    "τ ignored",
    "weights in the sum doubled",
    "a round not recorded",
    "rounding not charged",
}
CLAIMS: list[tuple[str, Mechanism]] = [
    ("noise", GradientPerturbation()),
    ("records", GradientPerturbation()),
    ("records", KMeans(trust="aggregate")),
    ("pipeline", KMeans()),
]
LEVELS: dict[str, Any] = {"noise": NoiseAudit, "records": RecordAudit, "pipeline": PipelineAudit}

thorough = pytest.mark.skipif(settings.get_current_profile_name() != "thorough", reason="takes many minutes")


def missed(faults: list[Fault], sizes: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Audit each fault, and return those that are not called violated, with what the audit says."""
    found: dict[str, str] = {}
    for fault in faults:
        with pytest.MonkeyPatch.context() as patch:
            result = fault.audited(patch, **sizes[fault.level])
        if result.verdict != "violated":
            found[fault.name] = f"{result.verdict}: {result.sentence}"
    return found


def test_some_faults_are_found_by_few_games() -> None:
    faults = [fault for fault in FAULTS if fault.name in SOON]
    assert len(faults) == len(SOON)
    assert missed(faults, SMALL) == {}


@thorough
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_of_the_catalogue_is_found(fault: Fault) -> None:
    assert missed([fault], FULL) == {}


def claimed(level: str, mechanism: Mechanism, seed: int, sizes: dict[str, Any]) -> AuditResult:
    return audit(mechanism, BUDGET, level=LEVELS[level](seed=seed, **sizes))


@pytest.mark.parametrize(("level", "mechanism"), CLAIMS, ids=lambda each: getattr(each, "trust", each))
def test_the_code_as_it_is_passes(level: str, mechanism: Mechanism) -> None:
    result = claimed(level, mechanism, 1, SMALL[level])
    assert result.verdict in ("consistent", "suspect"), result
    assert result.findings == ()
    assert result.tests > 50


@thorough
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("level", "mechanism"), CLAIMS, ids=lambda each: getattr(each, "trust", each))
def test_the_code_as_it_is_passes_on_twenty_seeds(level: str, mechanism: Mechanism, seed: int) -> None:
    result = claimed(level, mechanism, seed, {**FULL[level], **({"games": 300} if level == "pipeline" else {})})
    assert result.findings == ()
    assert result.verdict != "violated", result


def test_a_budget_for_whole_clients_is_audited() -> None:
    result = audit("gradient", Budget(4.0, 1e-5, unit="client"), level=RecordAudit(games=60, rounds=2))
    assert result.findings == ()
    assert result.facts["reach"] == pytest.approx(1.0, abs=1e-3)


def test_uploads_whose_low_bits_are_dropped_are_audited() -> None:
    """A budget so small that the noise needs a coarser grid: the auditor drops the same bits."""
    result = audit("gradient", Budget(1e-11, 1e-12), level=RecordAudit(games=40, rounds=2))
    assert result.findings == ()


def test_the_catalogue_has_no_fault_twice() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) >= 20
