"""`dpfedvis statement`: the privacy statement of a run, or of a ledger."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accounting.errors import InvalidParameter
from dpfedvis.cli.common import add_command, path, print_result

if TYPE_CHECKING:
    from accounting.statement import Statement

_EXAMPLE = """\
examples:
  dpfedvis run --data digits --clients 5 --epsilon 4 --out runs/stated
  dpfedvis statement runs/stated
  dpfedvis statement --ledger runs/stated/ledger.sqlite --json

Every number is computed anew from the ledger. That of a run is ledger.sqlite in its folder. That of some records, for
all runs with real noise on them, is in $XDG_STATE_HOME/dpfedvis/ledgers (else ~/.local/state/dpfedvis/ledgers), or
where --ledger of dpfedvis run put it: there each run counts by its client that spent most, and all runs are composed.
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = add_command(
        subparsers,
        "statement",
        run,
        help="say what a run, or all runs on some records, cost",
        description="Print the privacy statement of a finished run, or of a ledger.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("folder", nargs="?", type=path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("--ledger", type=path, metavar="FILE", help="a ledger, of a run or of some records")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if (arguments.folder is None) == (arguments.ledger is None):
        raise InvalidParameter("RUN or --ledger", arguments.folder, "given, one of the two")
    found = of_run(arguments.folder) if arguments.ledger is None else of_ledger(arguments.ledger)
    print_result(arguments, found.to_dict(), str(found).rstrip("\n"))
    return 0


def of_run(folder: Path) -> Statement:
    """Return the statement of a finished run."""
    from dpfedvis.runs.statement_file import statement_of

    return statement_of(folder)


def of_ledger(file: Path) -> Statement:
    """Return the statement of a ledger: of a run, or of all runs on some records."""
    from accounting import Ledger
    from accounting.statement import state
    from dpfedvis.runs.lifetime import is_lifetime, read

    with Ledger.read(file) as ledger:
        if not is_lifetime(file):
            return state(ledger)
    with read(file) as lifetime:
        return lifetime.statement()
