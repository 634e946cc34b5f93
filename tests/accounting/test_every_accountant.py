"""One suite that every accountant passes, and how an accountant is found."""

from __future__ import annotations

import math

import pytest

from accounting import (
    ACCOUNTANTS,
    Accountant,
    CannotAccount,
    Composition,
    Event,
    InvalidParameter,
    Unprotected,
    accountant,
    gaussian_epsilon,
    tightest,
)
from accounting.exactness import charged_epsilon
from tests.accounting.accountant_events import (
    DELTA,
    SLACK,
    discrete,
    exact_sampled_epsilon,
    gaussian,
    sampled,
)


def unprotected() -> Unprotected:
    return Unprotected(what="distances", client="a", adjacency="add-remove", why="exact")


@pytest.fixture(params=ACCOUNTANTS)
def reader(request: pytest.FixtureRequest) -> Accountant:
    return ACCOUNTANTS[request.param]


class TestEveryAccountant:
    """The shared suite."""

    def test_its_name_finds_it_and_its_note_says_something(self, reader: Accountant) -> None:
        assert accountant(reader.name) is reader
        assert reader.note

    def test_nothing_released_costs_nothing(self, reader: Accountant) -> None:
        assert reader.epsilon([], DELTA) == 0.0
        assert reader.epsilon(Composition(), DELTA) == 0.0

    def test_anything_unprotected_costs_everything(self, reader: Accountant) -> None:
        assert reader.epsilon([unprotected()], DELTA) == math.inf
        assert reader.epsilon([gaussian(), sampled(0.1), discrete(), unprotected()], DELTA) == math.inf

    def test_a_proved_bound_is_never_below_the_exact_value(self, reader: Accountant) -> None:
        for mu in (0.05, 0.4, 1.0):
            for delta in (1e-2, 1e-8):
                exact = gaussian_epsilon(mu, delta)
                epsilon = reader.epsilon([gaussian(1 / mu)], delta)
                assert not reader.is_bound or epsilon >= exact * (1 - SLACK)

    def test_more_rounds_cost_more(self, reader: Accountant) -> None:
        readings = [reader.epsilon([gaussian(5.0, count)], DELTA) for count in (1, 2, 10, 50)]
        assert readings == sorted(readings)
        assert readings[0] < readings[-1]

    def test_more_noise_costs_less(self, reader: Accountant) -> None:
        readings = [reader.epsilon([gaussian(sigma, 10)], DELTA) for sigma in (4.0, 5.0, 20.0)]
        assert readings == sorted(readings, reverse=True)
        assert readings[-1] < readings[0]

    def test_a_larger_sensitivity_costs_more(self, reader: Accountant) -> None:
        readings = [reader.epsilon([gaussian(5.0, 10, value)], DELTA) for value in (0.5, 1.0, 2.0)]
        assert readings[0] < readings[1] < readings[2]

    def test_a_smaller_delta_costs_more(self, reader: Accountant) -> None:
        readings = [reader.epsilon([gaussian(5.0, 10)], delta) for delta in (1e-3, 1e-5, 1e-8)]
        assert readings[0] < readings[1] < readings[2]

    def test_only_the_ratio_of_noise_and_sensitivity_counts(self, reader: Accountant) -> None:
        one, other = gaussian(5.0, 10), gaussian(5e-7, 10, 1e-7)
        assert reader.epsilon([one], DELTA) == pytest.approx(reader.epsilon([other], DELTA), rel=1e-9)

    def test_a_count_is_as_many_events(self, reader: Accountant) -> None:
        split = [gaussian(5.0, 3), *[gaussian()] * 2, gaussian(5.0, 5)]
        assert reader.epsilon(split, DELTA) == pytest.approx(reader.epsilon([gaussian(5.0, 10)], DELTA), rel=1e-9)

    def test_the_order_of_events_does_not_matter(self, reader: Accountant) -> None:
        events = [gaussian(4.0, 2), gaussian(9.0), gaussian(6.0, 3)]
        if reader.name == "opacus-gdp":
            with pytest.raises(CannotAccount, match="one noise multiplier"):
                reader.epsilon(events, DELTA)
            return
        reference = reader.epsilon(events, DELTA)
        assert reader.epsilon(events[::-1], DELTA) == pytest.approx(reference, rel=1e-9)
        assert not reader.is_bound or reference >= gaussian_epsilon(math.sqrt(2 / 16 + 1 / 81 + 3 / 36), DELTA)

    def test_sampled_releases_get_a_number_or_a_reason(self, reader: Accountant) -> None:
        release = sampled(0.2, 1.5)
        if not reader.sampled:
            with pytest.raises(CannotAccount, match=f"{reader.name} .*Poisson.*pld"):
                reader.epsilon([release], DELTA)
            return
        epsilon = reader.epsilon([release], DELTA)
        if reader.is_bound:
            assert epsilon >= exact_sampled_epsilon(0.2, 1.5, DELTA) * (1 - SLACK)
        assert epsilon < reader.epsilon([gaussian(1.5)], DELTA)

    def test_sampling_everything_is_no_sampling(self, reader: Accountant) -> None:
        if reader.sampled:
            plain = reader.epsilon([gaussian(3.0, 4)], DELTA)
            assert reader.epsilon([sampled(1.0, 3.0, 4)], DELTA) == pytest.approx(plain, rel=1e-5)

    def test_a_release_on_a_grid_costs_what_its_gaussian_does_and_the_charge(self, reader: Accountant) -> None:
        continuous, charge = reader.epsilon([gaussian()], DELTA), charged_epsilon(1000)
        assert continuous + charge <= reader.epsilon([discrete()], DELTA) <= continuous + charge + 1e-8
        many = discrete(values=2**44)
        assert reader.epsilon([many], DELTA) >= continuous + charged_epsilon(2**44) > 0.06

    def test_on_a_grid_no_epsilon_above_500_is_promised(self, reader: Accountant) -> None:
        assert reader.epsilon([discrete(values=2**56)], DELTA) == math.inf
        if reader.name not in ("theorem", "opacus-prv", "opacus-gdp", "pld"):  # without an ε there, or slow
            assert reader.epsilon([gaussian(0.02)], DELTA) > 500
            assert reader.epsilon([discrete(0.2, 100)], DELTA) == math.inf

    def test_mixed_meanings_are_refused(self, reader: Accountant) -> None:
        for change in ({"adjacency": "replace-one"}, {"unit": "client"}):
            with pytest.raises(CannotAccount, match="different \\(adjacency, unit\\)"):
                reader.epsilon([gaussian(), gaussian(**change)], DELTA)

    def test_an_unknown_event_is_never_free(self, reader: Accountant) -> None:
        with pytest.raises(CannotAccount, match="unknown kind"):
            reader.epsilon([Event(what="mystery", client="a")], DELTA)

    @pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, "1e-5", None])
    def test_a_bad_delta_is_a_named_error_even_with_nothing_to_account(self, reader: Accountant, delta: object) -> None:
        for events in ([], [gaussian()], [unprotected()]):
            with pytest.raises(InvalidParameter, match="delta must be strictly between 0 and 1"):
                reader.epsilon(events, delta)

    def test_the_noise_that_it_asks_for_has_the_epsilon_that_was_asked(self, reader: Accountant) -> None:
        composition = Composition([gaussian(2.0, 4)])
        for target in (0.7, 8.0):
            if reader.name in ("pld", "opacus-prv") and target > 1:
                continue  # slow, and the same code
            factor = reader.sigma_factor(composition, target, DELTA)
            assert reader.epsilon(composition.scaled(factor), DELTA) == pytest.approx(target, rel=1e-5)

    def test_noise_is_not_asked_for_where_there_is_nothing_to_scale(self, reader: Accountant) -> None:
        for events in ([], [unprotected()]):
            with pytest.raises(CannotAccount, match="no protected release"):
                reader.sigma_factor(events, 1.0, DELTA)
        with pytest.raises(InvalidParameter, match="epsilon must be"):
            reader.sigma_factor([gaussian()], 0.0, DELTA)

    def test_reading_does_not_change_what_is_read(self, reader: Accountant) -> None:
        composition = Composition([gaussian(5.0, 3)])
        before = (composition.mu2, dict(composition.gaussian), composition.releases)
        assert reader.epsilon(composition, DELTA) == reader.epsilon(composition, DELTA)
        composition.scaled(2.0)
        composition.copy().add(gaussian())
        assert (composition.mu2, dict(composition.gaussian), composition.releases) == before


@pytest.mark.parametrize("name", ["GDP", "", "moments", None, []])
def test_an_unknown_accountant_is_a_named_error(name: object) -> None:
    with pytest.raises(InvalidParameter, match="accountant must be one of gdp, pld"):
        accountant(name)


def test_the_tightest_accountant_follows_from_the_kinds_of_release() -> None:
    assert tightest(Composition([gaussian()])).name == "gdp"
    assert tightest(Composition([gaussian(), sampled(0.1)])).name == "pld"
    assert tightest(Composition([gaussian(), discrete()])).name == "gdp"
    assert tightest(Composition([sampled(0.1), discrete()])).name == "pld"
