"""Accountants of Opacus, imported when first used (5 s, with torch). Opacus is an optional extra."""

from __future__ import annotations

import importlib
from typing import Any

from accounting.composition import Composition
from accounting.errors import CannotAccount

# The grid of PRVs grows with μ²: beyond this it takes minutes and tens of gigabytes, or returns ε = ∞.
_LARGEST_MU = 30
_MOST_RELEASES = 10**6


def prv(composition: Composition, delta: float) -> float:
    """ε by privacy random variables (Gopi, Lee & Wutschitz 2021): Opacus's upper end of its error interval."""
    if composition.total_mu > _LARGEST_MU:
        raise CannotAccount(f"opacus-prv is used up to μ = {_LARGEST_MU} only, not at {composition.total_mu:.4g}")
    if composition.releases > _MOST_RELEASES:
        raise CannotAccount(f"opacus-prv is used up to {_MOST_RELEASES} releases only: beyond, its memory may not do")
    accountant = _opacus("opacus.accountants").PRVAccountant()
    accountant.history = _history(composition)
    try:
        return float(accountant.get_epsilon(delta=delta))
    except (ValueError, RuntimeError, MemoryError, IndexError, OverflowError) as error:
        raise CannotAccount(f"opacus-prv failed at δ = {delta:g}: {error}") from error


def rdp(composition: Composition, delta: float) -> float:
    """ε by Rényi DP, with Opacus's orders."""
    accountant = _opacus("opacus.accountants").RDPAccountant()
    accountant.history = _history(composition)
    try:
        return float(accountant.get_epsilon(delta=delta))
    except (ValueError, OverflowError) as error:
        raise CannotAccount(f"opacus-rdp failed at δ = {delta:g}: {error}") from error


def gdp(composition: Composition, delta: float) -> float:
    """ε by Opacus's central-limit GDP: an approximation for many rounds, not a bound (it can be too small)."""
    history = _history(composition)
    if len(history) != 1:
        raise CannotAccount("opacus-gdp needs one noise multiplier and one sampling rate for all releases")
    noise, rate, steps = history[0]
    gdp_analysis = _opacus("opacus.accountants.analysis.gdp")
    try:
        return float(
            gdp_analysis.compute_eps_poisson(steps=steps, noise_multiplier=noise, sample_rate=rate, delta=delta)
        )
    except (ValueError, OverflowError) as error:
        raise CannotAccount(f"opacus-gdp failed at δ = {delta:g}: {error}") from error


def _history(composition: Composition) -> list[tuple[float, float, int]]:
    plain = [(noise, 1.0, count) for noise, count in sorted(composition.gaussian.items())]
    sampled = [(noise, rate, count) for (noise, rate), count in sorted(composition.sampled.items())]
    return plain + sampled


def _opacus(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise CannotAccount(f"Opacus is not installed; pip install 'dpfedvis[opacus]' ({error})") from error
