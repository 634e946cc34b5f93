"""What all runs cost the records of several ledgers at most."""

from __future__ import annotations

import math

from accounting.risk import Risk
from accounting.statement import AllRuns
from dpfedvis.runs.account import worst


def risk(mu: float | None, advantage: float) -> Risk:
    return Risk(mu, advantage, ((0.01, advantage),))


def test_the_worst_has_the_largest_epsilon_and_the_largest_risk() -> None:
    """The ledger with the largest ε is not always that with the largest risk."""
    first, second = AllRuns(2.0, 3, risk=risk(None, 0.2)), AllRuns(1.9, 2, changed=True, risk=risk(0.7, 0.4))
    for found in (worst([first, second]), worst([second, first])):
        assert (found.epsilon, found.runs, found.changed) == (2.0, 3, True)
        assert found.risk == Risk(None, 0.4, ((0.01, 0.4),))


def test_a_risk_that_is_not_known_is_not_replaced_by_a_known_one() -> None:
    assert worst([AllRuns(2.0, 3), AllRuns(1.9, 2, risk=risk(0.7, 0.4))]).risk is None
    assert worst([AllRuns(math.inf, 1, risk=risk(math.inf, 1.0))]).risk == risk(math.inf, 1.0)
