"""Values of single accountants: golden ones, those by hand, comparisons, and what the libraries cannot do."""

from __future__ import annotations

import math
import sys

import pytest

from accounting import ACCOUNTANTS, CannotAccount, InvalidParameter, compare, gaussian_epsilon, gaussian_mu
from accounting.accountants.base import quiet
from accounting.accountants.closed import theorem_sigma, zcdp_epsilon
from tests.accounting.accountant_events import (
    DELTA,
    SLACK,
    discrete,
    exact_sampled_epsilon,
    gaussian,
    sampled,
)

BOUNDS = [name for name, reader in ACCOUNTANTS.items() if reader.is_bound]
GOLDEN = {
    "gdp": (6.572970067, 5e-10),
    "pld": (6.572970071, 1e-7),
    "rdp": (7.0774, 5e-5),
    "opacus-prv": (6.5833, 5e-5),
    "opacus-rdp": (7.0774, 5e-5),
    "opacus-gdp": (6.6519, 1e-4),
    "zcdp": (7.0772, 5e-5),
    "theorem": (15.08736, 5e-5),
    "advanced": (104.255, 5e-3),
    "basic": (45.1674, 5e-4),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_fifty_rounds_at_noise_five(name: str) -> None:
    value, tolerance = GOLDEN[name]
    assert ACCOUNTANTS[name].epsilon([gaussian(5.0, 50)], 1e-5) == pytest.approx(value, abs=tolerance)


def test_compare_lets_every_accountant_speak_and_takes_the_largest_client() -> None:
    clients = [[gaussian(5.0, 10)], [gaussian(5.0, 50)], []]
    readings = compare(clients, DELTA)
    assert list(readings) == list(ACCOUNTANTS)
    for name, reading in readings.items():
        assert reading.epsilon == pytest.approx(ACCOUNTANTS[name].epsilon(clients[1], DELTA), rel=1e-12)
        assert reading.is_bound == ACCOUNTANTS[name].is_bound
        assert reading.reason == ""


def test_compare_says_why_an_accountant_cannot() -> None:
    readings = compare([[sampled(0.1)]], DELTA)
    for name, reading in readings.items():
        assert (reading.epsilon is None) == (not ACCOUNTANTS[name].sampled)
        assert (reading.reason != "") == (not ACCOUNTANTS[name].sampled)
    assert compare([], DELTA, ["gdp"])["gdp"].epsilon == 0.0


class TestKnownLimits:
    """What the libraries cannot do, and by how much they differ."""

    @pytest.mark.parametrize("mu", [0.02, 0.1, 0.5, 1.5])
    @pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8, 1e-12])
    def test_pld_is_the_exact_value_to_1e_4(self, mu: float, delta: float) -> None:
        exact = gaussian_epsilon(mu, delta)
        assert exact * (1 - SLACK) <= ACCOUNTANTS["pld"].epsilon([gaussian(1 / mu)], delta) <= exact * (1 + 1e-4)

    def test_pld_is_a_coarse_bound_at_1e_14_and_has_no_answer_at_1e_20(self) -> None:
        exact = gaussian_epsilon(1.0, 1e-14)
        assert exact * (1 + 1e-4) < ACCOUNTANTS["pld"].epsilon([gaussian(1.0)], 1e-14) < exact * (1 + 1e-3)
        with pytest.raises(CannotAccount, match="pld cannot resolve δ = 1e-20"):
            ACCOUNTANTS["pld"].epsilon([gaussian(5.0, 50)], 1e-20)

    def test_opacus_prv_has_no_answer_at_1e_20(self) -> None:
        with pytest.raises(CannotAccount, match="opacus-prv failed at δ = 1e-20"):
            ACCOUNTANTS["opacus-prv"].epsilon([gaussian(5.0, 50)], 1e-20)

    @pytest.mark.parametrize("name", ["gdp", "zcdp", "rdp", "opacus-rdp", "theorem", "basic", "advanced"])
    def test_the_others_go_down_to_1e_300(self, name: str) -> None:
        assert ACCOUNTANTS[name].epsilon([gaussian(5.0, 50)], 1e-300) >= gaussian_epsilon(math.sqrt(2), 1e-300)

    @pytest.mark.parametrize(("rate", "sigma"), [(0.5, 2.0), (0.1, 0.8), (0.01, 1.5)])
    def test_sampled_accountants_are_at_or_above_the_exact_value_of_one_release(
        self, rate: float, sigma: float
    ) -> None:
        exact = exact_sampled_epsilon(rate, sigma, DELTA)
        assert ACCOUNTANTS["pld"].epsilon([sampled(rate, sigma)], DELTA) == pytest.approx(exact, rel=1e-4)
        for name in ("pld", "rdp", "opacus-prv", "opacus-rdp"):
            assert ACCOUNTANTS[name].epsilon([sampled(rate, sigma)], DELTA) >= exact * (1 - SLACK)

    def test_opacus_gdp_is_flagged_because_it_underestimates(self) -> None:
        assert not ACCOUNTANTS["opacus-gdp"].is_bound
        assert "not a bound" in ACCOUNTANTS["opacus-gdp"].note
        one = [sampled(0.1, 0.8)]
        assert exact_sampled_epsilon(0.1, 0.8, DELTA) == pytest.approx(2.7274, abs=1e-4)
        assert ACCOUNTANTS["opacus-gdp"].epsilon(one, DELTA) == pytest.approx(0.7025, abs=1e-4)
        many = [sampled(0.1, 2.0, 50)]
        assert ACCOUNTANTS["pld"].epsilon(many, DELTA) == pytest.approx(1.6525, abs=1e-4)
        assert ACCOUNTANTS["opacus-gdp"].epsilon(many, DELTA) == pytest.approx(1.4556, abs=1e-3)

    def test_opacus_rdp_cannot_be_calibrated_below_the_floor_of_its_orders(self) -> None:
        with pytest.raises(CannotAccount, match=r"opacus-rdp finds no noise with ε = 0.05"):
            ACCOUNTANTS["opacus-rdp"].sigma_factor([gaussian()], 0.05, DELTA)

    def test_dp_accounting_doubles_the_sensitivity_under_replace_one_in_pld_and_not_in_rdp(self) -> None:
        """Why ours always passes σ/Δ under add-or-remove: one and the same event gets two meanings."""
        with quiet():
            import dp_accounting
            from dp_accounting.pld import PLDAccountant
            from dp_accounting.rdp import RdpAccountant

            relation = dp_accounting.NeighboringRelation.REPLACE_ONE
            event = dp_accounting.GaussianDpEvent(5.0)
            readings = [
                kind(neighboring_relation=relation).compose(event, 50).get_epsilon(1e-5)
                for kind in (PLDAccountant, RdpAccountant)
            ]
        assert readings == pytest.approx([15.46, 7.08], abs=5e-3)
        assert readings[0] == pytest.approx(gaussian_epsilon(2 * math.sqrt(50) / 5, 1e-5), rel=1e-4)
        for name in ("pld", "rdp"):
            here = ACCOUNTANTS[name].epsilon([gaussian(5.0, 50, adjacency="replace-one")], 1e-5)
            assert here == pytest.approx(GOLDEN[name][0], abs=1e-3)

    @pytest.mark.parametrize("name", ["opacus-prv", "opacus-rdp", "opacus-gdp"])
    def test_without_opacus_its_accountants_say_so(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in ("opacus.accountants", "opacus.accountants.analysis.gdp"):
            monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(CannotAccount, match="Opacus is not installed; pip install"):
            ACCOUNTANTS[name].epsilon([gaussian()], DELTA)


class TestTheorem6:
    """The paper's calibration."""

    def test_it_asks_for_2_57_times_the_exact_noise(self) -> None:
        asked = theorem_sigma(sensitivity=1.0, rounds=50, epsilon=1.0, delta=1e-5)
        exact = math.sqrt(50) / gaussian_mu(1.0, 1e-5)
        assert asked / exact == pytest.approx(2.57, abs=5e-3)
        factor = ACCOUNTANTS["theorem"].sigma_factor([gaussian(exact, 50)], 1.0, 1e-5)
        assert factor == pytest.approx(asked / exact, rel=1e-6)

    @pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-3), (20.0, 1e-8), (1e-3, 1e-300)])
    def test_the_accountant_inverts_the_printed_formula(self, epsilon: float, delta: float) -> None:
        sigma = theorem_sigma(sensitivity=2.0, rounds=7, epsilon=epsilon, delta=delta)
        printed = 8 * 7 * 2.0**2 * math.log(math.e + epsilon / delta) / epsilon**2
        assert sigma**2 == pytest.approx(printed, rel=1e-12)
        assert ACCOUNTANTS["theorem"].epsilon([gaussian(sigma, 7, 2.0)], delta) == pytest.approx(epsilon, rel=1e-9)

    def test_it_is_false_for_large_epsilon_and_then_says_so(self) -> None:
        """Thm 6 promises ε = 300 with a noise at which the exact ε is 435: "for any ε > 0" does not hold."""
        sigma = theorem_sigma(sensitivity=1.0, rounds=1, epsilon=300.0, delta=1e-5)
        assert gaussian_epsilon(1 / sigma, 1e-5) > 400
        with pytest.raises(CannotAccount, match="Thm 6 is false here: its ε = 300"):
            ACCOUNTANTS["theorem"].epsilon([gaussian(sigma)], 1e-5)

    @pytest.mark.parametrize("change", [{"sensitivity": 0}, {"rounds": 0}, {"epsilon": -1}, {"delta": 1}])
    def test_bad_input_is_a_named_error(self, change: dict[str, float]) -> None:
        values = {"sensitivity": 1.0, "rounds": 5, "epsilon": 1.0, "delta": 1e-5, **change}
        with pytest.raises(InvalidParameter, match=f"{next(iter(change))} must be"):
            theorem_sigma(**values)


