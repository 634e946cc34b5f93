"""The plug-in point of all accountants: a named reader that says what a composition costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from accounting import checks
from accounting.composition import Composition
from accounting.errors import CannotAccount
from accounting.events import Event
from accounting.quiet import quiet
from accounting.roots import root

_WIDEST = 30.0  # natural logarithm of the largest change of sigma that a search tries


class Method(Protocol):
    """ε of a non-empty composition without unprotected releases, at δ; raises `CannotAccount` where it has none."""

    def __call__(self, composition: Composition, delta: float) -> float: ...


@dataclass(frozen=True)
class Accountant:
    """A way of turning releases into ε.

    Parameters
    ----------
    name : str
        Short name, as on the command line.
    method : Method
        The computation.
    is_bound : bool
        Whether its ε is proved to be no smaller than the truth.
    note : str
        Where it comes from, in one line.
    """

    name: str
    method: Method
    is_bound: bool
    note: str

    def epsilon(self, releases: Composition | Iterable[Event], delta: float) -> float:
        """ε of one client's releases at `delta`: 0 for none, ∞ if any is unprotected.

        Raises
        ------
        CannotAccount
            If this accountant has no valid statement; the message says why.
        """
        delta = checks.probability("delta", delta)
        composition = releases if isinstance(releases, Composition) else Composition(releases)
        if composition.unprotected:
            return math.inf
        if composition.empty:
            return 0.0
        try:
            with quiet():
                epsilon = self.method(composition, delta)
        except (OverflowError, ZeroDivisionError, FloatingPointError) as error:
            raise CannotAccount(f"{self.name} leaves the range of its arithmetic at δ = {delta:g} ({error})") from error
        if not epsilon >= 0:
            raise CannotAccount(f"{self.name} returned ε = {epsilon}")
        return epsilon

    def sigma_factor(self, releases: Composition | Iterable[Event], epsilon: float, delta: float) -> float:
        """Factor on every sigma at which this accountant reports exactly `epsilon`.

        Above 1 it asks for more noise than there is, below 1 for less.

        Raises
        ------
        CannotAccount
            If it reports that ε at no noise (Opacus's Rényi orders end at 63, which leaves a floor of
            ε ≈ log(1/δ)/62), or cannot read the releases.
        """
        checks.positive("epsilon", epsilon)
        composition = releases if isinstance(releases, Composition) else Composition(releases)
        if composition.empty or composition.unprotected:
            raise CannotAccount("there is no protected release whose noise could be scaled")

        def excess(log_factor: float) -> float:
            if abs(log_factor) > _WIDEST:
                raise CannotAccount(f"{self.name} reports ε = {epsilon:g} at δ = {delta:g} for no noise that was tried")
            return self.epsilon(composition.scaled(math.exp(log_factor)), delta) - epsilon

        low = high = 0.0
        if excess(0.0) > 0:
            while excess(high := high + 1) > 0:
                low = high
        else:
            while excess(low := low - 1) <= 0:
                high = low
        return math.exp(root(excess, low, high, absolute=1e-7))
