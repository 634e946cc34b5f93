"""Accountants: readers of events that say what they cost, all behind one interface.

`ACCOUNTANTS` holds every one by name; `tightest` is the one that budgets are kept by.
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
        Accountant("gdp", closed.gdp, True, "exact: Gaussian DP in closed form"),
        Accountant("pld", google.pld, True, "dp-accounting, privacy loss distributions"),
        Accountant("rdp", google.rdp, True, "dp-accounting, Rényi DP"),
        Accountant("zcdp", closed.zcdp, True, "zero-concentrated DP; covers the discrete Gaussian"),
        Accountant("opacus-prv", opacus.prv, True, "Opacus, privacy random variables"),
        Accountant("opacus-rdp", opacus.rdp, True, "Opacus, Rényi DP"),
        Accountant("opacus-gdp", opacus.gdp, False, "Opacus, central limit theorem: approximation, not a bound"),
        Accountant("theorem", closed.theorem, True, "Thm 6 of the paper"),
        Accountant("advanced", closed.advanced, True, "advanced composition"),
        Accountant("basic", closed.basic, True, "basic composition"),
    )
}


@dataclass(frozen=True)
class Reading:
    """What one accountant said: ε, or why it could not say."""

    epsilon: float | None
    is_bound: bool
    reason: str = ""


def accountant(name: str) -> Accountant:
    """Return the accountant of this name."""
    return ACCOUNTANTS[checks.one_of("accountant", name, ACCOUNTANTS)]


def tightest(composition: Composition) -> Accountant:
    """Return the accountant with the smallest proved ε for releases of these kinds.

    Plain Gaussian: exact. With Poisson sampling: PLD. With the discrete Gaussian: zCDP. With both: RDP.
    """
    if composition.sampled:
        return ACCOUNTANTS["rdp" if composition.discrete else "pld"]
    return ACCOUNTANTS["zcdp" if composition.discrete else "gdp"]


def compare(
    clients: Iterable[Composition | Iterable[Event]], delta: float, names: Iterable[str] = tuple(ACCOUNTANTS)
) -> dict[str, Reading]:
    """Let each accountant read the releases of several clients.

    Parameters
    ----------
    clients : iterable of Composition or of iterables of Event
        One entry a client. Clients hold disjoint records, so that the result is the largest over clients.
    delta : float
    names : iterable of str
        Accountants to ask.

    Returns
    -------
    dict of str to Reading
    """
    compositions = distinct(client if isinstance(client, Composition) else Composition(client) for client in clients)
    return {name: _read(accountant(name), compositions, delta) for name in names}


def distinct(compositions: Iterable[Composition]) -> list[Composition]:
    """Return compositions without those that equal an earlier one: many clients often release the same."""
    return list({each.groups: each for each in compositions}.values())


def _read(reader: Accountant, compositions: list[Composition], delta: float) -> Reading:
    try:
        epsilon = max((reader.epsilon(each, delta) for each in compositions), default=0.0)
    except CannotAccount as error:
        return Reading(None, reader.is_bound, str(error))
    return Reading(epsilon, reader.is_bound)


__all__ = ["ACCOUNTANTS", "Accountant", "Method", "Reading", "accountant", "compare", "distinct", "tightest"]
