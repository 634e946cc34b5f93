"""Findings: what contradicts the ledger, beyond what chance explains.

A check either proves something without chance, or has a p-value: a bound on the probability that code which keeps its
word looks so odd. All checks of one audit together raise a false alarm with probability at most `ALARM` (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ALARM = 1e-4


@dataclass(frozen=True)
class Finding:
    """One contradiction.

    Parameters
    ----------
    check : str
        Name of the check.
    where : str
        Stage, round, coordinate or client.
    p_value : float
        0 where no chance is in it.
    words : str
        One sentence.
    """

    check: str
    where: str
    p_value: float
    words: str


@dataclass(frozen=True)
class Checked:
    """What some checks found, before it is known how many there are in all.

    Parameters
    ----------
    tests : int
        Tests with a p-value.
    odd : tuple of Finding
        The oddest of each kind, with their own p-values.
    """

    tests: int = 0
    odd: tuple[Finding, ...] = ()


def joined(parts: Iterable[Checked]) -> tuple[int, tuple[Finding, ...]]:
    """Return the number of tests, and the findings that remain when all of them share one false alarm rate.

    Of findings of one check at one place the first is kept.
    """
    every = list(parts)
    tests = sum(each.tests for each in every)
    found: dict[tuple[str, str], Finding] = {}
    for finding in (finding for each in every for finding in each.odd):
        if finding.p_value * max(tests, 1) < ALARM:
            found.setdefault((finding.check, finding.where), finding)
    return tests, tuple(found.values())
