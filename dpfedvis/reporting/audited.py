"""What an audit and a membership attack on the same code say, as a statement carries it: plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpfedvis.reporting.rounding import rounded_up

SEPARATE = (
    "The audited runs are simulations with the same code, budget, mechanism and stages, and with worst-case records "
    "of their own: no user's data were in them. A lower bound below the claim does not prove the claim: it shows how "
    "much this adversary could certify."
)
LEAK = 1e-3  # p-value below which chance does not explain more right guesses than the guarantee allows


@dataclass(frozen=True)
class Rate:
    """How often an adversary succeeded, and how often the guarantee lets any succeed.

    Parameters
    ----------
    name : str
    found, low, high : float
        Estimate and its interval at confidence 95 %.
    allowed : float
    """

    name: str
    found: float
    low: float
    high: float
    allowed: float


@dataclass(frozen=True)
class Audited:
    """An audit and a membership attack, to be shown beside the claim that they were held against.

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
        What each client uploaded in the audited runs.
    trust : str
        Whether the server saw each client's uploads or their sum.
    placement : str
        How records were placed; a density counts placed records.
    membership : tuple of Rate
        Of the same games.
    excess : float
        p-value of "no more right guesses than the guarantee allows".
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
    trust: str
    placement: str
    membership: tuple[Rate, ...]
    excess: float
    command: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        rates = [asdict(rate) for rate in self.membership]
        return {**asdict(self), "stages": list(self.stages), "membership": rates, "note": SEPARATE}

    def markdown(self) -> list[str]:
        """Return the lines of two sections."""
        told = "More often right than" if self.excess < LEAK else "Within what"
        return [
            "## Audit",
            "",
            f"**{self.verdict.capitalize()}**: claimed ε = {rounded_up(self.claimed_epsilon)} at δ = {self.delta:g}, "
            f"for {', '.join(self.stages)} as one mechanism, with trust {self.trust} and placement by "
            f"{self.placement}.",
            "",
            "| method | certified ε | confidence |",
            "|---|---|---|",
            *(f"| {name} | ≥ {value:.4g} | {self.confidence:g} |" for name, value in self.lower_bounds.items()),
            "",
            f"{self.games} canaries. {SEPARATE}",
            "",
            "## Membership attack",
            "",
            f"**{told} the guarantee allows** (p = {self.excess:.2g}, by right guesses). The same games, and the "
            "best test there is for them: was it x or x′, from all uploads of all stages, when all other records are "
            "known?",
            "",
            "| | found (95 %) | most that the guarantee allows |",
            "|---|---|---|",
            *(f"| {each.name} | {each.found:.4g} ({each.low:.4g} to {each.high:.4g}) | {each.allowed:.4g} |"
              for each in self.membership),
            "",
            "One interval in twenty misses its rate by chance. The test by right guesses is exact, and was fixed "
            "before the games.",
            "",
            f"Both were made by `{self.command}`.",
        ]  # fmt: skip
