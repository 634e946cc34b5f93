"""What an audit and a membership attack on the same code say, as a statement carries it: plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from accounting.rounding import rounded_up

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
    at : float, optional
        Rate of false positives that was counted, where it is a rate of true ones.
    """

    name: str
    found: float
    low: float
    high: float
    allowed: float
    at: float | None = None


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
        return {
            "audit": f"**{self.verdict.capitalize()}.** {self.sentence}",
            "membership": of_guesses(self.membership[0], self.games, self.excess),
        }


def of_guesses(right: Rate, games: int, excess: float) -> str:
    """Say how many guesses were right, between which ends the true share lies, and what that means for the guarantee.

    The share allowed is one of the mean: a right mechanism is above it in about every second audit, by chance.

    Parameters
    ----------
    right : Rate
        The share of right guesses.
    games : int
    excess : float
        p-value of "no more right guesses than the guarantee allows".
    """
    found = (
        f"{right.found:.1%} of {games} guesses were right, which puts the true share between {right.low:.1%} and "
        f"{right.high:.1%} (95 %); the guarantee allows {rounded_up(100 * right.allowed, 3)}% on average"
    )
    if excess < LEAK:
        return (
            f"**More often right than the guarantee allows**: {found}. Chance does not explain it (p = {excess:.2g}): "
            "the guarantee does not hold."
        )
    if right.found <= right.allowed:
        return f"**Within what the guarantee allows**: {found}."
    return (
        f"**No contradiction to the guarantee**: {found}. So few games scatter: where just that share is right in "
        f"truth, {rounded_up(100 * excess, 2)} of 100 audits find as much or more. More games narrow the interval."
    )
