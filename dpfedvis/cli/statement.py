"""`dpfedvis statement`: the privacy statement of a run, or of a ledger."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accounting import checks
from dpfedvis.cli.common import UnusableArgument, add_command, path, print_result
from dpfedvis.numerics.progress import bar

if TYPE_CHECKING:
    from accounting.statement import Statement

_EXAMPLE = """\
examples:
  dpfedvis run --data digits --clients 5 --epsilon 4 --out runs/stated
  dpfedvis statement runs/stated
  dpfedvis statement --ledger runs/stated/ledger.sqlite --json
  dpfedvis statement runs/stated --registry runs/stated.yaml --nist runs/stated-nist.html

Every number of a run is computed anew from its ledger, ledger.sqlite in its folder. The ledger of some records, for
all runs with real noise on them, is in $XDG_STATE_HOME/dpfedvis/ledgers (else ~/.local/state/dpfedvis/ledgers), or
where --ledger of dpfedvis run put it: there each run counts by its client that spent most, and all runs are composed.
If it is in the state folder, the statement of a run has all runs as they are now; otherwise, or on another machine,
as they were when the run ended, and says so.
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
    parser.add_argument("--registry", type=path, metavar="FILE.yaml", dest="out", help="also write a draft for "
                        "OpenDP's registry of deployments; what only you know is marked in it")  # fmt: skip
    parser.add_argument("--nist", type=path, metavar="FILE", help="also write answers to the questions of NIST SP "
                        "800-226, as .html or .md; of a simulation with utility by class and site")  # fmt: skip
    parser.add_argument("--ledger", type=path, metavar="FILE", help="a ledger, of a run or of some records")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if (arguments.folder is None) == (arguments.ledger is None):
        given = "neither" if arguments.folder is None else f"both {arguments.folder} and {arguments.ledger}"
        raise UnusableArgument(f"give the folder of a run or --ledger FILE, one of the two; {given} was given")
    with bar(1, "ledger", "statement"):
        found = of_run(arguments.folder) if arguments.ledger is None else of_ledger(arguments.ledger)
    if arguments.out is not None:
        from accounting.registry import registry

        _write(arguments.out, registry(found))
    if arguments.nist is not None:
        from dpfedvis.reporting.risk_figures import nist_page

        html = checks.one_of("ending of --nist", arguments.nist.suffix, (".html", ".md")) == ".html"
        told = json.loads(found.to_json())
        _write(arguments.nist, nist_page(told, arguments.folder, html=html))
    print_result(arguments, found.to_dict(), str(found).rstrip("\n"))
    return 0


def _write(file: Path, text: str) -> None:
    from dpfedvis.numerics.files import write_text
    from dpfedvis.runs.folder import writing

    with writing(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)


def of_run(folder: Path) -> Statement:
    """Return the statement of a finished run."""
    from dpfedvis.runs.statement_file import current_statement

    return current_statement(folder)


def of_ledger(file: Path) -> Statement:
    """Return the statement of a ledger: of a run, or of all runs on some records."""
    from accounting import Ledger
    from accounting.statement import state
    from dpfedvis.site.ledger import SiteLedger
    from dpfedvis.site.ledger_file import is_lifetime

    with Ledger.read(file) as ledger:
        if not is_lifetime(file):
            return state(ledger)
    with SiteLedger.read(file) as own:
        return own.statement()
