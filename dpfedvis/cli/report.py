"""`dpfedvis report`: rewrite the report of a run from its folder."""

from __future__ import annotations

import argparse
from typing import Any

from dpfedvis.cli.common import add_command, print_result
from dpfedvis.numerics.progress import bar

_EXAMPLE = """\
example:
  dpfedvis run --data digits --records 600 --clients 5 --epsilon 4 --no-yardsticks --out runs/fourth
  dpfedvis report --run runs/fourth

dpfedvis run writes report.html; this command rewrites it, with figures/, from the folder alone. Scores and labels of
records are shown for simulations that have them only (see dpfedvis run --help).
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = add_command(
        subparsers,
        "report",
        run,
        help="rewrite the report of a run",
        description="Rewrite report.html and figures/ of a finished run from its folder alone.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("--run", required=True, metavar="FOLDER", dest="folder", help="folder of a finished run")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from dpfedvis.reporting.run_report import write_report
    from dpfedvis.runs.folder import writing

    with writing(arguments.folder), bar(1, "page", "report"):
        path = write_report(arguments.folder)
    print_result(arguments, {"report": str(path)}, f"wrote {path}")
    return 0
