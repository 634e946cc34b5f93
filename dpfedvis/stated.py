"""The statement in the folder of a run: written, and made again from the ledger beside it."""

from __future__ import annotations

import json
from pathlib import Path

from accounting import Ledger
from dpfedvis.recorder import LEDGER, RecordingError, write_text
from dpfedvis.reporting.statement import Statement, state

WORDS, NUMBERS = "statement.md", "statement.json"


def write_statement(folder: Path, statement: Statement) -> None:
    """Write it in words and as JSON."""
    write_text(folder / WORDS, str(statement))
    write_text(folder / NUMBERS, statement.to_json() + "\n")


def statement_of(folder: Path) -> Statement:
    """Make the statement of a finished run again: numbers from its ledger, the rest from what it said before."""
    try:
        before = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
        told = {"delta": float(before["delta"]), "facts": before["facts"], "remarks": tuple(before["remarks"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordingError(f"{folder / NUMBERS} cannot be read ({type(error).__name__}: {error})") from error
    with Ledger.read(folder / LEDGER) as ledger:
        return state(ledger, **told)
