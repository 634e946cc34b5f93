"""A bound: its value, when it holds, and whether it is vacuous."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from accounting import checks

Norm = Literal["spectral", "frobenius"]
Form = Literal["printed", "corrected", "ours"]
NORMS: tuple[Norm, ...] = ("spectral", "frobenius")
# Errors below this fraction of the matrix are rounding, and refute no bound.
FLOOR = 1e-7


@dataclass(frozen=True)
class Bound:
    """One theorem or certificate, evaluated.

    Parameters
    ----------
    statement : str
        Its name: "Thm 5", "Lemma 1", "certificate".
    form : {"printed", "corrected", "ours"}
        As printed in the paper; corrected with the same ingredients; or our own.
    value : float or None
        None if the precondition fails: then there is no bound.
    norm : {"spectral", "frobenius"}, optional
    holds_with : float
        Claimed probability that the bound holds; 1 for deterministic ones.
    trivial : float, optional
        Bound that always holds; a value of at least this is vacuous.
    precondition : str
        Which precondition fails; empty if none.
    is_floor : bool
        Whether the exact value is only known to be at least `value` (beyond float64, or too expensive).
    note : str
        Remark about this value.
    """

    statement: str
    form: Form
    value: float | None
    norm: Norm | None = None
    holds_with: float = 1.0
    trivial: float | None = None
    precondition: str = ""
    is_floor: bool = False
    note: str = ""

    @property
    def vacuous(self) -> bool:
        """Whether it is no better than the trivial bound, or its precondition fails."""
        if self.value is None:
            return True
        return self.trivial is not None and not self.value < self.trivial

    def below(self, truth: float) -> bool:
        """Whether the truth exceeds it by more than rounding, which refutes the bound."""
        return self.value is not None and self.value < truth - FLOOR * (self.trivial or 0.0)

    def __str__(self) -> str:
        """Return the verdict, as a sentence without its full stop."""
        name = f"{self.statement} {self.form}" + ("" if self.norm is None else f", {self.norm}")
        if self.value is None:
            return f"{name}: no statement, {self.precondition}"
        size = f"{'at least ' if self.is_floor else ''}{self.value:.4g}"
        if self.trivial is None:
            return f"{name}: {size}"
        side = "vacuous, not below" if self.vacuous else "below"
        return f"{name}: {size}, {side} the trivial {self.trivial:.4g}"

    def as_json(self) -> dict[str, Any]:
        """Return plain values. JSON has no infinity: an infinite value is null with `infinite` set."""
        infinite = self.value is not None and math.isinf(self.value)
        return {
            "statement": self.statement,
            "form": self.form,
            "norm": self.norm,
            "value": None if infinite else self.value,
            "infinite": infinite,
            "is_floor": self.is_floor,
            "holds_with": self.holds_with,
            "trivial": self.trivial,
            "vacuous": self.vacuous,
            "precondition": self.precondition,
            "note": self.note,
        }


def trivial_error(records: int, norm: Norm, *, noisy_records: bool = False) -> float:
    """Return the bound on ‖K̂ − K‖ that holds for all landmarks.

    Exact records: 0 ⪯ E = K − K̂ ⪯ K, so ‖E‖₂ ≤ ‖K‖₂ ≤ n_x and ‖E‖_F ≤ ‖K‖_F ≤ n_x, as entries of K are at most 1.
    Noisy records: K̂ ⪯ K̃ and both K̂ and K are PSD, with norms at most n_x. Then ‖K̂ − K‖₂ ≤ max(‖K̂‖₂, ‖K‖₂) ≤ n_x,
    and ‖K̂ − K‖²_F = ‖K̂‖²_F + ‖K‖²_F − 2 tr(K̂K) ≤ 2n_x², since a product of PSD matrices has trace at least 0.
    """
    records = checks.count("records", records)
    checks.one_of("norm", norm, NORMS)
    return records * (math.sqrt(2) if norm == "frobenius" and noisy_records else 1.0)
