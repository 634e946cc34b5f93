"""The plug-in point of all accountants: a name, and a function from a composition to ε."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from accounting import checks
from accounting.composition import Composition
from accounting.errors import CannotAccount
from accounting.events import Event
from accounting.gdp import root

_WIDEST = 30.0  # natural logarithm of the largest change of sigma that a search tries


class Method(Protocol):
    """ε at δ of a composition: not empty, without unprotected releases, of kinds that the accountant reads.

    Raises `CannotAccount` where it has no valid ε.
    """

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
    note : str
        Where it comes from, in one line.
    is_bound : bool
        Whether its ε is proved to be no smaller than the truth.
    sampled, discrete : bool
        Whether it reads Poisson-sampled and discrete Gaussian releases.
    """

    name: str
    method: Method
    note: str
    is_bound: bool = True
    sampled: bool = False
    discrete: bool = False

    def epsilon(self, releases: Composition | Iterable[Event], delta: float) -> float:
        """ε of one client's releases at `delta`: 0 for none, ∞ if any is unprotected.

        Raises
        ------
        CannotAccount
            If this accountant has no valid ε; the message says why.
        """
        delta = checks.probability("delta", delta)
        composition = releases if isinstance(releases, Composition) else Composition(releases)
        if composition.unprotected:
            return math.inf
        if composition.empty:
            return 0.0
        if composition.sampled and not self.sampled:
            raise CannotAccount(f"{self.name} has no valid ε for Poisson-sampled releases; use pld")
        if composition.discrete and not self.discrete:
            raise CannotAccount(f"{self.name} has no valid ε for discrete Gaussian releases; use zcdp or rdp")
        try:
            with quiet():
                epsilon = self.method(composition, delta)
        except (OverflowError, ZeroDivisionError, FloatingPointError) as error:
            raise CannotAccount(f"{self.name} overflows at δ = {delta:g} ({error})") from error
        if not epsilon >= 0:
            raise CannotAccount(f"{self.name} returned ε = {epsilon}")
        return epsilon

    def sigma_factor(self, releases: Composition | Iterable[Event], epsilon: float, delta: float) -> float:
        """Factor by which to multiply every sigma so that this accountant reports exactly `epsilon`.

        Raises
        ------
        CannotAccount
            If no noise gives that ε (Opacus's Rényi orders end at 63, so its ε stays above about log(1/δ)/62), or the
            releases have no valid ε.
        """
        checks.positive("epsilon", epsilon)
        composition = releases if isinstance(releases, Composition) else Composition(releases)
        if composition.empty or composition.unprotected:
            raise CannotAccount("there is no protected release to scale the noise of")

        def excess(log_factor: float) -> float:
            if abs(log_factor) > _WIDEST:
                raise CannotAccount(f"{self.name} finds no noise with ε = {epsilon:g} at δ = {delta:g}")
            return self.epsilon(composition.scaled(math.exp(log_factor)), delta) - epsilon

        low = high = 0.0
        if excess(0.0) > 0:
            while excess(high := high + 1) > 0:
                low = high
        else:
            while excess(low := low - 1) <= 0:
                high = low
        return math.exp(root(excess, low, high, absolute=1e-7))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings of numerical accountants during their search: they end in a number or a named error."""
    absl = logging.getLogger("absl")
    level = absl.level
    absl.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        absl.setLevel(level)
