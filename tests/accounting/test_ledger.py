"""The ledger: what it remembers, what it refuses, and what it says is left."""

from __future__ import annotations

import math
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    Budget,
    BudgetExceeded,
    CalibratedPlan,
    CalibratedRelease,
    CannotAccount,
    Composition,
    DiscreteGaussianRelease,
    Event,
    GaussianRelease,
    InvalidParameter,
    Ledger,
    LedgerError,
    PlannedRelease,
    PostProcessing,
    SampledGaussianRelease,
    Unprotected,
    UnprotectedReleaseError,
    calibrate,
    gaussian_epsilon,
    gaussian_mu,
    tightest,
)

BUDGET = Budget(1.0, 1e-5)


def gaussian(client: str = "a", mu: float = 0.1, **values: Any) -> GaussianRelease:
    return GaussianRelease(**{"what": "gradient", "client": client, "sensitivity": mu, "sigma": 1.0, **values})


def discrete(client: str = "a", mu: float = 0.1, **values: Any) -> DiscreteGaussianRelease:
    return DiscreteGaussianRelease(what="moments", client=client, sensitivity=mu, sigma=1.0, granularity=0.01, **values)


def sampled(client: str = "a", **values: Any) -> SampledGaussianRelease:
    values = {"sensitivity": 1.0, "sigma": 2.0, "sampling_rate": 0.1, **values}
    return SampledGaussianRelease(what="gradient", client=client, adjacency="add-remove", **values)


def exact_rows(client: str = "a", **values: Any) -> Unprotected:
    return Unprotected(**{"what": "distance rows", "client": client, "why": "exact", "stage": "release", **values})


# --- What is remembered ---------------------------------------------------------------------------------------------


def test_an_event_is_on_disk_before_record_returns(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    events = [gaussian("a", round=0), discrete("b", round=1), gaussian("a", round=2, trust="aggregate")]
    with Ledger(path, BUDGET) as ledger:
        for number, event in enumerate(events, start=1):
            [receipt] = ledger.record(event)
            assert receipt.sequence == number
            with Ledger.read(path) as other:
                assert list(other.events()) == events[:number]
                assert len(other) == number
        # Level 2 is FULL: the log is flushed to disk at each commit.
        assert ledger._store._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_another_process_sees_an_event_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(gaussian(round=7))
        code = f"from accounting import Ledger; print([e.round for e in Ledger.read({str(path)!r}).events()])"
        assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[7]"


def test_resume_after_close_goes_on_with_the_same_budget_and_chain(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        first = ledger.record(gaussian(mu=0.15), gaussian("b"))
        spent, remaining = ledger.spent(), ledger.remaining()
    with Ledger(path) as ledger:
        assert ledger.budget == BUDGET
        assert (ledger.spent(), ledger.remaining(), len(ledger)) == (spent, remaining, 2)
        [third] = ledger.record(gaussian())
        assert third.sequence == 3
        assert third.hash not in {receipt.hash for receipt in first}
        with pytest.raises(BudgetExceeded):
            ledger.record(gaussian(mu=0.2))
    with Ledger(path, BUDGET) as ledger:
        assert ledger.verify() == 3


def test_reopening_with_another_budget_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path, BUDGET).close()
    for other in (
        Budget(2.0, 1e-5),
        Budget(1.0, 1e-6),
        Budget(1.0, 1e-5, scope="landmarks"),
        Budget(1.0, 1e-5, unit="client"),
    ):
        with pytest.raises(LedgerError, match="was made with"):
            Ledger(path, other)
    Ledger(tmp_path / "none.db").close()
    with pytest.raises(LedgerError, match="was made with None"):
        Ledger(tmp_path / "none.db", BUDGET)


def test_events_can_be_filtered_and_recording_while_reading_ends() -> None:
    ledger = Ledger()
    ledger.record(gaussian("a", round=0), gaussian("b", round=0), discrete("a", round=1))
    assert [event.client for event in ledger.events(round=0)] == ["a", "b"]
    assert [event.what for event in ledger.events(client="a")] == ["gradient", "moments"]
    assert [event.round for event in ledger.events(what="moments", client="a")] == [1]
    for event in ledger.events():
        ledger.record(event)
    assert len(ledger) == 6


def test_memory_ledger_keeps_the_budget_too() -> None:
    ledger = Ledger(budget=BUDGET)
    ledger.record(gaussian())
    with pytest.raises(BudgetExceeded):
        ledger.record(gaussian(mu=1.0))
    assert ledger.verify() == 1


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
            ledger.record(*events)  # type: ignore[arg-type]
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
        with pytest.raises(CannotAccount, match="different meaning"):
            ledger.record(gaussian("a"), gaussian("a", **change))
        ledger.record(gaussian("a"), gaussian("b", **change))
        with pytest.raises(CannotAccount, match="different meaning"):
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


def test_a_discrete_plan_fits_exactly_and_one_more_release_is_refused() -> None:
    plan = calibrate(BUDGET, PlannedRelease("moments", 1.001, count=8, granularity=2.0**-12))
    ledger = Ledger(budget=BUDGET)
    for number in range(8):
        ledger.record(plan["moments"].event("a", round=number, noise="discrete"))
    assert 1 - 1e-6 < ledger.spent() <= 1.0
    assert tightest(ledger.composition("a")).name == "zcdp"
    with pytest.raises(BudgetExceeded):
        ledger.record(plan["moments"].event("a", round=8))


def test_mixtures_of_kinds_are_accounted_together() -> None:
    budget = Budget(2.0, 1e-5, adjacency="add-remove")
    ledger = Ledger(budget=budget)
    meaning = {"adjacency": "add-remove"}
    ledger.record(gaussian(mu=0.2, **meaning))
    ledger.record(discrete(mu=0.2, **meaning))
    assert tightest(ledger.composition("a")).name == "zcdp"
    ledger.record(sampled(sigma=4.0))
    assert tightest(ledger.composition("a")).name == "rdp"
    ledger.record(gaussian("b", 0.2, **meaning), sampled("b", sigma=4.0))
    assert tightest(ledger.composition("b")).name == "pld"
    assert ledger.spent(client="b") < ledger.spent(client="a") == ledger.spent() < 2.0
    for event in (gaussian(mu=0.6, **meaning), discrete(mu=0.6, **meaning), sampled(sigma=0.3)):
        with pytest.raises(BudgetExceeded):
            ledger.record(event)
    assert len(ledger) == 5


# --- Several writers ------------------------------------------------------------------------------------------------


def _fill(ledger: Ledger, client: str, mu: float, attempts: int) -> int:
    done = 0
    for number in range(attempts):
        try:
            ledger.record(gaussian(client, mu, round=number))
            done += 1
        except BudgetExceeded:
            pass
    return done


def _fitting(mu: float) -> int:
    return math.floor(BUDGET.mu**2 / mu**2)


def test_threads_do_not_overspend_together(tmp_path: Path) -> None:
    mu = BUDGET.mu / math.sqrt(60.5)
    ledger = Ledger(tmp_path / "ledger.db", BUDGET)
    done: list[int] = []
    # Four threads, and two more ledgers on the same file: 6 × 20 attempts at 60 places.
    ledgers = [ledger, ledger, ledger, ledger, Ledger(tmp_path / "ledger.db"), Ledger(tmp_path / "ledger.db")]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda one=one: done.append(_fill(one, "a", mu, 20))) for one in ledgers]
        for thread in threads:
            thread.start()
        for _ in range(20):
            assert ledger.spent() <= 1.0
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sum(done) == _fitting(mu) == 60
    assert ledger.verify() == 60
    assert ledger.spent() == pytest.approx(gaussian_epsilon(mu * math.sqrt(60), 1e-5), rel=1e-9)
    for one in ledgers[3:]:
        one.close()


