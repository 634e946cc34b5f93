"""Accountants turn releases into ε. One line of `ACCOUNTANTS` each.

`tightest` chooses the one that budgets are enforced with. Imports go one way: accountants read compositions of events;
ledger, calibration and statement read accountants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from accounting import checks
from accounting.accountants import closed, google, opacus
from accounting.accountants.base import Accountant, Method
from accounting.composition import Composition
from accounting.errors import CannotAccount
from accounting.events import Event

ACCOUNTANTS: dict[str, Accountant] = {
    accountant.name: accountant
    for accountant in (
        Accountant("gdp", closed.gdp, "exact: Gaussian DP in closed form"),
        Accountant("pld", google.pld, "dp-accounting, privacy loss distributions", sampled=True),
        Accountant("rdp", google.rdp, "dp-accounting, Rényi DP", sampled=True),
        Accountant("zcdp", closed.zcdp, "zero-concentrated DP"),
        Accountant("opacus-prv", opacus.prv, "Opacus, privacy random variables", sampled=True),
        Accountant("opacus-rdp", opacus.rdp, "Opacus, Rényi DP", sampled=True),
        Accountant("opacus-gdp", opacus.gdp, "Opacus, limit theorem: not a bound", is_bound=False, sampled=True),
        Accountant("theorem", closed.theorem, "Thm 6 of the paper"),
        Accountant("advanced", closed.advanced, "advanced composition"),
        Accountant("basic", closed.basic, "basic composition"),
    )
}


@dataclass(frozen=True)
class Reading:
    """ε by one accountant, or the reason why it has none."""

    epsilon: float | None
    is_bound: bool
    reason: str = ""


def accountant(name: str) -> Accountant:
    """Return the accountant of this name."""
    return ACCOUNTANTS[checks.one_of("accountant", name, ACCOUNTANTS)]


def tightest(composition: Composition) -> Accountant:
    """Return the accountant with the smallest proved ε: the exact one, or PLD if any release is Poisson-sampled."""
    return ACCOUNTANTS["pld" if composition.sampled else "gdp"]


def compare(
    clients: Iterable[Composition | Iterable[Event]], delta: float, names: Iterable[str] | None = None
) -> dict[str, Reading]:
    """Return ε of several clients' releases by each accountant.

    Parameters
    ----------
    clients : iterable of Composition or of iterables of Event
        One entry a client. Clients hold disjoint records, so ε is the largest over clients, not a sum.
    delta : float
    names : iterable of str, optional
        Accountants to ask; all by default.

    Returns
    -------
    dict of str to Reading
    """
    compositions = distinct(client if isinstance(client, Composition) else Composition(client) for client in clients)
    return {name: _read(accountant(name), compositions, delta) for name in (ACCOUNTANTS if names is None else names)}


def distinct(compositions: Iterable[Composition]) -> list[Composition]:
    """Return the compositions without duplicates: clients often release the same."""
    return list({each.groups: each for each in compositions}.values())


def _read(reader: Accountant, compositions: list[Composition], delta: float) -> Reading:
    try:
        epsilon = max((reader.epsilon(each, delta) for each in compositions), default=0.0)
    except CannotAccount as error:
        return Reading(None, reader.is_bound, str(error))
    return Reading(epsilon, reader.is_bound)


__all__ = ["ACCOUNTANTS", "Accountant", "Method", "Reading", "accountant", "compare", "distinct", "tightest"]
