"""Named errors, each carrying the numbers that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accounting.budget import Budget


class AccountingError(Exception):
    """Base class of every error raised by this package."""


class InvalidParameter(AccountingError, ValueError):
    """A parameter is outside the range in which the result means anything.

    Parameters
    ----------
    name : str
        The parameter.
    value : object
        What was given.
    expected : str
        What would have been accepted.
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"{name} must be {expected}, but is {value!r}")
        self.name, self.value, self.expected = name, value, expected


class CannotAccount(AccountingError):
    """An accountant has no valid statement about these events; the message says why."""


class BudgetExceeded(AccountingError):
    """A release was refused because it would overspend the budget; nothing was recorded.

    Attributes
    ----------
    spent : float
        ε spent so far by the client, at the budget's δ.
    requested : float
        ε that the refused releases cost by themselves, at the budget's δ.
    total : float
        ε that the client would have spent after them.
    budget : Budget
        The budget that holds.
    client : str
        Whose budget it is.
    """

    def __init__(self, *, spent: float, requested: float, total: float, budget: Budget, client: str) -> None:
        super().__init__(
            f"{client}: a release of ε = {requested:.6g} on top of ε = {spent:.6g} makes ε = {total:.6g}, "
            f"over the budget of ε = {budget.epsilon:.6g} at δ = {budget.delta:g}; nothing was released"
        )
        self.spent, self.requested, self.total = spent, requested, total
        self.budget, self.client = budget, client


class UnprotectedReleaseError(BudgetExceeded):
    """Something without any guarantee was to leave a client under a budget that covers it."""

    def __init__(self, *, what: str, why: str, spent: float, budget: Budget, client: str, hint: str = "") -> None:
        super().__init__(spent=spent, requested=float("inf"), total=float("inf"), budget=budget, client=client)
        self.what, self.why, self.hint = what, why, hint
        self.args = (
            f"{client}: {what} has no guarantee ({why}), so ε would be ∞, over the budget of "
            f"ε = {budget.epsilon:.6g} with scope {budget.scope!r}; nothing was released"
            + (f". {hint}" if hint else ""),
        )


class LedgerError(AccountingError):
    """The ledger cannot do what was asked of it."""


class LedgerCorrupted(LedgerError):
    """The ledger's file is torn or was edited; the message names the place."""