class TestConcentrated:
    """zCDP."""

    @pytest.mark.parametrize("delta", [0.5, 1e-2, 1e-5, 1e-10, 1e-300])
    @pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 10.0, 40.0])
    def test_it_lies_between_the_exact_value_and_the_textbook_formula(self, mu: float, delta: float) -> None:
        rho = mu**2 / 2
        textbook = rho + 2 * math.sqrt(rho * math.log(1 / delta))  # Bun & Steinke 2016, Prop. 1.3
        assert gaussian_epsilon(mu, delta) <= zcdp_epsilon(rho, delta) <= textbook

    def test_its_search_finds_the_best_order(self) -> None:
        rho, delta = 1.0, 1e-5
        by_grid = min(
            alpha * rho + (math.log(1 / delta) + (alpha - 1) * math.log(1 - 1 / alpha) - math.log(alpha)) / (alpha - 1)
            for alpha in (1 + 10 ** (k / 2000) for k in range(-4000, 6000))
        )
        assert zcdp_epsilon(rho, delta) == pytest.approx(by_grid, rel=1e-6)
        assert zcdp_epsilon(0.0, delta) == 0.0

    def test_releases_with_and_without_a_grid_add_up(self) -> None:
        mixed = ACCOUNTANTS["zcdp"].epsilon([gaussian(5.0, 30), discrete(5.0, 20)], DELTA)
        assert mixed == pytest.approx(ACCOUNTANTS["zcdp"].epsilon([gaussian(5.0, 50)], DELTA), rel=1e-9)

    @pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "1"])
    def test_bad_input_is_a_named_error(self, bad: object) -> None:
        with pytest.raises(InvalidParameter, match="rho must be"):
            zcdp_epsilon(bad, DELTA)


