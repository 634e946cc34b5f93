"""The statement says what the ledger holds: headline, lines, price of other noise, JSON, Markdown."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import (
    Budget,
    GaussianRelease,
    Ledger,
    PostProcessing,
    SampledGaussianRelease,
    Unprotected,
    gaussian_epsilon,
)
from accounting.rounding import rounded_down, rounded_up
from accounting.statement import DEFAULT_DELTA, state
from dpfedvis import FederatedData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.mechanisms import HeuristicNoise
from dpfedvis.mechanisms.published import PublishedFedDL


def gaussian(client, what="gradient", sensitivity=0.1, sigma=1.0, **options):
    return GaussianRelease(what=what, client=client, sensitivity=sensitivity, sigma=sigma, **options)


def rows(client, **options):
    return Unprotected(what="distance rows", client=client, stage="release", why="rows are records", **options)


def ledger_of(*events, budget=None):
    ledger = Ledger(budget=budget)
    for event in events:
        ledger.record(event)
    return ledger


def bold(text):
    """The bold line that comes first."""
    return next(line for line in text.splitlines() if line.startswith("**")).strip("*")


def tables(text):
    """Tables as lists of rows of cells."""
    found, current = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            current.append(line.strip().strip("|").split("|"))
        elif current:
            found.append(current)
            current = []
    return found


LEDGERS = {
    "empty": lambda: ledger_of(),
    "empty with a budget": lambda: ledger_of(budget=Budget(1, 1e-6)),
    "gaussian": lambda: ledger_of(*[gaussian("a", round=r) for r in range(5)], budget=Budget(5, 1e-6)),
    "several clients": lambda: ledger_of(
        gaussian("a"), gaussian("b", sensitivity=0.2), gaussian("b", "gram rows", stage="release", sigma=3.0)
    ),
    "landmarks": lambda: ledger_of(gaussian("a"), rows("a"), budget=Budget(5, 1e-5, scope="landmarks")),
    "unprotected": lambda: ledger_of(rows("a"), rows("b")),
    "post-processing": lambda: ledger_of(
        gaussian("a", "records"), PostProcessing(what="gradient", client="a", of="records"), budget=Budget(5, 1e-5)
    ),
    "sampled": lambda: ledger_of(
        SampledGaussianRelease(
            what="gradient",
            client="a",
            sensitivity=1.0,
            sigma=2.0,
            count=10,
            sampling_rate=0.1,
            adjacency="add-remove",
            noise="system",
        )
    ),
    "discrete": lambda: ledger_of(
        GaussianRelease(what="gradient", client="a", sensitivity=1.0, sigma=4.0, grid=0.125, values=9, noise="discrete")
    ),
    "aggregate": lambda: ledger_of(gaussian("a", trust="aggregate"), gaussian("a", "moments", trust="central")),
}


@pytest.fixture(params=LEDGERS)
def ledger(request):
    return LEDGERS[request.param]()


# For every ledger


def test_the_headline_is_what_the_ledger_says(ledger):
    statement = state(ledger)
    delta = ledger.budget.delta if ledger.budget else DEFAULT_DELTA
    spent = ledger.spent(delta, end_to_end=True)
    assert statement.end_to_end == spent
    assert statement.in_scope == ledger.spent(delta)
    headline = bold(str(statement))
    assert headline == statement.headline
    if spent == math.inf:
        assert "ε = ∞" in headline
    else:
        real = f"End to end, ε = {rounded_up(spent)} at δ = {delta:g}"
        simulated = f"with real noise this would be ε = {rounded_up(spent)} end to end at δ = {delta:g}"
        assert (simulated if statement.simulation else real) in headline


def test_json_is_strict_and_comes_back(ledger):
    text = state(ledger, facts={"bandwidth": (0.5,), "release": "exact"}).to_json()

    def refuse(constant):
        raise AssertionError(constant)

    loaded = json.loads(text, parse_constant=refuse)
    assert json.loads(json.dumps(loaded)) == loaded
    statement = state(ledger)
    if statement.end_to_end == math.inf:
        assert loaded["epsilon_end_to_end"] == "inf"
    else:
        assert loaded["epsilon_end_to_end"] == statement.end_to_end
    assert loaded["facts"] == {"bandwidth": [0.5], "release": "exact"}
    assert len(loaded["releases"]) == len(statement.lines)


def test_tables_are_well_formed(ledger):
    text = str(state(ledger))
    found = tables(text)
    assert len(found) == 4
    for table in found:
        width = len(table[0])
        assert set("".join(table[1])) == {"-"}
        assert all(len(row) == width for row in table)
    assert len(found[0]) == 2 + len(state(ledger).risk_rows)
    assert len(found[1]) == 2 + len(state(ledger).lines)
    assert text.endswith("\n")
    assert "nan" not in text


def test_every_release_is_listed(ledger):
    lines = state(ledger).lines
    events = list(ledger.events())
    keys = {(event.what, event.stage, event.kind) for event in events}
    assert {(line.what, line.stage, line.kind) for line in lines} == keys
    released = sum(event.count if isinstance(event, GaussianRelease) else 1 for event in events)
    assert sum(line.clients * line.per_client for line in lines) == released


def test_what_is_not_covered_is_said(ledger):
    text = str(state(ledger))
    for word in ("number of clients", "Labels", "tuning"):
        assert word in text


def test_rounding_is_said_to_be_charged_only_where_all_noise_is_on_a_grid():
    exact = "Uploads with noise are exact integers on a public grid."
    assert exact in str(state(LEDGERS["discrete"]()))
    on_grid = GaussianRelease(what="counts", client="a", sensitivity=1.0, sigma=4.0, grid=0.1, values=3)
    for ledger in (ledger_of(on_grid, gaussian("a")), LEDGERS["unprotected"](), LEDGERS["empty"]()):
        text = str(state(ledger))
        assert exact not in text
        assert "floating-point rounding are charged only for releases on a grid" in text


# Single facts


def test_lines_have_ranges_of_sensitivity_and_sigma():
    events = [gaussian(c, sensitivity=s, sigma=10 * s, round=r) for c, s in (("a", 0.1), ("b", 0.2)) for r in range(4)]
    (line,) = state(ledger_of(*events)).lines
    assert (line.clients, line.per_client) == (2, 4)
    assert line.sensitivity == (0.1, 0.2)
    assert line.sigma == (1.0, 2.0)
    text = str(state(ledger_of(*events)))
    assert "| 0.1 to 0.2 | 1 to 2 |" in text


def test_a_client_is_not_charged_for_the_others():
    both = state(ledger_of(gaussian("a"), gaussian("b")))
    assert both.end_to_end == pytest.approx(gaussian_epsilon(0.1, DEFAULT_DELTA))


def test_seeded_noise_is_a_simulation():
    assert "This run is a simulation" in str(state(ledger_of(gaussian("a"))))
    assert "is a simulation" not in str(state(ledger_of(gaussian("a", noise="system"))))
    assert "came from the operating system" in str(state(ledger_of(gaussian("a", noise="system"))))
    assert "No upload carries noise with a guarantee." in str(state(ledger_of(rows("a"))))


def test_sampling_and_grid_are_shown():
    assert "sampled at 0.1 (system)" in str(state(LEDGERS["sampled"]()))
    assert state(LEDGERS["sampled"]()).lines[0].sampling_rate == 0.1
    assert "grid 0.125" in str(state(LEDGERS["discrete"]()))


def test_adjacency_and_unit_are_those_of_the_releases():
    statement = state(LEDGERS["sampled"]())
    assert (statement.adjacency, statement.unit) == ("add-remove", "record")
    assert "for one record, add-remove" in statement.headline


def test_trust_is_spelled_out():
    text = str(state(LEDGERS["aggregate"]()))
    assert "Trust aggregate: only sums over clients are seen, which share the noise." in text
    assert "Sums were formed in the clear, on one machine." in text
    assert "Trust central: the server is trusted to see exact uploads and to add the noise." in text


def test_the_landmarks_scope_is_called_the_papers_claim():
    text = str(state(LEDGERS["landmarks"]()))
    assert "for learning the landmarks only, which is the paper's claim (Thm 6)" in text
    assert "rows are records" in text
    assert "ε = ∞" in bold(text)


def test_no_budget_is_said():
    assert "There was no budget." in str(state(ledger_of(gaussian("a"))))


def test_delta_may_be_chosen():
    ledger = LEDGERS["gaussian"]()
    statement = state(ledger, delta=1e-3)
    assert statement.delta == 1e-3
    assert statement.end_to_end == ledger.spent(1e-3, end_to_end=True) < state(ledger).end_to_end


def test_the_curve_falls_in_delta():
    ledger = LEDGERS["gaussian"]()
    curve = state(ledger).curve
    mu = math.sqrt(5) * 0.1
    assert [epsilon for _, epsilon in curve] == pytest.approx([gaussian_epsilon(mu, delta) for delta, _ in curve])
    assert [delta for delta, _ in curve] == sorted((delta for delta, _ in curve), reverse=True)


def test_accountants_are_compared():
    statement = state(LEDGERS["gaussian"]())
    exact = statement.in_scope
    bounds = [r.epsilon for r in statement.accountants.values() if r.is_bound and r.epsilon is not None]
    assert len(bounds) >= 3
    assert min(bounds) == pytest.approx(exact, rel=1e-3)
    for name in statement.accountants:
        assert f"| {name} |" in str(statement)


def test_no_epsilon_of_a_table_is_shown_smaller_than_it_is() -> None:
    ledger = ledger_of(*(gaussian("a", sigma=0.1 * prime) for prime in (7, 11, 13)), budget=Budget(60, 1e-5))
    statement = state(ledger)
    found = statement.to_dict()
    by_name = {name: each["epsilon"] for name, each in found["accountants"].items()}
    by_delta = {f"{delta:g}": epsilon for delta, epsilon in found["curve"]}
    compared = 0
    for table in tables(str(statement)):
        for name, shown in ((cells[0].strip(), cells[1].strip()) for cells in table if len(cells) > 1):
            exact = {**by_name, **by_delta}.get(name)
            if isinstance(exact, float):
                assert float(shown) >= exact * (1 - 1e-9), name
                compared += 1
    assert compared >= len(by_delta) + 3


def test_facts_are_printed():
    assert "- landmarks: 40" in str(state(ledger_of(), facts={"landmarks": 40}))


def test_a_cell_of_a_table_cannot_end_it():
    bare = Unprotected(what="rows | all", client="a", why="one\ntwo | three")
    assert "| rows \\| all | landmarks | unprotected (none) | 1 | 1 | - | - | - | one two \\| three |" in str(
        state(ledger_of(bare))
    )


# Against whom ε holds, and what it means


@pytest.mark.parametrize(
    ("trusts", "seen", "against"),
    [
        (("local",), "sees all uploads, knows", "whoever sees the uploads"),
        (("aggregate",), "sees the sums over clients, knows", "a server that sees sums over clients"),
        # As with noisy rows beside shared noise for the landmarks: the server sees both.
        (("local", "aggregate"), "sees the sums over clients and uploads that carry all of their noise, knows",
         "a server that sees sums over clients and uploads that carry all of their noise"),
        (("central",), "sees what the server publishes, knows", "whoever sees what a trusted server publishes"),
        (("central", "aggregate"), "sees what the server publishes, knows",
         "whoever sees what a trusted server publishes"),
    ],
)  # fmt: skip
def test_the_adversary_is_the_one_that_the_trust_allows(trusts, seen, against):
    statement = state(ledger_of(*(gaussian("a", f"upload {trust}", trust=trust) for trust in trusts)))
    assert seen in statement.words["meaning"]
    assert statement.words["adversary"] == f"against {against}"
    # One client's own upload carries a part of the noise only, or none of it.
    assert ("all uploads" in statement.words["meaning"]) == (set(trusts) == {"local"})


@pytest.mark.parametrize("name", ["unprotected", "empty"])
def test_without_a_positive_finite_epsilon_there_is_no_adversary(name):
    words = state(LEDGERS[name]()).words
    assert words["adversary"] is None
    assert words["other_client"] is None
    assert ("distance rows (rows are records)" in words["meaning"]) == (name == "unprotected")
    assert words["meaning"].startswith("No number bounds" if name == "unprotected" else "Nothing that depends")


@settings(max_examples=settings.default.max_examples // 4)  # each asks all accountants
@given(sigma=st.floats(0.05, 50))
def test_the_share_of_right_guesses_is_rounded_up(sigma):
    statement = state(ledger_of(gaussian("a", sensitivity=1.0, sigma=sigma)))
    exactly = 50 * (1 + math.erf(0.5 / sigma / math.sqrt(2)))  # Φ(μ/2)
    said = float(statement.words["meaning"].split("at most ")[1].split(" of 100")[0])
    assert exactly * (1 - 1e-9) <= said <= exactly + 0.1 + 1e-9
    assert statement.to_dict()["best_guess"] == pytest.approx(exactly / 100)


def test_a_client_as_unit_is_asked_about_with_all_its_records():
    meaning = state(ledger_of(gaussian("a", unit="client", adjacency="add-remove"))).words["meaning"]
    assert "whether the records of one client was" not in meaning
    assert "knows all records of the other clients" in meaning
    assert "left out" in meaning


# The price of noise that guarantees nothing


@pytest.mark.parametrize(
    "mechanism", [HeuristicNoise(beta=0.5), PublishedFedDL(batch=8, beta=0.5)], ids=lambda m: m.name
)
def test_data_dependent_noise_has_a_price_and_no_guarantee(mechanism):
    rng = np.random.default_rng(0)
    fed = FederatedData([rng.uniform(size=(n, 3)) for n in (12, 20)])
    ledger = FedDL(landmarks=5, mechanism=mechanism, rounds=4, bounds=(0.0, 1.0)).run(fed).ledger
    ledger.record(rows("client-0"))  # rows have no noise, and no price either
    statement = state(ledger)
    prices = []
    for client in ledger.clients:
        ratios = [e.nominal_sensitivity / e.nominal_sigma for e in ledger.events(client=client) if e.stage != "release"]
        assert len(ratios) == 4
        prices.append(gaussian_epsilon(math.sqrt(sum(r * r for r in ratios)), DEFAULT_DELTA))
    assert statement.nominal == pytest.approx(max(prices))
    assert statement.end_to_end == math.inf
    text = str(statement)
    assert f"worth ε = {rounded_up(max(prices), 6)} at δ = 1e-05" in text
    assert "guarantees nothing" in text
    assert json.loads(statement.to_json())["nominal_epsilon"] == pytest.approx(max(prices))


def test_a_round_without_a_price_leaves_none():
    """Noise in three rounds of four protects nothing: the fourth is bare."""
    priced = {"nominal_sensitivity": 0.1, "nominal_sigma": 1.0}
    events = [Unprotected(what="gradient", client="a", round=r, why="x", **priced) for r in range(3)]
    bare = Unprotected(what="gradient", client="a", round=3, why="x")
    assert state(ledger_of(*events)).nominal == pytest.approx(gaussian_epsilon(0.1 * math.sqrt(3), DEFAULT_DELTA))
    assert state(ledger_of(*events, bare)).nominal is None
    other = Unprotected(what="gradient", client="b", round=0, why="x")
    assert state(ledger_of(*events, other)).nominal is None


def test_protected_runs_have_no_nominal_price():
    statement = state(LEDGERS["gaussian"]())
    assert statement.nominal is None
    assert "guarantees nothing" not in str(statement)


# What is easily said too small


@given(st.floats(1e-12, 1e12), st.integers(1, 8))
def test_no_epsilon_is_shown_smaller_than_it_is(value, digits):
    shown = float(rounded_up(value, digits))
    assert shown >= value * (1 - 1e-9)
    assert shown <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-9), "and not by more than the last digit"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.00049, "1.001"),
        (0.9999999989, "1"),
        (2.0000000001, "2"),
        (123456.0, "1.235e+05"),
        (math.inf, "∞"),
        (0.0, "0"),
        (math.nan, "–"),
    ],
)
def test_epsilon_is_rounded_up(value, expected):
    assert rounded_up(value) == expected


def test_a_budget_that_needs_more_digits_is_not_cut_short():
    ledger = ledger_of(gaussian("client-0"))
    delta = DEFAULT_DELTA
    assert float(state(ledger).headline.split("ε = ")[1].split(" ")[0]) >= ledger.spent(delta, end_to_end=True)


@pytest.mark.parametrize("clients", [2, 3, 10])
def test_another_client_can_take_its_share_of_the_noise_off(clients):
    """μ√(P/(P − 1)), by the closed form; where each client adds all the noise itself it learns nothing from its own."""
    names = [f"client-{number}" for number in range(clients)]
    shared = [gaussian(name, trust="aggregate", round=round) for round in (1, 2) for name in names]
    statement = state(ledger_of(*shared))
    mu = math.sqrt(2) * 0.1
    assert statement.end_to_end == pytest.approx(gaussian_epsilon(mu, 1e-5))
    expected = gaussian_epsilon(mu * math.sqrt(clients / (clients - 1)), 1e-5)
    assert statement.against_a_client == pytest.approx(expected, rel=1e-9)
    assert f"subtracts its share from the sums, ε = {rounded_up(expected)} end to end" in str(statement)
    assert json.loads(statement.to_json())["epsilon_against_a_client"] == pytest.approx(expected)
    alone = state(ledger_of(*(gaussian(name) for name in names)))
    assert alone.against_a_client is None
    assert "share" not in str(alone)


def shared(parties, threshold, colluders, names=("client-0",), **changes):
    sharing = {"parties": parties, "threshold": threshold, "colluders": colluders}
    return [gaussian(name, trust="aggregate", **sharing, **changes) for name in names]


def test_a_site_reads_in_its_own_ledger_how_many_share_the_noise():
    """One client is in that ledger; P is in the event."""
    found = state(ledger_of(*shared(10, 9, 1)))
    text = str(found)
    assert "Between processes, a sum is opened only if at least 9 of 10 sites are in it." in text
    apart = str(replace(found, one_machine=False))
    assert "masked uploads" in apart
    assert "A sum is opened only if at least 9 of 10 sites are in it." in apart
    assert "ε holds against the server and any one site together with it." in text
    assert "a sum of all 10 has 1.12 times the noise that ε needs" in text
    assert "sees the sums over clients and what one of them knows" in text


def test_sums_without_colluders_hold_against_the_server_alone():
    alone = state(ledger_of(*shared(10, 10, 0)))
    assert "ε holds against the server alone" in str(alone)
    assert "times the noise" not in str(alone)
    assert alone.against_a_client == pytest.approx(gaussian_epsilon(0.1 * math.sqrt(10 / 9), 1e-5), rel=1e-9)


def test_of_several_runs_each_way_to_share_is_said_and_the_weakest_counts():
    old = gaussian("client-0", "moments", trust="aggregate")
    mixed = state(ledger_of(*shared(10, 9, 2, round=1), *shared(4, 4, 1, round=2), old))
    text = str(mixed)
    assert "at least 9 of 10 sites are in it. Its noise is enough against the server and any 2 sites together" in text
    assert "at least 4 of 4 sites are in it. Its noise is enough against the server and any one site together" in text
    assert "ε, of all of them, holds against the server alone" in text
    assert "sums over clients and any" not in text, "one of the runs holds against no colluder"
    assert json.loads(mixed.to_json())["releases"][0]["sharings"] == [
        {"parties": 10, "threshold": 9, "colluders": 2}, {"parties": 4, "threshold": 4, "colluders": 1}
    ]  # fmt: skip


def test_noise_for_colluders_is_not_lowered_where_another_release_has_none():
    names = ("client-0", "client-1")
    mixed = [*shared(2, 2, 1, names, round=1), *shared(2, 2, 0, names, round=2)]
    # μ² of the second is doubled, since one of two shares can be taken off.
    expected = gaussian_epsilon(0.1 * math.sqrt(1 + 2), 1e-5)
    assert state(ledger_of(*mixed)).against_a_client == pytest.approx(expected, rel=1e-9)


def test_one_client_has_no_other_to_fear():
    assert state(ledger_of(gaussian("client-0", trust="aggregate"))).against_a_client is None


def test_shares_of_the_budget_are_shown():
    events = [gaussian("client-0", what="moments", sigma=2.0), *(gaussian("client-0", round=r) for r in (1, 2, 3))]
    statement = state(ledger_of(*events))
    assert {line.what: line.share for line in statement.lines} == pytest.approx(
        {"moments": 0.25 / 3.25, "gradient": 3 / 3.25}
    )
    assert "| 92.3% |" in str(statement)
    assert [line.share for line in state(ledger_of(*events, rows("client-0"))).lines] == [None] * 3


def test_how_many_records_a_client_has_is_no_public_fact_where_it_is_the_unit():
    whole = state(ledger_of(gaussian("client-0", unit="client")))
    assert "number of records" not in str(whole)
    assert "the number of records of each are treated as public" in str(state(ledger_of(gaussian("client-0"))))


@given(value=st.floats(1e-6, 1e6), digits=st.integers(1, 6))
def test_a_certified_bound_is_never_shown_larger_than_it_is(value: float, digits: int) -> None:
    shown = float(rounded_down(value, digits))
    assert value * (1 - 10.0 ** (1 - digits)) <= shown <= value
    assert (rounded_down(0.0), rounded_down(math.inf)) == ("0", "∞")
