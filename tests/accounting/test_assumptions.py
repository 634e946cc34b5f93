"""What a statement assumes, and ε where that does not hold; the two facts that stand wherever ε does."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from accounting import (
    Budget,
    GaussianRelease,
    Ledger,
    SampledGaussianRelease,
    Unprotected,
    gaussian_epsilon,
    gaussian_mu,
)
from accounting.assumptions import against_a_client, at_two_sites, of_rows
from accounting.rounding import rounded_up
from accounting.statement import AllRuns, Statement, state
from accounting.wording import STAND_IN

MU = gaussian_mu(1, 1e-5)


def release(client: str, trust: str = "local", **options) -> GaussianRelease:
    """A release of ε = 1 at δ = 1e-5."""
    return GaussianRelease(what="sums", client=client, sensitivity=MU, sigma=1.0, trust=trust, **options)


def stated(*events, **options) -> Statement:
    with Ledger() as ledger:
        ledger.record(*events)
        return state(ledger, **options)


def pair(trust: str = "local", **options) -> list[GaussianRelease]:
    return [release(name, trust, **options) for name in ("a", "b")]


# Another client


def test_two_runs_in_one_ledger_are_still_of_two_clients():
    """Each of two clients has half of the noise, however often: 2μ after two runs, where four shares would be 1.719."""
    twice = [*pair("aggregate", round=1), *pair("aggregate", round=1)]
    assert against_a_client(twice, 1e-5) == pytest.approx(gaussian_epsilon(2 * MU, 1e-5), rel=1e-9)
    assert stated(*twice).to_dict()["epsilon_against_a_client"] == pytest.approx(2.155, abs=1e-3)


def test_clients_of_each_sum_count_by_themselves():
    """A client that was missing in one round makes the others' shares in that round larger."""
    first = [release(name, "aggregate", round=1) for name in ("a", "b", "c")]
    second = pair("aggregate", round=2)
    expected = math.hypot(MU * math.sqrt(3 / 2), MU * math.sqrt(2))
    assert against_a_client([*first, *second], 1e-5) == pytest.approx(gaussian_epsilon(expected, 1e-5), rel=1e-9)


# Records at two sites, persons with two rows


@pytest.mark.parametrize(
    ("trust", "factor", "expected"), [("local", math.sqrt(2), 1.466), ("aggregate", 2, 2.155), ("central", 2, 2.155)]
)
def test_a_record_at_two_sites(trust, factor, expected):
    found = at_two_sites(pair(trust), 1e-5)
    assert found == pytest.approx(gaussian_epsilon(factor * MU, 1e-5), rel=1e-9)
    statement = stated(*pair(trust))
    assert statement.to_dict()["epsilon_at_two_sites"] == pytest.approx(expected, abs=1e-3)
    assert f"record at two of them, ε = {rounded_up(found)}" in str(statement)


def test_a_record_at_two_sites_under_both_trusts():
    mixed = [*pair("local", round=1), *pair("aggregate", round=2)]
    assert at_two_sites(mixed, 1e-5) == pytest.approx(gaussian_epsilon(math.hypot(math.sqrt(2), 2) * MU, 1e-5))


@pytest.mark.parametrize(("rows", "expected"), [(2, 2.155), (5, 6.161)])
def test_a_person_with_several_rows(rows, expected):
    assert of_rows(pair(), 1e-5, rows) == pytest.approx(gaussian_epsilon(rows * MU, 1e-5), rel=1e-9)
    assert of_rows(pair(), 1e-5, rows) == pytest.approx(expected, abs=0.01)


def test_discrete_noise_has_both_numbers():
    events = [GaussianRelease(what="sums", client=c, sensitivity=1.0, sigma=8.0, grid=0.05, values=9) for c in "ab"]
    one, two, rows = stated(*events).end_to_end, at_two_sites(events, 1e-5), of_rows(events, 1e-5, 2)
    assert one < two < rows < math.inf


def test_there_is_no_number_where_there_is_none():
    sampled = [
        SampledGaussianRelease(
            what="sums", client=name, sensitivity=1.0, sigma=2.0, sampling_rate=0.1, adjacency="add-remove"
        )
        for name in "ab"
    ]
    exact = [Unprotected(what="rows", client=name, why="they are records") for name in "ab"]
    for events in (sampled, exact, []):
        assert at_two_sites(events, 1e-5) is None
        assert of_rows(events, 1e-5, 2) is None
    assert at_two_sites([release("a")], 1e-5) is None  # there is no second site
    assert "Sites are disjoint. For what two of them hold, ε is larger." in str(stated(*sampled))
    assert "assumed" not in str(stated(*exact))


def test_a_whole_client_has_no_rows():
    statement = stated(*pair(unit="client"))
    assert statement.of_two_rows is None
    assert "row" not in " ".join(statement.words["assumptions"])


# δ and the number of records


@pytest.mark.parametrize(("records", "warned"), [(99_999, False), (100_000, False), (100_001, True)])
def test_delta_is_held_against_the_number_of_records(records, warned):
    statement = stated(*pair(), delta=1e-5, facts={"records": records})
    assert bool(statement.warnings) is warned
    assert ("is above 1/n" in str(statement)) is warned
    assert ("is small enough" in str(statement)) is not warned


def test_delta_of_a_unit_that_is_a_client_is_held_against_the_clients():
    statement = stated(*pair(unit="client"), delta=0.2, facts={"records": 10**9, "clients": 2})
    assert not statement.warnings
    assert stated(*pair(unit="client"), delta=0.2, facts={"clients": 10}).warnings


def test_without_a_public_number_delta_is_held_against_nothing():
    statement = stated(*pair(), delta=0.5)
    assert not statement.warnings
    assert "The number n of records is not known here." in str(statement)


