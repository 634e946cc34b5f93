"""The budget: the ε and δ that may be spent, the privacy unit, and the part of a run that it covers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from accounting import checks
from accounting.gdp import gaussian_mu

Adjacency = Literal["replace-one", "add-remove"]
Unit = Literal["record", "client"]
Scope = Literal["end-to-end", "landmarks"]

ADJACENCIES: tuple[str, ...] = get_args(Adjacency)
UNITS: tuple[str, ...] = get_args(Unit)
SCOPES: tuple[str, ...] = get_args(Scope)


@dataclass(frozen=True)
class Budget:
    """An (ε, δ) that no client may exceed.

    Parameters
    ----------
    epsilon : float
        Above 0 and finite.
    delta : float
        Strictly between 0 and 1. To mean anything it must be well below one over the number of records.
    adjacency : {"replace-one", "add-remove"}
        Which data sets count as neighbours. Replace-one keeps the number of records public; add-remove hides it, and
        then every mean needs a public denominator.
    unit : {"record", "client"}
        Privacy unit: one record, or one client with all its records.
    scope : {"end-to-end", "landmarks"}
        ``"end-to-end"`` covers every byte that leaves a client. ``"landmarks"`` covers the learning of the landmarks
        only, as in Thm 6 of the paper. Later releases are then not covered, and ε end to end is ∞ if one of them is
        unprotected.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "replace-one"
    unit: Unit = "record"
    scope: Scope = "end-to-end"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", checks.probability("delta", self.delta))
        checks.one_of("adjacency", self.adjacency, ADJACENCIES)
        checks.one_of("unit", self.unit, UNITS)
        checks.one_of("scope", self.scope, SCOPES)

    @property
    def mu(self) -> float:
        """Largest μ of a Gaussian release that this budget allows."""
        return gaussian_mu(self.epsilon, self.delta)

    @property
    def hides_records(self) -> bool:
        """Whether the number of a client's records is private: under add-remove, or if the unit is a client."""
        return self.adjacency == "add-remove" or self.unit == "client"

    def covers(self, stage: str) -> bool:
        """Whether an event of this stage is inside the budget's scope."""
        return self.scope == "end-to-end" or stage != "release"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self)
