"""The statement in a run's folder: written, and recomputed from the ledger beside it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

from accounting import Ledger
from accounting.statement import AllRuns, Statement, state
from dpfedvis.numerics.files import write_text
from dpfedvis.runs.account import ledgers_of_run, worst
from dpfedvis.runs.folder import CONFIG
from dpfedvis.runs.provenance import read_provenance
from dpfedvis.runs.upload_writer import LEDGER, RecordingError
from dpfedvis.site.ledger import SiteLedger

WORDS, NUMBERS = "statement.md", "statement.json"


def write_statement(folder: Path, statement: Statement) -> None:
    """Write it in words and as JSON."""
    write_text(folder / WORDS, str(statement))
    write_text(folder / NUMBERS, statement.to_json() + "\n")


def current_statement(folder: Path) -> Statement:
    """Return the statement of a finished run with all runs on its records as their ledger has them now.

    Where that is not in the state folder, all runs are those that were known when the run ended.
    """
    found = statement_of(folder)
    run = None if found.all_runs is None else read_provenance(folder).get("run")
    totals = []
    for path in [] if run is None else ledgers_of_run(run):
        with SiteLedger.read(path) as own:
            totals.append(own.all_runs(found.delta))
    known = found.all_runs
    if not totals or known is None:
        return found
    now = worst(totals)
    # Where ε is less than it was when the run ended, a ledger of its records is not here.
    return replace(found, all_runs=worst([replace(now, current=now.epsilon >= known.epsilon), known]))


def statement_of(folder: Path) -> Statement:
    """Recompute the statement of a finished run: numbers from its ledger, the rest from the old statement."""
    path = folder / NUMBERS
    _refuse_unfinished(folder)
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        delta, facts, remarks = before["delta"], before["facts"], before["remarks"]
        simulation, one_machine = bool(before["simulation"]), bool(before["one_machine"])
        all_runs = None if before["all_runs"] is None else AllRuns.from_dict(before["all_runs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordingError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    whole = isinstance(facts, dict) and isinstance(remarks, list) and all(isinstance(each, str) for each in remarks)
    if not (whole and isinstance(delta, float) and 0 < delta < 1):
        raise RecordingError(f"{path} is damaged: parts of the statement are missing")
    with Ledger.read(folder / LEDGER) as ledger:
        found = state(ledger, delta=delta, facts=facts, remarks=remarks, simulation=simulation, one_machine=one_machine)
    return replace(found, all_runs=all_runs)


def _refuse_unfinished(folder: Path) -> None:
    if folder.is_file():
        raise RecordingError(f"{folder} is a file; give the folder of a run, or a ledger by --ledger")
    if not (folder / NUMBERS).exists():
        again = f"dpfedvis run --out {shlex.quote(str(folder))} --resume"
        left = f"is not finished; resume it: {again}" if (folder / CONFIG).exists() else "holds no run"
        raise RecordingError(f"{folder} {left}")
