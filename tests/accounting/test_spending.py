"""How a budget was spent, step by step, and what ε means in guesses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from accounting import (
    Budget,
    GaussianRelease,
    Ledger,
    SampledGaussianRelease,
    Unprotected,
    gaussian_delta,
)
from accounting.risk_lines import risk_of
from accounting.spending import SAMPLED_STEPS, privacy_curve, spending

DELTA = 1e-5


def gradients(client: str, rounds: int, sigma: float) -> list[GaussianRelease]:
    return [GaussianRelease(what="gradient", client=client, round=s, sensitivity=1, sigma=sigma) for s in range(rounds)]


def test_each_step_is_what_a_ledger_would_have_said() -> None:
    """The worst client counts, whichever it is by then."""
    events = [*gradients("a", 5, 9.0), *gradients("b", 3, 6.0)]
    steps = spending(events, None, DELTA)
    assert [step.label for step in steps] == [f"gradient, round {s}" for s in range(5)]
    for number, step in enumerate(steps):
        with Ledger(None) as ledger:
            ledger.record(*(event for event in events if event.round is not None and event.round <= number))
            assert step.end_to_end == step.in_scope == ledger.spent(DELTA)


def test_what_the_scope_leaves_out_counts_end_to_end() -> None:
    events = [*gradients("a", 2, 9.0), Unprotected(what="rows", client="a", stage="release", why="exact")]
    *_, before, last = spending(events, Budget(5, DELTA, scope="landmarks"), DELTA)
    assert before.end_to_end == before.in_scope == last.in_scope
    assert (last.label, last.end_to_end) == ("rows", math.inf)
    assert spending(events, None, DELTA)[-1].in_scope == math.inf
    assert spending([], None, DELTA) == ()


def test_under_sampling_a_few_steps_are_enough_and_the_last_is_among_them() -> None:
    events = [
        SampledGaussianRelease(
            what="gradient", client="a", round=s, adjacency="add-remove", sensitivity=1, sigma=4, sampling_rate=0.1
        )
        for s in range(1, 41)
    ]
    steps = spending(events, None, DELTA)
    assert len(steps) == SAMPLED_STEPS
    assert (steps[0].number, steps[-1].number) == (1, 40)
    with Ledger(None) as ledger:
        ledger.record(*events)
        assert steps[-1].in_scope == ledger.spent(DELTA)
        assert privacy_curve(ledger) == ()


def test_the_curve_is_the_closed_form() -> None:
    with Ledger(None) as ledger:
        ledger.record(*gradients("a", 4, 5.0), *gradients("b", 1, 5.0))
        curve = privacy_curve(ledger)
    assert len(curve) > 10
    for epsilon, delta in curve:
        assert gaussian_delta(math.sqrt(4) / 5, epsilon) == pytest.approx(delta, rel=1e-6)
    with Ledger(None) as ledger:
        ledger.record(Unprotected(what="rows", client="a", why="exact"))
        assert privacy_curve(ledger) == ()


def test_the_right_guesses_is_that_of_the_likelihood_ratio() -> None:
    """Two Gaussians μ apart are told apart by a threshold half way, and by nothing better."""
    rng = np.random.default_rng(0)
    for rounds, sigma in ((1, 5.0), (4, 1.5)):
        with Ledger(None) as ledger:
            assert risk_of(ledger.events()).right_guesses == 50
            ledger.record(*gradients("a", rounds, sigma), *gradients("b", 1, 50.0))
            share = risk_of(ledger.events()).right_guesses / 100
        seen = rng.normal(scale=sigma, size=(200_000, rounds))
        right = np.mean([(seen.sum(axis=1) < rounds / 2).mean(), (seen.sum(axis=1) + rounds > rounds / 2).mean()])
        assert share == pytest.approx(right, abs=0.004)
    with Ledger(None) as ledger:
        ledger.record(Unprotected(what="rows", client="a", why="exact"))
        assert risk_of(ledger.events()).right_guesses == 100


def test_on_a_grid_the_right_guesses_is_that_of_the_gaussian_and_the_charge() -> None:
    for sigma in (0.3, 1.0, 4.0, 20.0):
        for values, more in ((1000, 1e-11), (2**40, 0.004), (2**60, 1.0)):
            with Ledger(None) as ledger:
                common = {"what": "sums", "client": "a", "sensitivity": 1.0, "sigma": sigma}
                ledger.record(GaussianRelease(**common, grid=1e-6, values=values))
                assert (
                    norm.cdf(0.5 / sigma)
                    < risk_of(ledger.events()).right_guesses / 100
                    <= min(1, norm.cdf(0.5 / sigma) + more)
                )


def test_the_charge_of_the_right_guesses_covers_the_real_distributions() -> None:
    """Two discrete Gaussians a cell apart, exactly, against the Gaussian that they are worth."""
    for s in (4.0, 10.0):
        support = np.arange(-300, 301)
        weights = np.exp(-(support.astype(float) ** 2) / (2 * s * s))
        weights /= weights.sum()
        exact = 0.5 + 0.25 * np.abs(np.diff(weights)).sum()
        with Ledger(None) as ledger:
            ledger.record(
                GaussianRelease(what="x", client="a", sensitivity=1, sigma=math.sqrt(s * s - 4), grid=1, values=1)
            )
            assert exact <= risk_of(ledger.events()).right_guesses / 100 < exact + 0.01
