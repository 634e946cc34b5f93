"""What an audit holds against the code: the ε that a ledger claims, or none."""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting import Ledger, checks
from accounting.errors import InvalidParameter


@dataclass(frozen=True)
class Claim:
    """An upper bound on ε at δ, to be held against what is seen.

    Parameters
    ----------
    epsilon : float
        ``inf`` where nothing is claimed.
    delta : float
    mu : float, optional
        GDP parameter, where all releases are Gaussian; None otherwise, and then no bound assumes Gaussian noise.
    source : str
        Who says so.
    """

    epsilon: float
    delta: float
    mu: float | None = None
    source: str = "given"

    def __post_init__(self) -> None:
        checks.probability("delta", self.delta)
        if self.epsilon != math.inf:
            checks.nonnegative("epsilon", self.epsilon)
        if self.mu is not None:
            checks.positive("mu", self.mu)

    @property
    def exists(self) -> bool:
        """Whether anything is claimed at all."""
        return self.epsilon != math.inf

    @classmethod
    def of_ledger(cls, ledger: Ledger, delta: float) -> Claim:
        """Return what a ledger claims for everything that left a client, the largest over clients.

        μ is √Σ (Δ/σ)² where all releases are Gaussian or discrete Gaussian; a sampled one has no μ.
        """
        if len(ledger) == 0:
            raise InvalidParameter("ledger", "empty", "that of a run: nothing was released, so that nothing is claimed")
        totals = [ledger.composition(client, end_to_end=True) for client in ledger.clients]
        plain = all(not each.unprotected and not each.sampled for each in totals)
        mu = max(each.total_mu for each in totals) if plain else None
        return cls(ledger.spent(delta, end_to_end=True), delta, mu or None, "ledger")