# The two facts


def test_a_simulation_says_what_it_would_be():
    found = stated(*pair()).to_dict()
    assert found["simulation"] is found["one_machine"] is True
    assert found["headline"].startswith("Simulation (seeded noise); with real noise this would be ε = 1 end to end")
    assert found["headline"].endswith("on one machine: ε holds for what is published, not against whoever ran it.")
    assert found["words"]["short"] == "simulation (seeded noise), on one machine"


def test_real_noise_is_no_simulation():
    real = stated(*(replace(each, noise="urandom") for each in pair()))
    assert not real.simulation
    assert real.headline.startswith("End to end, ε = 1 at δ = 1e-05")
    assert "Simulation" not in str(real)
    assert "on one machine" in real.headline


def test_one_seeded_release_among_real_ones_makes_a_simulation():
    assert stated(release("a"), replace(release("b"), noise="urandom")).simulation


def test_apart_machines_are_not_one():
    apart = stated(*pair(), one_machine=False)
    assert "one machine" not in str(apart)
    assert "One process" not in str(apart)
    assert apart.to_dict()["one_machine"] is False


def test_without_protection_there_is_nothing_to_hold():
    bare = stated(Unprotected(what="rows", client="a", why="they are records"), simulation=True)
    assert bare.headline.startswith("End to end, ε = ∞: something left the clients without protection; on one machine")
    assert bare.simulation


# All runs on the same records


def test_all_runs_are_said_and_warned_of():
    one = replace(stated(*pair()), all_runs=AllRuns(1.0, 1))
    assert "no other run" in str(one)
    assert not one.warnings
    more = replace(stated(*pair()), all_runs=AllRuns(1.466, 2, changed=True))
    assert "2 runs with real noise: all together ε = 1.466" in str(more)
    assert [warning.split(":")[0] for warning in more.warnings] == [
        "these records were in 2 runs with real noise",
        "the file has changed between runs; taken to be the same records",
    ]
    told = {"epsilon": 1.466, "runs": 2, "changed": True, "current": False, "risk": None}
    assert json.loads(more.to_json())["all_runs"] == told
    for each in (AllRuns(math.inf, 3), AllRuns(1.0, 2, current=True)):
        assert AllRuns.from_dict(each.to_dict()) == each


def test_the_risk_of_all_runs_names_no_adversary_of_this_run_alone():
    """An earlier run may have been under another trust: this one does not know it."""
    local = stated(*pair())
    all_runs = AllRuns(1.466, 2, risk=local.risk)
    of_run = replace(local, all_runs=all_runs).words["risk"]
    assert of_run[-1]["against"] == "only those against whom every one of these runs holds"
    assert of_run[0]["against"] == "whoever sees the uploads"
    ledger = replace(local, all_runs=all_runs, facts={"runs": 2})
    assert ledger.words["risk"][-1]["against"] == "whoever sees the uploads"


def test_all_runs_are_said_with_their_time():
    known = AllRuns(1.466, 2)
    past, now = (str(replace(stated(*pair()), all_runs=replace(known, current=each))) for each in (False, True))
    assert "When this run ended, the ledger of these records knew of 2 runs" in past
    assert "The ledger of these records knows of 2 runs" in now


def test_runs_without_protection_are_not_said_to_have_real_noise():
    bare = stated(Unprotected(what="rows", client="a", why="they are records"))
    one, more = (replace(each, all_runs=AllRuns(math.inf, 2)) for each in (bare, stated(*pair())))
    for each in (one, more):
        assert "2 runs: all together ε = ∞" in str(each)
        assert "with real noise:" not in str(each)
    assert ["have ε = ∞ from now on" in warning for warning in one.warnings] == [True]
    assert [warning.split(":")[0] for warning in more.warnings] == ["these records were in 2 runs"]


# A simulation


def test_every_sentence_about_epsilon_of_a_simulation_has_its_condition():
    with Ledger(budget=Budget(1.1, 1e-5)) as ledger:
        ledger.record(*pair("aggregate"))
        simulated = state(ledger)
    page = " ".join(str(simulated).split("## ε in scope")[0].split())
    for sentence in page.split(". ")[1:]:
        if "ε =" in sentence or "ε is" in sentence or "guesses are right" in sentence:
            assert sentence.startswith(("Budget:", "With real noise, ")), sentence
    assert "With real noise, on average at most" in page
    assert "With real noise, it would spend ε = 1." in page
    with Ledger(budget=Budget(1.1, 1e-5)) as ledger:
        ledger.record(*(replace(each, noise="urandom") for each in pair("aggregate")))
        assert "With real noise" not in str(state(ledger))
        assert "Spent: ε = 1." in str(state(ledger))


# Public facts


def test_a_public_range_and_a_stand_in_are_named():
    page = str(stated(*pair(adjacency="add-remove"), facts={STAND_IN: 450, "bounds": [0.0, 1.0]}))
    assert "All features share the public range from 0 to 1. Values outside may be clipped" in page
    assert "for n = 450 records (public stand-in)." in page
    assert "- records (public stand-in): 450" in page


# The mirror of a ledger


def test_a_mirror_sees_what_fits_before_it_is_written():
    seen = []
    with Ledger(budget=Budget(1.2, 1e-5), mirror=lambda events: seen.append((events, len(ledger)))) as ledger:
        ledger.record(release("a"))
        with pytest.raises(Exception, match="over the budget"):
            ledger.record(release("a"))
    assert seen == [((release("a"),), 0)]


def test_what_the_mirror_refuses_is_not_written():
    def refuse(events):
        raise RuntimeError("no room")

    with Ledger(mirror=refuse) as ledger:
        with pytest.raises(RuntimeError):
            ledger.record(release("a"))
        assert len(ledger) == 0
