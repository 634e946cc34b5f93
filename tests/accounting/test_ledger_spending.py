"""What the ledger says is spent and left: by clients, by kinds of noise, and for random histories."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    ACCOUNTANTS,
    Budget,
    BudgetExceeded,
    CalibratedPlan,
    CalibratedRelease,
    Composition,
    Event,
    InvalidParameter,
    Ledger,
    LedgerError,
    PlannedRelease,
    calibrate,
    calibration,
    gate,
    gaussian_epsilon,
    gaussian_mu,
    tightest,
)
from accounting import ledger as ledgers
from tests.accounting.ledger_events import BUDGET, discrete, exact_rows, gaussian, sampled


def by_rdp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read all releases by RDP, which is quick."""
    for module in (calibration, gate, ledgers):
        monkeypatch.setattr(module, "tightest", lambda _: ACCOUNTANTS["rdp"])


# --- What is spent and what is left ---------------------------------------------------------------------------------


def test_overall_is_the_largest_over_clients_and_never_the_sum() -> None:
    ledger = Ledger(budget=BUDGET)
    ledger.record(gaussian("a", 0.1), gaussian("b", 0.2), gaussian("c", 0.05))
    assert ledger.spent(client="a") == gaussian_epsilon(0.1, 1e-5)
    assert ledger.spent() == ledger.spent(client="b") == gaussian_epsilon(0.2, 1e-5)
    assert ledger.spent(1e-7, client="c") == gaussian_epsilon(0.05, 1e-7)
    assert ledger.spent(client="nobody") == 0.0
    assert ledger.clients == ["a", "b", "c"]


def test_spent_composes_in_mu_squared() -> None:
    ledger = Ledger(budget=BUDGET)
    ledger.record(gaussian(mu=0.06), gaussian(mu=0.04, count=4))
    assert ledger.spent() == pytest.approx(gaussian_epsilon(0.1, 1e-5), rel=1e-12)


def test_remaining_is_what_still_fits() -> None:
    ledger = Ledger(budget=BUDGET)
    assert ledger.remaining() == pytest.approx(1.0, rel=1e-9)
    ledger.record(gaussian("a", 0.15))
    left = ledger.remaining("a")
    assert ledger.remaining() == left < ledger.remaining("b") == pytest.approx(1.0, rel=1e-9)
    with pytest.raises(BudgetExceeded):
        ledger.record(gaussian("a", gaussian_mu(left, 1e-5) * (1 + 1e-6)))
    ledger.record(gaussian("a", gaussian_mu(left, 1e-5) * (1 - 1e-6)))
    assert ledger.spent() == pytest.approx(1.0, rel=1e-4)
    assert ledger.spent() <= 1.0
    # μ falls like a square root at the end of a budget: one part in 10⁶ leaves a thousandth of it.
    assert ledger.remaining() < 5e-3


def test_no_budget_records_everything_and_knows_of_no_remainder() -> None:
    ledger = Ledger()
    ledger.record(gaussian(mu=100.0), gaussian("b"))
    assert ledger.spent(1e-5) == gaussian_epsilon(100.0, 1e-5)
    with pytest.raises(InvalidParameter, match="delta"):
        ledger.spent()
    with pytest.raises(LedgerError, match="no budget"):
        ledger.remaining()
    ledger.record(exact_rows(stage="landmarks"))
    assert ledger.spent(1e-5) == math.inf
    assert ledger.spent(1e-5, client="b") < 1


def test_every_accountant_reads_a_ledger() -> None:
    ledger = Ledger(budget=BUDGET)
    ledger.record(gaussian("a"), gaussian("b", 0.2))
    readings = ledger.compare()
    assert readings["gdp"].epsilon == ledger.spent()
    for name, reading in readings.items():
        if reading.is_bound and reading.epsilon is not None:
            assert reading.epsilon >= ledger.spent() * (1 - 1e-4), name


# --- Kinds of noise -------------------------------------------------------------------------------------------------


def test_a_calibrated_plan_fits_exactly_and_one_more_release_is_refused() -> None:
    rounds, clients = 20, [f"client {number}" for number in range(4)]
    plan = calibrate(
        BUDGET, [PlannedRelease("moments", 3.0, share=0.3), PlannedRelease("gradient", 0.2, count=rounds, share=0.7)]
    )
    ledger = Ledger(budget=BUDGET)
    ledger.record(*(plan["moments"].event(client) for client in clients))
    for number in range(rounds):
        ledger.record(*(plan["gradient"].event(client, round=number) for client in clients))
    assert 1 - 1e-6 < ledger.spent() <= 1.0
    for client in clients:
        with pytest.raises(BudgetExceeded):
            ledger.record(plan["gradient"].event(client, round=rounds))
    assert len(ledger) == len(clients) * (rounds + 1)


