"""The file of the ledger beside its writers: readers, journals, locks, folders that may not be written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accounting import Ledger, LedgerCorrupted, LedgerError, sqlite_file
from tests.accounting.ledger_events import BUDGET, EVENTS, round_of


def test_read_only_cannot_write(copy: Path) -> None:
    with Ledger.read(copy) as ledger:
        with pytest.raises(LedgerError, match="reading only"):
            ledger.record(round_of(0))
        assert ledger.verify() == EVENTS
        assert ledger.spent() > 0
        assert ledger.budget == BUDGET


def test_readers_and_openers_find_a_whole_chain_while_another_writes(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).close()
    stop, turns = threading.Event(), [0]

    def write() -> None:
        with Ledger(path) as ledger:
            while not stop.is_set():
                ledger.record(round_of(turns[0]))
                turns[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [0]
        while seen[-1] < 150 and writer.is_alive():
            open_it: Callable[[Path], Ledger] = Ledger.read if len(seen) % 2 else Ledger
            with open_it(path) as reader:
                seen += [len(reader), reader.verify(), len(list(reader.events()))]
    finally:
        stop.set()
        writer.join()
    assert seen == sorted(seen)
    with Ledger.read(path) as reader:
        assert len(reader) == turns[0] >= 150


def test_a_ledger_is_one_file_after_every_write(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, BUDGET) as ledger, Ledger.read(path) as reader:
        for number in range(3):
            ledger.record(round_of(number))
            assert reader.verify() == number + 1
            assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.db"]


def test_a_ledger_with_a_log_is_refused_and_left_alone(copy: Path) -> None:
    """As format 1 had one: the file alone does not say whether events are missing."""
    connection = sqlite3.connect(copy)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    before = copy.read_bytes()
    for open_it in (Ledger, Ledger.read):
        with pytest.raises(LedgerError, match="WAL mode, as ledgers of format 1 are"):
            open_it(copy)
    assert copy.read_bytes() == before
    assert [entry.name for entry in copy.parent.iterdir()] == ["ledger.db"]


def torn(source: Path, target: Path) -> Path:
    """Leave at `target` what a kill in the middle of a write leaves of a ledger: a file and its journal."""
    connection = sqlite3.connect(source, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")  # so that changed pages reach the file before the commit
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE ledger SET count = count + 60")
    for number in range(1001, 1100):
        values = (number, "", "client", 1, "landmarks", "what", "gaussian", "x" * 500, "h")
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    for suffix in ("", "-journal"):
        shutil.copy(f"{source}{suffix}", f"{target}{suffix}")
        Path(f"{target}{suffix}").chmod(0o644)
    connection.execute("ROLLBACK")
    connection.close()
    return target


def test_a_write_that_was_cut_off_is_named_and_undone_by_the_next_writer(copy: Path) -> None:
    path = torn(copy, copy.with_name("torn.db"))
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"torn\.db-journal.*open the ledger once for writing") as refused:
        Ledger.read(path)
    assert type(refused.value) is LedgerError  # and not a corrupted one
    assert path.read_bytes() == before
    with Ledger(path) as ledger:
        assert ledger.verify() == EVENTS
    with Ledger.read(path) as reader:
        assert len(reader) == EVENTS


def test_a_write_that_was_cut_off_is_found_without_its_journal(copy: Path) -> None:
    path = torn(copy, copy.with_name("torn.db"))
    path.with_name("torn.db-journal").unlink()
    for open_it in (Ledger, Ledger.read):
        with pytest.raises(LedgerCorrupted):
            open_it(path)


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_writer_is_waited_for_and_named(copy: Path, monkeypatch: pytest.MonkeyPatch, lock: str) -> None:
    monkeypatch.setattr(sqlite_file, "WAIT", 0.3)
    sentence = f"^another process is writing to {copy}; waited 0.3 s$"
    with Ledger(copy) as ledger, Ledger.read(copy) as reader:
        other = sqlite3.connect(copy, isolation_level=None)
        other.execute(f"BEGIN {lock}")
        start = time.monotonic()
        with pytest.raises(LedgerError, match=sentence):
            ledger.record(round_of(EVENTS))
        assert time.monotonic() - start >= 0.3
        if lock == "EXCLUSIVE":  # a writer that has not begun to change the file keeps nobody from reading it
            for read in (lambda: Ledger.read(copy), lambda: Ledger(copy), reader.verify, reader.spent):
                with pytest.raises(LedgerError, match=sentence):
                    read()
        else:
            assert reader.verify() == EVENTS
        other.close()
        ledger.record(round_of(EVENTS))
        assert reader.verify() == EVENTS + 1


def test_a_writer_that_ends_in_time_is_no_error(copy: Path) -> None:
    other = sqlite3.connect(copy, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    end = threading.Timer(0.3, other.close)
    end.start()
    with Ledger.read(copy) as reader:
        assert len(reader) == EVENTS
    end.join()


def test_a_reader_that_does_not_end_is_named_and_nothing_is_recorded(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "WAIT", 0.1)
    with Ledger(copy) as ledger:
        other = sqlite3.connect(copy, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT * FROM events").fetchone()
        with pytest.raises(LedgerError, match=f"^another process is reading {copy}; waited 0.1 s$"):
            ledger.record(round_of(EVENTS))
        assert len(ledger) == EVENTS
        other.close()
        ledger.record(round_of(EVENTS))
        assert ledger.verify() == EVENTS + 1


def test_events_half_read_keep_nobody_from_writing(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "WAIT", 0.1)
    with Ledger.read(copy) as reader, Ledger(copy) as ledger:
        events = reader.events()
        assert next(events).round == 0
        ledger.record(round_of(EVENTS))
        assert len(list(events)) == EVENTS - 1
        assert len(reader) == EVENTS + 1


@pytest.fixture
def locked(original: Path) -> Iterator[Path]:
    """A ledger in a folder where this process may not write; a superuser becomes nobody for the while."""
    superuser = os.geteuid() == 0
    # Outside of pytest's own folders, which are closed to nobody.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = Path(shutil.copy(original, folder / "ledger.db"))
        path.chmod(0o644)
        folder.chmod(0o555)
        if superuser:
            try:
                os.seteuid(65534)
            except OSError:
                pytest.skip("the superuser may write everywhere, and cannot become nobody here")
        try:
            if os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
                pytest.skip("this file system does not keep anyone from writing")
            yield path
        finally:
            if superuser:
                os.seteuid(0)
            folder.chmod(stat.S_IRWXU)


def test_a_ledger_in_a_read_only_folder_can_be_read_and_not_written(locked: Path) -> None:
    with Ledger.read(locked) as ledger:
        assert ledger.verify() == len(list(ledger.events())) == EVENTS
        with pytest.raises(LedgerError):
            ledger.record(round_of(0))
    with pytest.raises(LedgerError):
        Ledger(locked).record(round_of(0))
    with pytest.raises(LedgerError, match="cannot be opened for writing"):
        Ledger(locked.with_name("new.db"), BUDGET)
    assert [entry.name for entry in locked.parent.iterdir()] == ["ledger.db"]


def test_a_journal_in_a_read_only_folder_is_not_passed_over(copy: Path, locked: Path) -> None:
    superuser = os.geteuid() != os.getuid()
    if superuser:
        os.seteuid(0)
    try:
        locked.parent.chmod(0o755)
        torn(copy, locked)
        locked.parent.chmod(0o555)
    finally:
        if superuser:
            os.seteuid(65534)
    with pytest.raises(LedgerError, match=r"ledger\.db-journal"):
        Ledger.read(locked)
