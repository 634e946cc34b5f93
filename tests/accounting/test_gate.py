"""The gate: a quick yes or no that agrees with the accountants."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    ACCOUNTANTS,
    Accountant,
    Budget,
    Composition,
    GaussianRelease,
    SampledGaussianRelease,
    Unprotected,
)
from accounting import gate as gates
from accounting.composition import SampledGroup, group_of
from accounting.gate import Gate

BUDGET = Budget(1.0, 1e-5, adjacency="add-remove")
_MUS = st.just(0.0) | st.floats(1e-3, 0.5)


def composition(
    *, gaussian: float = 0.0, discrete: float = 0.0, sampled: int = 0, sigma: float = 1.5, values: int = 10**9
) -> Composition:
    """A composition with these totals of μ, without and with a grid, and this number of sampled releases."""
    common = {"what": "x", "client": "a", "adjacency": "add-remove"}
    result = Composition()
    if gaussian:
        result.add(GaussianRelease(**common, sensitivity=gaussian, sigma=1.0))
    if discrete:
        result.add(GaussianRelease(**common, sensitivity=discrete, sigma=1.0, grid=0.1, values=values))
    if sampled:
        result.add(SampledGaussianRelease(**common, sensitivity=1.0, sigma=sigma, sampling_rate=0.05, count=sampled))
    return result


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read sampled releases by RDP, which is quick; the ledger's tests use PLD."""
    monkeypatch.setattr(gates, "tightest", reader)


def reader(releases: Composition) -> Accountant:
    return ACCOUNTANTS["rdp" if releases.sampled else "gdp"]


def epsilon(releases: Composition) -> float:
    return reader(releases).epsilon(releases, BUDGET.delta)


@given(gaussian=_MUS, discrete=_MUS, values=st.sampled_from([1, 10**6, 2**45, 2**47, 2**60]))
def test_closed_forms_agree_with_the_accountants(gaussian: float, discrete: float, values: int) -> None:
    releases = composition(gaussian=gaussian, discrete=discrete, values=values)
    difference = epsilon(releases) - BUDGET.epsilon
    if abs(difference) > 1e-8:
        assert Gate(BUDGET).fits(releases) == (difference < 0)


@given(gaussian=_MUS.filter(lambda mu: mu < 0.12), discrete=_MUS.filter(lambda mu: mu < 0.12))
def test_room_is_the_largest_gaussian_release_that_fits(gaussian: float, discrete: float) -> None:
    gate, releases = Gate(BUDGET), composition(gaussian=gaussian, discrete=discrete)
    room = gate.room(releases)

    def after(mu: float) -> bool:
        trial = releases.copy()
        trial.mu2 += mu**2
        return gate.fits(trial)

    assert after(room * (1 - 1e-9))
    assert not after(room * (1 + 1e-6))
    assert room <= math.sqrt(gate.allowed_mu2())


def test_unprotected_never_fits_and_nothing_always_does() -> None:
    gate = Gate(BUDGET)
    assert gate.fits(Composition())
    assert gate.room(Composition()) == pytest.approx(BUDGET.mu, rel=1e-12)
    unprotected = Composition([Unprotected(what="x", client="a", why="exact")])
    assert not gate.fits(unprotected)
    assert gate.room(unprotected) == 0.0


def test_sampled_releases_are_counted_up_to_the_last_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(BUDGET)
    asked: list[int] = []
    exactly = Gate._exactly_fits

    def counting(self: Gate, releases: Composition) -> bool:
        asked.append(releases.releases)
        return exactly(self, releases)

    monkeypatch.setattr(Gate, "_exactly_fits", counting)
    event = SampledGaussianRelease(
        what="x", client="a", adjacency="add-remove", sensitivity=1.0, sigma=1.5, sampling_rate=0.05
    )
    count = 0
    while gate.fits(composition(sampled=count + 1, discrete=0.05), group_of(event)):
        count += 1
        assert count < 500
    # Two evaluations for each doubling, in each of the two ways of going on, not one for each release.
    assert count > 10
    assert len(asked) <= 4 * math.log2(count) + 12
    # The accountant draws the line at the same place.
    assert (
        epsilon(composition(sampled=count, discrete=0.05))
        <= BUDGET.epsilon
        < epsilon(composition(sampled=count + 1, discrete=0.05))
    )
    # Another client with the same releases costs nothing more.
    asked.clear()
    assert all(gate.fits(composition(sampled=number, discrete=0.05), group_of(event)) for number in range(1, count + 1))
    assert asked == []
    # What the gate knows about one mixture says nothing about a larger one.
    assert not gate.fits(composition(sampled=count, discrete=0.05, gaussian=0.1))
    assert not gate.fits(composition(sampled=count, discrete=0.05, sigma=1.2))


def test_room_after_sampled_releases_is_safe() -> None:
    gate, releases = Gate(BUDGET), composition(sampled=5, discrete=0.05)
    room = gate.room(releases)
    trial = releases.copy()
    trial.mu2 += room**2
    assert 0 < room < BUDGET.mu
    assert 0.99 < epsilon(trial) <= 1.0


@given(gaussian=_MUS, sampled=st.integers(0, 4))
@settings(max_examples=30)
def test_a_remembered_frontier_never_lets_an_overspend_pass(gaussian: float, sampled: int) -> None:
    gate = Gate(Budget(0.4, 1e-5, adjacency="add-remove"))
    group = SampledGroup(1.5 * (1 - 1e-11), 0.05)
    gate.fits(composition(gaussian=0.03, discrete=0.05, sampled=1), group)
    releases = composition(gaussian=gaussian, discrete=0.05, sampled=sampled)
    if gate.fits(releases):
        assert epsilon(releases) <= 0.4


def test_looking_ahead_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "_MOST", 8)
    gate = Gate(BUDGET)
    event = SampledGaussianRelease(
        what="x", client="a", adjacency="add-remove", sensitivity=1.0, sigma=500.0, sampling_rate=0.01
    )
    assert gate.fits(Composition([event]), group_of(event))


def test_integers_that_are_yet_to_come_are_looked_ahead_too() -> None:
    """A frontier knows how many integers its releases draw: more of them do not fit in it."""
    gate = Gate(BUDGET)
    event = SampledGaussianRelease(
        what="x",
        client="a",
        adjacency="add-remove",
        sensitivity=1.0,
        sigma=3.0,
        sampling_rate=0.05,
        grid=0.01,
        values=2**43,
    )
    count = 0
    releases = Composition()
    while gate.fits((releases.add(event), releases)[1], group_of(event)):
        count += 1
        assert count < 30
    # Charged by 2 · 2⁴³ · 2⁻⁴⁸ each, rounded up to a power of two: sixteen would cost 1 by that alone.
    assert 2 <= count < 16
    assert epsilon(releases) > BUDGET.epsilon
    # One release of the same noise with more integers is more than the frontier knows.
    assert gate.fits(Composition([event]))
    assert not gate.fits(Composition([dataclasses.replace(event, values=2**47)]))
