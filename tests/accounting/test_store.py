"""The file of the ledger: torn, edited, empty or foreign, it is named and never silently shorter."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from accounting import Ledger, LedgerCorrupted, LedgerError
from accounting.events import from_json
from tests.accounting.ledger_events import BUDGET, EVENTS, round_of


def assert_named(path: Path, kind: type[LedgerError] = LedgerError, match: str | None = None) -> None:
    """Opening it, for writing and for reading, gives an error that names the file."""
    for open_it in (lambda: Ledger(path, BUDGET), lambda: Ledger(path), lambda: Ledger.read(path)):
        with pytest.raises(kind, match=match) as caught:
            open_it().close()
        assert str(path) in str(caught.value)


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER no_update")
    connection.execute("DROP TRIGGER no_delete")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_an_untouched_copy_is_whole(copy: Path) -> None:
    with Ledger.read(copy) as ledger:
        assert ledger.verify() == len(ledger) == EVENTS
    edit(copy)  # no change but the triggers
    with Ledger(copy, BUDGET) as ledger:
        assert len(ledger) == EVENTS


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5, 0.75, 0.9, 0.999])
def test_a_torn_file_is_found(copy: Path, share: float) -> None:
    data = copy.read_bytes()
    copy.write_bytes(data[: int(share * len(data))])
    assert_named(copy)


@pytest.mark.parametrize("lost", [1, 512, 4096, 3 * 4096])
def test_a_file_that_lost_its_end_is_found(copy: Path, lost: int) -> None:
    data = copy.read_bytes()
    copy.write_bytes(data[:-lost])
    assert_named(copy)


def test_a_page_of_zeros_or_noise_is_found(copy: Path) -> None:
    data = bytearray(copy.read_bytes())
    size = int.from_bytes(data[16:18])  # of a page
    for filler in (bytes(size), bytes(range(256)) * (size // 256)):
        for page in range(1, len(data) // size):
            damaged = data.copy()
            damaged[page * size : (page + 1) * size] = filler
            copy.write_bytes(damaged)
            with pytest.raises(LedgerError):
                Ledger.read(copy).close()


def test_a_changed_byte_in_a_body_is_found(copy: Path) -> None:
    data = copy.read_bytes()
    place = data.index(b'"sigma":1.0')
    copy.write_bytes(data[:place] + b'"sigma":9.0' + data[place + 11 :])
    assert_named(copy, LedgerCorrupted, r"event \d+")


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE events SET body = replace(body, '\"sigma\":1.0', '\"sigma\":2.0') WHERE seq = 7", "event 7 "),
        ("UPDATE events SET body = 'x' WHERE seq = 7", "event 7 "),
        ("UPDATE events SET body = '{}' WHERE seq = 7", "event 7 "),
        ("UPDATE events SET body = '[]' WHERE seq = 7", "event 7 "),
        ("UPDATE events SET body = '{\"kind\":[]}' WHERE seq = 7", "event 7 "),
        ("UPDATE events SET body = x'ff00fe' WHERE seq = 7", "event 7 "),
        ("UPDATE events SET body = CAST(x'ff00fe' AS TEXT) WHERE seq = 7", "UTF-8"),
        ("UPDATE events SET hash = replace(hash, 'a', 'b') WHERE seq = 9", "event 9 "),
        ("UPDATE events SET time = '2000-01-01T00:00:00.000000+00:00' WHERE seq = 1", "event 1 "),
        ("UPDATE events SET time = x'00' WHERE seq = 2", "event 2 "),
        ("UPDATE events SET client = 'b' WHERE seq = 8", "event 8 "),
        ("UPDATE events SET round = 999 WHERE seq = 8", "event 8 "),
        ("UPDATE events SET what = 'nothing' WHERE seq = 8", "event 8 "),
        ("UPDATE events SET stage = 'release' WHERE seq = 8", "event 8 "),
        ("UPDATE events SET kind = 'unprotected' WHERE seq = 8", "event 8 "),
        ("UPDATE events SET seq = 1000 WHERE seq = 60", "event 60 "),
        ("DELETE FROM events WHERE seq = 60", "it holds 59 events, but 60 were written"),
        ("DELETE FROM events WHERE seq > 30", "it holds 30 events, but 60 were written"),
        ("DELETE FROM events WHERE seq = 5", "event 5 "),
        ("DELETE FROM events WHERE seq = 1", "event 1 "),
        ("DELETE FROM events", "it holds 0 events, but 60 were written"),
        ("UPDATE ledger SET budget = replace(budget, '1.0', '9.0')", "budget"),
        ("UPDATE ledger SET budget = NULL", "budget"),
        ("UPDATE ledger SET budget = 'x'", "budget"),
        ("UPDATE ledger SET budget = x'ff'", "budget"),
        ("UPDATE ledger SET created = '2000'", "event 1 "),
        ("UPDATE ledger SET count = 59", "it holds 60 events, but 59 were written"),
        ("UPDATE ledger SET head = substr(head, 2) || substr(head, 1, 1)", "head of the chain"),
        ("UPDATE ledger SET format = 1", "format 1"),
        ("UPDATE ledger SET format = 3", "format 2"),
        ("DELETE FROM ledger", "format 2"),
        ("DROP TABLE ledger", "no such table"),
        ("DROP TABLE events", "no such table"),
    ],
)
def test_an_edit_is_found_and_its_place_named(copy: Path, statement: str, place: str) -> None:
    edit(copy, statement)
    assert_named(copy, LedgerError, place)


def test_a_tail_removed_with_its_count_is_found_by_the_head(copy: Path) -> None:
    edit(copy, "DELETE FROM events WHERE seq = 60", "UPDATE ledger SET count = 59")
    assert_named(copy, LedgerCorrupted, "head of the chain")


def test_two_rows_exchanged_are_found(copy: Path) -> None:
    edit(
        copy,
        "UPDATE events SET seq = 0 WHERE seq = 3",
        "UPDATE events SET seq = 3 WHERE seq = 4",
        "UPDATE events SET seq = 4 WHERE seq = 0",
    )
    assert_named(copy, LedgerCorrupted, "event 3 ")


@pytest.mark.parametrize("budget", ["x", "", "[]", "{}", '{"epsilon":-1}'])
def test_the_budget_of_an_empty_ledger_is_under_the_chain_too(tmp_path: Path, budget: str) -> None:
    for first in (BUDGET, None):
        path = tmp_path / f"{first is None}.db"
        Ledger(path, first).close()
        edit(path, f"UPDATE ledger SET budget = '{budget}'")
        assert_named(path, LedgerCorrupted, "budget")


def test_an_edit_behind_an_open_ledger_is_found_by_verify_and_record(copy: Path) -> None:
    with Ledger(copy, BUDGET) as ledger:
        edit(copy, "UPDATE events SET client = 'b' WHERE seq = 8")
        with pytest.raises(LedgerCorrupted, match="event 8 "):
            ledger.verify()
        edit_again = sqlite3.connect(copy)
        edit_again.execute("DELETE FROM events WHERE seq = 60")
        edit_again.execute("UPDATE ledger SET count = 59")
        edit_again.commit()
        edit_again.close()
        with pytest.raises(LedgerCorrupted):
            ledger.record(round_of(61))
        with pytest.raises(LedgerCorrupted):
            ledger.spent()


def test_a_file_put_back_to_an_earlier_state_is_found_by_an_open_ledger(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(round_of(0))
        ledger.record(round_of(1))
        connection = sqlite3.connect(path)
        head = connection.execute("SELECT hash FROM events WHERE seq = 1").fetchone()[0]
        connection.close()
        edit(path, "DELETE FROM events WHERE seq = 2", f"UPDATE ledger SET count = 1, head = '{head}'")
        # The file is consistent in itself, but this object has seen more.
        with pytest.raises(LedgerCorrupted, match="event 2, which was read before"):
            ledger.verify()
        with pytest.raises(LedgerCorrupted):
            ledger.record(round_of(3))


@pytest.mark.parametrize("content", [b"x", b"garbage " * 1000, b"SQLite format 3\0" + b"\1" * 5000])
def test_a_garbage_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    assert_named(path)
    assert path.read_bytes() == content


def test_an_empty_file_is_no_new_ledger(tmp_path: Path) -> None:
    # It may be all that is left of one.
    path = tmp_path / "ledger.db"
    path.touch()
    assert_named(path)
    assert path.stat().st_size == 0


def test_a_database_of_someone_else_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text)")
    connection.close()
    before = path.read_bytes()
    assert_named(path, match="no such table")
    assert path.read_bytes() == before


def test_paths_that_hold_no_ledger_are_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "ledger.db", Path()):
        with pytest.raises(LedgerError):
            Ledger(path, BUDGET)
    with pytest.raises(LedgerError):
        Ledger("", BUDGET)
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger.read(tmp_path / "ledger.db")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LedgerError, match="the ledger is lost"):
        Ledger(tmp_path / "ledger.db", BUDGET, create=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "link.db").symlink_to(tmp_path / "nowhere.db")
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "link.db", BUDGET)


@pytest.mark.parametrize("end", ["-journal", "-wal"])
def test_what_is_left_of_a_lost_file_is_no_place_for_a_new_one(tmp_path: Path, end: str) -> None:
    """SQLite would play it back into the new file."""
    left = tmp_path / f"ledger.db{end}"
    left.write_bytes(b"x")
    with pytest.raises(LedgerError, match=f"the ledger is lost, and ledger.db{end} is left of it"):
        Ledger(tmp_path / "ledger.db", BUDGET)
    assert list(tmp_path.iterdir()) == [left]


def test_a_name_with_special_characters_works(tmp_path: Path) -> None:
    path = tmp_path / "ε? 100% #1.db"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(round_of(0))
    assert len(Ledger.read(str(path))) == 1


def test_a_closed_ledger_says_so(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", BUDGET)
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.record(round_of(0))


def test_rows_hold_canonical_json(copy: Path) -> None:
    connection = sqlite3.connect(copy)
    bodies = [body for (body,) in connection.execute("SELECT body FROM events ORDER BY seq")]
    connection.close()
    assert [from_json(body) for body in bodies] == [round_of(number) for number in range(EVENTS)]
    assert [from_json(body).to_json() for body in bodies] == bodies
