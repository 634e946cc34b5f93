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
from accounting.errors import AccountingError, CannotAccount
from accounting.events import Event
from accounting.exactness import MOST_EPSILON, charged_epsilon, inner_delta
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
    sampled : bool
        Whether it reads Poisson-sampled releases.
    """

    name: str
    method: Method
    note: str
    is_bound: bool = True
    sampled: bool = False

    def epsilon(self, releases: Composition | Iterable[Event], delta: float) -> float:
        """ε of one client's releases at `delta`: 0 for none, ∞ if any is unprotected.

        Releases on a grid are read as the Gaussian ones that they are worth, at the δ that is left, and what sampler
        and grid add to ε is added (`accounting.exactness`). With them an ε above 500 is reported as ∞, since no δ
        covers what the sampler leaves out.

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
        charge = charged_epsilon(composition.values)
        if charge > MOST_EPSILON or composition.total_mu == math.inf:
            return math.inf
        inner = inner_delta(composition.values, delta)
        try:
            with quiet():
                epsilon = self.method(composition, inner) + charge
        except AccountingError:
            raise
        except (ArithmeticError, ValueError, RuntimeError, MemoryError, IndexError) as error:  # of the libraries
            raise CannotAccount(f"{self.name} fails at δ = {delta:g} ({error})") from error
        if not epsilon >= 0:
            raise CannotAccount(f"{self.name} returned ε = {epsilon}")
        return math.inf if composition.values and epsilon > MOST_EPSILON else epsilon

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
            found = self.epsilon(composition.scaled(math.exp(log_factor)), delta)
            return min(found, 1e6 * (1 + epsilon)) - epsilon  # ∞ would stop the search

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
