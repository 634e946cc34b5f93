"""Bandwidth and start without a leak: the protected moments, the public formula, and the unprotected median."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget, InvalidParameter, Ledger, Unprotected
from dpfedvis.data import FederatedData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.mechanisms.scale import MedianDistance, Moments, kernel_of_distance, public_kernel
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.exact_sums import UNIT, moment_sums
from dpfedvis.server.session import SiteRefused
from tests.makers import federation


def fed_of(sizes=(200, 300), features=4, centre=0.5):
    return federation(sizes, features, shift=0.0, centre=centre, seed=0)


def pooled(fed):
    return np.concatenate([client.X for client in fed.clients]).astype(np.float64)


def mean_squared_distance(X):
    return 2 * (np.mean(np.sum(X**2, axis=1)) - float(np.sum(X.mean(axis=0) ** 2)))


def run(fed, **settings):
    values = {
        "landmarks": 6,
        "mechanism": "gradient",
        "budget": Budget(2.0, 1e-5),
        "rounds": 3,
        "gamma": "moments",
        "tau_x": 10.0,
        "start": "normal",
    }
    return FedDL(**{**values, **settings}).run(fed)


@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
def test_moments_find_the_bandwidth_at_a_large_budget(trust):
    fed = fed_of()
    result = run(fed, mechanism=GradientPerturbation(trust=trust), budget=Budget(500, 1e-5))
    expected = 1 / mean_squared_distance(pooled(fed))
    assert result.public.kernel.gammas[0] == pytest.approx(expected, rel=0.02)


def test_moments_are_not_biased_by_their_noise():
    """Noise adds m·variance to the square of the mean, and it is taken off again."""
    fed = fed_of((60, 60), features=12)
    found = [1 / run(fed, seed=s, rounds=1, budget=Budget(4.0, 1e-5)).public.kernel.gammas[0] for s in range(60)]
    expected = mean_squared_distance(pooled(fed))
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found) / math.sqrt(60) + 0.01 * expected)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_moments_are_one_event_of_the_scale_with_their_share(share):
    result = run(fed_of(), share=share)
    for name in ("client-0", "client-1"):
        scale, *rounds = result.ledger.events(client=name)
        assert (scale.what, scale.stage, scale.round) == ("moments", "scale", 0)
        assert [(event.what, event.stage) for event in rounds] == [("gradient", "landmarks")] * 3
        total = scale.mu**2 + sum(event.mu**2 for event in rounds)
        assert scale.mu**2 / total == pytest.approx(share)
    assert result.ledger.spent() == pytest.approx(2.0, rel=1e-6)
    assert result.ledger.spent() <= 2.0


def test_start_and_bandwidth_share_one_release():
    fed = fed_of(centre=3.0)
    result = run(fed, start="mean", budget=Budget(500, 1e-5), rounds=1, step_size=1e-9)
    assert sum(event.what == "moments" for event in result.ledger.events()) == 2
    np.testing.assert_allclose(result.landmarks.mean(axis=0), pooled(fed).mean(axis=0), atol=2.5)


def test_the_start_alone_needs_the_release_too():
    result = run(fed_of(), start="mean", gamma=0.1)
    assert sum(event.what == "moments" for event in result.ledger.events()) == 2
    assert result.public.kernel.gammas == (0.1,)


def test_moments_are_sampled_by_nobody():
    """The release covers all records, also where the rounds sample them."""
    fed = fed_of()
    config = FedDL(
        landmarks=6,
        mechanism="none",
        budget=None,
        rounds=2,
        gamma="median",
        sampling_rate=0.01,
        seed=1,
    )
    assert config.run(fed).public.kernel == FedDL(landmarks=6, rounds=2, gamma="median", seed=1).run(fed).public.kernel


def test_the_median_is_an_unprotected_release():
    fed, ledger, seen = fed_of(), Ledger(budget=Budget(2.0, 1e-5)), []
    config = FedDL(landmarks=6, mechanism="gradient", budget=Budget(2.0, 1e-5), gamma="median", rounds=2)
    with pytest.raises(SiteRefused, match="median distance would leave this site without protection"):
        config.run(fed, ledger=ledger, witness=lambda events, values: seen.append(values))
    assert len(ledger) == 0
    assert not seen
    result = FedDL(landmarks=6, rounds=2, gamma="median").run(fed)
    events = list(result.ledger.events())[:2]
    assert {(type(event), event.stage, event.what) for event in events} == {(Unprotected, "scale", "median distance")}


def test_the_median_is_the_median():
    fed = fed_of((40, 60))
    result = FedDL(landmarks=6, rounds=1, gamma="median").run(fed)

    def median(X):
        X = X.astype(np.float64)
        return np.median([np.sum((X[i] - X[j]) ** 2) for i in range(len(X)) for j in range(i)])

    expected = 0.4 * median(fed.clients[0].X) + 0.6 * median(fed.clients[1].X)
    assert result.public.kernel.gammas[0] == pytest.approx(1 / expected, rel=1e-5)
    few = MedianDistance(records=10)
    assert few.shape(result.public) == (1,)


@given(features=st.integers(1, 1000), low=st.floats(-10, 0), width=st.floats(0.01, 100))
def test_the_public_kernel_is_that_of_uniform_points(features, low, width):
    assert public_kernel(features, (low, low + width)).gammas[0] == pytest.approx(6 / (features * width**2), rel=1e-6)


def test_the_public_formula_is_a_mean_distance():
    rng = np.random.default_rng(0)
    pairs = rng.uniform(-1, 3, (2, 20_000, 5))
    distance = np.mean(np.sum((pairs[0] - pairs[1]) ** 2, axis=1))
    assert public_kernel(5, (-1.0, 3.0)).gammas[0] == pytest.approx(1 / distance, rel=0.02)


def test_public_is_the_default_with_bounds_and_needs_them():
    fed = fed_of()
    result = FedDL(landmarks=6, rounds=1, bounds=(-4.0, 4.0)).run(fed)
    assert result.public.kernel.gammas == pytest.approx([6 / (4 * 64)])
    with pytest.raises(InvalidParameter, match="bounds"):
        FedDL(landmarks=6, rounds=1, gamma="public").run(fed)


# Small and degenerate data


def test_one_record_a_client():
    fed = FederatedData([np.full((1, 3), float(p)) for p in range(4)])
    result = run(fed, budget=Budget(2.0, 1e-5), tau_x=6.0)
    assert np.isfinite(result.landmarks).all()
    assert 0 < result.public.kernel.gammas[0] < math.inf
    with pytest.raises(InvalidParameter, match="are all records equal") as caught:
        FedDL(landmarks=6, rounds=1, gamma="median").run(fed)
    assert caught.value.value == 0.0


def test_constant_features():
    fed = FederatedData([np.ones((10, 3)), np.ones((12, 3))])
    result = run(fed, tau_x=2.0, budget=Budget(500, 1e-5))
    assert result.public.kernel.gammas[0] == pytest.approx(1 / (0.01 * 4)), "the floor of a hundredth of τ²"
    assert np.isfinite(result.landmarks).all()
    with pytest.raises(InvalidParameter, match="are all records equal"):
        FedDL(landmarks=6, rounds=1, gamma="median").run(fed)


def test_records_beyond_the_bound_are_clipped():
    fed = FederatedData([np.random.default_rng(0).normal(0, 100, (50, 3))])
    gamma = run(fed, tau_x=1.0, budget=Budget(500, 1e-5)).public.kernel.gammas[0]
    assert gamma == pytest.approx(0.5, rel=0.2), "unit vectors in all directions are √2 apart"


def test_bad_settings_are_named():
    fed = fed_of()
    with pytest.raises(InvalidParameter) as caught:
        run(fed, gamma="scott")
    assert caught.value.value == "scott"
    with pytest.raises(InvalidParameter) as caught:
        kernel_of_distance(0.0)
    assert caught.value.value == 0.0
    with pytest.raises(InvalidParameter):
        kernel_of_distance(math.nan)
    with pytest.raises(InvalidParameter, match="one with protection"):
        run(fed, mechanism="none", budget=None)


def test_moments_invert_their_own_scaling():
    X = np.random.default_rng(0).normal(size=(50, 3))
    release = Moments(tau_x=20.0)
    average = np.append(X.mean(axis=0) / 20, np.mean(np.sum(X**2, axis=1)) / 400)
    np.testing.assert_allclose(release.mean(average), X.mean(axis=0))
    # 0.01 τ² is the floor, so the spread must be above it to be seen.
    wide = average * [1, 1, 1, 30]
    expected = 2 * (wide[-1] - np.sum(wide[:-1] ** 2)) * 400
    assert release.mean_squared_distance(wide, 0.0) == pytest.approx(expected)


# Noise in the mean and in the scale


def test_a_mean_is_as_it_was_seen_without_noise():
    average = np.array([0.3, -0.1, 0.5])
    np.testing.assert_array_equal(Moments(tau_x=2.0).mean(average), [0.6, -0.2])
    np.testing.assert_allclose(Moments(tau_x=2.0).mean(average, 0.0, (0.0, 1.0)), [0.6, -0.2], rtol=1e-12)


@given(st.floats(1e-8, 1e6), st.integers(2, 60), st.integers(0, 2**32 - 1), st.booleans())
def test_a_noisy_mean_is_drawn_towards_the_middle(variance, features, seed, bounded):
    """Never past it, never further away than it was seen, and not by more than the range allows."""
    rng, bounds = np.random.default_rng(seed), (0.0, 1.0) if bounded else None
    average = rng.standard_normal(features + 1) * math.sqrt(variance)
    middle = 0.5 if bounded else 0.0
    seen, found = average[:-1] * 3.0 - middle, Moments(tau_x=3.0).mean(average, variance, bounds) - middle
    part = float(found @ seen) / float(seen @ seen)
    assert 0 <= part <= 1
    np.testing.assert_allclose(found, part * seen, atol=1e-9 * (1 + np.abs(seen).max()))
    largest = 1 / 12 if bounded else 9 / features
    assert part <= largest / (largest + 9 * variance) + 1e-12


def test_a_drawn_mean_is_closer_on_average():
    rng, truth, variance = np.random.default_rng(0), np.full(30, 0.6), 0.01
    errors = np.zeros(2)
    for _ in range(200):
        average = np.append(truth + rng.normal(0, math.sqrt(variance), 30), 0.0)
        release = Moments(tau_x=1.0)
        found = release.mean(average), release.mean(average, variance, (0.0, 1.0))
        errors += [np.sum((each - truth) ** 2) for each in found]
    assert errors[1] < 0.7 * errors[0]


def test_a_scale_below_its_noise_is_the_public_one_or_less():
    """At 3 standard deviations: 4(v + 4v‖x̄‖² + 2mv²) worked out by hand for v = 0.01, m = 4 and a mean of 0."""
    release, deviation = Moments(tau_x=2.0), math.sqrt(4 * (0.01 + 2 * 4 * 0.01**2))
    most = 4 * deviation  # in the units of the records
    rounding = 4 * 2 / 2**15
    for times, public, expected in (
        (2.9, 4.0, 4.0),
        (2.9, 7.0, 5.9 * most + rounding),
        (-1.0, 7.0, 3 * most + rounding),
        (3.1, 7.0, 3.1 * most),
    ):
        square = times * deviation / 2 - 0.04  # the noise of the mean is taken off
        found = release.mean_squared_distance(np.array([0, 0, 0, 0, square]), 0.01, public)
        assert found == pytest.approx(expected, rel=1e-9)
    assert release.mean_squared_distance(np.array([0, 0, 0, 0, -1.0]), 0.01) == pytest.approx(0.04), "no public one"


def test_an_unseen_scale_is_hardly_ever_too_small():
    """Too small a scale would clip the records; drawn noise, and a true mean squared distance of 2·(0.3 − 0.09)."""
    rng, truth, variance = np.random.default_rng(0), np.append(np.full(9, 0.1), 0.3), 0.01
    release, small = Moments(tau_x=1.0), 0
    for _ in range(500):
        average = truth + rng.normal(0, math.sqrt(variance), 10)
        small += release.mean_squared_distance(average, variance, 5.0) < 2 * (0.3 - 0.09)
    assert small <= 5


@given(st.floats(0, 0.9), st.floats(1e-5, 0.02), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_rounding_makes_no_scale_much_too_small(length, deviation, features, seed):
    """Of records near one place, rounded as they are summed, and with next to no noise: all would be clipped to 0."""
    records = np.random.default_rng(seed).normal(
        length / math.sqrt(features), deviation / math.sqrt(features), (200, features)
    )
    records /= max(1.0, float(np.linalg.norm(records, axis=1).max()))
    grid = Grid.of_norm(1.0, features)
    cells = grid.cells(records)
    average = moment_sums(cells, grid.step) / (UNIT * len(records))
    found = Moments(tau_x=1.0).mean_squared_distance(average, 1e-18, 5.0)
    assert found >= 0.5 * mean_squared_distance(grid.points(cells))
