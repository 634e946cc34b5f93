"""What must hold of the accounting for all numbers: order, inverses, composition, calibration, and lossless events."""

from __future__ import annotations

import math

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accounting import (
    ACCOUNTANTS,
    Budget,
    CannotAccount,
    Composition,
    Event,
    GaussianRelease,
    PlannedRelease,
    PostProcessing,
    SampledGaussianRelease,
    Unprotected,
    calibrate,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
)
from accounting.accountants.closed import zcdp_epsilon
from accounting.events import STAGES, TRUSTS, from_json

ROUNDING = 1e-9


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    """Numbers spread evenly over orders of magnitude."""
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


MU = powers(-3, math.log10(500))
EPSILON = powers(-3, 5)
DELTA = powers(-300, -2)
USUAL_DELTA = powers(-12, -2)
FACTOR = st.floats(1.0, 100.0)
RATIO = powers(-1, 2)  # sigma / sensitivity


def release(noise: float, count: int = 1, sensitivity: float = 1.0) -> GaussianRelease:
    return GaussianRelease(what="gradient", client="a", sensitivity=sensitivity, sigma=noise * sensitivity, count=count)


# --- closed form -----------------------------------------------------------------------------------------------------


@given(MU, EPSILON, FACTOR)
def test_delta_falls_in_epsilon_and_grows_in_mu(mu: float, epsilon: float, factor: float) -> None:
    here = gaussian_log_delta(mu, epsilon)
    assert gaussian_log_delta(mu, epsilon * factor) <= here + ROUNDING * max(1, abs(here))
    assert gaussian_log_delta(mu * factor, epsilon) >= here - ROUNDING * max(1, abs(here))


@given(MU, DELTA, FACTOR)
def test_epsilon_falls_in_delta_and_grows_in_mu(mu: float, delta: float, factor: float) -> None:
    here = gaussian_epsilon(mu, delta)
    assert gaussian_epsilon(mu, min(delta * factor, 0.5)) <= here * (1 + ROUNDING)
    assert gaussian_epsilon(mu * factor, delta) >= here * (1 - ROUNDING)


@given(EPSILON, DELTA, FACTOR)
def test_mu_grows_in_epsilon_and_in_delta(epsilon: float, delta: float, factor: float) -> None:
    here = gaussian_mu(epsilon, delta)
    assert gaussian_mu(epsilon * factor, delta) >= here * (1 - ROUNDING)
    assert gaussian_mu(epsilon, min(delta * factor, 0.5)) >= here * (1 - ROUNDING)


