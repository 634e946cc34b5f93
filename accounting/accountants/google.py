"""Accountants of Google's dp-accounting, imported when first used (1.6 s).

Noise multipliers are passed under ADD_OR_REMOVE_ONE with our own sensitivities, whatever the adjacency: the sensitivity
already says what a neighbour is. Under REPLACE_ONE version 0.6.0 doubles the sensitivity in PLD and not in RDP.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from accounting.composition import Composition
from accounting.errors import CannotAccount

# Privacy loss is discretised to at most about a million cells; a coarser grid stays a valid, pessimistic bound.
_FINEST_CELL = 1e-4
_CELLS = 1_000_000
_MOST_RELEASES = 10**7
_NOTHING, _POINTS = 1e-9, 400  # δ at which a curve may end, and its number of points: each gives a valid bound

Groups = tuple[tuple[float, float, int], ...]


def pld(composition: Composition, delta: float) -> float:
    """ε by numerical composition of privacy loss distributions (Koskela et al. 2020; Doroshenko et al. 2022)."""
    _refuse_many(composition)
    return _pld_epsilon(_groups(composition), delta)


def rdp(composition: Composition, delta: float) -> float:
    """ε by Rényi DP (Mironov 2017), orders as dp-accounting chooses them."""
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    for noise, rate, count in _groups(composition):
        accountant.compose(_gaussian_event(noise, rate), count)
    return float(accountant.get_epsilon(delta))


def _groups(composition: Composition) -> Groups:
    """(noise multiplier, sampling rate, count) of each group; plain Gaussian releases as one, of their exact total."""
    sampled = tuple(sorted((noise, rate, count) for (noise, rate), count in composition.sampled.items()))
    if composition.mu2 > 0:
        return (*sampled, (1 / math.sqrt(composition.mu2), 1.0, 1))
    return sampled


def _gaussian_event(noise_multiplier: float, sampling_rate: float) -> Any:
    """Return the dp-accounting event of one release."""
    import dp_accounting

    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    return event if sampling_rate == 1 else dp_accounting.PoissonSampledDpEvent(sampling_rate, event)


def dp_event(composition: Composition) -> Any:
    """Return one client's releases as one composed event of dp-accounting."""
    import dp_accounting

    events = [
        *((_gaussian_event(noise, 1.0), count) for noise, count in sorted(composition.gaussian.items())),
        *((_gaussian_event(noise, rate), count) for (noise, rate), count in sorted(composition.sampled.items())),
        *[(dp_accounting.NonPrivateDpEvent(), composition.unprotected)][: composition.unprotected],
    ]
    if not events:
        return dp_accounting.NoOpDpEvent()
    return dp_accounting.ComposedDpEvent([dp_accounting.SelfComposedDpEvent(event, count) for event, count in events])


def _pld_accountant(total_mu: float) -> Any:
    """Return a PLD accountant whose grid fits releases of this total μ (sampling left aside)."""
    from dp_accounting.pld import PLDAccountant

    loss_range = total_mu**2 / 2 + 10 * total_mu
    return PLDAccountant(value_discretization_interval=max(_FINEST_CELL, loss_range / _CELLS))


def delta_curve(composition: Composition) -> tuple[tuple[float, float], ...]:
    """(ε, δ) from ε = 0 on, δ the larger of both directions; closer together where ε is small.

    It ends where δ is nothing beside any rate of interest.
    """
    _refuse_many(composition)
    accountant = _composed(_groups(composition))
    epsilons = 1.5 * max(_finite(accountant, _NOTHING), 1e-3) * np.linspace(0.0, 1.0, _POINTS) ** 2
    deltas = np.clip(accountant.get_delta(epsilons), 0.0, 1.0)
    return tuple(zip(epsilons.tolist(), deltas.tolist(), strict=True))


def _refuse_many(composition: Composition) -> None:
    if sum(composition.sampled.values()) > _MOST_RELEASES:
        raise CannotAccount(f"pld is used up to {_MOST_RELEASES} sampled releases only: beyond, it takes minutes")


@lru_cache(maxsize=1024)
def _pld_epsilon(releases: Groups, delta: float) -> float:
    return _finite(_composed(releases), delta)


def _finite(accountant: Any, delta: float) -> float:
    epsilon = float(accountant.get_epsilon(delta))
    if epsilon == math.inf:
        raise CannotAccount(f"pld cannot resolve δ = {delta:g}: its truncated tails weigh more than that; rdp can")
    return epsilon


@lru_cache(maxsize=4)
def _composed(releases: Groups) -> Any:
    """Return the accountant with all releases composed: megabytes, of which a few are kept."""
    accountant = _pld_accountant(math.sqrt(sum(count / noise**2 for noise, _, count in releases)))
    for noise, rate, count in releases:
        accountant.compose(_gaussian_event(noise, rate), count)
    return accountant