def test_a_sampled_plan_fits_exactly_and_one_more_release_is_refused() -> None:
    rounds, clients = 12, ["a", "b", "c"]
    budget = Budget(1.0, 1e-5, adjacency="add-remove")
    plan = calibrate(budget, PlannedRelease("gradient", 0.4, count=rounds, sampling_rate=0.1))
    # The same plan for a client of another size has other sensitivities, and the same noise multiplier up to rounding.
    planned = PlannedRelease("gradient", 0.4 * 3, count=rounds, sampling_rate=0.1)
    wider = CalibratedPlan(budget, (CalibratedRelease(planned, plan["gradient"].sigma * 3, budget),))
    ledger = Ledger(budget=budget)
    for number in range(rounds):
        ledger.record(
            *((wider if client == "c" else plan)["gradient"].event(client, round=number) for client in clients)
        )
    assert 1 - 1e-3 < ledger.spent() <= 1.0
    for client in clients:
        with pytest.raises(BudgetExceeded) as caught:
            ledger.record(plan["gradient"].event(client, round=rounds))
        assert caught.value.total > 1.0 >= caught.value.spent > caught.value.requested > 0
    assert len(ledger) == rounds * len(clients)


@pytest.mark.parametrize("values", [1, 400_000, 2**42])
def test_a_plan_on_a_grid_fits_exactly_and_one_more_release_is_refused(values: int) -> None:
    plan = calibrate(BUDGET, PlannedRelease("moments", 1.001, count=8, values=values))
    ledger = Ledger(budget=BUDGET)
    for number in range(8):
        ledger.record(plan["moments"].event("a", round=number, noise="discrete", grid=2.0**-12))
    assert 1 - 1e-6 < ledger.spent() <= 1.0
    assert tightest(ledger.composition("a")).name == "gdp"
    with pytest.raises(BudgetExceeded):
        ledger.record(plan["moments"].event("a", round=8, grid=2.0**-12))
    # Nor does anything else fit, however little: its integers are charged too.
    with pytest.raises(BudgetExceeded):
        ledger.record(discrete(mu=1e-4, values=8 * values))


def test_a_sampled_plan_on_a_grid_fits_exactly_and_one_more_release_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_rdp(monkeypatch)
    budget = Budget(1.0, 1e-5, adjacency="add-remove")
    plan = calibrate(budget, PlannedRelease("gradient", 0.4, count=6, sampling_rate=0.1, values=2**40))
    ledger = Ledger(budget=budget)
    for number in range(6):
        ledger.record(plan["gradient"].event("a", round=number, grid=1e-3))
    assert 1 - 1e-3 < ledger.spent() <= 1.0
    with pytest.raises(BudgetExceeded):
        ledger.record(plan["gradient"].event("a", round=6, grid=1e-3))


def test_no_release_on_a_grid_fits_a_budget_that_its_sampler_cannot_meet() -> None:
    ledger = Ledger(budget=Budget(501.0, 1e-5))
    with pytest.raises(BudgetExceeded):
        ledger.record(discrete(mu=1e-3))
    ledger.record(gaussian(mu=1e-3))


def test_mixtures_of_kinds_are_accounted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    by_rdp(monkeypatch)
    budget = Budget(2.0, 1e-5, adjacency="add-remove")
    ledger = Ledger(budget=budget)
    meaning = {"adjacency": "add-remove"}
    ledger.record(gaussian(mu=0.2, **meaning))
    ledger.record(discrete(mu=0.2, **meaning))
    assert tightest(ledger.composition("a")).name == "gdp"
    ledger.record(sampled(sigma=4.0))
    assert tightest(ledger.composition("a")).name == "pld"
    ledger.record(gaussian("b", 0.2, **meaning), sampled("b", sigma=4.0))
    assert tightest(ledger.composition("b")).name == "pld"
    assert ledger.spent(client="b") < ledger.spent(client="a") == ledger.spent() < 2.0
    for event in (gaussian(mu=0.6, **meaning), discrete(mu=0.6, **meaning), sampled(sigma=0.3)):
        with pytest.raises(BudgetExceeded):
            ledger.record(event)
    assert len(ledger) == 5


# --- For random histories -------------------------------------------------------------------------------------------

_MUS = st.floats(0.01, 0.25)
_EVENTS = st.one_of(
    st.builds(gaussian, st.sampled_from("abc"), _MUS, count=st.integers(1, 4)),
    st.builds(gaussian, st.sampled_from("abc"), _MUS, stage=st.just("release")),
    st.builds(discrete, st.sampled_from("abc"), _MUS),
)


@given(calls=st.lists(st.lists(_EVENTS, max_size=3), max_size=15), scope=st.sampled_from(["end-to-end", "landmarks"]))
@settings(max_examples=40)
def test_spent_is_what_the_tightest_accountant_says_and_never_over_the_budget(
    calls: list[list[Event]], scope: Any
) -> None:
    budget = Budget(1.0, 1e-5, scope=scope)
    ledger = Ledger(budget=budget)
    model: dict[str, list[Event]] = defaultdict(list)
    accepted: list[Event] = []

    def epsilon(events: list[Event]) -> float:
        composition = Composition(event for event in events if budget.covers(event.stage))
        return tightest(composition).epsilon(composition, 1e-5)

    for call in calls:
        trial = {client: model[client] + [event for event in call if event.client == client] for client in "abc"}
        largest = max(epsilon(events) for events in trial.values())
        try:
            ledger.record(*call)
        except BudgetExceeded:
            assert largest > 1.0 - 1e-9
        else:
            assert largest <= 1.0 + 1e-9
            model.update(trial)
            accepted += call
        for client in "abc":
            assert ledger.spent(client=client) == pytest.approx(epsilon(model[client]), rel=1e-12)
        assert ledger.spent() <= 1.0 + 1e-9
    assert list(ledger.events()) == accepted
    assert ledger.verify() == len(accepted)
