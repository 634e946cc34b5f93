"""What an audit and a membership attack on the same code say, as a statement carries it: plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from accounting.rounding import rounded_down

SEPARATE = (
    "The audited runs are simulations with the same code, budget, mechanism and stages: no user's data were in them. "
    "Clients, records, features, landmarks and layout are the audit's own, and a density by class is audited as one "
    "over all classes. A lower bound below the claim does not prove the claim: it shows how much this adversary could "
    "certify."
)
HARDLY = 0.3  # of a stage's sensitivity: an audit that moves it less says little of it
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
    sentence : str
        The verdict in words.
    moved : mapping of str to float
        What each client uploaded in the audited runs → how far the canaries moved it, over its sensitivity; the mean.
    trust : str
        Whether the server saw each client's uploads or their sum.
    noise : str
        Its source.
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
    sentence: str
    moved: Mapping[str, float]
    trust: str
    noise: str
    membership: tuple[Rate, ...]
    excess: float
    command: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        rates = [asdict(rate) for rate in self.membership]
        return {**asdict(self), "moved": dict(self.moved), "membership": rates, "leaks": self.leaks, "note": SEPARATE}

    @property
    def leaks(self) -> bool:
        """Whether there were more right guesses than the guarantee allows, beyond chance."""
        return self.excess < LEAK

    def markdown(self) -> list[str]:
        """Return the lines of two sections."""
        told = "More often right than" if self.leaks else "Within what"
        hardly = [name for name, share in self.moved.items() if share < HARDLY]
        again = "" if self.noise == "seeded" else " Its noise is new each time, and so are the numbers."
        return [
            "## Audit",
            "",
            f"**{self.verdict.capitalize()}.** {self.sentence} The claim is for {', '.join(self.moved)} as one "
            f"mechanism, with trust {self.trust}.",
            "",
            "| method | certified ε | confidence |",
            "|---|---|---|",
            *(f"| {name} | ≥ {rounded_down(value)} | {self.confidence:g} |"
              for name, value in self.lower_bounds.items()),
            "",
            f"{self.games} canaries, each one of two far, orthogonal records. {SEPARATE}",
            "",
            "Parts of the stated sensitivity that the canaries moved, on the average: "
            + ", ".join(f"{name} {share:.2g}" for name, share in self.moved.items()) + ".",
            *([f"Hardly tested, therefore: {', '.join(hardly)}."] if hardly else []),
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
            f"Both were made by `{self.command}`.{again}",
        ]  # fmt: skip
