"""The chain: bodies that are not parsed again are what they would be if they were."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget, Composition, Event, Ledger, LedgerCorrupted, PostProcessing, chain
from accounting.chain import Reader, digest, facts_of
from accounting.events import from_json, in_round
from tests.accounting.ledger_events import BUDGET, discrete, exact_rows, gaussian, sampled

NAMES = st.one_of(st.sampled_from(['a,"round":3,', '","round":5,"', "é\n\\", "round"]), st.text(min_size=1)).filter(
    lambda text: text.isprintable() or "\n" in text
)
ROUNDS = st.one_of(st.none(), st.integers(0, 3), st.integers(0, 2**63 - 1))


@given(st.lists(st.tuples(NAMES, NAMES, ROUNDS, st.sampled_from([1.0, 2.0])), max_size=12))
def test_a_reader_finds_what_parsing_finds(rows: list[tuple[str, str, int | None, float]]) -> None:
    reader = Reader("x")
    for what, client, round, sigma in [*rows, *rows]:
        event = gaussian(client, what=what, round=round, sigma=sigma, noise="seeded")
        body = event.to_json()
        found = reader.find(1, facts_of(event), round, body)
        assert found.at(round) == from_json(body) == event
        assert found.at(round).to_json() == body
        assert f"{found.before}{'null' if round is None else round}{found.after}" == body


@pytest.mark.parametrize("number", ["-1", "1.0", "1e3", "01", "true", '"1"', "9223372036854775808", "[]", "1 ", ""])
def test_a_round_that_is_none_is_found_after_bodies_of_its_kind(tmp_path: Path, number: str) -> None:
    """Even with a right chain, as a forger would make it."""
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.record(gaussian(round=1), gaussian(round=2))
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER no_update")
    [(first, time, body)] = connection.execute(
        "SELECT (SELECT hash FROM events WHERE seq = 1), time, body FROM events WHERE seq = 2"
    )
    body = body.replace('"round":2', f'"round":{number}')
    head = digest(first, time, body)
    try:
        column: Any = json.loads(number)
    except ValueError:
        column = 1
    column = column if isinstance(column, int | float) and column < 2**63 else str(column)
    connection.execute("UPDATE events SET body = ?, hash = ?, round = ? WHERE seq = 2", (body, head, column))
    connection.execute("UPDATE ledger SET head = ?", (head,))
    connection.commit()
    connection.close()
    if number == "1 ":  # valid, if unusual, JSON of round 1
        assert [event.round for event in Ledger.read(path).events()] == [1, 1]
    else:
        with pytest.raises(LedgerCorrupted, match="event 2 "):
            Ledger.read(path)


def test_an_event_in_another_round_is_the_same_but_for_it() -> None:
    for event in (
        gaussian(round=1),
        discrete(),
        sampled(round=4),
        exact_rows(),
        PostProcessing(what="x", of="y", client="a"),
    ):
        other = in_round(event, 7)
        assert (other.round, type(other)) == (7, type(event))
        assert in_round(other, event.round) == event
        assert other.to_json() == from_json(other.to_json()).to_json()


@pytest.mark.parametrize("most", [0, 2, chain.MOST])
def test_totals_are_those_of_adding_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """To the last bit, and in the same order, whatever is remembered of bodies."""
    monkeypatch.setattr(chain, "MOST", most)
    monkeypatch.setattr("accounting.totals.MOST", most)
    budget = Budget(400, 1e-5, scope="landmarks", adjacency="add-remove")
    meaning = {"adjacency": "add-remove"}
    events: list[Event] = []
    for number in range(200):
        events += [gaussian("a", 0.1, round=number, **meaning), gaussian("b", 0.3, round=number, **meaning)]
        events += [discrete("a", 0.7, round=number, **meaning), exact_rows("b", round=number, **meaning)]
        events += [gaussian("a", 0.01 * number + 0.01, **meaning)]
    path = tmp_path / "ledger.db"
    with Ledger(path, budget) as ledger:
        ledger.record(*events)
        written = totals_of(ledger)
    with Ledger.read(path) as ledger:
        assert list(ledger.events()) == events
        read = totals_of(ledger)
    slow = {
        (name, end): vars(Composition(e for e in events if e.client == name and (end or e.stage != "release")))
        for name in "ab"
        for end in (True, False)
    }
    assert read == written == slow
    assert [list(each["gaussian"]) for each in read.values()] == [list(each["gaussian"]) for each in slow.values()]


def totals_of(ledger: Ledger) -> dict[tuple[str, bool], dict[str, Any]]:
    return {(name, end): vars(ledger.composition(name, end_to_end=end)) for name in "ab" for end in (True, False)}


def test_events_are_not_all_kept_in_memory(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db", BUDGET) as ledger:
        ledger.record(*(gaussian(mu=1e-4, round=number) for number in range(2500)))
        events = ledger.events()
        assert next(events).round == 0
        assert len(ledger._store._reader._known) == 1
        ledger.record(gaussian(mu=1e-4, round=9999))
        assert [event.round for event in events] == list(range(1, 2500))