def _write(path: str, client: str, mu: float, attempts: int, results: Any) -> None:
    with Ledger(path, BUDGET) as ledger:
        results.put(_fill(ledger, client, mu, attempts))


def test_processes_do_not_overspend_together(tmp_path: Path) -> None:
    # They also create the file together.
    path = str(tmp_path / "ledger.db")
    mu = BUDGET.mu / math.sqrt(40.5)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=_write, args=(path, "a", mu, 30, results)) for _ in range(3)]
    for worker in workers:
        worker.start()
    done = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    assert sum(done) == 40
    with Ledger(path) as ledger:
        assert ledger.verify() == 40
        assert ledger.spent() <= 1.0
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.db"]


def test_what_others_wrote_counts_once_also_after_a_refusal(tmp_path: Path) -> None:
    ours, theirs = Ledger(tmp_path / "ledger.db", BUDGET), Ledger(tmp_path / "ledger.db")
    theirs.record(gaussian(mu=0.15))
    for _ in range(3):
        with pytest.raises(BudgetExceeded) as caught:
            ours.record(gaussian(mu=0.9))
        assert caught.value.spent == gaussian_epsilon(0.15, 1e-5)
    ours.record(gaussian(mu=0.15))
    assert ours.spent() == pytest.approx(gaussian_epsilon(math.hypot(0.15, 0.15), 1e-5), rel=1e-12)


def test_verify_takes_notice_of_what_others_wrote(tmp_path: Path) -> None:
    ours, theirs = Ledger(tmp_path / "ledger.db", BUDGET), Ledger(tmp_path / "ledger.db")
    theirs.record(gaussian(mu=0.2))
    assert ours.verify() == 1
    assert ours.spent() == gaussian_epsilon(0.2, 1e-5)
    with pytest.raises(BudgetExceeded):
        ours.record(gaussian(mu=0.2))


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


# --- The file, for others -------------------------------------------------------------------------------------------


def test_any_sqlite_program_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(gaussian("a", round=3), discrete("b"))
        connection = sqlite3.connect(path)
        rows = connection.execute("SELECT client, round, what, kind, stage FROM events ORDER BY seq").fetchall()
        assert rows == [
            ("a", 3, "gradient", "gaussian", "landmarks"),
            ("b", None, "moments", "discrete-gaussian", "landmarks"),
        ]
        sensitivity = "SELECT json_extract(body, '$.sensitivity') FROM events WHERE client = 'a'"
        assert connection.execute(sensitivity).fetchone() == (0.1,)
        assert connection.execute("SELECT count, json_extract(budget, '$.epsilon') FROM ledger").fetchone() == (2, 1.0)
        for statement in ("UPDATE events SET client = 'c'", "DELETE FROM events", "DELETE FROM events WHERE seq = 2"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)
        connection.close()
        assert ledger.verify() == 2
