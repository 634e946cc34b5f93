"""The budget: the ε and δ that may be spent, the privacy unit, and the part of a run that it covers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from accounting import checks
from accounting.errors import InvalidParameter
from accounting.gdp import gaussian_mu

Adjacency = Literal["replace-one", "add-remove"]
Unit = Literal["record", "person", "client"]
Scope = Literal["end-to-end", "landmarks"]

ADJACENCIES: tuple[str, ...] = get_args(Adjacency)
UNITS: tuple[str, ...] = get_args(Unit)
SCOPES: tuple[str, ...] = get_args(Scope)
MOST_ROWS = 1_000_000  # of a person


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
    unit : {"record", "person", "client"}
        Privacy unit: one record, one person with up to `rows_per_person` records at a client, or one client with all
        its records.
    scope : {"end-to-end", "landmarks"}
        ``"end-to-end"`` covers every byte that leaves a client. ``"landmarks"`` covers the learning of the landmarks
        only, as in Thm 6 of the paper. Later releases are then not covered, and ε end to end is ∞ if one of them is
        unprotected.
    rows_per_person : int, optional
        Most records of a person that take part, where the unit is a person; 1 by default. Where it is a record,
        statements say what ε is for a person with so many.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency = "replace-one"
    unit: Unit = "record"
    scope: Scope = "end-to-end"
    rows_per_person: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", checks.positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", checks.probability("delta", self.delta))
        checks.one_of("adjacency", self.adjacency, ADJACENCIES)
        checks.one_of("unit", self.unit, UNITS)
        checks.one_of("scope", self.scope, SCOPES)
        if self.unit == "person" and self.rows_per_person is None:
            object.__setattr__(self, "rows_per_person", 1)
        if self.rows_per_person is not None:
            if self.unit == "client":
                raise InvalidParameter("rows_per_person", self.rows_per_person, "left out where the unit is a client")
            checks.whole("rows_per_person", self.rows_per_person, 1, MOST_ROWS)

    @property
    def mu(self) -> float:
        """Largest μ of a Gaussian release that this budget allows."""
        return gaussian_mu(self.epsilon, self.delta)

    @property
    def hides_records(self) -> bool:
        """Whether the number of a client's records is private: under add-remove, or if the unit is a client."""
        return self.adjacency == "add-remove" or self.unit == "client"

    @property
    def hides_rows(self) -> bool:
        """Whether the number of a client's rows is private: also where persons are public, and their rows are not."""
        return self.hides_records or self.unit == "person"

    @property
    def rows(self) -> int:
        """Most records of one privacy unit in an upload, where that is bounded: 1, or those of a person."""
        return self.rows_per_person or 1 if self.unit == "person" else 1

    def covers(self, stage: str) -> bool:
        """Whether an event of this stage is inside the budget's scope."""
        return self.scope == "end-to-end" or stage != "release"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON; without rows of a person where none are said."""
        found = asdict(self)
        return found if self.rows_per_person is not None else {k: v for k, v in found.items() if k != "rows_per_person"}
