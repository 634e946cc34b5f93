"""A disk that is full while events are recorded: one sentence, nothing lost, and the same ledger goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from accounting import GaussianRelease, Ledger, LedgerError
from tests.accounting.ledger_events import BUDGET, round_of

SENTENCE = (
    "no space left on the disk of .*: nothing was recorded or released; free some space, then run again or resume$"
)
LONG = GaussianRelease(what="x" * 60_000, client="a", sensitivity=0.01, sigma=1.0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("a small file system needs the right to mount one")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> Path:
    """Take all space that is left."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast


def test_a_full_disk_is_one_sentence_and_nothing_is_lost_or_doubled(small_disk: Path) -> None:
    path = small_disk / "ledger.db"
    with Ledger(path, BUDGET) as ledger:
        ledger.record(round_of(0))
        ballast = fill(small_disk)
        for _ in range(3):
            with pytest.raises(LedgerError, match=SENTENCE):
                ledger.record(round_of(1))
            assert ledger.verify() == len(ledger) == 1
        with Ledger.read(path) as reader:  # which a full disk does not hinder
            assert [event.round for event in reader.events()] == [0]
        ballast.unlink()
        ledger.record(round_of(1))
    with Ledger(path, BUDGET) as ledger:
        assert [event.round for event in ledger.events()] == [0, 1]
        assert ledger.verify() == 2


def test_a_disk_that_fills_up_within_a_write(small_disk: Path) -> None:
    """The journal still fits, the new pages do not."""
    with Ledger(small_disk / "ledger.db", BUDGET) as ledger:
        ledger.record(LONG)
        with pytest.raises(LedgerError, match=SENTENCE):
            ledger.record(LONG, LONG, LONG, LONG)
        assert ledger.verify() == 1
        assert ledger.record(round_of(0))[0].sequence == 2  # what is small still fits
    assert [entry.name for entry in small_disk.iterdir()] == ["ledger.db"]


def test_a_ledger_that_has_no_room_is_not_made(small_disk: Path) -> None:
    fill(small_disk)
    with pytest.raises(LedgerError, match=SENTENCE):
        Ledger(small_disk / "ledger.db", BUDGET)
    assert [entry.name for entry in small_disk.iterdir()] == ["ballast"]


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """Like a quota: an error that is not that of a full disk, and that anyone can make."""
    code = (
        "import resource, sys\n"
        "from accounting import Ledger, LedgerError\n"
        "from tests.accounting.test_full_disk import BUDGET, LONG, round_of\n"
        "with Ledger(sys.argv[1], BUDGET) as ledger:\n"
        "    ledger.record(round_of(0))\n"
        "    limits = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (80_000, limits[1]))\n"
        "    try:\n"
        "        ledger.record(LONG)\n"
        "    except LedgerError as error:\n"
        "        print(error)\n"
        "    assert ledger.verify() == 1\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, limits)\n"
        "    ledger.record(LONG)\n"
    )
    path = tmp_path / "ledger.db"
    said = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"{path} cannot be written (disk I/O error): nothing was released")
    assert said.count("\n") == 1
    with Ledger.read(path) as ledger:
        assert ledger.verify() == 2
