"""What an audit and a membership attack on the same code say, as a statement carries it: plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SEPARATE = (
    "The audited runs are simulations with the same code, budget, mechanism and stages. No user's data were in them: "
    "clients, records, features, landmarks and layout are the audit's own. A density by class is audited as one over "
    "all classes. A lower bound below the claim does not prove the claim; it is what this adversary could certify."
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
        hardly = [name for name, share in self.moved.items() if share < HARDLY]
        own = {**asdict(self), "moved": dict(self.moved), "membership": rates}
        return {**own, "hardly_moved": hardly, "leaks": self.leaks, "note": SEPARATE, "words": self.words}

    @property
    def leaks(self) -> bool:
        """Whether there were more right guesses than the guarantee allows, beyond chance."""
        return self.excess < LEAK

    @property
    def words(self) -> dict[str, str]:
        """What the audit and the membership attack found, in Markdown."""
        right = self.membership[0]
        told = "More often right than" if self.leaks else "Within what"
        return {
            "audit": f"**{self.verdict.capitalize()}.** {self.sentence}",
            "membership": f"**{told} the guarantee allows**: {right.found:.1%} of {self.games} guesses were right; the "
            f"guarantee allows {right.allowed:.1%} (p = {self.excess:.2g}).",
        }
