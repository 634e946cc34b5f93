"""What an audit of the same code says, as a statement carries it: plain numbers, wherever they were made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpfedvis.reporting.rounding import rounded_up

SEPARATE = (
    "The audited run is a simulation with the same code, budget, mechanism and stages, and with worst-case records "
    "of its own: no user's data were in it. A lower bound below the claim does not prove the claim: it shows how much "
    "this adversary could certify."
)


@dataclass(frozen=True)
class Audited:
    """An audit, to be shown beside the claim that it was held against.

    Parameters
    ----------
    verdict : str
        Such as "consistent" or "violated".
    claimed_epsilon, delta : float
        The claim.
    lower_bounds : mapping of str to float
        Certified lower bound on ε by method.
    confidence : float
        Of each bound.
    games : int
        Canaries played.
    stages : tuple of str
        What each client uploaded in the audited run.
    placement : str
        How its records were placed; a density counts placed records.
    command : str
        What made the numbers.
    """

    verdict: str
    claimed_epsilon: float
    delta: float
    lower_bounds: Mapping[str, float]
    confidence: float
    games: int
    stages: tuple[str, ...]
    placement: str
    command: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {**asdict(self), "stages": list(self.stages), "note": SEPARATE}

    def markdown(self) -> list[str]:
        """Return the lines of a section."""
        return [
            "## Audit",
            "",
            f"**{self.verdict.capitalize()}**: claimed ε = {rounded_up(self.claimed_epsilon)} at δ = {self.delta:g}, "
            f"for {', '.join(self.stages)} as one mechanism, with placement by {self.placement}.",
            "",
            "| method | certified ε | confidence |",
            "|---|---|---|",
            *(f"| {name} | ≥ {value:.4g} | {self.confidence:g} |" for name, value in self.lower_bounds.items()),
            "",
            f"{self.games} canaries. {SEPARATE}",
            "",
            f"Made by `{self.command}`.",
        ]
