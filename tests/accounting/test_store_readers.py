"""The file of the ledger beside its writers: readers, logs and journals, folding, folders that may not be written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accounting import Ledger, LedgerError
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


def test_a_reader_sees_what_is_still_in_the_log(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db", BUDGET) as ledger:
        ledger.record(round_of(0), round_of(1))
        assert (tmp_path / "ledger.db-wal").stat().st_size > 0
        with Ledger.read(tmp_path / "ledger.db") as reader:
            assert len(reader) == 2


def test_a_folded_ledger_is_one_file_that_readers_leave_alone_and_writers_go_on_with(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(round_of(0), round_of(1))
        ledger.fold()
        assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.db"]
    with Ledger.read(path) as reader:
        assert reader.verify() == 2
        with pytest.raises(LedgerError, match="reading only"):
            reader.fold()
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.db"]
    with Ledger(path) as ledger:
        ledger.record(round_of(2))
        assert (tmp_path / "ledger.db-wal").exists()  # it has its log again
        assert ledger.verify() == 3


def test_a_write_that_was_cut_off_after_folding_is_named_and_rolled_back_by_the_next_writer(tmp_path: Path) -> None:
    """Without the log a killed writer leaves a journal, which a mere reader cannot play back."""
    path, torn = tmp_path / "ledger.db", tmp_path / "torn" / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(*(round_of(number) for number in range(30)))
        ledger.fold()
    torn.parent.mkdir()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")  # so that changed pages reach the file before the commit
    connection.execute("BEGIN IMMEDIATE")
    for number in range(31, 60):
        values = (number, "", "client", 1, "landmarks", "what", "gaussian", "x" * 500, "h")
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    for suffix in ("", "-journal"):  # as a kill at this moment would leave them
        shutil.copy(f"{path}{suffix}", f"{torn}{suffix}")
    connection.execute("ROLLBACK")
    connection.close()
    with pytest.raises(LedgerError, match=r"ledger\.db-journal") as refused:
        Ledger.read(torn)
    assert type(refused.value) is LedgerError  # and not a corrupted one
    with Ledger(torn) as ledger:
        assert ledger.verify() == 30
    with Ledger.read(torn) as reader:
        assert len(reader) == 30


def test_a_ledger_that_others_have_open_is_not_folded_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path, BUDGET) as ledger, Ledger.read(path) as reader:
        ledger.record(round_of(0))
        ledger.fold()
        ledger.record(round_of(1))
        assert ledger.verify() == reader.verify() == 2


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


def test_a_log_that_cannot_be_read_is_not_passed_over(original: Path, tmp_path: Path, locked: Path) -> None:
    # The newest events of a killed writer are in the log alone.
    superuser = os.geteuid() != os.getuid()
    if superuser:
        os.seteuid(0)
    try:
        with Ledger(tmp_path / "ledger.db", BUDGET) as ledger:
            ledger.record(round_of(0))
            locked.parent.chmod(0o755)
            for suffix in ("", "-wal"):
                target = shutil.copy(tmp_path / f"ledger.db{suffix}", f"{locked}{suffix}")
                Path(target).chmod(0o644)
            locked.parent.chmod(0o555)
    finally:
        if superuser:
            os.seteuid(65534)
    try:
        with Ledger.read(locked) as reader:
            assert len(reader) == 1
    except LedgerError as error:
        assert "-wal" in str(error)  # noqa: PT017  # some systems can read it