@given(EPSILON, DELTA)
def test_the_three_functions_invert_each_other(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert math.isclose(gaussian_epsilon(mu, delta), epsilon, rel_tol=ROUNDING)
    slope = max(1.0, epsilon * epsilon / mu**2)  # of log δ in log μ, which magnifies rounding
    assert math.isclose(gaussian_delta(mu, epsilon), delta, rel_tol=1e-12 * slope)
    assert math.isclose(gaussian_mu(gaussian_epsilon(mu, delta), delta), mu, rel_tol=ROUNDING)


@given(powers(-320, 150), powers(-320, 300), st.floats(0.0, 1.0, exclude_min=True, exclude_max=True))
def test_no_finite_input_fails(mu: float, epsilon: float, delta: float) -> None:
    assert 0 <= gaussian_delta(mu, epsilon) <= 1
    assert gaussian_epsilon(mu, delta) >= 0
    assert gaussian_mu(epsilon, delta) > 0


@given(MU, USUAL_DELTA)
def test_zcdp_grows_and_is_above_the_exact_value(mu: float, delta: float) -> None:
    epsilon = zcdp_epsilon(mu**2 / 2, delta)
    assert gaussian_epsilon(mu, delta) <= epsilon * (1 + 1e-6)
    assert zcdp_epsilon(0.55 * mu**2, delta) > epsilon or epsilon == 0


# --- accountants -----------------------------------------------------------------------------------------------------

CLOSED = ("gdp", "zcdp", "rdp", "opacus-rdp", "theorem", "basic", "advanced")


def epsilon_or_none(name: str, events: list[Event], delta: float) -> float | None:
    try:
        return ACCOUNTANTS[name].epsilon(events, delta)
    except CannotAccount:
        return None


@given(RATIO, st.integers(1, 1000), USUAL_DELTA, st.floats(1.01, 10.0), st.integers(1, 1000))
def test_every_fast_accountant_is_monotone_in_rounds_noise_sensitivity_and_delta(
    noise: float, count: int, delta: float, factor: float, more: int
) -> None:
    for name in CLOSED:
        here = epsilon_or_none(name, [release(noise, count)], delta)
        if here is None or here == math.inf:
            continue
        low, high = here * (1 - ROUNDING), here * (1 + ROUNDING)
        assert ACCOUNTANTS[name].epsilon([release(noise * factor, count)], delta) <= high
        assert ACCOUNTANTS[name].epsilon([release(noise, count)], min(0.1, delta * factor)) <= high
        for worse in ([release(noise, count + more)], [release(noise / factor, count)]):
            epsilon = epsilon_or_none(name, worse, delta)
            assert epsilon is None or epsilon >= low


@given(st.lists(st.tuples(RATIO, st.integers(1, 50)), min_size=1, max_size=6), USUAL_DELTA)
def test_the_exact_accountant_is_below_every_proved_bound(groups: list[tuple[float, int]], delta: float) -> None:
    events = [release(noise, count) for noise, count in groups]
    exact = ACCOUNTANTS["gdp"].epsilon(events, delta)
    for name in CLOSED:
        assert ACCOUNTANTS[name].is_bound
        epsilon = epsilon_or_none(name, events, delta)
        assert epsilon is None or epsilon >= exact * (1 - ROUNDING)


@settings(max_examples=6)
@given(st.floats(1.5, 20.0), st.integers(1, 5), st.sampled_from([1e-3, 1e-5, 1e-8]))
def test_pld_is_the_exact_value_and_prv_is_above_it(noise: float, count: int, delta: float) -> None:
    events = [release(noise, count)]
    exact = ACCOUNTANTS["gdp"].epsilon(events, delta)
    assume(exact > 0.01)
    assert math.isclose(ACCOUNTANTS["pld"].epsilon(events, delta), exact, rel_tol=1e-4)
    assert exact <= ACCOUNTANTS["opacus-prv"].epsilon(events, delta) <= exact + 0.03


@settings(max_examples=4)
@given(st.floats(2.0, 6.0), st.floats(0.01, 0.5), st.integers(1, 20))
def test_sampling_amplifies_and_renyi_is_above_pld(noise: float, rate: float, count: int) -> None:
    values = {"what": "batch", "client": "a", "adjacency": "add-remove", "sensitivity": 1.0, "sigma": noise}
    sampled = [SampledGaussianRelease(**values, count=count, sampling_rate=rate)]
    pld = ACCOUNTANTS["pld"].epsilon(sampled, 1e-5)
    assert pld <= ACCOUNTANTS["gdp"].epsilon([GaussianRelease(**values, count=count)], 1e-5) * (1 + 1e-6)
    for name in ("rdp", "opacus-rdp"):
        assert ACCOUNTANTS[name].epsilon(sampled, 1e-5) >= pld * (1 - 1e-6)


# --- composition -----------------------------------------------------------------------------------------------------

NOISE = st.sampled_from([0.5, 1.0, 1.7, 3.0, 12.5])
COMMON = {"what": "upload", "client": "a", "adjacency": "add-remove", "sensitivity": 1.0}
EVENTS = st.lists(
    st.one_of(
        st.builds(GaussianRelease, **{k: st.just(v) for k, v in COMMON.items()}, sigma=NOISE, count=st.integers(1, 9)),
        st.builds(
            GaussianRelease,
            **{k: st.just(v) for k, v in COMMON.items()},
            sigma=NOISE,
            count=st.integers(1, 9),
            grid=st.just(0.01),
            values=st.integers(1, 10**6),
        ),
        st.builds(
            SampledGaussianRelease,
            **{k: st.just(v) for k, v in COMMON.items()},
            sigma=NOISE,
            count=st.integers(1, 9),
            sampling_rate=st.sampled_from([0.01, 0.3]),
        ),
        st.just(PostProcessing(what="map", client="a", adjacency="add-remove", of="upload")),
    ),
    max_size=8,
)


def assert_same(one: Composition, other: Composition) -> None:
    assert (one.gaussian, one.sampled, one.values) == (other.gaussian, other.sampled, other.values)
    assert (one.releases, one.unprotected, one.empty) == (other.releases, other.unprotected, other.empty)
    for total in ("mu2", "sampled_mu2", "total_mu"):
        assert math.isclose(getattr(one, total), getattr(other, total), rel_tol=1e-12)


@given(EVENTS, st.randoms(use_true_random=False))
def test_composition_does_not_depend_on_order(events: list[Event], random) -> None:
    shuffled = list(events)
    random.shuffle(shuffled)
    assert_same(Composition(events), Composition(shuffled))


@given(EVENTS, EVENTS, EVENTS)
def test_composition_is_associative_and_a_copy_is_independent(
    first: list[Event], second: list[Event], third: list[Event]
) -> None:
    whole = Composition([*first, *second, *third])
    start = Composition(first)
    before = start.copy()
    grown = start.copy()
    for event in (*second, *third):
        grown.add(event)
    assert_same(grown, whole)
    assert_same(start, before)
    assert math.isclose(
        whole.total_mu**2,
        math.fsum(Composition(part).total_mu ** 2 for part in (first, second, third)),
        rel_tol=1e-12,
    )


@given(EVENTS)
def test_composition_counts_every_release_and_no_post_processing(events: list[Event]) -> None:
    composition = Composition(events)
    protected = [event for event in events if isinstance(event, GaussianRelease)]
    assert composition.releases == sum(event.count for event in protected)
    assert composition.values == sum(event.count * event.values for event in protected)
    assert math.isclose(composition.total_mu**2, math.fsum(event.mu**2 for event in protected), rel_tol=1e-12)
    assert composition.empty == (not protected)


@given(EVENTS, st.floats(0.1, 10.0))
def test_scaling_the_noise_scales_mu(events: list[Event], factor: float) -> None:
    composition = Composition(events)
    scaled = composition.scaled(factor)
    assert math.isclose(scaled.total_mu * factor, composition.total_mu, rel_tol=1e-12)
    assert scaled.releases == composition.releases
    for name in ("gaussian", "sampled"):
        groups, others = getattr(composition, name), getattr(scaled, name)
        noises = sorted(noise[0] if isinstance(noise, tuple) else noise for noise in groups)
        scaled_noises = sorted(noise[0] if isinstance(noise, tuple) else noise for noise in others)
        assert all(math.isclose(a * factor, b, rel_tol=1e-12) for a, b in zip(noises, scaled_noises, strict=True))


@given(powers(-6, 6), powers(-6, 6))
def test_sampled_groups_are_rounded_towards_less_noise_and_by_little(sensitivity: float, sigma: float) -> None:
    event = SampledGaussianRelease(**{**COMMON, "sensitivity": sensitivity}, sigma=sigma, sampling_rate=0.1)
    ((noise, rate),) = Composition([event]).sampled
    assert rate == 0.1
    assert noise < event.noise_multiplier
    assert math.isclose(noise, event.noise_multiplier, rel_tol=2e-11)


# --- calibration -----------------------------------------------------------------------------------------------------

PARTS = st.lists(
    st.tuples(powers(-6, 3), st.integers(1, 500), st.floats(0.05, 1.0)),
    min_size=1,
    max_size=5,
)


def planned(parts: list[tuple[float, int, float]], values: int = 0) -> list[PlannedRelease]:
    total = math.fsum(weight for _, _, weight in parts)
    return [
        PlannedRelease(f"release {index}", sensitivity, count=count, share=weight / total, values=values)
        for index, (sensitivity, count, weight) in enumerate(parts)
    ]


@given(EPSILON, DELTA, PARTS)
def test_calibrate_then_account_is_the_identity(
    epsilon: float, delta: float, parts: list[tuple[float, int, float]]
) -> None:
    plan = calibrate(Budget(epsilon, delta), planned(parts))
    assert epsilon * (1 - 1e-6) <= plan.epsilon <= epsilon
    mu2 = gaussian_mu(epsilon, delta) ** 2
    for calibrated in plan.releases:
        assert math.isclose(calibrated.mu**2, calibrated.planned.share * mu2, rel_tol=1e-8)


@given(st.floats(0.01, 500.0), powers(-50, -2), PARTS, st.integers(1, 10**7))
def test_calibrate_then_account_is_the_identity_on_a_grid(
    epsilon: float, delta: float, parts: list[tuple[float, int, float]], values: int
) -> None:
    plan = calibrate(Budget(epsilon, delta), planned(parts, values))
    assert epsilon * (1 - 1e-6) <= plan.epsilon <= epsilon


@given(powers(-2, 3), USUAL_DELTA, st.floats(1.001, 10.0), st.integers(1, 200), st.integers(1, 200))
def test_noise_falls_in_epsilon_and_delta_and_grows_in_rounds(
    epsilon: float, delta: float, factor: float, rounds: int, more: int
) -> None:
    def sigma(epsilon: float, delta: float, count: int) -> float:
        return calibrate(Budget(epsilon, delta), PlannedRelease("x", 1.0, count=count))["x"].sigma

    here = sigma(epsilon, delta, rounds)
    assert sigma(epsilon * factor, delta, rounds) < here
    assert sigma(epsilon, delta * factor, rounds) < here
    assert sigma(epsilon, delta, rounds + more) > here


@settings(max_examples=3)
@given(st.floats(0.05, 0.25), st.floats(0.02, 0.5), st.integers(1, 40))
def test_calibrate_then_account_is_the_identity_under_sampling(epsilon: float, rate: float, count: int) -> None:
    budget = Budget(epsilon, 1e-5, adjacency="add-remove")
    plan = calibrate(budget, PlannedRelease("batch", 1.0, count=count, sampling_rate=rate))
    assert epsilon * (1 - 1e-3) <= plan.epsilon <= epsilon


# --- events ----------------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
COMMON_FIELDS = {
    "what": NAMES,
    "client": NAMES,
    "noise": NAMES.filter(lambda name: name not in ("none", "discrete")),
    "round": st.none() | st.integers(0, 2**63 - 1),
    "stage": st.sampled_from(STAGES),
    "adjacency": st.just("add-remove"),
    "unit": st.sampled_from(["record", "client"]),
    "trust": st.sampled_from(TRUSTS),
}
NUMBER_FIELDS = {
    "sensitivity": st.floats(1e-70, 1e70),
    "sigma": st.floats(1e-70, 1e70),
    "count": st.integers(1, 2**53),
}
NOMINAL = st.none() | st.floats(1e-70, 1e70)
ANY_EVENT = st.one_of(
    st.builds(GaussianRelease, **COMMON_FIELDS, **NUMBER_FIELDS),
    st.builds(
        SampledGaussianRelease,
        **{**COMMON_FIELDS, "unit": st.just("record")},
        **NUMBER_FIELDS,
        sampling_rate=st.floats(0, 1, exclude_min=True),
    ),
    st.builds(
        GaussianRelease,
        **{**COMMON_FIELDS, "noise": st.sampled_from(["seeded", "discrete"])},
        **{**NUMBER_FIELDS, "sigma": st.floats(4.0, 1e10)},
        grid=st.floats(1e-6, 1.0),
        values=st.integers(1, 2**60),
    ),
    st.builds(Unprotected, **COMMON_FIELDS, why=NAMES, nominal_sensitivity=NOMINAL, nominal_sigma=NOMINAL),
    st.builds(PostProcessing, **COMMON_FIELDS, of=NAMES),
)


@given(ANY_EVENT)
def test_events_survive_json_without_loss(event: Event) -> None:
    line = event.to_json()
    again = from_json(line)
    assert type(again) is type(event)
    assert vars(again) == vars(event)
    assert again.to_json() == line
    assert from_json(line.encode().decode()) == event