class TestCompositionTheorems:
    """Basic and advanced composition, by hand."""

    def test_basic_splits_delta_and_adds_epsilon(self) -> None:
        each = gaussian_epsilon(0.2, DELTA / 5)
        other = gaussian_epsilon(0.5, DELTA / 5)
        assert ACCOUNTANTS["basic"].epsilon([gaussian(5.0, 3), gaussian(2.0, 2)], DELTA) == pytest.approx(
            3 * each + 2 * other, rel=1e-12
        )

    def test_advanced_is_the_formula_of_dwork_rothblum_and_vadhan(self) -> None:
        each = gaussian_epsilon(0.02, DELTA / 2000)
        by_hand = math.sqrt(2 * 1000 * math.log(2 / DELTA)) * each + 1000 * each * math.expm1(each)
        assert ACCOUNTANTS["advanced"].epsilon([gaussian(50.0, 1000)], DELTA) == pytest.approx(by_hand, rel=1e-12)

    def test_advanced_beats_basic_for_many_small_releases_only(self) -> None:
        many, few = [gaussian(2000.0, 10**6)], [gaussian(5.0, 50)]
        assert ACCOUNTANTS["advanced"].epsilon(many, DELTA) < ACCOUNTANTS["basic"].epsilon(many, DELTA)
        assert ACCOUNTANTS["advanced"].epsilon(few, DELTA) > ACCOUNTANTS["basic"].epsilon(few, DELTA)

    def test_advanced_does_not_overflow(self) -> None:
        assert ACCOUNTANTS["advanced"].epsilon([gaussian(0.01)], DELTA) == math.inf
