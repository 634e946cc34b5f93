"""Named errors, with the numbers that they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accounting.budget import Budget


_LONGEST = 1000  # characters of a value in a message


class AccountingError(Exception):
    """Base class of every error raised by this package."""


class InvalidParameter(AccountingError, ValueError):
    """A parameter is outside its valid range.

    Parameters
    ----------
    name : str
        The parameter.
    value : object
        What was given.
    expected : str
        What would be valid.
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"{name} must be {expected}, but is {_shown(value)}")
        self.name, self.value, self.expected = name, value, expected


def _shown(value: object) -> str:
    """Return a value for a message: all of it, unless it is very long or cannot be shown."""
    try:
        shown = repr(value)
    except Exception as error:  # such as an int of more digits than Python prints
        return f"a {type(value).__name__} that cannot be shown ({error})"
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"


class CannotAccount(AccountingError):
    """An accountant has no valid ε for these events; the message says why."""


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
    """A release without any guarantee was refused, because the budget covers it."""

    def __init__(self, *, what: str, why: str, spent: float, budget: Budget, client: str, hint: str = "") -> None:
        super().__init__(spent=spent, requested=float("inf"), total=float("inf"), budget=budget, client=client)
        self.what, self.why, self.hint = what, why, hint
        self.args = (
            f"{client}: {what} has no guarantee ({why}), so ε would be ∞, over the budget of "
            f"ε = {budget.epsilon:.6g} with scope {budget.scope!r}; nothing was released"
            + (f". {hint}" if hint else ""),
        )


class LedgerError(AccountingError):
    """The ledger cannot do this; the message says why."""


class LedgerCorrupted(LedgerError):
    """The ledger's file is damaged or was edited; the message says where."""
