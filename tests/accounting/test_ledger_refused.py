"""What the ledger refuses, with nothing written, and which stages a budget's scope covers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from accounting import (
    Budget,
    BudgetExceeded,
    CannotAccount,
    Event,
    GaussianRelease,
    InvalidParameter,
    Ledger,
    PostProcessing,
    UnprotectedReleaseError,
    gaussian_epsilon,
    gaussian_mu,
)
from tests.accounting.ledger_events import BUDGET, exact_rows, gaussian

# --- What is refused ------------------------------------------------------------------------------------------------


def test_an_overspend_carries_its_numbers_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, BUDGET)
    ledger.record(gaussian("a", 0.2), gaussian("b", 0.1))
    with pytest.raises(BudgetExceeded) as caught:
        ledger.record(gaussian("a", 0.3))
    error = caught.value
    assert error.spent == gaussian_epsilon(0.2, 1e-5)
    assert error.requested == gaussian_epsilon(0.3, 1e-5)
    assert error.total == pytest.approx(gaussian_epsilon(math.hypot(0.2, 0.3), 1e-5), rel=1e-12)
    assert (error.budget, error.client) == (BUDGET, "a")
    for number in (error.spent, error.requested, error.total):
        assert f"{number:.6g}" in str(error)
    assert (len(ledger), ledger.spent()) == (2, error.spent)
    ledger.close()
    assert len(list(Ledger.read(path).events())) == 2


def test_together_all_or_none() -> None:
    ledger = Ledger(budget=BUDGET)
    for events in (
        [gaussian("a"), gaussian("b", 9.0)],
        [gaussian("b", 9.0), gaussian("a")],
        [gaussian("a", 0.2), gaussian("a", 0.2)],  # either would fit
        [gaussian("a"), exact_rows("b")],
        [gaussian("a"), gaussian("b", adjacency="add-remove")],
        [gaussian("a"), "no event"],
    ):
        with pytest.raises((BudgetExceeded, InvalidParameter)):
            ledger.record(*events)
        assert (len(ledger), list(ledger.events()), ledger.spent()) == (0, [], 0.0)
    assert [receipt.sequence for receipt in ledger.record(gaussian("a"), gaussian("b"))] == [1, 2]
    assert ledger.record() == []


def test_the_request_of_a_refusal_is_the_whole_call() -> None:
    ledger = Ledger(budget=BUDGET)
    with pytest.raises(BudgetExceeded) as caught:
        ledger.record(gaussian("a", 0.2), gaussian("b", 0.2), gaussian("a", 0.21))
    total = gaussian_epsilon(math.hypot(0.2, 0.21), 1e-5)
    assert caught.value.requested == caught.value.total == pytest.approx(total, rel=1e-12)
    assert caught.value.spent == 0.0


@pytest.mark.parametrize("change", [{"adjacency": "add-remove"}, {"unit": "client"}])
def test_events_of_another_meaning_are_refused(change: dict[str, str]) -> None:
    for budget in (BUDGET, Budget(1.0, 1e-5, scope="landmarks")):
        ledger = Ledger(budget=budget)
        for stage in ("landmarks", "release"):
            with pytest.raises(InvalidParameter, match="adjacency and unit"):
                ledger.record(gaussian(stage=stage, **change))
        assert len(ledger) == 0


@pytest.mark.parametrize("change", [{"adjacency": "add-remove"}, {"unit": "client"}])
def test_without_a_budget_one_client_keeps_one_meaning(tmp_path: Path, change: dict[str, str]) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        with pytest.raises(CannotAccount, match="different \\(adjacency, unit\\)"):
            ledger.record(gaussian("a"), gaussian("a", **change))
        ledger.record(gaussian("a"), gaussian("b", **change))
        with pytest.raises(CannotAccount, match="different \\(adjacency, unit\\)"):
            ledger.record(gaussian("a", **change))
    assert len(Ledger.read(path)) == 2  # and it can still be opened


class _Louder(GaussianRelease):
    pass


@pytest.mark.parametrize(
    "thing",
    [Event(what="x", client="a", stage="release"), _Louder(what="x", client="a", sensitivity=1, sigma=1), 3, None],
)
def test_only_known_events_are_written(thing: Any) -> None:
    # A row that cannot be read back would spoil the whole file.
    for budget in (None, Budget(1.0, 1e-5, scope="landmarks")):
        ledger = Ledger(budget=budget)
        with pytest.raises(InvalidParameter, match="event"):
            ledger.record(thing)
        assert ledger.verify() == 0


@pytest.mark.parametrize("number", [-1, 1.5, True, "1", 2**63, math.nan])
def test_a_round_that_no_column_can_hold_is_refused(number: Any) -> None:
    with pytest.raises(InvalidParameter, match="round"):
        gaussian(round=number)


# --- Scope ----------------------------------------------------------------------------------------------------------


def test_scope_end_to_end_covers_every_stage() -> None:
    ledger = Ledger(budget=BUDGET)
    for stage in ("scale", "subspace", "landmarks", "density", "release"):
        with pytest.raises(BudgetExceeded):
            ledger.record(gaussian(mu=9.0, stage=stage))
        with pytest.raises(UnprotectedReleaseError) as caught:
            ledger.record(exact_rows(stage=stage))
    error = caught.value
    assert (error.what, error.why, error.client, error.budget) == ("distance rows", "exact", "a", BUDGET)
    assert error.requested == error.total == math.inf
    assert (error.spent, len(ledger)) == (0.0, 0)


def test_scope_landmarks_covers_all_but_the_release() -> None:
    ledger = Ledger(budget=Budget(1.0, 1e-5, scope="landmarks"))
    for stage in ("scale", "subspace", "landmarks", "density"):
        with pytest.raises(BudgetExceeded):
            ledger.record(gaussian(mu=9.0, stage=stage))
        with pytest.raises(UnprotectedReleaseError):
            ledger.record(exact_rows(stage=stage))
        ledger.record(gaussian(mu=0.05, stage=stage))
    inside = gaussian_epsilon(0.1, 1e-5)
    assert ledger.spent() == pytest.approx(inside, rel=1e-12)
    ledger.record(gaussian(mu=9.0, stage="release"))
    assert ledger.spent() == pytest.approx(inside, rel=1e-12)
    assert ledger.spent(end_to_end=True) == pytest.approx(gaussian_epsilon(math.hypot(0.1, 9.0), 1e-5), rel=1e-12)
    ledger.record(exact_rows())
    assert ledger.spent() == pytest.approx(inside, rel=1e-12)
    assert ledger.spent(end_to_end=True) == math.inf
    assert ledger.compare(end_to_end=True)["gdp"].epsilon == math.inf
    assert ledger.compare()["gdp"].epsilon == pytest.approx(inside, rel=1e-12)
    assert ledger.remaining() == pytest.approx(gaussian_epsilon(math.sqrt(gaussian_mu(1.0, 1e-5) ** 2 - 0.01), 1e-5))


def test_scope_survives_reopening(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, Budget(1.0, 1e-5, scope="landmarks")) as ledger:
        ledger.record(gaussian(), exact_rows())
    with Ledger(path) as ledger:
        assert ledger.spent() == gaussian_epsilon(0.1, 1e-5)
        assert ledger.spent(end_to_end=True) == math.inf


def test_post_processing_costs_nothing_and_needs_a_release_made_before() -> None:
    def derived(what: str = "rows", of: str = "records", client: str = "a", **values: Any) -> PostProcessing:
        return PostProcessing(what=what, of=of, client=client, **values)

    ledger = Ledger(budget=Budget(1.0, 1e-5, scope="landmarks"))
    for events in (
        [derived()],
        [gaussian("b", what="records"), derived()],  # another client's
        [derived("rows", of="rows")],
        [derived("rows", of="map"), derived("map", of="rows")],  # each other's
        [derived(), gaussian(what="records")],  # a later one
        [exact_rows(what="records"), derived()],  # one that the budget does not cover
    ):
        with pytest.raises(InvalidParameter, match="source of"):
            ledger.record(*events)
        assert len(ledger) == 0
    ledger.record(gaussian(what="records"), derived(), derived("map", of="rows"))
    ledger.record(
        derived("graph", of="map"), exact_rows(what="exact rows"), derived("m", of="exact rows", stage="release")
    )
    assert ledger.spent() == gaussian_epsilon(0.1, 1e-5)
    with pytest.raises(InvalidParameter, match="inside the budget's scope"):
        ledger.record(derived("n", of="exact rows"))
